"""Server-side apply and update: their results for an object, and for the field ownership in its `managedFields`.

A field that another manager owns with another value is taken over with `force`; else the apply is refused. A field that
the manager owned and leaves out is removed unless another manager owns it too. Source: Kubernetes, server-side apply;
structured-merge-diff v6.
"""

from __future__ import annotations

from typing import Any

from gpuctl.adapters.embedded.bodies import at, put
from gpuctl.adapters.embedded.faults import conflict, invalid
from gpuctl.adapters.embedded.fieldsets import (
    FieldSet,
    Path,
    changed,
    decode,
    division,
    encode,
    item_key,
    leaves,
    parts,
)
from gpuctl.adapters.embedded.shapes import Fields, Keyed, SetOf, Shape, shape_of
from gpuctl.k8s.timestamps import format_seconds
from gpuctl.model.state import Body
from gpuctl.model.units import Instant

_NOT_OWNED: frozenset[Path] = frozenset(
    {("f:apiVersion",), ("f:kind",), ("f:metadata",), ("f:status",)}
    | {
        ("f:metadata", f"f:{name}")
        for name in ("name", "namespace", "creationTimestamp", "uid", "generation", "managedFields", "resourceVersion",
                     "deletionTimestamp", "deletionGracePeriodSeconds", "generateName")
    }
)  # fmt: skip

Owners = dict[tuple[str, str], FieldSet]
"""The fields that each (manager, operation) owns."""


def merged(shape: Shape, live: Any, wanted: Any) -> Any:
    """`live` with every field of `wanted`. Keyed lists take the order of `wanted`; items that only `live` has
    follow."""
    match shape:
        case Fields(of=of) if isinstance(live, dict) and isinstance(wanted, dict):
            result = dict(live)
            for name, value in wanted.items():
                inner = of.get(name) or division(value)
                result[name] = merged(inner, live[name], value) if name in live else value
            return result
        case Keyed(item=item):
            old = {item_key(shape, entry): entry for entry in live or ()}
            new = {item_key(shape, entry): entry for entry in wanted}
            if len(new) != len(wanted):
                raise invalid(f"duplicate entries for key {[name for name, _ in shape.keys]}: {sorted(new)}")
            both = [merged(item, old[k], entry) if k in old else entry for k, entry in new.items()]
            return both + [entry for k, entry in old.items() if k not in new]
        case SetOf():
            return [*wanted, *(entry for entry in live or () if entry not in wanted)]
        case _:
            return wanted


def without(shape: Shape, value: Any, gone: FieldSet, kept: FieldSet) -> Any:
    """The value without the members in `gone`; None if nothing is left. An item stays if others own a part of it."""
    if not gone:
        return value
    left: list[tuple[str, Any]] = []
    for element, inner_shape, inner in parts(shape, value):
        inner_gone, inner_kept = _below(gone, element), _below(kept, element)
        if () in inner_gone and not inner_kept:
            continue
        rest = without(inner_shape, inner, inner_gone - {()}, inner_kept - {()})
        if rest is not None:
            left.append((element, rest))
    if not left:
        return None
    return (
        {element[2:]: inner for element, inner in left} if isinstance(shape, Fields) else [inner for _, inner in left]
    )


def _below(fields: FieldSet, element: str) -> FieldSet:
    return frozenset(path[1:] for path in fields if path[0] == element)


def owners_of(body: Body) -> Owners:
    """The fields that each manager owns of a stored object."""
    entries = at(body, "metadata", "managedFields", default=())
    return {(entry["manager"], entry["operation"]): decode(entry["fieldsV1"]) for entry in entries}


def applied(live: Body | None, wanted: Body, manager: str, *, force: bool = True) -> tuple[dict[str, Any], Owners]:
    """The object and its owners after `manager` applied `wanted`. Without `force`, raises Conflict if others own what
    it changes."""
    shape = shape_of((wanted["apiVersion"], wanted["kind"]))
    mine = _owned(shape, wanted)
    if live is None:
        return dict(wanted), {(manager, "Apply"): mine}
    owners = owners_of(live)
    before = owners.pop((manager, "Apply"), frozenset())
    result = merged(shape, live, wanted)
    others: FieldSet = frozenset().union(*owners.values())
    taken = mine & others
    if taken:
        held, now = leaves(shape, live), leaves(shape, result)
        lost = frozenset(path for path in taken if held.get(path) != now.get(path))
        if lost and not force:
            raise conflict(f"Apply failed with {len(lost)} conflicts")
        owners = {owner: fields - lost for owner, fields in owners.items()}
    left_out = before - mine - others
    if left_out:
        result = without(shape, result, left_out, mine | others)
    return result, {**{owner: f for owner, f in owners.items() if f}, (manager, "Apply"): mine}


def made(body: Body, manager: str) -> Owners:
    """The owners after `manager` made the object."""
    return {(manager, "Update"): _owned(shape_of((body["apiVersion"], body["kind"])), body)}


def updated(live: Body, new: Body, manager: str) -> Owners:
    """The owners after `manager` replaced the object: it alone owns the fields that it changed."""
    shape = shape_of((new["apiVersion"], new["kind"]))
    moved = changed(shape, _ownable(live), _ownable(new))
    present = _owned(shape, new)
    owners = {owner: fields - moved for owner, fields in owners_of(live).items()}
    mine = owners.get((manager, "Update"), frozenset()) | (moved & present)
    owners[manager, "Update"] = mine
    return {owner: fields & present for owner, fields in owners.items() if fields & present}


def with_owners(body: Body, owners: Owners, live: Body | None, now_ms: Instant) -> dict[str, Any]:
    """The body with its `managedFields`; an entry that did not change keeps its time."""
    before = {(e["manager"], e["operation"]): e for e in at(live, "metadata", "managedFields", default=())}
    entries = []
    for (manager, operation), fields in sorted(owners.items()):
        tree = encode(fields)
        old = before.get((manager, operation))
        if old is not None and old["fieldsV1"] == tree:
            entries.append(old)
            continue
        entries.append({
            "manager": manager,
            "operation": operation,
            "apiVersion": body["apiVersion"],
            "time": format_seconds(now_ms),
            "fieldsType": "FieldsV1",
            "fieldsV1": tree,
        })
    return put(body, ("metadata", "managedFields"), entries)


def _ownable(body: Body) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name != "status"}


def _owned(shape: Shape, body: Body) -> FieldSet:
    """The fields of a body that a manager can own: not the object's identity, and not its status."""
    return frozenset(leaves(shape, _ownable(body))) - _NOT_OWNED
