"""Which fields of a live object gpuctl owns, from `metadata.managedFields`.

`fieldsV1` is a tree whose edges are `f:name` (a field), `k:{"name":"main"}` (an item of a keyed list), `v:"x"` (an item
of a set) and `.` (the node itself); a node without edges is owned whole. Only fields that gpuctl applied count, never
those that it updated otherwise. Source: sigs.k8s.io/structured-merge-diff, fieldpath.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import chain
from typing import Any, TypeAlias

from gpuctl.k8s.objects import is_own_apply, items, mapping
from gpuctl.model.state import Body

FieldSet: TypeAlias = Mapping[str, Any]

_LIST_KEYS: Mapping[str, tuple[str, ...]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "resourceClaims": ("name",),
    "claims": ("name",),
    "imagePullSecrets": ("name",),
    "ownerReferences": ("uid",),
    "replicatedJobs": ("name",),
}
_KEY_DEFAULTS = {"protocol": "TCP"}


def owned_fields(live: Body) -> FieldSet:
    """The fields that gpuctl's last apply of the object set; empty if the object does not say so, or not as a tree."""
    for entry in items(live, "metadata", "managedFields"):
        if is_own_apply(entry):
            fields = mapping(entry, "fieldsV1")
            return fields if _is_tree(fields) else {}
    return {}


def _is_tree(fields: FieldSet) -> bool:
    """Whether all levels consist of edges. Cost: linear in the edges."""
    level: list[Any] = [fields]
    while level:
        if set(map(type, level)) != {dict}:
            return False
        level = [*chain.from_iterable(map(dict.values, level))]
    return True


def list_keys(path: str) -> tuple[str, ...]:
    """The fields that identify the items of the list at a path; empty for a list that is one value."""
    name = path.rpartition(".")[2]
    if name == "ports":
        return ("port", "protocol") if path == "spec.ports" else ("containerPort", "protocol")
    return _LIST_KEYS.get(name, ())


@lru_cache(maxsize=4096)
def item_key(element: str) -> Mapping[str, Any]:
    """The key of a `k:` edge; an unreadable one matches nothing."""
    try:
        key = json.loads(element[2:])
    except ValueError:
        return {}
    return key if isinstance(key, dict) else {}


def set_element(value: object) -> str:
    """The `v:` edge of an item of a set."""
    return "v:" + json.dumps(value)


def find_item(candidates: Iterable[Any], key: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The item of a keyed list with this key; a missing key field has its default."""
    if not key:
        return None
    wanted = [(name, value or _KEY_DEFAULTS.get(name)) for name, value in key.items()]
    for item in candidates:
        if isinstance(item, dict | Mapping) and all(_part(item, name) == value for name, value in wanted):
            return item
    return None


def _part(item: Mapping[str, Any], key: str) -> object:
    return item.get(key) or _KEY_DEFAULTS.get(key)


def extract(value: object, fields: FieldSet) -> object:
    """The part of a live value that `fields` names: to keep it unchanged, the next apply has to contain it."""
    edges = [edge for edge in fields if edge != "."]
    if isinstance(value, dict) and (edges or "." in fields):
        names = {edge[2:]: fields[edge] for edge in edges if edge.startswith("f:")}
        return {name: extract(below, names[name]) for name, below in value.items() if name in names}
    if isinstance(value, list | tuple) and edges:
        keyed = [(item_key(edge), fields[edge]) for edge in edges if edge.startswith("k:")]
        kept = {id(found): below for key, below in keyed if (found := find_item(value, key)) is not None}
        return [
            extract(item, kept[id(item)]) if id(item) in kept else item
            for item in value
            if id(item) in kept or set_element(item) in fields
        ]
    return value
