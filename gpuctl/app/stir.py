"""Which changes of objects are worth a cycle, and how soon. Most are not: a running job's counters, a pod on its way.

A change matters when it is to what somebody declares of an object (its own fields, its labels, who owns them), when a
workload has come to its rest, or when what is observed of the whole cluster is another. All else a cycle would look at
and write nothing; what this overlooks is seen by the next cycle at the latest. That runs which were let go come up
where they were sent is worth a look, but nobody waits for it: a job that ends meanwhile must not wait for that look.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from itertools import compress
from operator import is_not
from typing import Any

from gpuctl.k8s import kinds
from gpuctl.k8s.objects import items, mapping
from gpuctl.k8s.workloads import is_workload
from gpuctl.model.ids import ObjectRef
from gpuctl.model.state import Body, ClusterState, Run, RunPhase
from gpuctl.plan import is_stopped

_ONLY_OBSERVED = frozenset({kinds.POD, kinds.RESOURCE_CLAIM, kinds.RESOURCE_SLICE})
"""Kinds that gpuctl never writes: of them only matters what is observed."""
_OF_EVERY_WRITE = frozenset({"resourceVersion", "managedFields"})


def alters(ref: ObjectRef, old: Body | None, new: Body | None) -> bool:
    """Whether an object that came, changed or went may have something else be written, whatever is observed of it."""
    if (ref.api_version, ref.kind) in _ONLY_OBSERVED:
        return False
    if old is None or new is None:
        return True
    if is_workload(ref) and is_stopped(old) != is_stopped(new):
        return True
    return _declared_part(old) != _declared_part(new) or _owners(old) != _owners(new)


class Stir(Enum):
    """How much has changed: nothing; only what was to be expected; or something that may have others wait."""

    NOTHING = 0
    PROGRESS = 1
    NEWS = 2


def stir(before: ClusterState, now: ClusterState) -> Stir:
    """How much else is observed than before. Cheap where both are made of the same values."""
    if len(before.runs) != len(now.runs) or (
        (before.nodes, before.ledgers, before.damaged, before.shards, before.claimed)
        != (now.nodes, now.ledgers, now.damaged, now.shards, now.claimed)
    ):
        return Stir.NEWS
    pairs = zip(before.runs, now.runs, strict=True)
    changed = [(old, new) for old, new in compress(pairs, map(is_not, before.runs, now.runs)) if old != new]
    if not changed:
        return Stir.NOTHING
    return Stir.PROGRESS if all(_comes_up(old, new) for old, new in changed) else Stir.NEWS


def _comes_up(old: Run, new: Run) -> bool:
    """Whether a run that was let go is just further on its way, in the place that it had."""
    if old.phase is not RunPhase.STARTING or new.phase not in (RunPhase.STARTING, RunPhase.RUNNING):
        return False
    onward = replace(
        old, phase=new.phase, started_at_ms=new.started_at_ms, unbound=new.unbound, unstarted=new.unstarted
    )
    return onward == new


def _declared_part(body: Body) -> Mapping[str, Any]:
    """All but its status and what every write changes."""
    meta = {key: value for key, value in mapping(body, "metadata").items() if key not in _OF_EVERY_WRITE}
    return {**{key: value for key, value in body.items() if key != "status"}, "metadata": meta}


def _owners(body: Body) -> list[tuple[object, ...]]:
    """Who owns which fields, those of the status left out."""
    return [
        (entry.get("manager"), entry.get("operation"), entry.get("fieldsV1"))
        for entry in items(body, "metadata", "managedFields")
        if not entry.get("subresource")
    ]
