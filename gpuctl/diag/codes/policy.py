"""GPU4xxx: policies, the rules a repository makes for its own declarations."""

from __future__ import annotations

from gpuctl.diag.catalogue import CodeEntry

ENTRIES: tuple[CodeEntry, ...] = (
    CodeEntry(
        code="GPU4001",
        title="a policy is broken",
        message='{message} ({why}; policy "{policy}")',
        why="A Policy of this repository forbids it. The message is the policy's own; after it stands what in the "
        "declaration breaks the rule.",
        fix="change the marked value, or ask the policy's owners for an exception",
    ),
    CodeEntry(
        code="GPU4002",
        title="a policy with an invalid schema",
        message="this is not a JSON Schema: {problem}",
        why="A rule that cannot be evaluated protects nothing.",
        fix="write a JSON Schema of draft 2020-12; references may only point into it, not to files or URLs",
    ),
    CodeEntry(
        code="GPU4003",
        title="a policy in CEL",
        message="policies in CEL are not supported yet",
        why="The field is part of the format; this version evaluates JSON Schema only.",
        fix="write the rule as a JSON Schema in the field schema",
    ),
    CodeEntry(
        code="GPU4004",
        title="a pattern that can't be matched in linear time",
        message="this is not a pattern of RE2: {problem}",
        why="Patterns are matched by RE2, whose time is linear in the length of the text. It has no look-around and no "
        "back references; \\d, \\w and \\b mean ASCII.",
        fix="write the pattern in RE2's syntax: github.com/google/re2/wiki/Syntax",
    ),
    CodeEntry(
        code="GPU4005",
        title="a policy that takes too long",
        message='policy "{policy}" takes more than {limit} steps on {what}',
        why="Policies are evaluated in counted steps, about one for each keyword and value. So no schema can block the "
        "reconciler, and the outcome is the same on every machine. References to references, nested anyOf, and lists "
        "of thousands of values take many steps.",
        fix="make the policy simpler, or the declaration smaller",
    ),
    CodeEntry(
        code="GPU4006",
        title="a project's policy for other projects",
        message='a policy in the folder of project "{folder}" applies to that project alone, not to {what}',
        why="Files below projects/<project>/ are reviewed by that project. A policy for other projects, or for the "
        "cluster, belongs in a folder that all of them review.",
        fix="remove the line, or move the policy to policies/",
    ),
)
