"""Drift: where a live object differs from the wanted one, in gpuctl's own fields only.

There are three ways to drift:

- A leaf of the manifest differs in the live object. Fields that the server or others added are not looked at.
- A field that gpuctl applied before, by `metadata.managedFields`, is no longer wanted.
- A part that the server takes as one value, such as a Service's selector, has more than is wanted, and so is no longer
  gpuctl's.

Comparing reads only its two arguments, JSON as decoded (dict, list and scalars), and never changes them.

Invariant: an object has no drift when compared with the result of applying it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from gpuctl.k8s.names import PROVENANCE_ANNOTATIONS
from gpuctl.k8s.objects import annotations_of, mapping
from gpuctl.k8s.quantity import same_quantity
from gpuctl.model.state import Body
from gpuctl.plan.ownership import FieldSet, find_item, item_key, list_keys, owned_fields, set_element

_QUANTITY_PARENTS = frozenset({"requests", "limits", "hard", "capacity"})
_QUANTITY_FIELDS = frozenset({"sizeLimit", "averageValue"})
_EMPTY: tuple[object, ...] = (None, {}, [])
"""To the server, an empty object or list is the same as an absent one."""

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Difference:
    """One field that differs. `wanted` None: gpuctl set it before and no longer wants it; `live` None: it does not
    exist."""

    path: str
    wanted: object = None
    live: object = None


def drift(wanted: Body, live: Body) -> tuple[str, ...]:
    """The paths that differ, as people write them (`spec.suspend`), sorted; empty when nothing needs writing.

    Cost: linear in the manifest; equal parts cost one comparison.
    """
    return tuple(difference.path for difference in differences(wanted, live))


def differences(wanted: Body, live: Body) -> tuple[Difference, ...]:
    """The differences that `drift` names, with both values, sorted by path."""
    found = {difference.path: difference for difference in _differing(wanted, live, "")}
    owned = owned_fields(live)
    unwanted = () if _has_all(wanted, owned) else _unwanted(owned, wanted, live, "")
    taken_over = _taken_over(wanted, live, owned, "") if owned else ()
    for difference in chain(unwanted, taken_over):
        found.setdefault(difference.path, difference)
    if owned:
        found |= {difference.path: difference for difference in _provenance_of_others(wanted, live, owned)}
    return tuple(found[path] for path in sorted(found))


def _provenance_of_others(wanted: Body, live: Body, owned: FieldSet) -> Iterator[Difference]:
    """Annotations of the declaration's place that another manager wrote differently: gpuctl corrects these."""
    notes, told = annotations_of(wanted), annotations_of(live)
    mine = mapping(owned, "f:metadata", "f:annotations")
    for key in PROVENANCE_ANNOTATIONS & notes.keys() & told.keys():
        if f"f:{key}" not in mine and notes[key] != told[key]:
            yield Difference(f"metadata.annotations.{key}", notes[key], told[key])


def _taken_over(wanted: Json, live: Json, fields: FieldSet, path: str) -> Iterator[Difference]:
    """Parts of the manifest that exist but are not owned by gpuctl. A field manager that changes any bit of a part that
    is one value owns all of it. Scalars are compared by their values. Pod templates are left out, as they can't be
    changed while the run goes on."""
    for key, value in wanted.items():
        other, below = live.get(key), fields.get(f"f:{key}")
        here = f"{path}.{key}" if path else key
        if value == other or not isinstance(value, dict | list) or other in _EMPTY or here == "spec.template":
            continue
        if below is None:
            if here != "metadata":
                yield Difference(here, value, other)
        elif isinstance(value, dict) and isinstance(other, dict):
            if any(edge != "." for edge in below):
                yield from _taken_over(value, other, below, here)
        else:
            yield from _items_taken_over(_items(value), _items(other), below, here)


def _items_taken_over(wanted: list[Any], live: list[Any], fields: FieldSet, path: str) -> Iterator[Difference]:
    for element, below in fields.items():
        key = item_key(element) if element.startswith("k:") else {}
        item, other = find_item(wanted, key), find_item(live, key)
        if item is not None and other is not None:
            here = f"{path}[{next(iter(key.values()), '')}]"
            yield from _taken_over(item, other, below, here)


def _differing(wanted: object, live: object, path: str, *, amounts: bool = False) -> Iterator[Difference]:
    """Leaves of `wanted` that `live` lacks or has otherwise. `amounts`: scalars here are Kubernetes quantities."""
    if wanted == live:
        return
    if isinstance(wanted, dict):
        if isinstance(live, dict):
            yield from _differing_fields(wanted, live, path, amounts=amounts)
        elif wanted:
            yield Difference(path, wanted, live)
    elif isinstance(wanted, list):
        if isinstance(live, list):
            yield from _differing_items(wanted, live, path)
        elif wanted:
            yield Difference(path, wanted, live)
    elif wanted is not None and not (amounts and same_quantity(wanted, live)):
        yield Difference(path, wanted, live)


def _differing_fields(wanted: Json, live: Json, path: str, *, amounts: bool) -> Iterator[Difference]:
    for key, value in wanted.items():
        other = live.get(key)
        if value == other or key in PROVENANCE_ANNOTATIONS:
            continue
        here = f"{path}.{key}" if path else key
        if other is not None or key in live:
            below = amounts or key in _QUANTITY_PARENTS or key in _QUANTITY_FIELDS
            yield from _differing(value, other, here, amounts=below)
        elif value not in _EMPTY:
            yield Difference(here, value)


def _differing_items(wanted: list[Any], live: list[Any], path: str) -> Iterator[Difference]:
    """Compare a keyed list item by item (it may hold others' items); any other list is one value."""
    keys = list_keys(path)
    if keys and all(isinstance(item, dict) for item in wanted):
        for item in wanted:
            found = find_item(live, {key: item.get(key) for key in keys})
            here = f"{path}[{item.get(keys[0])}]"
            if found is None:
                yield Difference(here, item)
            else:
                yield from _differing(item, found, here)
    elif len(wanted) != len(live):
        yield Difference(path, wanted, live)
    else:
        for index, (item, other) in enumerate(zip(wanted, live, strict=True)):
            yield from _differing(item, other, f"{path}[{index}]")


def _has_all(wanted: object, fields: FieldSet) -> bool:
    """Whether the manifest has every field that gpuctl owns. That is so nearly always; then `_unwanted` finds
    nothing."""
    for element, below in fields.items():
        if isinstance(wanted, dict) and element.startswith("f:"):
            name = element[2:]
            if name not in wanted or (below and not _has_all(wanted[name], below)):
                return False
        elif isinstance(wanted, list) and element.startswith("k:"):
            found = find_item(wanted, item_key(element))
            if found is None or (below and not _has_all(found, below)):
                return False
        elif element != "." and not (isinstance(wanted, list) and element in map(set_element, wanted)):
            return False
    return True


def _unwanted(fields: FieldSet, wanted: object, live: object, path: str) -> Iterator[Difference]:
    """Fields that gpuctl owns and the manifest lacks."""
    names = wanted if isinstance(wanted, dict) else {}
    there = live if isinstance(live, dict) else {}
    for element, below in fields.items():
        if element.startswith("f:"):
            name = element[2:]
            here = f"{path}.{name}" if path else name
            if name not in names:
                if name not in PROVENANCE_ANNOTATIONS:
                    yield Difference(here, live=there.get(name))
            elif below:
                yield from _unwanted(below, names[name], there.get(name), here)
        elif element != ".":
            yield from _unwanted_item(element, below, (_items(wanted), _items(live)), path)


def _unwanted_item(
    element: str, below: FieldSet, lists: tuple[list[Any], list[Any]], path: str
) -> Iterator[Difference]:
    wanted, live = lists
    if element.startswith("v:"):
        if element not in map(set_element, wanted):
            there = next((item for item in live if set_element(item) == element), None)
            yield Difference(f"{path}[{element[2:]}]", live=there)
        return
    key = item_key(element)
    found = find_item(wanted, key)
    here = f"{path}[{next(iter(key.values()), '')}]"
    if found is None:
        yield Difference(here, live=find_item(live, key))
    else:
        yield from _unwanted(below, found, find_item(live, key), here)


def _items(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
