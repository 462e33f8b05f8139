"""(Manifests, ClusterState) -> Plan: the complete list of writes that bring the cluster to the wanted state, in order.

`make_plan` is pure and level-triggered: it compares live with wanted objects, never with an earlier plan. Run again on
the cluster that a plan was applied to, it plans fewer writes, and in the end none.

Invariants: nothing outside an inventory is deleted; a ledger is written before the objects it records; a plan for an
unchanged cluster is empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter

from gpuctl.diag.diagnostic import Diagnostic, sorted_diagnostics
from gpuctl.k8s.kinds import CLAIM, NAMESPACE
from gpuctl.k8s.ledger import ledger_ref
from gpuctl.k8s.workload_table import rows_of
from gpuctl.k8s.workloads import job_of
from gpuctl.model.change import Change, Plan
from gpuctl.model.decision import Schedule
from gpuctl.model.declared import Declared
from gpuctl.model.ids import ObjectRef, RunKey
from gpuctl.model.manifest import Manifests
from gpuctl.model.state import Body, ClusterState, Ledger, RunPhase
from gpuctl.model.units import Instant
from gpuctl.plan.cache import PlanCache
from gpuctl.plan.ceilings import devices_of_old_runs, with_old_runs
from gpuctl.plan.diff import Difference, differences, drift
from gpuctl.plan.ending_claims import ending_claims
from gpuctl.plan.freeze import Doing, frozen, removed, says_otherwise
from gpuctl.plan.guard import (
    CONFIRM_TRAILER,
    Cut,
    Stops,
    confirmation_of,
    cut_digest,
    damaged_projects,
    excluded_projects,
    foreign_namespaces,
    frozen_projects,
    is_confirmed,
    mass_stop,
    namespaces_left,
    quota_cut,
    removal,
    review,
    void_confirmations,
)
from gpuctl.plan.idle_reports import no_idle_reports
from gpuctl.plan.inventory import (
    OWN,
    gather,
    known_ledgers,
    left_over,
    next_ledger,
    of_kinds,
    shards_by_project,
    unseen,
)
from gpuctl.plan.inventory_mismatch import inventory_mismatches, names_in_the_way
from gpuctl.plan.object_diff import ObjectDiff
from gpuctl.plan.obstacles import Obstacles, obstacles, taken_names
from gpuctl.plan.order import Stage, in_order
from gpuctl.plan.prune import is_namespace, surplus
from gpuctl.plan.slow_ends import slow_ends, unended
from gpuctl.plan.writes import TAKEN, book, delete, remade, writer_of

__all__ = [
    "CONFIRM_TRAILER",
    "OWN",
    "TAKEN",
    "Cut",
    "Difference",
    "Doing",
    "Obstacles",
    "PlanCache",
    "Stage",
    "confirmation_of",
    "cut_digest",
    "differences",
    "drift",
    "excluded_projects",
    "foreign_namespaces",
    "frozen",
    "is_confirmed",
    "make_plan",
    "mass_stop",
    "namespaces_left",
    "obstacles",
    "quota_cut",
    "removal",
    "removed",
    "says_otherwise",
    "void_confirmations",
]

_REF = attrgetter("ref")


_TOLD_OF = frozenset({NAMESPACE[1], CLAIM[1]})


def make_plan(  # noqa: PLR0913 - the four values of a cycle, the confirmations, and what is known already
    declared: Declared,
    schedule: Schedule,
    manifests: Manifests,
    state: ClusterState,
    confirmations: frozenset[str],
    *,
    stops: Stops | None = None,
    cache: PlanCache | None = None,
    admits: bool = True,
) -> Plan:
    """Plan all writes of a cycle. Cost: a comparison of each manifest and live object, and the work for changes.

    `stops` (the result of `mass_stop`) and `cache` (of the plan before) save work and change no result. `admits` False:
    another engine starts and pauses runs, so whether a run is suspended is left as it is.
    """
    cache, rows = cache or PlanCache(), rows_of(declared.cluster.workload_kinds)
    cache.turn(rows)
    untouched = excluded_projects(declared, state) | damaged_projects(state) | frozen_projects(declared, state)
    cluster, ledgers = declared.cluster.name, known_ledgers(declared, state)
    refs = tuple(map(_REF, manifests.items))
    stops, lives = stops or mass_stop(declared, state, confirmations), list(map(state.live.get, refs))
    items = with_old_runs(manifests.items, devices_of_old_runs(declared, state, cache))
    found = cache.diffs(refs, items, lives, _strays(state) if admits else _NONE)
    diffs = [diff for diff in found if diff.item.project not in untouched and not _is_held(diff, stops)]
    anew = remade(diffs, state) if admits else frozenset[RunKey]()
    books = replace(gather(declared, schedule, manifests, refs, state, cache), remade=anew)
    staying = cache.staying(refs, manifests.retained)
    changes, recorded = list[Change](), list[frozenset[RunKey]]()
    refusals: list[Diagnostic] = [*foreign_namespaces(declared, state).values(), *stops.refusals]
    kept = set(untouched - books.projects)
    shards = shards_by_project(state)
    for project in sorted({OWN, *ledgers, *books.projects, *shards} - untouched):
        old = ledgers.get(project, Ledger(project=project))
        there, hidden = left_over(old, books, state, cache), unseen(old, state, cache)
        new = next_ledger(declared, old, books, there | hidden, cache)
        recorded.append(new.seen)
        closing = project not in books.projects and project != OWN
        gone = [r for r in surplus(cluster, old, there, hidden, staying, state) if not _is_stopped_by(r, stops, state)]
        reviewed = review(declared, old, tuple(gone), state, confirmations)
        owner = None if project == OWN else project
        bodies = tuple(state.live.get(ref) for ref in (ledger_ref(cluster, project), *shards.get(project, ())))
        write = partial(book, cluster, old, new, state, closing=closing)
        changes += cache.book(project, (old, new, closing, shards.get(project), bodies), write)
        runs = books.declared.get(project, frozenset())
        changes += [delete(ref, state.live[ref], owner, _why_gone(ref, state, runs)) for ref in reviewed.allowed]
        refusals += reviewed.refusals
        if closing and reviewed.refusals:
            kept.add(project)
    told = tuple(of_kinds(state, _TOLD_OF))
    spaces = {ref: state.live[ref] for ref in filter(is_namespace, told)}
    writer = replace(writer_of(state, spaces, ledgers.values(), recorded, anew), admits=admits, rows=rows)
    written = writer.writes(diffs, cache) if diffs else []
    return Plan(
        changes=() if state.all_frozen else in_order([*changes, *written, *unended(state, untouched, schedule.at_ms)]),
        refusals=sorted_diagnostics(refusals),
        unchanged=sum(1 for item in manifests.items if item.project not in untouched) - len({c.ref for c in written}),
        notices=sorted_diagnostics(_notices(declared, state, spaces, told, schedule.at_ms, cache)),
        kept=frozenset(kept),
    )


def _notices(  # noqa: PLR0913, PLR0917 - what the plan has found already
    declared: Declared,
    state: ClusterState,
    spaces: Mapping[ObjectRef, Body],
    told: Sequence[ObjectRef],
    now_ms: Instant,
    cache: PlanCache,
) -> Iterator[Diagnostic]:
    """Notices about differences from the declarations that no write can correct. `spaces`: the live namespaces; `told`:
    those and the live claims."""
    yield from ending_claims(declared, state, told)
    yield from inventory_mismatches(declared, state, spaces)
    yield from names_in_the_way(declared, taken_names(declared, state, cache))
    yield from no_idle_reports(declared, state, now_ms)
    yield from slow_ends(declared, state, spaces, now_ms)


def _why_gone(ref: ObjectRef, state: ClusterState, declared: frozenset[RunKey]) -> str:
    """Why an object is deleted: the run of a declared job ended long enough ago, or the object is no longer
    declared."""
    own = state.own.get(ref)
    return "ttlAfterFinished is over" if own is not None and own.run in declared else "no longer declared"


def _strays(state: ClusterState) -> frozenset[ObjectRef]:
    """The objects of runs that run though gpuctl never released them."""
    loose = {(run.job, run.digest) for run in state.runs if not run.starts and run.phase in _LET_GO}
    return frozenset(ref for ref, own in state.own.items() if own.run in loose) if loose else frozenset()


_LET_GO = frozenset({RunPhase.STARTING, RunPhase.RUNNING})
_NONE: frozenset[ObjectRef] = frozenset()


def _is_stopped_by(ref: ObjectRef, stops: Stops, state: ClusterState) -> bool:
    """Whether the object belongs to a run whose end waits for a confirmation, or is one that the run needs, such as a
    Service."""
    own = state.own.get(ref)
    job = own.run[0] if own is not None else job_of(state.live[ref])
    return job in stops.jobs


def _is_held(diff: ObjectDiff, stops: Stops) -> bool:
    """Whether an object that all runs of a job share stays as it is, because the job's old run keeps running."""
    return diff.live is not None and diff.run is None and job_of(diff.item.body) in stops.jobs
