from __future__ import annotations

import json
import unicodedata

import pytest
import yaml
from hostile import BLANKS, invisible
from hypothesis import given
from hypothesis import strategies as st

from gpuctl.diag.diagnostic import Diagnostic, Severity
from gpuctl.diag.escapes import markdown_text
from gpuctl.diag.forms.github import workflow_commands
from gpuctl.diag.span import SourceSpan
from gpuctl.diag.text import json_form, text_form
from gpuctl.views.yamltext import yaml_document


def one(line: str, column: int, end: int, **fields: str) -> Diagnostic:
    span = SourceSpan(file=fields.get("file", "jobs.yaml"), line=14, column=column, end_column=end)
    return Diagnostic(
        code="GPU3004",
        message=fields.get("message", 'project "visoin" is not declared'),
        span=span,
        help=fields.get("help", 'did you mean "vision" (projects.yaml:7:9)?'),
        source_line=line,
        related=(("first declared here", SourceSpan(file="projects.yaml", line=7, column=9)),)
        if "note" in fields
        else (),
    )


def test_the_text_form() -> None:
    assert text_form([one("    project: visoin", 14, 20, note="")]) == (
        'jobs.yaml:14:14: error GPU3004: project "visoin" is not declared\n'
        "  14 |     project: visoin\n"
        "     |              ^^^^^^\n"
        "  note: first declared here (projects.yaml:7:9)\n"
        'help: did you mean "vision" (projects.yaml:7:9)?   more: gpuctl explain GPU3004\n'
    )


def caret(line: str, column: int, end: int) -> tuple[str, str]:
    shown, marks = text_form([one(line, column, end)]).split("\n")[1:3]
    return shown.partition("| ")[2], marks.partition("| ")[2]


def test_the_caret_under_tabs_wide_and_combining_characters() -> None:
    assert caret("\tproject: x", 11, 12) == ("    project: x", "             ^")
    assert caret("漢字: x", 5, 6) == ("漢字: x", "      ^")
    assert caret("é: 漢", 4, 5) == ("é: 漢", "   ^^")
    combining = unicodedata.normalize("NFD", "é: x")
    assert caret(combining, 5, 6) == (combining, "   ^")


def test_control_characters_do_not_reach_the_terminal() -> None:
    text = text_form([one("a: \x1b[31mred\x07", 4, 5, message="\x1b]0;x", file="\x1b.yaml", help="\x9b")])
    assert text.replace("\n", "").isprintable()


@pytest.mark.parametrize("blank", BLANKS)
def test_what_is_printable_to_python_and_blank_to_people_is_shown(blank: str) -> None:
    """Else a value of a change, or a name, reads like another one."""
    found = one(f"image: a{blank}", 8, 9, message=f"a{blank}", file=f"a{blank}.yaml")
    for text in (text_form([found]), workflow_commands([found]), json_form([found]), yaml_document({"a": f"a{blank}"})):
        assert blank not in text
        assert "a\\u" in text.lower()
    assert json.loads(json_form([found]))["diagnostics"][0]["message"] == f"a{blank}"
    assert yaml.safe_load(yaml_document({"a": f"a{blank}"})) == {"a": f"a{blank}"}
    assert markdown_text(blank) == markdown_text(ascii(blank)[1:-1])


@pytest.mark.parametrize("column", range(1, 20))
@pytest.mark.parametrize(
    "line",
    [
        "##[error]x",
        "a: x##[add-mask]y",
        "[##[x]",
        "    - '##[set-output name=a]b'",
        "a ##vso[task.setvariable variable=PATH]b",
        "##teamcity[buildStop]",
    ],
)
def test_no_line_is_a_command_to_a_runner(line: str, column: int) -> None:
    file = "::error::##[x].yaml"
    text = text_form([one(line, column, column + 3, message="##vso[x]", file=file, note="", help="##[x]")])
    assert not invisible(text)
    assert text.startswith("\\x3a:error::#\\x23[x].yaml:14:")
    assert "#\\x23" in text.split("\n")[1]


def test_a_long_line_is_cut_around_the_place() -> None:
    shown, marks = caret("x" * 500 + "HERE" + "y" * 500, 501, 505)
    assert len(shown) <= 120
    assert shown[marks.index("^") : marks.rindex("^") + 1] == "HERE"


def test_a_place_beyond_the_line_and_a_line_that_is_not_known() -> None:
    assert caret("ab", 9, 12)[1] == "  ^"
    assert text_form([one("", 1, 1)]).count("\n") == 2


def test_the_json_form_has_the_public_fields() -> None:
    document = json.loads(json_form([one("    project: visoin", 14, 20)]))
    assert document == {
        "diagnostics": [
            {
                "code": "GPU3004", "severity": "error", "message": 'project "visoin" is not declared',
                "file": "jobs.yaml", "line": 14, "column": 14, "endColumn": 20,
                "help": 'did you mean "vision" (projects.yaml:7:9)?', "related": [],
            }
        ]
    }  # fmt: skip
    assert json.loads(json_form([])) == {"diagnostics": []}


def test_annotations_are_escaped() -> None:
    found = one("x", 1, 2, message="50% of a,b: c", file="a,b:c.yaml", help="line\nbreak")
    assert workflow_commands([found]) == (
        "::error file=a%2Cb%3Ac.yaml,line=14,col=1,endColumn=2,title=GPU3004::50%25 of a,b: c%0Aline\\nbreak\n"
    )
    warning = Diagnostic(code="GPU3025", message="m", span=found.span, severity=Severity.WARNING)
    assert workflow_commands([warning]).startswith("::warning ")


@given(st.text(max_size=40), st.integers(1, 60), st.integers(1, 60), st.text(max_size=10))
def test_no_text_breaks_a_form(line: str, column: int, end: int, message: str) -> None:
    found = one(line, column, end, message=message)
    assert json.loads(json_form([found]))["diagnostics"][0]["message"] == message
    assert workflow_commands([found]).count("\n") == 1
    assert all(part.isprintable() for part in text_form([found]).split("\n"))
