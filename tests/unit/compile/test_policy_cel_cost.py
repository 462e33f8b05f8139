"""Expressions that would take for ever, or all memory: each ends within its steps, and is told where it is changed."""

from __future__ import annotations

import resource
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trees import CLUSTER, HEAD, job, project, tree_of

from gpuctl.compile import compile_tree
from gpuctl.compile.cel_cost import ITERATIONS, Size, most_steps, patterns_of
from gpuctl.compile.cel_rule import CelRule, cel_rule
from gpuctl.compile.cel_scope import Value
from gpuctl.compile.rule_form import STEPS, TooMuch

COMMAND = "object.spec.command"
LIMIT_SECONDS = 5
"""Each of these takes a few milliseconds; what they would take otherwise is minutes, or does not end."""


def nested(macro: str, depth: int, body: str) -> str:
    for level in range(depth):
        body = f"{COMMAND}.{macro}(x{level}, {body})"
    return body


TEN = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 0]"
ATTACKS = {
    "loops in loops": nested("all", 8, "true"),
    "a list for each entry of a list": nested("map", 4, "x0") + ".size() > 0",
    "lists of lists of literals": f"{TEN}.map(a, {TEN}.map(b, {TEN}.map(c, {TEN}.map(d, {TEN}.map(e, {TEN}))))) != []",
    "a text joined again and again": "&&".join(["+".join([f"{COMMAND}[0]"] * 20) + " != 'a'"] * 9),
    "a text joined for each entry": f"{COMMAND}.map(x, x + x + x + x + x + x).size() > 0",
    "a list joined with itself": "+".join([COMMAND] * 15) + " != []",
    "each entry looked for among all": f"{COMMAND}.all(x, {COMMAND}.all(y, x in {COMMAND} && y in {COMMAND}))",
    "a text looked for in a text": f"{COMMAND}.all(x, (x + x + x).contains(x + 'b') || true)",
    "a large pattern for each entry": f"{COMMAND}.all(x, !x.matches('(a?){{500}}(a|aa)*b'))",
    "errors that are swallowed": "||".join([f"({nested('all', 3, 'x0 == 1')})"] * 40) + " || true",
    "everything compared": "object == object && " * 100 + "true",
    "a value bound and doubled": "object.?kind" + ".optMap(v, v + v)" * 7 + ".orValue('') != 'a'",
}


def data(entries: int, length: int) -> Value:
    declared = {"kind": "a" * entries * length, "spec": {"command": ["a" * length] * entries}}
    return Value(declared, Size(2 * entries * (length + 64), entries))


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_evaluation_ends_soon_and_takes_little_memory(attack: str) -> None:
    rule = cel_rule(ATTACKS[attack], "Job")
    if not isinstance(rule, CelRule):
        assert ("more than" in rule[0].problem, attack) == (True, "lists of lists of literals")
        return
    begun, memory = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    gave_up = 0
    for entries, length in ((1, 1_000_000), (10, 1000), (100, 100), (100, 10_000), (1000, 10), (9999, 100)):
        try:
            verdict = rule.held_against("Job", {"object": data(entries, length)}, None)
        except TooMuch:
            gave_up += 1
        else:
            assert verdict.steps <= STEPS
    assert gave_up
    assert time.process_time() - begun < LIMIT_SECONDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 200 * 1024


def test_the_library_ends_loops_after_as_many_iterations_as_are_counted_on() -> None:
    rule = cel_rule(f"{COMMAND}.all(x, x != 'b')", "Job")
    assert isinstance(rule, CelRule)
    assert rule.held_against("Job", {"object": data(ITERATIONS - 1, 1)}, None).causes == ()
    with pytest.raises(TooMuch):
        rule.held_against("Job", {"object": data(ITERATIONS + 1, 1)}, None)
    hidden = cel_rule(f"{COMMAND}.all(x, x != 'b') || true", "Job")
    assert isinstance(hidden, CelRule)
    with pytest.raises(TooMuch):
        hidden.held_against("Job", {"object": data(ITERATIONS + 1, 1)}, None)


@pytest.mark.parametrize(
    "text",
    ["(" * 2000 + "1" + ")" * 1999, "[" * 4000, "!" * 3996 + "true", "1" + "+1" * 1999, "object" + ".a" * 1990,
     "object" + "[0" * 1990, "true?" * 600 + "1" + ":1" * 600, "-" * 3999 + "1", "<" * 4000, "a?" * 2000,
     nested("all", 100, "true"), "true" + "&&true" * 660, "\x00" * 100, "\ud800", "'" * 3999],
)  # fmt: skip
def test_an_expression_of_any_form_is_read_or_refused_soon(text: str) -> None:
    begun = time.process_time()
    assert isinstance(cel_rule(text, "Job"), CelRule | list)
    assert time.process_time() - begun < LIMIT_SECONDS


def test_a_bound_grows_with_what_it_is_for() -> None:
    for attack in ATTACKS.values():
        rule = cel_rule(attack, "Job")
        if isinstance(rule, CelRule):
            patterns = patterns_of(rule.tree)
            bounds = [most_steps(rule.tree, patterns, Size(size, size // 8)) for size in (8, 64, 512, 4096, 65536)]
            assert bounds == sorted(bounds)
            assert bounds[-1] > 10 * bounds[0]


def policy(cel: str, name: str = "rule") -> str:
    return (
        f"{HEAD}kind: Policy\nmetadata: {{name: {name}}}\nspec: {{match: {{kind: Job}}, message: No., cel: {cel!r}}}\n"
    )


def told(**files: str) -> list[tuple[str, str]]:
    whole: dict[str, str | bytes] = {"k/cluster.yaml": CLUSTER}
    whole |= {f"k/projects/{team}/p.yaml": project(team, "{quota: 1}") for team in ("evil", "team-a")}
    whole |= {"k/projects/team-a/j.yaml": job("j", "{image: x, command: [a]}", "team-a"), **files}
    return [(one.code, one.span.file) for one in compile_tree(tree_of(whole, "k")).diagnostics]


MANY = ", ".join(["a"] * 3000)


def test_what_takes_too_much_is_told_where_its_project_can_change_it() -> None:
    rule = policy(f"{COMMAND}.all(x, {COMMAND}.all(y, {COMMAND}.all(z, true)))")
    large = {"k/projects/evil/j.yaml": job("j", f"{{image: x, command: [{MANY}]}}", "evil")}
    assert told(**{"policies/p.yaml": rule}) == []
    assert told(**{"policies/p.yaml": rule}, **large) == [("GPU4005", "k/projects/evil/j.yaml")]
    assert told(**{"k/projects/evil/p2.yaml": rule}, **large) == [("GPU4005", "k/projects/evil/p2.yaml")]


def test_reading_many_policies_of_one_project_uses_up_its_own_steps_alone() -> None:
    long = "&&".join([f"{COMMAND}.all(x,x!='a')"] * 110)
    own = "---\n".join(policy(long, f"p{n}") for n in range(200))
    begun = time.process_time()
    shared = policy(f"{COMMAND}.all(x, x != 'a')", "shared")
    found = told(**{"k/projects/evil/rules.yaml": own, "policies/p.yaml": shared})
    assert sorted(found) == [("GPU4001", "k/projects/team-a/j.yaml"), ("GPU4005", "k/projects/evil/rules.yaml")]
    assert time.process_time() - begun < 2 * LIMIT_SECONDS


def test_many_jobs_and_policies_of_one_project_use_up_its_own_steps_alone() -> None:
    hungry = f"{COMMAND}.all(x, {COMMAND}.all(y, x != y || x.matches('^(a|b)+$')))"
    jobs = "---\n".join(job(f"j{n}", f"{{image: x, command: [{', '.join(['a'] * 90)}]}}", "evil") for n in range(300))
    own = "---\n".join(policy(hungry, f"p{n}") for n in range(20))
    begun = time.process_time()
    found = told(**{"k/projects/evil/j.yaml": jobs, "k/projects/evil/rules.yaml": own})
    assert found == [("GPU4005", "k/projects/evil/rules.yaml")]
    assert time.process_time() - begun < 3 * LIMIT_SECONDS


TOKENS = st.sampled_from([
    "object", "total", "old", "project", ".spec", ".image", ".volumes", ".env", ".gpus", ".hostPath", ".?gpus",
    "[0]", "['a']",
    ".all(v, ", ".map(v, ", ".exists(v, ", ".filter(v, ", "v", "has(", "size(", ".startsWith('a')", ".matches('a*')",
    ")", "(",
    " && ", " || ", "!", " == ", " <= ", " in ", " + ", " * ", " ? ", " : ", "1", "0.5", "'a'", "null", "[1, 2]",
    "{'a': 1}",
    ".orValue(1)", ".optMap(v, v)", "double(", "\n", "\t", "//",
])  # fmt: skip
DATA = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.text(max_size=5),
    lambda below: (
        st.lists(below, max_size=3) | st.dictionaries(st.sampled_from(["spec", "image", "volumes", "a"]), below)
    ),
    max_leaves=8,
)


@given(st.lists(TOKENS, max_size=12).map("".join), DATA, DATA)
def test_no_expression_and_no_declaration_ends_in_anything_but_a_verdict(text: str, declared: Any, old: Any) -> None:
    rule = cel_rule(text, "Job")
    if isinstance(rule, CelRule):
        size = Size(4000, 64)
        values = {name: Value(value, size) for name, value in (("object", declared), ("old", old), ("total", old))}
        try:
            verdict = rule.held_against("Job", {**values, "project": Value(old, size)}, None)
        except TooMuch:
            return
        assert all(isinstance(cause.path, tuple) for cause in verdict.causes)
    else:
        assert rule
        assert all(0 <= flaw.start <= len(text) and flaw.problem for flaw in rule)


SOUND = st.recursive(
    st.sampled_from([
        "object.spec.workers <= 4", "has(object.spec.maxDuration)", "total.gpus < 2.5",
        "object.spec.image.startsWith('a')",
        "object.spec.volumes.all(v, !has(v.hostPath))", "object.spec.env.exists(k, k == 'A')",
        "object.spec.command == ['a']",
        "size(object.spec.args) > 1", "object.spec.?workingDir.orValue('/') == '/'", "project == null", "old == null",
    ]),
    lambda below: st.tuples(below, st.sampled_from([" && ", " || "]), below).map(lambda parts: f"({''.join(parts)})")
    | below.map(lambda text: f"!({text})"),
    max_leaves=6,
)  # fmt: skip


@given(SOUND)
def test_a_rule_and_its_opposite_never_agree(text: str) -> None:
    files = {
        "c.yaml": CLUSTER,
        "j.yaml": job("j", "{image: ab, command: [a], env: {A: b}}"),
        "p.yaml": project("team-a"),
    }
    found = [
        {one.code for one in compile_tree(tree_of({**files, "rule.yaml": policy(rule)})).diagnostics}
        for rule in (text, f"!({text})")
    ]
    assert sorted(map(sorted, found)) == ([[], []] if "old ==" in text else [[], ["GPU4001"]])
