"""Remembers which writes the API server refuses, so that none is sent again in each cycle for ever.

A job that can't be written must not take GPUs from others, and its object is its own trouble: a tenant may have made
another one of that name.

A refusal is remembered while what was refused is the same: the run, its declarations, and the live object. After a
minute the write is tried again: an admission policy, a right or a quota may have changed.

A missing right is doubted until it was refused twice, five seconds apart: an API server that has just started knows no
roles yet. Until then the write rests, and nothing else follows from it: no job loses its place, and nothing is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from gpuctl.app.ports import ClusterUnavailable, Forbidden, Invalid, Taken, WorldFault, Writable
from gpuctl.engine.jobs.timing import refused
from gpuctl.k8s.kinds import NAMESPACE, RESOURCE_QUOTA
from gpuctl.k8s.ledger import is_ledger
from gpuctl.k8s.names import SYSTEM_NAMESPACE
from gpuctl.k8s.objects import resource_version
from gpuctl.k8s.workloads import is_workload, job_of, run_of
from gpuctl.model.change import Action, ApplyResult
from gpuctl.model.decision import Reason
from gpuctl.model.declared import Declared
from gpuctl.model.ids import JobId, ObjectRef, ProjectName, Revision, RunDigest, RunKey
from gpuctl.model.state import ACTIVE, Body, ClusterState, RunPhase
from gpuctl.model.turns import in_turns
from gpuctl.model.units import DurationMs, Instant
from gpuctl.plan import OWN, Stage

RETRY_MS: DurationMs = 60_000
MOST_CHECKS = 50
"""Refused starts that are tried in one cycle."""
LONGEST_TRIAL_MS: DurationMs = 3_600_000
"""How long a start may take that the server said it takes: runs are paused for it first, and their pods end."""
SOON_MS: DurationMs = 5_000
"""For a refusal that ends by itself, or is doubted."""
_NO_RIGHT = "GPU7015"
_NOT_COUNTED = "status unknown for quota"
"""The server counts objects of a kind some time after the kind was defined, and takes none of it before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """One refusal: of which object, the commits it was rendered from, the live object's version then, the server's
    message. `run`: whose it is; None for an object of a project or of the cluster, and for what is deleted.
    `start`: the object of a stopped run as it was to be let go, where that was refused. One that runs and was to have
    more workers is another matter: it must not be kept from being paused. `until_ms`: when the write is tried again; of
    one that is tried, when it is forgotten. `is_open`: the server has said since that it takes the start, or a right is
    tried again, so nothing is held. `counts`: it refused the start all the same, which is a failed start of the run.
    `is_doubted`: a missing right that was refused once."""

    ref: ObjectRef
    project: ProjectName | None
    run: RunKey | None
    commits: tuple[Revision | None, Revision | None]
    version: str
    at_ms: Instant
    until_ms: Instant
    error: str
    start: Body | None = None
    is_open: bool = False
    counts: bool = False
    is_doubted: bool = False

    @property
    def lacks_a_right(self) -> bool:
        """Whether gpuctl's account was not allowed to write it."""
        return self.error.startswith(_NO_RIGHT)

    @property
    def words(self) -> str:
        """What the server says, without the code."""
        return self.error.partition(": ")[2]

    @property
    def reason(self) -> Reason:
        """Why the job waits."""
        if self.error.startswith(Taken.CODE):
            return Reason(code="GPU5072", params=(("object", str(self.ref)),))
        return Reason(code="GPU5070", params=(("object", str(self.ref)), ("what", self.words)))


Rejections: TypeAlias = Mapping[ObjectRef, Rejection]


def checked_again(rejections: Rejections, cluster: Writable, now_ms: Instant) -> Rejections:
    """The refusals, with those of starts that the server would refuse again as of now.

    A start is tried in a dry run before the run is to get its place again: others would be paused for it each time, in
    vain, for only the start is refused and not the place. Where the server does not answer, the refusal stays. One that
    is refused though the dry run was taken, or none could be made, counts as failed: the run is tried again as any that
    does not start, and others are paused for it again two hours later.
    Cost: a request for each refused start, each minute; of many of them MOST_CHECKS a cycle, some at once, of each
    namespace in turn.
    """
    due = sorted((each.at_ms, ref) for ref, each in rejections.items() if _is_due(each, now_ms))
    if not due:
        return rejections
    refs = in_turns(((ref.namespace, ref) for _, ref in due), 1)
    later = {ref: replace(rejections[ref], until_ms=now_ms + SOON_MS) for ref in refs[MOST_CHECKS:]}

    def check(ref: ObjectRef) -> Rejection:
        found = rejections[ref]
        try:
            cluster.check(found.start or {})
        except (Invalid, Forbidden, ClusterUnavailable) as fault:
            if fault.code == _NO_RIGHT and not found.lacks_a_right:
                return replace(found, until_ms=now_ms + SOON_MS)  # doubted, so what it said before stands
            error = f"{fault.code}: {fault}"
            return replace(found, at_ms=now_ms, until_ms=now_ms + _wait_ms(error), error=error)
        except WorldFault:
            return found  # it is another object now, or gone
        return replace(found, at_ms=now_ms, until_ms=now_ms + LONGEST_TRIAL_MS, is_open=True)

    tried = refs[:MOST_CHECKS]
    return {**rejections, **later, **dict(zip(tried, cluster.each(check, tried), strict=True))}


def _is_due(found: Rejection, now_ms: Instant) -> bool:
    return found.start is not None and not found.is_open and now_ms >= found.until_ms


def _wait_ms(error: str) -> DurationMs:
    return SOON_MS if _NOT_COUNTED in error else RETRY_MS


def that_hold(rejections: Rejections) -> Rejections:
    """Those of what is not to be written now."""
    return {ref: found for ref, found in rejections.items() if not found.is_open}


def that_are_doubted(rejections: Rejections) -> Rejections:
    """Those of them that are no more than a failed write so far."""
    return {ref: found for ref, found in that_hold(rejections).items() if found.is_doubted}


def that_are_sure(rejections: Rejections) -> Rejections:
    """Those of them that are told, and hold jobs."""
    return {ref: found for ref, found in that_hold(rejections).items() if not found.is_doubted}


def still_refused(rejections: Rejections, declared: Declared, state: ClusterState, now_ms: Instant) -> Rejections:
    """The refusals that still hold. Cost: linear in the declared jobs if there is a refusal, else none."""
    if not rejections:
        return {}
    runs = {(job.id, job.digest) for job in declared.jobs}
    failed_ms = {(run.job, run.digest): run.queued_at_ms for run in state.runs if run.failed_starts}
    active = _active(state)
    return {
        ref: found if now_ms < found.until_ms else _reopened(found)
        for ref, found in rejections.items()
        if not (found.is_open and found.run in active)
        and not (found.counts and found.run in failed_ms and failed_ms[found.run] >= found.at_ms)
        and (found.run is None or found.run in runs)
        and found.commits == _commits(declared, found.project)
        and _is_as_it_was(found, _version(state, ref))
        and (now_ms < found.until_ms or _is_asked_for_again(found))
    }


def _is_asked_for_again(found: Rejection) -> bool:
    """Whether it is remembered while the write is tried again: a right that is missing then is missing indeed."""
    return found.lacks_a_right and found.start is None and not found.is_open


def _reopened(found: Rejection) -> Rejection:
    return replace(found, until_ms=found.until_ms + RETRY_MS, is_open=True)


def with_refused_starts(state: ClusterState, rejections: Rejections) -> ClusterState:
    """The state with starts that count as failed, for ledgers to record; the same one where there are none."""
    counting = {each.run: each for each in rejections.values() if each.counts}
    if not counting:
        return state
    waiting = {(run.job, run.digest): run for run in state.runs if run.phase is RunPhase.QUEUED}
    failed = {
        key: refused(run, counting[key].words, counting[key].at_ms) for key, run in waiting.items() if key in counting
    }
    return replace(state, runs=tuple(failed.get((run.job, run.digest), run) for run in state.runs))


def with_new(
    rejections: Rejections, result: ApplyResult, declared: Declared, state: ClusterState, now_ms: Instant
) -> Rejections:
    """Add the refusals among the results of writing.

    Cost: linear in the declared jobs if there is a refusal.
    """
    found = dict(rejections)
    refused = [outcome for outcome in result.outcomes if outcome.refused]
    digests = {job.id: job.digest for job in declared.jobs} if refused else {}
    active = _active(state) if refused else frozenset()
    failed = {(run.job, run.digest) for run in state.runs if run.failed_starts} if refused else frozenset()
    for outcome in refused:
        change, ref = outcome.change, outcome.change.ref
        run = _run_of(change.body or {}, digests)
        is_start = change.stage == Stage.ADMIT and change.action is Action.UPDATE and run not in active
        known, error = rejections.get(ref), outcome.error
        is_doubted = error.startswith(_NO_RIGHT) and not (known is not None and known.lacks_a_right)
        was_tried = known is not None and known.is_open and known.start is not None
        found[ref] = Rejection(
            ref=ref,
            project=change.project,
            run=run,
            commits=_commits(declared, change.project),
            version=_version(state, ref),
            at_ms=now_ms,
            until_ms=now_ms + (SOON_MS if is_doubted else _wait_ms(error)),
            error=error,
            start=change.body if is_start and not is_doubted else None,
            counts=is_start and not is_doubted and (run in failed or was_tried),
            is_doubted=is_doubted,
        )
    return found


def rest_ms(rejections: Rejections, now_ms: Instant, longest_ms: DurationMs) -> DurationMs:
    """How long until the first of those that rest is tried again, up to the longest."""
    return min([longest_ms, *(max(0, found.until_ms - now_ms) for found in that_hold(rejections).values())])


def is_of_tenant(ref: ObjectRef, error: str) -> bool:
    """Whether a refusal may be a tenant's doing, by an object of its own in the place of this one.

    What gpuctl has no right to write is refused everywhere. Quotas, namespaces and gpuctl's own no tenant can write.
    """
    is_bound = ref.namespace in {"", SYSTEM_NAMESPACE} or (ref.api_version, ref.kind) == RESOURCE_QUOTA
    return not is_bound and not error.startswith(_NO_RIGHT)


def waiting_for(rejections: Rejections, declared: Declared, state: ClusterState) -> Mapping[JobId, Reason]:
    """The jobs that refusals hold, each with the reason: a run whose own object is refused stays as it is.

    One that has begun is not held by what it needs besides: a tenant can have a Service or a claim of its own refused,
    and would keep the run from being paused for others. Without its namespace or its ledger, which no tenant writes,
    nothing of a project is written: all of its jobs stay as they are.
    Cost: linear in the declared jobs if there is a refusal, else none.
    """
    if not rejections:
        return {}
    active, rejections = _active(state), that_are_sure(rejections)
    grounds = {each.project: each.reason for ref, each in rejections.items() if _is_ground(ref)}
    held = {job.id: grounds[job.id.project] for job in declared.jobs if job.id.project in grounds} if grounds else {}
    return held | {
        each.run[0]: each.reason
        for ref, each in rejections.items()
        if each.run is not None and not each.counts and (is_workload(ref) or each.run not in active)
    }


def _is_as_it_was(rejection: Rejection, version: str) -> bool:
    """Whether the live object is as it was. Of a start that was refused it need only be there: a tenant can write on
    its own object as often as it likes, and others would be paused for each try."""
    return bool(version) if rejection.start is not None else rejection.version == version


def _active(state: ClusterState) -> frozenset[RunKey]:
    return frozenset((run.job, run.digest) for run in state.runs if run.phase in ACTIVE)


def _is_ground(ref: ObjectRef) -> bool:
    """Whether later writes of a project depend on the object: its namespace, its ledger, a part of that."""
    return (ref.api_version, ref.kind) == NAMESPACE or is_ledger(ref)


def _run_of(body: Body, digests: Mapping[JobId, RunDigest]) -> RunKey | None:
    """The declared run that an object is of; of one that lasts as long as its job, the run that is declared."""
    run, job = run_of(body), job_of(body)
    if job is None or job not in digests:
        return None
    declared = (job, digests[job])
    return declared if run in {None, declared} else None


def _commits(declared: Declared, project: ProjectName | None) -> tuple[Revision | None, Revision | None]:
    """The commits that an object is rendered from: of its project's files and of the cluster's own."""
    of_project = None if project is None else declared.project_revisions.get(project)
    return of_project, declared.project_revisions.get(OWN)


def _version(state: ClusterState, ref: ObjectRef) -> str:
    return resource_version(state.live.get(ref, {}))
