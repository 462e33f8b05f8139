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
        fix="write a JSON Schema of draft 2020-12; references lead to schemas in it, none to files or addresses",
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
        message="this pattern is not one of RE2: {problem}",
        why="A pattern holds for texts that others write, so it is matched by RE2, which takes no longer for one text "
        "than for another. It has no look-around and no back references; \\d, \\w and \\b mean ASCII.",
        fix="write the pattern in RE2's syntax: github.com/google/re2/wiki/Syntax",
    ),
    CodeEntry(
        code="GPU4005",
        title="a policy that takes too long",
        message='policy "{policy}" takes more than {limit} steps on {what}',
        why="Policies are evaluated in counted steps, about one for each keyword and value that is looked at: no "
        "schema can hold up the reconciler, and the outcome is the same on every machine. References that double each "
        "other, anyOf in anyOf, and lists of thousands of values are what takes many.",
        fix="make the policy simpler, or the declaration smaller",
    ),
    CodeEntry(
        code="GPU4006",
        title="a project's policy about others",
        message='a policy in the folder of project "{folder}" holds for that project alone, not for {what}',
        why="What is below projects/<project>/ is reviewed by that project. A rule that binds others, or the cluster, "
        "is made where all agree on it.",
        fix="remove the line, or move the policy to policies/",
    ),
)
