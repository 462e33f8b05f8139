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
    CodeEntry(
        code="GPU4007",
        title="an invalid CEL expression",
        message="this is no rule in CEL: {problem}",
        why="An expression is checked before it is evaluated: its types, the fields it reads, and what it may cost. It "
        "can call operators, has, size, contains, startsWith, endsWith, matches, conversions, and the macros all, "
        "exists, exists_one, map and filter.",
        fix="correct the expression at the marked place; docs/policies.md lists what it can read",
    ),
    CodeEntry(
        code="GPU4008",
        title="a CEL expression that fails",
        message='policy "{policy}" can\'t be evaluated here: {problem}',
        why="The expression reads something that this declaration does not have, or computes with values of different "
        "types. A rule that can't be evaluated is as good as broken.",
        fix="in the policy, test with has(object.spec.field), or write object.spec.?field.orValue(...)",
    ),
    CodeEntry(
        code="GPU4009",
        title="a field to be marked, without CEL",
        message="the field to be marked is for policies in CEL",
        why="A JSON Schema says itself which field of a declaration breaks it.",
        fix="remove the line",
    ),
    CodeEntry(
        code="GPU4010",
        title="an example that a policy judges otherwise",
        message='the example is called {verdict}, and {what}: policy "{policy}"',
        why="A policy is tested by examples beside it: those that are called good keep it, those that are called bad "
        "break it.",
        fix="correct the policy or the example, or rename the example",
    ),
    CodeEntry(
        code="GPU4011",
        title="an example without a verdict",
        message='the name of an example of policy "{policy}" begins with good- or bad-',
        why="The name says what the policy is expected to say of it.",
        fix="rename the file: good-1.yaml, bad-too-many.yaml; what was before a change is in good-1.before.yaml",
    ),
    CodeEntry(
        code="GPU4012",
        title="a policy without examples",
        message="there is no {what} example in {folder}",
        why="A rule that was never seen to allow anything, or never to refuse anything, may do neither.",
        fix="write a small declaration that keeps the policy, as good-1.yaml, and one that breaks it, as bad-1.yaml",
    ),
)
