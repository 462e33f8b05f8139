"""Checks a prediction: compares the expected effect of a commit on the runs of a cluster with what happened to them.

Both effects are differences between two states, by the same function. The first state is that when the commit was taken
up; the second is the cluster at rest, once as the engine predicts it and once as it is observed. A difference between
the effects has a cause that was observed meanwhile, or is a bug of gpuctl.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from gpuctl.engine import EngineCache
from gpuctl.engine.reasons import GUARDED, START_FAILED
from gpuctl.explain.rest import at_rest
from gpuctl.model.decision import Decision, Finished, JobState, Keep, Pending, Placement, Schedule, Suspended
from gpuctl.model.declared import Declared
from gpuctl.model.effect import Effect
from gpuctl.model.ids import JobId, NodeName
from gpuctl.model.state import ACTIVE, ClusterState, Node, Run, RunPhase
from gpuctl.model.units import Instant


class Fate(StrEnum):
    """What a change does to a run. MOVED: it was paused and has started again, elsewhere or in the same place."""

    STARTED = "started"
    PAUSED = "paused"
    MOVED = "moved"
    RESIZED = "resized"
    STOPPED = "stopped"


Fates: TypeAlias = Mapping[tuple[JobId, Fate], tuple[NodeName, ...]]
"""What happens to which jobs, with the node of each worker, sorted; no nodes for runs that then hold nothing. A job
whose run is replaced by a new one is STOPPED and STARTED."""


class CauseKind(StrEnum):
    """Why something else happened than was predicted, the most telling cause first.

    - NODE_LOST: a node is gone or not usable.
    - FAILED: a run failed, or did not start.
    - ENDED: a run succeeded, or reached its limit.
    - REFUSED: a guard or the API server refuses a write, or takes it only later.
    - OUTSIDE: other clients or people changed the cluster.
    - PODS: pods of some runs stopped or started sooner than those of others.
    - TIME: the engine decides otherwise now, from the same state.
    - BUG: no cause was observed.
    """

    NODE_LOST = "node-lost"
    FAILED = "failed"
    ENDED = "ended"
    REFUSED = "refused"
    OUTSIDE = "outside"
    PODS = "pods"
    TIME = "time"
    BUG = "bug"


_RANK = {kind: rank for rank, kind in enumerate(CauseKind)}
_ENDS: Mapping[RunPhase, tuple[CauseKind, str]] = {
    RunPhase.FAILED: (CauseKind.FAILED, "{} failed"),
    RunPhase.SUCCEEDED: (CauseKind.ENDED, "{} has succeeded"),
    RunPhase.TIMED_OUT: (CauseKind.ENDED, "{} has reached its limit"),
}
BUG_TEXT = "no cause was observed: this is a bug of gpuctl"
_PODS_TEXT = "pods of {} stopped or started sooner than those of others"
MOST_NAMED = 3
"""The most jobs that a cause names."""
_TIME_TEXT = "the engine decides otherwise at this time (minRuntime, a limit, past use)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Something observed after the commit was taken up. `job`: the job concerned, if it is a single one."""

    kind: CauseKind
    text: str
    job: JobId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The expected effect of enforcing declarations on a cluster in the state `began`."""

    declared: Declared
    began: ClusterState
    fates: Fates


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """An intermediate state: pods of these jobs had just stopped, or started. A prediction does not know these
    times."""

    at_ms: Instant
    state: ClusterState
    jobs: tuple[JobId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A fate that was predicted and did not happen, or the reverse, or one that happened on other nodes.

    `predicted` and `happened` are the nodes; None: not predicted, or did not happen.
    """

    job: JobId
    fate: Fate
    predicted: tuple[NodeName, ...] | None
    happened: tuple[NodeName, ...] | None
    cause: Cause


def predict(declared: Declared, state: ClusterState, now_ms: Instant) -> Prediction:
    """Predict the effect of enforcing declarations, if guards refuse no more than the declarations say. Keeps no live
    objects.

    Cost: a schedule without a cache, and a few with only the changes.
    """
    began = _without_objects(state)
    return Prediction(declared=declared, began=began, fates=_fates_from(declared, began, began, now_ms))


def passed(before: ClusterState, state: ClusterState, at_ms: Instant) -> Passed | None:
    """The intermediate state, if pods have stopped or started since the cycle before; without live objects. Cost:
    linear in runs."""
    now = {(run.job, run.digest): run for run in state.runs}
    jobs = tuple([run.job for run in before.runs if _has_followed(run, now.get((run.job, run.digest)))])
    return Passed(at_ms=at_ms, state=_without_objects(state), jobs=jobs) if jobs else None


def _has_followed(before: Run, now: Run | None) -> bool:
    """Whether a run has arrived where it was going, or some of the pods that it stops are gone."""
    if now is None or (now.phase is not before.phase and now.phase not in {RunPhase.STARTING, RunPhase.STOPPING}):
        return True
    return now.phase is not RunPhase.QUEUED and _held(now) < _held(before)


def _held(run: Run) -> int:
    """The workers that hold GPUs, including those that the run gives up."""
    return sum(len(place.workers) for place in (run.placement, run.leaving) if place is not None)


def _without_objects(state: ClusterState) -> ClusterState:
    return ClusterState(
        nodes=state.nodes, runs=state.runs, ledgers=state.ledgers, damaged=state.damaged, cluster=state.cluster
    )


def _fates_from(declared: Declared, began: ClusterState, state: ClusterState, now_ms: Instant) -> Fates:
    """The fates from the beginning until a state has come to rest, as predicted."""
    return fates_between(declared, began, at_rest(declared, state, now_ms, EngineCache()).state)


def fates_between(declared: Declared, before: ClusterState, after: ClusterState) -> Fates:
    """What happened to the runs between the first state and the second. Cost: linear in runs."""
    found: dict[tuple[JobId, Fate], tuple[NodeName, ...]] = {}
    wanted = {(job.id, job.digest) for job in declared.jobs if not job.suspend}
    then, now = ({(run.job, run.digest): run for run in state.runs} for state in (before, after))
    for key in sorted(then.keys() | now.keys()):
        fate = _fate(then.get(key), now.get(key), key in wanted)
        if fate is not None:
            found[key[0], fate] = () if fate in {Fate.PAUSED, Fate.STOPPED} else _nodes(now[key])
    return found


def _fate(was: Run | None, run: Run | None, is_wanted: bool) -> Fate | None:  # noqa: FBT001 - three facts of one run
    if was is None or was.phase not in ACTIVE:
        starts = 0 if was is None else was.starts
        let_go = run is not None and (run.phase in ACTIVE or (run.phase.final and run.starts > starts))
        ended = was is not None and was.phase.final
        return Fate.STARTED if let_go and not ended else None
    if run is None or run.phase.final:
        return Fate.STOPPED
    if run.phase not in ACTIVE:
        return Fate.PAUSED if is_wanted else Fate.STOPPED
    if run.starts > was.starts:
        return Fate.MOVED
    return Fate.RESIZED if len(_nodes(run)) != len(_nodes(was)) else None


def _nodes(run: Run) -> tuple[NodeName, ...]:
    return () if run.placement is None else _where(run.placement)


def _where(placement: Placement) -> tuple[NodeName, ...]:
    return tuple(sorted(worker.node for worker in placement.workers))


def fates_of(effect: Effect) -> Fates:
    """The fates that a plan tells of, in the same form."""
    found = {(each.job, Fate.STARTED): _where(each.placement) for each in effect.started}
    found |= {(each.job, Fate.STOPPED): () for each in effect.started if each.anew}
    found |= {(each.job, Fate.STOPPED): () for each in effect.stopped}
    found |= {(each.job, Fate.PAUSED): () for each in effect.paused}
    found |= {(each.job, Fate.RESIZED): () for each in effect.resized}
    return found | {(each.job, Fate.MOVED): _where(each.after) for each in effect.moved}


def restless(schedule: Schedule, state: ClusterState) -> tuple[JobId, ...]:
    """The jobs that keep a cluster from being at rest: starting, stopping, or with a decision that is not carried
    out."""
    moving = {run.job for run in state.runs if run.phase in {RunPhase.STARTING, RunPhase.STOPPING}}
    return tuple(sorted(moving | {each.job for each in schedule.decisions if not _rests(each)}))


def _rests(decision: Decision) -> bool:
    if isinstance(decision, Pending):
        return decision.reserved is None or decision.reason.code == GUARDED
    return isinstance(decision, Keep | Finished | Suspended)


def causes_since(prediction: Prediction, state: ClusterState, schedule: Schedule) -> Iterator[Cause]:
    """What has happened meanwhile by itself, or by others. Cost: linear in nodes and runs."""
    before = {node.name: node for node in prediction.began.nodes}
    now = {node.name: node for node in state.nodes}
    for name in sorted(before.keys() | now.keys()):
        yield from _of_node(name, before.get(name), now.get(name))
    known = {(run.job, run.digest): run for run in prediction.began.runs}
    for run in state.runs:
        yield from _of_run(known.get((run.job, run.digest)), run)
    told = {key for ledger in prediction.began.ledgers.values() for key in ledger.finished}
    wanted = {job.id: job.digest for job in prediction.declared.jobs}
    for decision in schedule.decisions:
        is_gone = isinstance(decision, Finished) and decision.state is JobState.DELETED
        if is_gone and (decision.job, wanted.get(decision.job)) not in told:
            yield Cause(kind=CauseKind.OUTSIDE, text=f"the object of {decision.job} was deleted", job=decision.job)
    if state.damaged != prediction.began.damaged:
        yield Cause(kind=CauseKind.OUTSIDE, text="a ledger was damaged or repaired")


def _of_run(before: Run | None, now: Run) -> Iterator[Cause]:
    phase = now.ends_as or now.phase
    if phase in _ENDS and (before is None or before.phase is not phase):
        kind, text = _ENDS[phase]
        yield Cause(kind=kind, text=text.format(now.job), job=now.job)
    if now.failed_starts > (0 if before is None else before.failed_starts):
        params = dict(now.reason.params) if now.reason is not None and now.reason.code == START_FAILED else {}
        problem = str(params.get("problem", "")).partition(": ")[0]
        text = f"{now.job} did not start within startTimeout" + (f" ({problem})" if problem else "")
        yield Cause(kind=CauseKind.FAILED, text=text, job=now.job)


def _of_node(name: NodeName, before: Node | None, now: Node | None) -> Iterator[Cause]:
    if before == now:
        return
    was_well, is_well = (node is not None and node.usable and node.ready for node in (before, now))
    held, holds = (node is not None and node.ready for node in (before, now))
    fewer = before is not None and now is not None and (now.gpus < before.gpus or now.lost_gpus > before.lost_gpus)
    if (was_well and not is_well) or (held and not holds) or fewer:
        yield Cause(kind=CauseKind.NODE_LOST, text=f"node {name} was lost" if not fewer else f"node {name} lost GPUs")
    elif is_well and not was_well:
        yield Cause(kind=CauseKind.OUTSIDE, text=f"node {name} became usable")
    elif before is not None and now is not None and _occupied(before) != _occupied(now):
        yield Cause(kind=CauseKind.OUTSIDE, text=f"other pods came to node {name}, or left it")


def _occupied(node: Node) -> tuple[object, ...]:
    return node.foreign_cpu_milli, node.foreign_mem_bytes, node.foreign_gpu_milli, node.gpus, node.lost_gpus


def touched(before: tuple[Schedule, ClusterState], state: ClusterState) -> Iterator[Cause]:
    """Runs that another client has stopped since the cycle before, which kept them running. Cost: linear in runs."""
    kept = {each.job for each in before[0].decisions if isinstance(each, Keep)}
    running = {(run.job, run.digest) for run in before[1].runs if run.phase in ACTIVE and run.job in kept}
    for run in state.runs:
        is_stopped = run.phase in {RunPhase.STOPPING, RunPhase.QUEUED} and run.ends_as is None
        if is_stopped and (run.job, run.digest) in running:
            yield Cause(kind=CauseKind.OUTSIDE, text=f"{run.job} was stopped by another client", job=run.job)


def compare(
    prediction: Prediction,
    state: ClusterState,
    causes: Collection[Cause],
    now_ms: Instant,
    on_the_way: Sequence[Passed] = (),
) -> tuple[Difference, ...]:
    """The differences between the prediction and the cluster at rest, each with its cause.

    A job's own cause explains its difference; else the most telling of the other causes. Cost: linear in runs; where
    differences have no cause, also a prediction from the beginning and from each intermediate state.
    """
    declared, began = prediction.declared, prediction.began
    happened = fates_between(declared, began, state)
    found = tuple(_unlike(prediction.fates, happened))
    if not found:
        return ()
    others = sorted(causes, key=_in_order)
    own = {cause.job: cause for cause in reversed(others) if cause.job is not None}
    first, by_pods = next(iter(others), None), dict[tuple[JobId, Fate], Cause]()
    if first is None:
        later = _fates_from(declared, began, began, now_ms)
        if not list(_unlike(later, happened)):
            first = Cause(kind=CauseKind.TIME, text=_TIME_TEXT)
        else:
            by_pods = _by_pods(prediction, happened, [(job, fate) for job, fate, _, _ in found], on_the_way)
    bug = Cause(kind=CauseKind.BUG, text=BUG_TEXT)
    return tuple(
        Difference(
            job=job,
            fate=fate,
            predicted=expected,
            happened=got,
            cause=own.get(job) or first or by_pods.get((job, fate), bug),
        )
        for job, fate, expected, got in found
    )


def _by_pods(
    prediction: Prediction, happened: Fates, unlike: Collection[tuple[JobId, Fate]], on_the_way: Iterable[Passed]
) -> dict[tuple[JobId, Fate], Cause]:
    """The causes for differences that a prediction from an intermediate state gets right, before they had happened."""
    found: dict[tuple[JobId, Fate], Cause] = {}
    for each in on_the_way:
        so_far = fates_between(prediction.declared, prediction.began, each.state)
        later = _fates_from(prediction.declared, prediction.began, each.state, each.at_ms)
        cause = Cause(kind=CauseKind.PODS, text=_PODS_TEXT.format(", ".join(map(str, each.jobs[:MOST_NAMED]))))
        for key in unlike:
            if key not in so_far and _agrees(later.get(key), happened.get(key)):
                found.setdefault(key, cause)
    return found


def _agrees(expected: tuple[NodeName, ...] | None, got: tuple[NodeName, ...] | None) -> bool:
    """Whether both say the same of a job. Nodes count only where both are known: an ended run holds none. Each worker
    of a gang may be on any of its nodes, as kube-scheduler spreads its pods among them."""
    if expected is None or got is None:
        return expected is got
    return not (expected and got) or (len(expected) == len(got) and set(got) <= set(expected))


def _in_order(cause: Cause) -> tuple[int, str]:
    return _RANK[cause.kind], cause.text


_Unlike: TypeAlias = tuple[JobId, Fate, tuple[NodeName, ...] | None, tuple[NodeName, ...] | None]


def _unlike(predicted: Fates, happened: Fates) -> Iterator[_Unlike]:
    for job, fate in sorted(predicted.keys() | happened.keys()):
        expected, got = predicted.get((job, fate)), happened.get((job, fate))
        if not _agrees(expected, got):
            yield job, fate, expected, got
