"""Decides how soon a change of an object needs a cycle. Most changes need none: a running job's counters, a starting
pod.

A change needs a cycle at once when it is to the declared part of an object (its own fields, its labels, its field
managers), when a workload has stopped, or when the observed state of the cluster differs. After any other change a
cycle would write nothing, and the next cycle sees the change anyway.

Expected progress needs a cycle soon, but not at once, so that the end of another job does not wait for that cycle. Two
changes are expected progress: a released run starts where it was placed; a Job reports the end of a run whose pods have
already ended (they gave their GPUs back up to a second before).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from itertools import compress
from operator import is_not
from typing import Any

from gpuctl.k8s import kinds, names
from gpuctl.k8s.objects import items, mapping
from gpuctl.k8s.suspension import is_stopped
from gpuctl.k8s.workload_table import Rows
from gpuctl.k8s.workloads import is_workload
from gpuctl.model.ids import ObjectRef
from gpuctl.model.state import Body, ClusterState, Run, RunPhase

_ONLY_OBSERVED = frozenset({kinds.POD, kinds.STATEFUL_SET, kinds.RESOURCE_CLAIM, kinds.RESOURCE_SLICE})
"""Kinds that gpuctl never writes: only their observed state matters."""
_PUBLISHED = frozenset(ObjectRef(*kinds.CONFIG_MAP, names.SYSTEM_NAMESPACE, name) for name in names.PUBLISHED)
"""Objects that the leader publishes for people. A change of one never needs a cycle."""
_OF_EVERY_WRITE = frozenset({"resourceVersion", "managedFields"})


def alters(ref: ObjectRef, old: Body | None, new: Body | None, rows: Rows) -> bool:
    """Whether an object that was created, changed or deleted may change what gpuctl writes, whatever is observed of
    it."""
    if (ref.api_version, ref.kind) in _ONLY_OBSERVED or ref in _PUBLISHED:
        return False
    if old is None or new is None:
        return True
    if is_workload(ref) and is_stopped(old, rows) != is_stopped(new, rows):
        return True
    return _declared_part(old) != _declared_part(new) or _owners(old) != _owners(new)


class ChangeUrgency(Enum):
    """How soon a change needs a cycle. NONE: never. SOON: expected progress. NOW: other jobs may be waiting for it."""

    NONE = 0
    SOON = 1
    NOW = 2


def urgency_of(before: ClusterState, now: ClusterState) -> ChangeUrgency:
    """How soon the difference of two observed states needs a cycle. Cost: low where both states share the same
    values."""
    if len(before.runs) != len(now.runs) or (
        (before.nodes, before.ledgers, before.damaged, before.shards, before.claimed)
        != (now.nodes, now.ledgers, now.damaged, now.shards, now.claimed)
    ):
        return ChangeUrgency.NOW
    pairs = zip(before.runs, now.runs, strict=True)
    changed = [(old, new) for old, new in compress(pairs, map(is_not, before.runs, now.runs)) if old != new]
    if not changed:
        return ChangeUrgency.NONE
    expected = all(_comes_up(old, new) or _ends_as_foreseen(old, new) for old, new in changed)
    return ChangeUrgency.SOON if expected else ChangeUrgency.NOW


def _comes_up(old: Run, new: Run) -> bool:
    """Whether a released run has only come further in its start, on the nodes that it had before."""
    if old.phase is not RunPhase.STARTING or new.phase not in (RunPhase.STARTING, RunPhase.RUNNING):
        return False
    onward = replace(
        old, phase=new.phase, started_at_ms=new.started_at_ms, unbound=new.unbound, unstarted=new.unstarted
    )
    return onward == new


def _ends_as_foreseen(old: Run, new: Run) -> bool:
    """Whether the end of this run was expected: it held no GPUs any more and ended as its pods had reported, or it had
    ended already and only the time that its Job reports has changed."""
    if old.phase.final:
        return replace(old, finished_at_ms=new.finished_at_ms) == new
    return old.phase is RunPhase.STOPPING and old.placement is None and new.phase is old.ends_as


def _declared_part(body: Body) -> Mapping[str, Any]:
    """A body without its status and without the fields that every write changes."""
    meta = {key: value for key, value in mapping(body, "metadata").items() if key not in _OF_EVERY_WRITE}
    return {**{key: value for key, value in body.items() if key != "status"}, "metadata": meta}


def _owners(body: Body) -> list[tuple[object, ...]]:
    """The manager, operation and fields of each entry of `managedFields`, without the entries for the status."""
    return [
        (entry.get("manager"), entry.get("operation"), entry.get("fieldsV1"))
        for entry in items(body, "metadata", "managedFields")
        if not entry.get("subresource")
    ]
