"""Drift: where a live object is not as it is wanted, in fields gpuctl owns and no others.

Two ways to drift. A leaf of the manifest differs in the live object (what the server defaulted or others added is not
looked at); or a field that gpuctl applied before, by `metadata.managedFields`, is not wanted any more. Comparing reads
nothing but its two arguments, JSON as decoded (dict, list and scalars), and never changes them.

Invariant: an object compared with what applying it gave has no drift.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpuctl.k8s.names import PROVENANCE_ANNOTATIONS
from gpuctl.k8s.quantity import same_quantity
from gpuctl.model.state import Body
from gpuctl.plan.ownership import FieldSet, find_item, item_key, list_keys, owned_fields, set_element

_QUANTITY_PARENTS = frozenset({"requests", "limits", "hard", "capacity"})
_QUANTITY_FIELDS = frozenset({"sizeLimit"})
_EMPTY: tuple[object, ...] = (None, {}, [])
"""An empty object or list and an absent one are the same to the server."""

Json = Mapping[str, Any]


def drift(wanted: Body, live: Body) -> tuple[str, ...]:
    """The paths that differ, as people write them (`spec.suspend`), sorted; empty when nothing needs writing.

    Cost: linear in the manifest; parts that are equal as they stand cost one comparison.
    """
    differing = set(_differing(wanted, live, ""))
    differing.update(_unwanted(owned_fields(live), wanted, ""))
    return tuple(sorted(differing))


def _differing(wanted: object, live: object, path: str, *, amounts: bool = False) -> Iterator[str]:
    """Leaves of `wanted` that `live` lacks or has otherwise. `amounts`: scalars here are Kubernetes quantities."""
    if wanted == live:
        return
    if isinstance(wanted, dict):
        if isinstance(live, dict):
            yield from _differing_fields(wanted, live, path, amounts=amounts)
        elif wanted:
            yield path
    elif isinstance(wanted, list):
        if isinstance(live, list):
            yield from _differing_items(wanted, live, path)
        elif wanted:
            yield path
    elif wanted is not None and not (amounts and same_quantity(wanted, live)):
        yield path


def _differing_fields(wanted: Json, live: Json, path: str, *, amounts: bool) -> Iterator[str]:
    for key, value in wanted.items():
        other = live.get(key)
        if value == other or key in PROVENANCE_ANNOTATIONS:
            continue
        here = f"{path}.{key}" if path else key
        if other is not None or key in live:
            below = amounts or key in _QUANTITY_PARENTS or key in _QUANTITY_FIELDS
            yield from _differing(value, other, here, amounts=below)
        elif value not in _EMPTY:
            yield here


def _differing_items(wanted: list[Any], live: list[Any], path: str) -> Iterator[str]:
    """A keyed list is compared item by item and may hold others' items; any other list is one value."""
    keys = list_keys(path)
    if keys and all(isinstance(item, dict) for item in wanted):
        for item in wanted:
            found = find_item(live, {key: item.get(key) for key in keys})
            here = f"{path}[{item.get(keys[0])}]"
            if found is None:
                yield here
            else:
                yield from _differing(item, found, here)
    elif len(wanted) != len(live):
        yield path
    else:
        for index, (item, other) in enumerate(zip(wanted, live, strict=True)):
            yield from _differing(item, other, f"{path}[{index}]")


def _unwanted(fields: FieldSet, wanted: object, path: str) -> Iterator[str]:
    """Fields in gpuctl's name that the manifest lacks."""
    names = wanted if isinstance(wanted, dict) else {}
    for element, below in fields.items():
        if element.startswith("f:"):
            name = element[2:]
            if name not in names:
                if name not in PROVENANCE_ANNOTATIONS:
                    yield f"{path}.{name}" if path else name
            elif below:
                yield from _unwanted(below, names[name], f"{path}.{name}" if path else name)
        elif element != ".":
            yield from _unwanted_item(element, below, wanted if isinstance(wanted, list) else [], path)


def _unwanted_item(element: str, below: FieldSet, wanted: list[Any], path: str) -> Iterator[str]:
    if element.startswith("v:"):
        if element not in map(set_element, wanted):
            yield f"{path}[{element[2:]}]"
        return
    key = item_key(element)
    found = find_item(wanted, key)
    here = f"{path}[{next(iter(key.values()), '')}]"
    if found is None:
        yield here
    else:
        yield from _unwanted(below, found, here)
