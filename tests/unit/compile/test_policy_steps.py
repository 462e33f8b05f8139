"""Policies that would take for ever: each ends, within counted steps, and is told where its project can change it."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from trees import CLUSTER, HEAD, job, project, tree_of

from gpuctl.compile import CompileCache, Compiled, compile_tree
from gpuctl.compile.declarations import ReadCache, collect
from gpuctl.compile.policy import Limits, check_policies
from gpuctl.compile.rule_form import STEPS, RuleForm, TooMuch, check_form
from gpuctl.compile.rule_steps import Rule
from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.model.memo import Memo

DEEP: dict[str, Any] = {}
for _ in range(40):
    DEEP = {"a": DEEP}


def used(schema: Any, data: Any) -> int:
    """The steps that it takes; STEPS + 1: it was given up."""
    try:
        form = check_form(schema)
        assert isinstance(form, RuleForm), form
        return Rule(form).broken(data)[1]
    except TooMuch:
        return STEPS + 1


def chain(length: int, link: Any) -> dict[str, Any]:
    """Schemas d0 to d<length>, each made of the next one."""
    links = {f"d{n}": link({"$ref": f"#/$defs/d{n + 1}"}) for n in range(length)}
    return {"$defs": {**links, f"d{length}": {}}, "$ref": "#/$defs/d0"}


def nested(depth: int, around: Any) -> Any:
    """A schema in a schema in a schema."""
    schema: Any = {}
    for _ in range(depth):
        schema = around(schema)
    return schema


EXPLOSIONS = {
    "allOf of two, thirty times": (chain(30, lambda ref: {"allOf": [ref, ref]}), {}),
    "anyOf of two, thirty times": (chain(30, lambda ref: {"anyOf": [{"not": ref}, ref]}), {}),
    "oneOf of two, thirty times": (chain(30, lambda ref: {"oneOf": [ref, ref]}), {}),
    "if, then and else": (chain(30, lambda ref: {"if": ref, "then": ref, "else": ref}), {}),
    "dependentSchemas": (chain(30, lambda ref: {"dependentSchemas": {"a": ref, "b": ref}}), {"a": 1, "b": 1}),
    "twice at each level of a deep value": ({"additionalProperties": {"allOf": [{"$ref": "#"}] * 2}}, DEEP),
    "unevaluated at each level": (
        {"$defs": {"x": {"properties": {"a": {"allOf": [{"$ref": "#"}] * 2}}}}, "$ref": "#/$defs/x",
         "unevaluatedProperties": False}, DEEP,
    ),
    "not in anyOf": (nested(45, lambda below: {"anyOf": [{"not": below}, {"type": "string"}, {"not": below}]}), DEEP),
    "a chain of references": (chain(5000, lambda ref: ref), {}),
    "entries of which none is alike": ({"uniqueItems": True}, [{"a": n} for n in range(100_000)]),
    "a huge enum for each entry": ({"items": {"enum": list(range(40_000))}}, [{"a": n} for n in range(100)]),
    "a large value refused again and again": ({"allOf": [False] * 20_000}, "x" * 1_000_000),
    "entries looked at again and again": ({"allOf": [{"contains": True}] * 20_000}, ["x"] * 100_000),
    "a pattern of many states on a long text": ({"pattern": "(?:.{1,900}){1}x"}, "a" * 1_000_000),
    "patterns for each of many properties": (
        {"patternProperties": {f"x{n}$": True for n in range(1000)}}, {f"a{n}": 1 for n in range(1000)},
    ),
    "a schema too large to be read": ({"properties": {f"p{n}": {"type": "string"} for n in range(20_000)}}, {}),
    "a reference as long as a file": ({"allOf": [{"$ref": "#" + "/a" * 500_000}]}, {}),
    "a pattern as long as a file": ({"pattern": "a?" * 1_000_000}, ""),
}  # fmt: skip


@pytest.mark.parametrize("schema", EXPLOSIONS)
def test_what_explodes_is_given_up(schema: str) -> None:
    assert used(*EXPLOSIONS[schema]) == STEPS + 1


def test_a_hopeless_regular_expression_is_matched_in_linear_time() -> None:
    for text in ("a" * 30 + "!", "a" * 100_000 + "!"):
        for schema in ({"pattern": "^(a+)+$"}, {"patternProperties": {"^(a|a)*$": False}},
                       {"patternProperties": {"(a*)*b": True}, "additionalProperties": {"maxLength": 9}},
                       {"patternProperties": {"^(a+)+$": True}, "unevaluatedProperties": {"type": "string"}},
                       {"propertyNames": {"pattern": "(a|aa)+!$"}}):  # fmt: skip
            assert used(schema, {text: text}) <= STEPS
            assert used(schema, text) <= STEPS


def test_the_steps_of_a_rule_are_the_same_everywhere_and_few() -> None:
    declared = {"spec": {"image": "x", "env": {"A_TOKEN": "t", "B": {"secret": "s", "key": "k"}}, "gpus": 1}}
    tokens = {"properties": {"spec": {"properties": {"env": {"patternProperties": {"TOKEN$": {"type": "object"}}}}}}}
    volumes = {"properties": {"spec": {"properties": {"volumes": {"items": {"not": {"required": ["hostPath"]}}}}}}}
    assert (used(tokens, declared), used(volumes, declared)) == (9, 1)


NAMES = ["a", "b", "ab"]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", *NAMES]),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.sampled_from(NAMES), below, max_size=3),
    max_leaves=6,
)


def _keywords(below: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(below, min_size=1, max_size=3)
    named = st.dictionaries(st.sampled_from(NAMES), below, max_size=3)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["object", "array", "string", "integer", ["null", "boolean", "number"]]),
            "properties": named, "patternProperties": st.dictionaries(st.sampled_from(["a", "^b", "b$"]), below),
            "additionalProperties": below, "unevaluatedProperties": below, "propertyNames": below,
            "dependentSchemas": named, "items": below, "prefixItems": some, "unevaluatedItems": below,
            "contains": below, "minContains": st.integers(0, 2), "uniqueItems": st.booleans(),
            "allOf": some, "anyOf": some, "oneOf": some, "not": below, "if": below, "then": below, "else": below,
            "$ref": st.sampled_from(["#/$defs/one", "#other"]),
            "enum": st.lists(VALUES, max_size=3), "const": VALUES, "pattern": st.sampled_from(["a", "^a?b$"]),
            "multipleOf": st.sampled_from([2, Decimal("0.5")]), "minimum": st.integers(-2, 2),
            "required": st.lists(st.sampled_from(NAMES), unique=True), "minLength": st.integers(0, 2),
            "dependentRequired": st.dictionaries(st.sampled_from(NAMES), st.just(["b"])),
            "maxProperties": st.integers(0, 2), "maxItems": st.integers(0, 2),
        },
    )  # fmt: skip


SCHEMAS = st.recursive(st.booleans() | st.just({"type": "string"}), _keywords, max_leaves=8).filter(
    lambda schema: isinstance(schema, dict)
)
LIBRARY = {"$defs": {"one": {"properties": {"a": True}}, "two": {"$anchor": "other", "maxLength": 1}}}


@given(SCHEMAS, st.lists(VALUES, min_size=1, max_size=3))
def test_a_rule_holds_exactly_where_the_schema_does(schema: dict[str, Any], values: list[Any]) -> None:
    form = check_form({**schema, **LIBRARY})
    assert isinstance(form, RuleForm)
    for value in values:
        wanted = Draft202012Validator({**schema, **LIBRARY}).is_valid(value)
        assert (not Rule(form).broken(value)[0]) is wanted


@pytest.mark.parametrize(
    ("schema", "at"),
    [
        ({"type": "objekt"}, ("type",)),
        ({"type": []}, ("type",)),
        ({"properties": {"a": 3}}, ("properties", "a")),
        ({"properties": []}, ("properties",)),
        ({"items": [{}]}, ("items",)),
        ({"allOf": []}, ("allOf",)),
        ({"required": ["a", "a"]}, ("required",)),
        ({"required": [{}]}, ("required",)),
        ({"dependentRequired": {"a": "b"}}, ("dependentRequired",)),
        ({"minLength": -1}, ("minLength",)),
        ({"maximum": True}, ("maximum",)),
        ({"multipleOf": 0}, ("multipleOf",)),
        ({"uniqueItems": 1}, ("uniqueItems",)),
        ({"enum": {}}, ("enum",)),
        ({"$ref": ["#"], "$anchor": {}}, ("$ref",)),
        ({"pattern": "("}, ("pattern",)),
        ({"patternProperties": {"[": True}}, ("patternProperties", "[")),
        ({"$ref": "#"}, ()),
        ({"$defs": {"a": {"anyOf": [{"not": {"$ref": "#/$defs/b"}}]}, "b": {"$ref": "#/$defs/a"}}}, ("$defs", "a")),
        ({"enum": [{"type": 5}], "not": {"$ref": "#/enum/0"}}, ("not", "$ref")),
        ({"const": {"multipleOf": 0}, "not": {"$ref": "#/const"}}, ("not", "$ref")),
        ({"properties": {"a": {}}, "not": {"$ref": "#/properties"}}, ("not", "$ref")),
        ({"$ref": "#/$defs/0"}, ("$ref",)),
        ({"$ref": "#gone"}, ("$ref",)),
        ({"$ref": "https://json-schema.org/draft/2020-12/schema"}, ("$ref",)),
        ({"not": {"$ref": "other#/a"}}, ("not", "$ref")),
        ({"not": {"$schema": "http://json-schema.org/draft-07/schema#", "pattern": "(a+)+$"}}, ("not", "$schema")),
        ({"not": {"$id": "https://example.com"}}, ("not", "$id")),
        ({"$dynamicRef": "#a", "$dynamicAnchor": "a"}, ("$dynamicRef",)),
    ],
)
def test_what_is_no_schema_is_told_at_its_place(schema: dict[str, Any], at: tuple[str, ...]) -> None:
    flaws = check_form(schema)
    assert isinstance(flaws, list)
    assert flaws[0].path == at, flaws


def test_no_more_mistakes_are_told_than_anybody_reads() -> None:
    flaws = check_form({"allOf": [{"type": "objekt"}] * 1000})
    assert isinstance(flaws, list)
    assert len(flaws) == 20


def policy(schema: str, kind: str = "Job", name: str = "rule") -> str:
    return (
        f"{HEAD}kind: Policy\nmetadata: {{name: {name}}}\nspec:\n  match: {{kind: {kind}}}\n"
        f"  message: No.\n  schema: {schema}\n"
    )


TWICE = "{additionalProperties: {allOf: [" + ", ".join(["{$ref: '#'}"] * 20) + "]}}"
"""On a small declaration it takes too much, and a reader of it can't tell."""
SOME = "{allOf: [" + ", ".join(["{properties: {spec: {properties: {image: {minLength: 1}}}}}"] * 40) + "]}"
"""It takes more than is free, of any declaration."""
ENV = "{image: x, env: {A: {secret: s, key: k}, B: {secret: s, key: k}}}"
WHOLE = {
    "k/cluster.yaml": CLUSTER,
    **{f"k/projects/{team}/project.yaml": project(team, "{quota: 1}") for team in ("evil", "team-a", "team-z")},
    **{f"k/projects/{team}/j.yaml": job("j", ENV, team) for team in ("team-a", "team-z")},
}


def compiled(**files: str) -> Compiled:
    return compile_tree(tree_of({**WHOLE, **files}, "k"))


def told(found: Iterable[Diagnostic]) -> list[tuple[str, str]]:
    return [(one.code, one.span.file) for one in found]


def test_a_projects_own_policy_that_explodes_is_told_at_the_policy() -> None:
    files = {"k/projects/evil/p.yaml": policy(TWICE), "k/projects/evil/j.yaml": job("j", ENV, "evil")}
    assert told(compiled(**files).diagnostics) == [("GPU4005", "k/projects/evil/p.yaml")]


def test_one_declaration_on_which_a_shared_policy_explodes_is_its_own_fault() -> None:
    files = {"policies/p.yaml": policy(TWICE)}
    files |= {f"k/projects/{team}/j.yaml": job("j", "{image: x}", team) for team in ("team-a", "team-z")}
    files |= {"k/projects/evil/j.yaml": job("j", ENV, "evil")}
    assert told(compiled(**files).diagnostics) == [("GPU4005", "k/projects/evil/j.yaml")]


LIMITS = Limits(project=1000, policy=5000, declaration=10, free=20)
FIFTY = "{allOf: [" + ", ".join(["{properties: {spec: {required: [image]}}}"] * 15) + "]}"


def checked(**files: str) -> list[Diagnostic]:
    """What is told with small limits."""
    declarations = collect(tree_of({**WHOLE, **files}, "k"), ReadCache())
    return list(check_policies(declarations, Memo(), Memo(), LIMITS))


def test_many_declarations_of_one_project_use_up_its_own_steps_alone() -> None:
    jobs = "---\n".join(job(f"j{n}", owner="evil") for n in range(100))
    (found,) = checked(**{"policies/p.yaml": policy(FIFTY), "k/projects/evil/j.yaml": jobs})
    assert told([found]) == [("GPU4005", "k/projects/evil/j.yaml")]
    assert found.message == ('policy "rule" takes more than 2010 steps on project "evil", with the policies before it')


def test_many_policies_of_one_project_use_up_its_own_steps_alone() -> None:
    many = "---\n".join(policy(FIFTY, name=f"p{n}") for n in range(40))
    files = {"k/projects/evil/p.yaml": many, "k/projects/evil/j.yaml": job("j", owner="evil")}
    (found,) = checked(**files, **{"policies/p.yaml": policy(FIFTY)})
    assert told([found]) == [("GPU4005", "k/projects/evil/p.yaml")]
    assert found.message == 'policy "p20" takes more than 1020 steps on project "evil", with the policies before it'


def test_a_shared_policy_that_takes_too_much_of_all_is_told_at_the_policy() -> None:
    files = {f"k/projects/t{n}/p.yaml": project(f"t{n}", "{quota: 0}") for n in range(20)}
    files |= {
        f"k/projects/t{n}/j.yaml": "---\n".join(job(f"j{m}", "{image: x}", f"t{n}") for m in range(20))
        for n in range(20)
    }
    (found,) = checked(**files, **{"policies/p.yaml": policy(FIFTY)})
    assert told([found]) == [("GPU4005", "policies/p.yaml")]


def test_policies_that_hold_for_thousands_of_jobs_take_what_is_free() -> None:
    jobs = "---\n".join(job(f"j{n}", owner="evil") for n in range(1000))
    tokens = "{properties: {spec: {properties: {env: {patternProperties: {TOKEN$: {type: object}}}}}}}"
    assert checked(**{"policies/p.yaml": policy(tokens), "k/projects/evil/j.yaml": jobs}) == []


def test_what_was_found_out_before_changes_nothing_of_that() -> None:
    files = {"k/projects/evil/j.yaml": "---\n".join(job(f"j{n}", ENV, "evil") for n in range(5))}
    cache = CompileCache()
    for extra in (
        {},
        {"policies/p.yaml": policy(SOME)},
        {"policies/p.yaml": policy(SOME), "k/projects/evil/x.yaml": policy(TWICE)},
    ):
        tree = tree_of({**WHOLE, **files, **extra}, "k")
        for _ in range(2):
            assert compile_tree(tree, cache).diagnostics == compile_tree(tree).diagnostics


def test_patterns_are_those_of_re2() -> None:
    (found,) = compiled(**{
        "policies/p.yaml": policy("{properties: {spec: {properties: {image: {pattern: '(?!x)'}}}}}")
    }).diagnostics
    assert found.code == "GPU4004"
    assert "look-around" in found.help


def test_an_alternative_that_is_never_so_is_no_way_to_crash() -> None:
    for schema in (
        "{anyOf: [false]}",
        "{oneOf: [false, false]}",
        "{properties: {spec: {anyOf: [false, {anyOf: [false]}]}}}",
    ):
        assert {code for code, _ in told(compiled(**{"policies/p.yaml": policy(schema)}).diagnostics)} == {"GPU4001"}
