"""Drift: where a live object is not as it is wanted, in fields gpuctl owns and no others.

Two ways to drift. A leaf of the manifest differs in the live object (what the server defaulted or others added is not
looked at); or a field that gpuctl applied before, by `metadata.managedFields`, is not wanted any more. Comparing reads
nothing but its two arguments and never changes them.

Invariant: an object compared with what applying it gave has no drift.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuctl.k8s.names import PROVENANCE_ANNOTATIONS
from gpuctl.k8s.quantity import same_quantity
from gpuctl.model.state import Body
from gpuctl.plan.ownership import FieldSet, find_item, item_key, list_keys, owned_fields, set_element

_QUANTITY_PARENTS = frozenset({"requests", "limits", "hard", "capacity"})
_QUANTITY_FIELDS = frozenset({"sizeLimit"})


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
    if isinstance(wanted, Mapping):
        if isinstance(live, Mapping):
            yield from _differing_fields(wanted, live, path, amounts=amounts)
        elif not _is_empty(wanted):
            yield path
    elif isinstance(wanted, list | tuple):
        if isinstance(live, list | tuple):
            yield from _differing_items(wanted, live, path)
        elif not _is_empty(wanted):
            yield path
    elif wanted is not None and not (amounts and same_quantity(wanted, live)):
        yield path


def _differing_fields(wanted: Body, live: Body, path: str, *, amounts: bool) -> Iterator[str]:
    for key, value in wanted.items():
        if key in PROVENANCE_ANNOTATIONS:
            continue
        here = f"{path}.{key}" if path else key
        if key in live:
            below = amounts or key in _QUANTITY_PARENTS or key in _QUANTITY_FIELDS
            yield from _differing(value, live[key], here, amounts=below)
        elif not _is_empty(value):
            yield here


def _differing_items(wanted: Sequence[Any], live: Sequence[Any], path: str) -> Iterator[str]:
    """A keyed list is compared item by item and may hold others' items; any other list is one value."""
    keys = list_keys(path)
    if keys and all(isinstance(item, Mapping) for item in wanted):
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
    for element, below in fields.items():
        kind, _, name = element.partition(":")
        if kind == "f":
            if name in PROVENANCE_ANNOTATIONS:
                continue
            here = f"{path}.{name}" if path else name
            if not isinstance(wanted, Mapping) or name not in wanted:
                yield here
            else:
                yield from _unwanted(below, wanted[name], here)
        elif kind == "k":
            yield from _unwanted_item(element, below, wanted, path)
        elif kind == "v" and not (isinstance(wanted, list | tuple) and element in map(set_element, wanted)):
            yield f"{path}[{name}]"


def _unwanted_item(element: str, below: FieldSet, wanted: object, path: str) -> Iterator[str]:
    key = item_key(element)
    found = find_item(wanted, key) if isinstance(wanted, list | tuple) else None
    here = f"{path}[{next(iter(key.values()), '')}]"
    if found is None:
        yield here
    else:
        yield from _unwanted(below, found, here)


def _is_empty(value: object) -> bool:
    """An empty object or list and an absent one are the same to the server."""
    return value is None or value in ({}, [], ())
