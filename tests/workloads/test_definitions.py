"""Each row of the table of kinds against the definition that the kind's makers ship.

What a server that has the kind does with what gpuctl renders is in tests/contracts/test_contract_kinds.py."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuctl.k8s import kinds
from gpuctl.k8s.kinds import KINDS, Kind
from gpuctl.k8s.manifest_fields import ANY
from gpuctl.k8s.suspension import is_suspended
from gpuctl.k8s.workload_table import BUILT_IN
from gpuctl.model.workload_kind import Allowed, PodSets, WorkloadKind
from gpuctl.model.workload_kind import Path as FieldPath
from workloads.declarations import EVERY_KIND, ROWS, rendered
from workloads.definitions import definition, schema

GOLDEN = Path(__file__).parents[1] / "golden" / "workloads"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
EACH = pytest.mark.parametrize("kind", EVERY_KIND, ids=lambda kind: kind[1])


@EACH
def test_it_is_rendered_as_it_is_declared_with_what_gpuctl_adds(
    kind: Kind, golden: Callable[[Path, str], None]
) -> None:
    body = rendered(kind)
    assert is_suspended(ROWS[kind].suspension, body)
    golden(GOLDEN / f"{kind[1].lower()}.yaml", yaml.safe_dump(json.loads(json.dumps(body)), sort_keys=True))


@EACH
def test_what_the_row_names_is_in_the_definition(kind: Kind) -> None:
    row, whole = ROWS[kind], schema(kind)
    spec = whole["properties"]["spec"]
    assert not list(_missing(row.allowed, spec, "spec"))
    for path in (row.suspension.field, *row.read, *([("status", "conditions")] if _tells_conditions(row) else [])):
        assert _at(whole, path) is not None, path
    for path in (*row.choices, *row.mounts, *row.in_order, *row.usual):
        assert _at(spec, path) is not None, path
    for sets in row.pods:
        _check(sets, spec)


def _tells_conditions(row: WorkloadKind) -> bool:
    return any(state is not None and state.condition for state in (row.suspension.told, row.succeeded, row.failed))


def _check(sets: PodSets, spec: Any) -> None:
    entry = _at(spec, sets.entries)
    assert entry is not None, sets.entries
    assert (entry.get("type") == "array") is sets.is_list
    entry = entry.get("items", entry)
    more = [path for each in sets.made for count in each.counts for path in (count.path,)]
    less = [count.but_one for count in sets.counts if count.but_one]
    for path in ((*sets.template, "spec", "containers"), *(count.path for count in sets.counts), sets.name, *more,
                 *sets.marked, *(path for paths in sets.numbers for path in paths), *less, sets.waits):  # fmt: skip
        assert not path or _at(entry, path) is not None, path
    for count in sets.counts:
        assert _at(entry, count.path)["type"] == "integer"
        assert _at(entry, count.path).get("default", 1) == count.usual or not count.usual


@EACH
def test_what_is_taken_where_a_field_is_absent_is_its_default(kind: Kind) -> None:
    """Of a field with a closed list of values, each that may be written is one."""
    row, spec = ROWS[kind], schema(kind)["properties"]["spec"]
    for path, values in row.choices.items():
        known = _at(spec, path).get("enum")
        assert known is None or set(values) <= set(known), path


@pytest.mark.parametrize("kind", BUILT_IN, ids=lambda kind: kind[1])
def test_it_is_a_kind_that_is_read_written_and_pruned(kind: Kind) -> None:
    info = KINDS[kind]
    assert info.observed
    assert info.prune_rank
    assert info.of_others
    assert info.plural == definition(kind)["spec"]["names"]["plural"]


def _missing(allowed: Allowed, fields: Any, at: str) -> Iterator[str]:
    fields = fields.get("items", fields)
    for name, below in allowed.items():
        found = _at(fields, (name,))
        if found is None and not (at.endswith(".metadata") or "x-kubernetes-preserve-unknown-fields" in fields):
            yield f"{at}.{name}"
        elif below is not ANY and found is not None:
            yield from _missing(below, found, f"{at}.{name}")


def _at(fields: Any, path: FieldPath) -> Any:
    """The schema at a path, through lists; the keys of a mapping are not said by a schema."""
    for step in path:
        fields = fields.get("items", fields)
        below = fields.get("properties", {}).get(step) or fields.get("additionalProperties")
        if not isinstance(below, dict):
            return None
        fields = below
    return fields


def test_the_kinds_that_are_read_because_of_them_are_known() -> None:
    made = {each.kind for row in BUILT_IN.values() for sets in row.pods for each in sets.made}
    assert {*BUILT_IN, *(made - {kinds.JOB, kinds.SERVICE})} == set(kinds.OF_OTHERS)
