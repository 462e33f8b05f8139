"""Which changes of objects are worth a cycle, and how soon. Most are not: a running job's counters, a pod on its way.

A change matters when it is to the declared part of an object (its own fields, its labels, its field managers), when a
workload has stopped, or when the observed state of the cluster differs. After any other change a cycle would write
nothing, and the next cycle sees it at the latest. Expected progress is worth a cycle, but not at once, so that a job
that ends meanwhile does not wait for that cycle: that released runs start where they were placed, and that a Job tells
the end of a run whose pods have ended, and so gave their GPUs back, up to a second before.
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
"""What the leader publishes for people: no cycle follows from it."""
_OF_EVERY_WRITE = frozenset({"resourceVersion", "managedFields"})


def alters(ref: ObjectRef, old: Body | None, new: Body | None, rows: Rows) -> bool:
    """Whether an object that came, changed or went may change what is written, whatever is observed of it."""
    if (ref.api_version, ref.kind) in _ONLY_OBSERVED or ref in _PUBLISHED:
        return False
    if old is None or new is None:
        return True
    if is_workload(ref) and is_stopped(old, rows) != is_stopped(new, rows):
        return True
    return _declared_part(old) != _declared_part(new) or _owners(old) != _owners(new)


class ChangeUrgency(Enum):
    """How soon a change needs a cycle: none; soon, for expected progress; or now, when other jobs may wait for it."""

    NONE = 0
    SOON = 1
    NOW = 2


def urgency_of(before: ClusterState, now: ClusterState) -> ChangeUrgency:
    """How soon the difference of two observed states needs a cycle. Cheap where both share the same values."""
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
    """Whether a released run has only come further in its start, on the nodes that it had."""
    if old.phase is not RunPhase.STARTING or new.phase not in (RunPhase.STARTING, RunPhase.RUNNING):
        return False
    onward = replace(
        old, phase=new.phase, started_at_ms=new.started_at_ms, unbound=new.unbound, unstarted=new.unstarted
    )
    return onward == new


def _ends_as_foreseen(old: Run, new: Run) -> bool:
    """Whether a run that held nothing any more has ended, as its pods had told, or its Job tells when it has."""
    if old.phase.final:
        return replace(old, finished_at_ms=new.finished_at_ms) == new
    return old.phase is RunPhase.STOPPING and old.placement is None and new.phase is old.ends_as


def _declared_part(body: Body) -> Mapping[str, Any]:
    """A body without its status and without the fields that every write changes."""
    meta = {key: value for key, value in mapping(body, "metadata").items() if key not in _OF_EVERY_WRITE}
    return {**{key: value for key, value in body.items() if key != "status"}, "metadata": meta}


def _owners(body: Body) -> list[tuple[object, ...]]:
    """Which manager owns which fields, without the fields of the status."""
    return [
        (entry.get("manager"), entry.get("operation"), entry.get("fieldsV1"))
        for entry in items(body, "metadata", "managedFields")
        if not entry.get("subresource")
    ]
