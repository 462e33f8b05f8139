from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from gpuctl.compile.declarations import KINDS
from gpuctl.compile.jsonschema import LOCATION, any_kind, schemas

ROOT = Path(__file__).parents[3]
Golden = Callable[[Path, str], None]
made = cache(schemas)
"""Made once, by the first test: it takes 0.2 s, and each process of a run collects this module."""


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_schema_files_are_current(kind: str, golden: Golden) -> None:
    text = json.dumps(made()[kind], indent=2) + "\n"
    golden(ROOT / LOCATION / f"{kind.lower()}.json", text)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_schemas_are_schemas(kind: str) -> None:
    Draft202012Validator.check_schema(made()[kind])


def _objects(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        if "properties" in node:
            yield node
        for value in node.values():
            yield from _objects(value)
    elif isinstance(node, list):
        for value in node:
            yield from _objects(value)


_EITHER = ("image", "$parameter")
"""A job without an image has a template; a part of one in its place a parameter."""


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_field_is_described_and_no_other_is_allowed(kind: str) -> None:
    for schema in _objects(made()[kind]):
        assert schema["additionalProperties"] is False
        for name, field in schema["properties"].items():
            assert field.get("description"), name
            assert name in {*schema.get("required", ()), *_EITHER} or "default" in field, name


def _declarations() -> list[tuple[Path, dict[str, Any]]]:
    files = [*(ROOT / "clusters").rglob("*.yaml"), *(ROOT / "policies").rglob("*.yaml")]
    return [(path, document) for path in files for document in yaml.safe_load_all(path.read_text())]


def test_the_examples_match_the_schemas() -> None:
    known = made()
    for path, document in _declarations():
        errors = list(Draft202012Validator(known[document["kind"]]).iter_errors(document))
        assert not errors, (path, errors)


def test_the_schema_of_any_kind_is_current(golden: Golden) -> None:
    Draft202012Validator.check_schema(any_kind())
    golden(ROOT / LOCATION / "declaration.json", json.dumps(any_kind(), indent=2) + "\n")


def test_the_schema_of_any_kind_judges_as_that_of_the_kind() -> None:
    known, whole = made(), Draft202012Validator(any_kind())
    broken = 0
    for _, document in _declarations():
        other = {**document, "spec": {**document["spec"], "gpus": "many", "quota": []}}
        for each in (document, {**document, "metadata": {}}, other):
            told = {error.message for error in whole.iter_errors(each)}
            assert told == {error.message for error in Draft202012Validator(known[each["kind"]]).iter_errors(each)}
            broken += bool(told)
    assert broken
    assert not whole.is_valid({"kind": "Deployment"})
    assert not whole.is_valid({"spec": {}})


TEMPLATE: dict[str, Any] = {
    "apiVersion": "gpuctl.dev/v1",
    "kind": "Template",
    "metadata": {"name": "train"},
    "spec": {
        "parameters": {"gpus": {"type": "number", "default": 1}, "image": {}},
        "job": {
            "image": {"$parameter": "image"},
            "gpus": {"$parameter": "gpus"},
            "args": ["--seed", {"$parameter": "image"}],
            "env": {"A": {"$parameter": "image"}},
            "volumes": [{"claim": {"$parameter": "image"}, "mountPath": "/data"}],
        },
    },
}


def test_a_templates_job_may_take_any_value_from_a_parameter() -> None:
    known = Draft202012Validator(made()["Template"])
    assert known.is_valid(TEMPLATE)
    mistakes: list[dict[str, Any]] = [
        {"gpsu": 1},
        {"gpus": {"$parameter": 1}},
        {"gpus": {"parameter": "gpus"}},
        {"template": {}},
    ]
    for wrong in mistakes:
        assert not known.is_valid({**TEMPLATE, "spec": {"job": wrong}}), wrong


def test_a_job_has_an_image_or_a_template() -> None:
    known = Draft202012Validator(made()["Job"])
    job = {"apiVersion": "gpuctl.dev/v1", "kind": "Job", "metadata": {"name": "a", "project": "p"}}
    assert known.is_valid({**job, "spec": {"template": {"name": "train", "with": {"gpus": 2, "args": ["a"]}}}})
    assert not known.is_valid({**job, "spec": {"gpus": 1}})
