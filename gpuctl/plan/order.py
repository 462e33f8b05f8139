"""The order of writes. A stage is finished for every project before the next begins; within one, by project and name.

The first stages follow dependencies: gpuctl's namespace; a ledger's shards before the head that counts them; the ledger
before what it records; a namespace before its contents; the quotas of a namespace before the roles of people in it; a
reserved place before the pauses of the jobs that hold it; a claim template before the run that needs it; runs that may
start before runs that have to wait. Then come pure records (runs that were seen to end), then the reasons on waiting
runs, and deletions last.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import TypeAlias

from gpuctl.k8s import kinds, names
from gpuctl.k8s.objects import annotations_of
from gpuctl.k8s.suspension import is_let_go
from gpuctl.k8s.workload_table import Rows
from gpuctl.k8s.workloads import is_workload, workers_of
from gpuctl.model.change import Action, Change
from gpuctl.model.ids import ObjectRef
from gpuctl.model.state import Body


class Stage(IntEnum):
    """The stage in which a change is made."""

    SYSTEM = 0
    SHARD = 1
    LEDGER = 2
    SCOPE = 3
    SUPPORT = 4
    UPDATE = 5
    PAUSE = 6
    RELEASE = 7
    CLAIM = 8
    ADMIT = 9
    RECORD = 10
    QUEUE = 11
    PRUNE = 12


def stage_of(ref: ObjectRef, body: Body, live: Body | None, rows: Rows) -> Stage:
    """The stage of creating or updating an object; `body` is the body to write."""
    kind = (ref.api_version, ref.kind)
    if kind == kinds.NAMESPACE and ref.name == names.SYSTEM_NAMESPACE:
        return Stage.SYSTEM
    if kind in kinds.CLUSTER_SCOPED:
        return Stage.SCOPE
    if kind == kinds.CLAIM_TEMPLATE:
        return Stage.CLAIM
    if kind == kinds.ROLE_BINDING:
        return Stage.UPDATE  # pods that people make before the quotas exist would stay
    if not is_workload(ref):
        return Stage.SUPPORT
    if live is None:
        return Stage.UPDATE
    goes, went = is_let_go(body, rows), is_let_go(live, rows)
    if not (went or goes or _reserves(live) or _reserves(body)):
        return Stage.QUEUE
    if went == goes:
        return _resized(body, live) if went else Stage.UPDATE
    return Stage.ADMIT if goes else Stage.PAUSE


def _resized(body: Body, live: Body) -> Stage:
    """An elastic run gives up workers when others are paused, and grows when others start."""
    if names.MIN_WORKERS_ANNOTATION not in annotations_of(body):
        return Stage.UPDATE
    before, after = workers_of(live), workers_of(body)
    return Stage.UPDATE if before == after else Stage.PAUSE if after < before else Stage.ADMIT


def _reserves(body: Body) -> bool:
    """Whether a waiting run has reserved GPUs; its object tells the next cycle."""
    return names.PLACEMENT_ANNOTATION in annotations_of(body)


Wave: TypeAlias = tuple[int, bool, int]
"""Changes of one wave do not depend on each other; those of a later wave may depend on those of an earlier one."""


def in_order(changes: Iterable[Change]) -> tuple[Change, ...]:
    """All changes in the order of writing."""
    return tuple(sorted(changes, key=lambda change: (wave(change), change.project or "", change.ref)))


def wave(change: Change) -> Wave:
    """The wave of a change. Namespaces come first in their stage, so that ledgers have one to be in."""
    kind = (change.ref.api_version, change.ref.kind)
    rank = kinds.prune_rank(kind) if change.action is Action.DELETE else 0
    return change.stage, kind != kinds.NAMESPACE and change.stage < Stage.PRUNE, rank
