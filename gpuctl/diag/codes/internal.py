"""GPU9xxx: internal."""

from __future__ import annotations

from gpuctl.diag.catalogue import CodeEntry

ENTRIES: tuple[CodeEntry, ...] = (
    CodeEntry(
        code="GPU9001",
        title="internal error",
        message="internal error: {what}",
        why="gpuctl met a state its own rules exclude. Your files are not the cause, whatever they hold.",
        fix="Report it with the whole line, the command line and the output of `gpuctl version -o json`.",
    ),
    CodeEntry(
        code="GPU9002",
        title="wrong use of a command",
        message="{what}",
        why="The command line has an option, an argument or a combination that the command does not know.",
        fix="`gpuctl COMMAND --help` lists what it knows, with an example.",
    ),
)
