"""GPU4xxx: policies, the rules a repository makes for its own declarations."""

from __future__ import annotations

from gpuctl.diag.catalogue import CodeEntry

ENTRIES: tuple[CodeEntry, ...] = (
    CodeEntry(
        code="GPU4001",
        title="a policy is broken",
        message='{message} (policy "{policy}")',
        why="A Policy declaration of this repository forbids it; the message is its author's.",
        fix="change the marked value, or ask the policy's owners for an exception",
    ),
    CodeEntry(
        code="GPU4002",
        title="a policy whose schema is none",
        message="this is not a JSON Schema: {problem}",
        why="A rule that cannot be evaluated protects nothing.",
        fix="write a JSON Schema of draft 2020-12; references to other files or addresses are not followed",
    ),
    CodeEntry(
        code="GPU4003",
        title="a policy in CEL",
        message="policies in CEL are not supported yet",
        why="The field is part of the format; this version evaluates JSON Schema only.",
        fix="write the rule as a JSON Schema in the field schema",
    ),
)
