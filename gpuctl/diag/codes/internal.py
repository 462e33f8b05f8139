"""GPU9xxx: internal."""

from __future__ import annotations

from gpuctl.diag.catalogue import CodeEntry

ENTRIES: tuple[CodeEntry, ...] = (
    CodeEntry(
        code="GPU9001",
        title="internal error",
        message="internal error: {what}",
        why="gpuctl reached a state that should be impossible. This is a bug in gpuctl, not a mistake in your files.",
        fix="Report it with the whole line, the command line and the output of `gpuctl version -o json`.",
    ),
    CodeEntry(
        code="GPU9002",
        title="wrong use of a command",
        message="{what}",
        why="The command line has an option, an argument or a combination that the command does not know.",
        fix="`gpuctl COMMAND --help` lists what it knows, with an example.",
    ),
    CodeEntry(
        code="GPU9003",
        title="not found",
        message="{what}",
        why="The command names a job, a code or a kind that does not exist, or the name matches more than one.",
        fix="`gpuctl list -A` shows jobs; codes are printed with every message.",
    ),
    CodeEntry(
        code="GPU9004",
        title="a file can't be written",
        message="{file} can't be written: {problem}",
        why="The command can't write files at the given place.",
        fix="Give a folder that you may write to.",
    ),
)
