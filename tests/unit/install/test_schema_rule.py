"""JSON Schemas of policies as CEL: the same verdict, or none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpuctl.compile.cel_cost import Size
from gpuctl.compile.cel_rule import CelRule, cel_rule
from gpuctl.compile.cel_scope import Value
from gpuctl.compile.fields_v1 import Spec, fields_of
from gpuctl.compile.rule_form import RuleForm, check_form
from gpuctl.compile.rule_steps import Rule
from gpuctl.compile.spec_v1 import JobMetadata, JobSpec
from gpuctl.compile.volumes_v1 import Volume
from gpuctl.install.rules import SHOWN
from gpuctl.install.schema_rule import LOOKS_LEFT_OUT, Unsaid, schema_cel

Data = dict[str, Any]
JOB: Data = {
    "apiVersion": "gpuctl.dev/v1",
    "kind": "Job",
    "metadata": {"name": "j", "project": "a"},
    "spec": {"image": "x:1"},
}


def job(spec: Mapping[str, Any]) -> Data:
    return {**JOB, "spec": {**JOB["spec"], **spec}}


def shown(data: Data) -> Data:
    """What an admission policy puts together of the pods of a job."""
    spec = data["spec"]
    volumes = [
        {key: each[key] for key in ("hostPath", "mountPath") if each.get(key) is not None}
        for each in spec.get("volumes", [])
    ]
    always = {"type": "training", "imagePullPolicy": "IfNotPresent", "command": [], "args": []}
    return {
        "metadata": data["metadata"],
        "spec": {**always, **{key: value for key, value in spec.items() if value is not None}, "volumes": volumes},
    }


def keeps(schema: Data, data: Data) -> bool:
    form = check_form(schema)
    assert isinstance(form, RuleForm), form
    return not Rule(form).broken(data)[0]


def admits(cel: str, data: Data) -> bool:
    rule = cel_rule(cel, "Job")
    assert isinstance(rule, CelRule), (cel, rule)
    verdict = rule.held_against("Job", {"object": Value(shown(data), Size(100, 5))}, None)
    assert not verdict.failure, (cel, verdict)
    return not verdict.causes


def of_spec(**properties: Any) -> Data:
    return {"properties": {"spec": {"properties": properties}}}


A_HOST = {"hostPath": "/data", "mountPath": "/d"}
A_CLAIM = {"claim": "c", "mountPath": "/c"}
SAID: tuple[tuple[Data, str, Data, Data], ...] = (
    (of_spec(image={"const": "x:1"}), 'object.spec.image == "x:1"', {}, {"image": "y"}),
    (of_spec(image={"enum": ["x:1", 5]}), 'object.spec.image == "x:1"', {}, {"image": "5"}),
    (of_spec(image={"pattern": r"^x\:"}), 'object.spec.image.matches("^x\\\\:")', {}, {"image": "y:1"}),
    (of_spec(image={"minLength": 3}), "size(object.spec.image) >= 3", {}, {"image": "y"}),
    (of_spec(image={"maxLength": 3}), "size(object.spec.image) <= 3", {}, {"image": "long"}),
    (
        of_spec(image={"not": {"const": "é\n"}}),
        '!(object.spec.image == "\\U000000e9\\U0000000a")',
        {},
        {"image": "é\n"},
    ),
    (
        of_spec(image={"oneOf": [{"minLength": 2}, {"const": "x:1"}]}),
        '((size(object.spec.image) >= 2 ? 1 : 0) + (object.spec.image == "x:1" ? 1 : 0)) == 1',
        {"image": "y:1"},
        {},
    ),
    (
        of_spec(image={"anyOf": [{"minLength": 9}, {"allOf": [{"const": "x:1"}, {"minimum": 3}]}]}),
        '(size(object.spec.image) >= 9 || object.spec.image == "x:1")',
        {},
        {"image": "y"},
    ),
    (
        of_spec(args={"items": {"not": {"const": "-v"}}}),
        'object.spec.args.all(e2, !(e2 == "-v"))',
        {"args": ["x"]},
        {"args": ["x", "-v"]},
    ),
    (
        {"properties": {"spec": {"required": ["args"], "properties": {"args": {"contains": {"const": "-v"}}}}}},
        'object.spec.args.exists(e2, e2 == "-v")',
        {"args": ["x", "-v"]},
        {"args": []},
    ),
    (
        of_spec(args={"contains": {"const": "-v"}, "minContains": 0, "maxContains": 1}),
        '(size(object.spec.args.filter(e2, e2 == "-v")) >= 0 && size(object.spec.args.filter(e2, e2 == "-v")) <= 1)',
        {"args": ["-v"]},
        {"args": ["-v", "-v"]},
    ),
    (of_spec(command={"maxItems": 1}), "size(object.spec.command) <= 1", {"command": ["a"]}, {"command": ["a", "b"]}),
    (
        {"properties": {"spec": {"required": ["command"], "properties": {"command": {"minItems": 1}}}}},
        "size(object.spec.command) >= 1",
        {"command": ["a"]},
        {},
    ),
    (
        of_spec(command={"enum": [[], ["a", "b"], [1]]}),
        '(size(object.spec.command) == 0 || object.spec.command == ["a", "b"])',
        {"command": ["a", "b"]},
        {"command": ["b", "a"]},
    ),
    (
        of_spec(workingDir={"pattern": "^/work"}),
        '(!has(object.spec.workingDir) || object.spec.workingDir.matches("^/work"))',
        {"workingDir": None},
        {"workingDir": "/"},
    ),
    (
        {"properties": {"spec": {"required": ["workingDir"], "properties": {"workingDir": {"type": "string"}}}}},
        "has(object.spec.workingDir)",
        {"workingDir": "/"},
        {"workingDir": None},
    ),
    (
        of_spec(volumes={"items": {"properties": {"hostPath": {"type": ["null", "integer"]}}}}),
        "object.spec.volumes.all(e2, !has(e2.hostPath))",
        {"volumes": [{**A_CLAIM, "hostPath": None}]},
        {"volumes": [A_CLAIM, A_HOST]},
    ),
    (of_spec(type={"not": {"const": "inference"}}), '!(object.spec.type == "inference")', {}, {"type": "inference"}),
    ({"required": ["metadata"], "type": "object"}, "true", {}, {}),
)
"""A schema, its expression, and what a job says that keeps and that breaks it."""


@pytest.mark.parametrize(("schema", "cel", "good", "bad"), SAID, ids=[cel for _, cel, _, _ in SAID])
def test_a_schema_is_said_in_cel(schema: Data, cel: str, good: Data, bad: Data) -> None:
    assert schema_cel(schema, SHOWN) == cel
    assert keeps(schema, job(good)) is admits(cel, job(good)) is True
    assert keeps(schema, job(bad)) is admits(cel, job(bad)) is (cel == "true")


LEFT_OUT = "no pod shows whether object.spec."


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (of_spec(gpus={"maximum": 8}), "it reads object.spec.gpus, which no pod"),
        ({"properties": {"kind": {"const": "Job"}}}, "it reads object.kind"),
        (of_spec(volumes={"items": {"required": ["claim"]}}), "it reads object.spec.volumes.*.claim"),
        (of_spec(command={"minItems": 1}), f"{LEFT_OUT}command is left out or []"),
        ({"properties": {"spec": {"required": ["args"]}}}, f"{LEFT_OUT}args is left out or []"),
        (of_spec(type={"const": "inference"}), f'{LEFT_OUT}type is left out or "training"'),
        (of_spec(workingDir={"type": "string"}), f"{LEFT_OUT}workingDir is left out or null"),
        (of_spec(volumes={"items": {"not": {"required": ["hostPath"]}}}), f"{LEFT_OUT}volumes.*.hostPath is left out"),
        (of_spec(volumes={"const": []}), "it compares all of object.spec.volumes with a value"),
        (of_spec(image={"pattern": "(?i)x"}), 'the API server may read its pattern "(?i)x" differently'),
        (of_spec(image={"pattern": r"\pL"}), "the API server may read its pattern"),
        (of_spec(image={"$ref": "#/$defs/x"}) | {"$defs": {"x": {}}}, 'its schema has "$ref", which is not translated'),
        (of_spec(args={"uniqueItems": True}), 'its schema has "uniqueItems"'),
        ({"unheardOf": 1}, 'its schema has "unheardOf"'),
        ({"minLength": "x"}, "its schema is wrong: gpuctl validate"),
        (of_spec(image={"enum": ["x" * 1000] * 5}), "its schema is too large"),
    ],
)
def test_what_could_differ_has_no_expression_but_a_reason(schema: Data, why: str) -> None:
    said = schema_cel(schema, SHOWN)
    assert isinstance(said, Unsaid), said
    assert said.why.startswith(why)


def test_a_deep_schema_has_no_expression() -> None:
    deep: Any = {"const": 1}
    for _ in range(200):
        deep = {"not": deep}
    assert isinstance(schema_cel(deep, SHOWN), Unsaid)


def test_each_field_that_may_be_left_out_is_known_with_what_it_looks_like() -> None:
    models: dict[tuple[str, ...], type[Spec]] = {
        ("metadata",): JobMetadata,
        ("spec",): JobSpec,
        ("spec", "volumes", "*"): Volume,
    }
    for above, model in models.items():
        required = {field.alias for field in model.model_fields.values() if field.is_required()}
        for name, _, default in fields_of(model):
            path = (*above, name)
            if path in SHOWN:
                assert (path in LOOKS_LEFT_OUT) is (name not in required)
                assert LOOKS_LEFT_OUT.get(path) == default


WORDS = ("x:1", "training", "inference", "/a", "IfNotPresent", "aé")
PLAIN = st.sampled_from((*WORDS, 1, None, True))
TYPES = st.sampled_from(("string", "null", "array", "object", "integer"))
COUNT = st.integers(0, 3)


OF_TEXT = {
    "const": PLAIN,
    "enum": st.lists(PLAIN, max_size=3),
    "pattern": st.sampled_from(("^/", "a", "[0-9]$", "^.{2}$", r"\w\:")),
    "minLength": COUNT,
    "maxLength": COUNT,
    "type": st.one_of(TYPES, st.lists(TYPES, min_size=1, max_size=2, unique=True)),
    "minimum": COUNT,
}


def under(key: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return values.map(lambda value: {key: value})


def nested(plain: Mapping[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    """Schemas of these keywords, one or two of them at a time, combined."""
    one = st.one_of(*(under(key, values) for key, values in plain.items()))
    two = st.tuples(one, one).map(lambda pair: {**pair[0], **pair[1]})
    leaf = st.one_of(st.booleans(), one, two)
    parts = st.lists(leaf, min_size=1, max_size=3)
    combined = st.one_of(*(under(key, parts) for key in ("allOf", "anyOf", "oneOf")))
    return st.one_of(leaf, combined, under("not", st.one_of(two, combined)))


TEXT = nested(OF_TEXT)


def a_list(entry: st.SearchStrategy[Any], constants: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    of_list = {
        "items": entry, "contains": entry, "minItems": COUNT, "maxItems": COUNT, "minContains": COUNT,
        "maxContains": COUNT, "type": TYPES, "const": constants, "pattern": st.just("x"),
    }  # fmt: skip
    return nested(of_list)


def mapping(fields: Mapping[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    properties = st.fixed_dictionaries({}, optional=dict(fields))
    required = st.lists(st.sampled_from(sorted(fields)), max_size=2, unique=True)
    both = st.fixed_dictionaries({"properties": properties, "required": required})
    one = st.sampled_from(sorted(fields)).flatmap(
        lambda name: st.tuples(fields[name], st.booleans()).map(
            lambda each: {"properties": {name: each[0]}, **({"required": [name]} if each[1] else {})}
        )
    )
    several = st.tuples(st.sampled_from(("allOf", "anyOf", "oneOf")), st.lists(one, min_size=1, max_size=3))
    return st.one_of(one, one, both, several.map(lambda each: {each[0]: each[1]}), one.map(lambda each: {"not": each}))


WORD_LIST = a_list(TEXT, st.lists(PLAIN, max_size=2))
VOLUMES = a_list(mapping({"hostPath": TEXT, "mountPath": TEXT}), st.just(1))
SPEC = mapping({
    **dict.fromkeys(("image", "type", "imagePullPolicy", "workingDir"), TEXT),
    **dict.fromkeys(("command", "args"), WORD_LIST),
    "volumes": VOLUMES,
})
SCHEMA = SPEC.map(lambda spec: {"properties": {"spec": spec}})
WORD_LISTS = st.lists(st.sampled_from(WORDS), max_size=3)
VOLUME = st.one_of(
    st.fixed_dictionaries({"claim": st.just("c"), "mountPath": st.sampled_from(("/a", "/b1"))}),
    st.fixed_dictionaries({"hostPath": st.sampled_from(("/a", None)), "mountPath": st.sampled_from(("/a", "/b1"))}),
)
JOBS = st.fixed_dictionaries(
    {"image": st.sampled_from(WORDS)},
    optional={
        "type": st.sampled_from(("training", "inference")),
        "imagePullPolicy": st.sampled_from(("IfNotPresent", "Always")),
        "workingDir": st.sampled_from(("/a", "/", None)),
        "command": WORD_LISTS,
        "args": WORD_LISTS,
        "volumes": st.lists(VOLUME, max_size=3),
    },
).map(job)


@given(SCHEMA, st.lists(JOBS, min_size=4, max_size=4))
@example(of_spec(command={"contains": False, "minContains": 0}), [job({}), job({"command": []})])
def test_the_verdict_of_the_expression_is_the_schemas(schema: Data, jobs: list[Data]) -> None:
    cel = schema_cel(schema, SHOWN)
    if isinstance(cel, str):
        for each in jobs:
            assert admits(cel, each) is keeps(schema, each), cel
