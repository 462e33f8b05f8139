"""GPU1xxx: reading files as YAML."""

from __future__ import annotations

from gpuctl.diag.catalogue import CodeEntry

ENTRIES: tuple[CodeEntry, ...] = (
    CodeEntry(
        code="GPU1001",
        title="not YAML",
        message="this is not valid YAML: {problem}",
        why="The rest of the document can't be read. Documents after the next --- are still checked.",
        fix="check the marked place and the text before it: indentation, colons, quotes, brackets",
    ),
    CodeEntry(
        code="GPU1002",
        title="a tab as indentation",
        message="YAML can't be indented with a tab",
        why="YAML allows only spaces for indentation, since the width of a tab depends on the editor.",
        fix="replace the tab with spaces",
    ),
    CodeEntry(
        code="GPU1003",
        title="a key twice",
        message='the key "{key}" is in this mapping already, at line {line}',
        why="Of two equal keys one would be ignored silently.",
        fix="keep one of them",
    ),
    CodeEntry(
        code="GPU1004",
        title="a key that is not text",
        message="a key must be text, not {found}",
        why="All fields and names are text; an unquoted 1, true or null as a key is not.",
        fix="put the key in quotes",
    ),
    CodeEntry(
        code="GPU1005",
        title="not UTF-8",
        message="this file is not UTF-8: byte {byte} does not belong here",
        why="Declarations are UTF-8 text, so that every place in them has one meaning.",
        fix="save the file as UTF-8",
    ),
    CodeEntry(
        code="GPU1006",
        title="a control character",
        message="the character {character} is not allowed in YAML; is this a binary file?",
        why="YAML is printable text.",
        fix="remove the character or, if it is no YAML file, give it another extension",
    ),
    CodeEntry(
        code="GPU1007",
        title="too large a file",
        message="this file is larger than {limit:memory} and is not read",
        why="A declaration is short; a file of that size is a mistake or an attack on the compiler's memory.",
        fix="split the file, or give it another extension if it holds no declarations",
    ),
    CodeEntry(
        code="GPU1008",
        title="nested too deeply",
        message="this is nested more than {limit} levels deep",
        why="No declaration needs that; unbounded nesting would exhaust the compiler.",
        fix="remove levels",
    ),
    CodeEntry(
        code="GPU1009",
        title="aliases expand to too much",
        message='the alias "*{name}" makes the document larger than {limit} values',
        why="Aliases of aliases can expand a small file to billions of values.",
        fix="write the values out, or split the document",
    ),
    CodeEntry(
        code="GPU1010",
        title="an alias of what contains it",
        message='the alias "*{name}" is inside the value that it refers to',
        why="Such a value would be infinite.",
        fix="write the value out",
    ),
    CodeEntry(
        code="GPU1011",
        title="an alias of nothing",
        message='the alias "*{name}" has no anchor "&{name}" before it in this document',
        why="An alias repeats a value marked earlier in the same document. A text that begins with * needs quotes.",
        fix="mark a value with the anchor, or put the text in quotes",
    ),
    CodeEntry(
        code="GPU1012",
        title="a tag",
        message='the tag "{tag}" is not supported',
        why="Programs interpret tags differently; only !!str is supported, and it is never needed.",
        fix="remove the tag; put text in quotes",
    ),
    CodeEntry(
        code="GPU1013",
        title="a merge key",
        message='the merge key "<<" is not part of YAML 1.2',
        why="Programs interpret it differently, and it hides where a field is declared.",
        fix="write the fields out",
    ),
    CodeEntry(
        code="GPU1014",
        title="not a finite number",
        message="{text} is not a finite number",
        why="Amounts are exact; NaN and infinity are not amounts.",
        fix="write a number; leave a limit out where there is none",
    ),
    CodeEntry(
        code="GPU1015",
        title="a number out of range",
        message="the number {text} is out of range",
        why="Numbers have at most 25 digits and lie between 10^-18 and 10^18, so that all arithmetic stays exact.",
        fix="write a smaller number, or put it in quotes if it is text",
    ),
    CodeEntry(
        code="GPU1016",
        title="too many documents in a file",
        message="this file has more than {limit} documents; the rest is not read",
        why="This bounds the work that one file can cause.",
        fix="split the file",
    ),
    CodeEntry(
        code="GPU1017",
        title="a symbolic link out of the repository",
        message="this symbolic link leaves the repository and is not followed",
        why="A declaration must be reviewed where it is declared; a link could also read files of the machine.",
        fix="copy the file into the repository, or link to a file inside it",
    ),
    CodeEntry(
        code="GPU1018",
        title="a symbolic link to nothing",
        message="this symbolic link points to nothing",
        why="The declarations in its target are missing.",
        fix="remove the link, or restore its target",
    ),
    CodeEntry(
        code="GPU1019",
        title="a file that cannot be read",
        message="this file cannot be read",
        why="Its declarations are unknown, so they must not be treated as removed.",
        fix="check the file's permissions",
    ),
    CodeEntry(
        code="GPU1020",
        title="too many mistakes in a document",
        message="this document has more than {limit} mistakes; the rest are not listed",
        why="So many mistakes usually have one cause.",
        fix="correct the listed ones first",
    ),
    CodeEntry(
        code="GPU1021",
        title="too many values in a document",
        message="this document has more than {limit} keys and values; the rest is not read",
        why="No declaration needs that many, and they would exhaust the compiler.",
        fix="split it into several declarations",
    ),
    CodeEntry(
        code="GPU1022",
        title="too many mistakes",
        message="there are more than {limit} mistakes in {whose}; the rest are not listed",
        why="So many mistakes usually have one cause, and each is a line in logs and reports.",
        fix="correct the listed ones first",
    ),
    CodeEntry(
        code="GPU1023",
        title="a file name with invisible characters",
        message="the name of this file has invisible characters, and the file is not used",
        why="The name appears in messages, logs and annotations. A control character, or a mark that changes the "
        "direction of text, would make it look like another name there.",
        fix="rename the file",
    ),
    CodeEntry(
        code="GPU1024",
        title="too much in one project's folder",
        message='the folder of project "{project}" is not read: with it the cluster has more than is read of one',
        why="The files of a cluster are bounded together: 200,000 files and folders of any kind, 50,000 declaration "
        "files, and 32 MiB in those; for the reconciler also what it has memory for (install --jobs): so many jobs and "
        "1,000 other documents, 50 values and 2 KiB for each job, 50,000 values and 2 MiB more. Of more than that, "
        "the project with the most in its folder is left out, and stays as it was last good; all others go on.",
        fix="remove from the project's folder what it does not need, and files that are no declarations",
    ),
    CodeEntry(
        code="GPU1025",
        title="marks of a merge conflict",
        message="this line is a mark of a merge conflict: {mark}",
        why="Git writes both versions between such lines where it can't merge them. The rest of the document can't be "
        "read. Documents after the next --- are still checked.",
        fix="keep what is right of both versions, and remove the lines of <<<<<<<, ======= and >>>>>>>",
    ),
    CodeEntry(
        code="GPU1026",
        title="a YAML file's ending in capital letters",
        message='this file is not read: its name ends in "{ending}"',
        why="Only names that end in .yaml or .yml, in small letters, are read, as by kubectl and Flux. What this one "
        "declares is not in force.",
        fix="end its name in .yaml; or in something else, if it declares nothing",
    ),
)
