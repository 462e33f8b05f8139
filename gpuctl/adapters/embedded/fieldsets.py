"""Sets of field paths, and the form in which the API writes them (`fieldsV1`).

A path is a tuple of elements: `f:name` of an object, `k:{"name":"main"}` of a keyed list, `v:"x"` of a set. A member is
a value owned as one piece, an empty object, or the existence of an item of a keyed list.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from gpuctl.adapters.embedded.shapes import ATOMIC, OPEN, Atomic, Fields, Keyed, SetOf, Shape

Path: TypeAlias = tuple[str, ...]
FieldSet: TypeAlias = frozenset[Path]

_EXISTS = object()
"""The value that stands for the existence of an item of a keyed list."""


def item_key(shape: Keyed, item: Mapping[str, Any]) -> str:
    """The path element of an item of a keyed list."""
    keys = {name: item.get(name, default) for name, default in shape.keys}
    return "k:" + json.dumps(keys, separators=(",", ":"), sort_keys=True)


def parts(shape: Shape, value: Any) -> Iterator[tuple[str, Shape, Any]]:
    """The parts of a value that are owned separately, each with its path element; none if the value is one piece."""
    match shape:
        case Fields(of=of):
            for name, inner in value.items() if isinstance(value, dict) else ():
                yield f"f:{name}", of.get(name) or division(inner), inner
        case Keyed(item=item):
            for entry in value or ():
                yield item_key(shape, entry), item, entry
        case SetOf():
            for entry in value or ():
                yield "v:" + json.dumps(entry), ATOMIC, entry
        case Atomic():
            return


def division(value: Any) -> Shape:
    """The division of a value whose field the shapes do not name."""
    return OPEN if isinstance(value, dict) else ATOMIC


def leaves(shape: Shape, value: Any, path: Path = ()) -> dict[Path, Any]:
    """Every member of a value, with its content."""
    found: dict[Path, Any] = {}
    for element, inner_shape, inner in parts(shape, value):
        here = (*path, element)
        if isinstance(inner_shape, Atomic) or inner == {}:
            found[here] = inner
            continue
        if isinstance(shape, Keyed):
            found[here] = _EXISTS
        found.update(leaves(inner_shape, inner, here))
    return found


def changed(shape: Shape, old: Any, new: Any) -> FieldSet:
    """Members that only one of two values has, or that differ."""
    before, after = leaves(shape, old), leaves(shape, new)
    lost = frozenset(before.keys() - after.keys())
    return lost | {path for path, value in after.items() if path not in before or before[path] != value}


def encode(fields: Iterable[Path]) -> dict[str, Any]:
    """The set as `fieldsV1`, in sorted order."""
    tree: dict[str, Any] = {}
    for path in sorted(fields):
        node = tree
        for element in path[:-1]:
            below = node.setdefault(element, {})
            node = below
        node.setdefault(path[-1], {})
    members = set(fields)
    return _marked(tree, (), members)


def _marked(tree: dict[str, Any], path: Path, members: set[Path]) -> dict[str, Any]:
    """The tree with "." in every node that is a member and has members below it."""
    result: dict[str, Any] = {".": {}} if tree and path in members else {}
    for element, below in tree.items():
        result[element] = _marked(below, (*path, element), members)
    return result


def decode(tree: Mapping[str, Any], path: Path = ()) -> FieldSet:
    """The set that a `fieldsV1` tree states."""
    if not tree:
        return frozenset({path}) if path else frozenset()
    found: set[Path] = set()
    for element, below in tree.items():
        found |= {path} if element == "." else decode(below, (*path, element))
    return frozenset(found)
