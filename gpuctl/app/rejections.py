"""Remembers the writes that the API server refused, so that a cycle does not send the same write again in vain.

A job whose object can't be written must not take GPUs from other jobs. The refusal can be the tenant's own doing: it
may have made another object of that name.

A refusal is remembered as long as the run, its declarations and the live object stay the same. After a minute the write
is tried again: an admission policy, a right or a quota may have changed.

A missing right is doubted until the server has refused the write twice, five seconds apart: an API server that has just
started does not know its roles yet. Until then the write rests and has no other effect: no job loses its place, and the
refusal is not told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from gpuctl.app.ports import (
    OF_A_BUSY_QUOTA,
    OF_A_WEBHOOK,
    ClusterUnavailable,
    Forbidden,
    Invalid,
    Taken,
    WebhookAway,
    WorldFault,
    Writable,
)
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
"""How many refused starts are tried in one cycle."""
LONGEST_TRIAL_MS: DurationMs = 3_600_000
"""How long a start may take after a dry run has succeeded: first runs are paused for it, and their pods end."""
SOON_MS: DurationMs = 5_000
"""How long a write rests whose refusal is doubted, or ends by itself."""
_NO_RIGHT = "GPU7015"
_SOON_OVER = ("status unknown for quota", OF_A_WEBHOOK, OF_A_BUSY_QUOTA)
"""In the server's words where a refusal ends by itself: it does not count objects of a new kind yet, and refuses all of
them; an admission webhook does not answer; or it takes too long to count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """One refused write: its object, the commits it was rendered from, the live object's version then, and the server's
    message.

    - `run`: the run that the object belongs to; None for an object of a project or of the cluster, and for a deletion.
    - `start`: the refused object, if the write was to start a stopped run. A refused write that gives a run more
      workers is no start: the run may still be paused.
    - `until_ms`: when the write is tried again; once it is tried, when the refusal is forgotten.
    - `is_open`: the write is tried again, so the refusal holds nothing: a dry run of the start has succeeded, or a
      missing right is due.
    - `counts`: the start was refused although its dry run had succeeded, so it is a failed start of the run.
    - `is_doubted`: a missing right that was refused once.
    """

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
    """The refusals, after a dry run of each start that is due: opened if it succeeded, else held for another minute.

    The dry run comes before the run gets a place again: otherwise other runs would be paused for it each time in vain,
    as the server refuses the start and not the place. If the server does not answer, the refusal stays. A start that is
    refused although its dry run succeeded, or that could not be tried, counts as failed: the run is tried again like
    any run that does not start, so other runs are next paused for it two hours later.
    Cost: one request a minute for each refused start, at most MOST_CHECKS a cycle, taken from each namespace in turn.
    If a webhook does not answer, which may take it many seconds, the others of that kind in the namespace are put off.
    """
    due = sorted((each.at_ms, ref) for ref, each in rejections.items() if _is_due(each, now_ms))
    if not due:
        return rejections
    refs = in_turns(((ref.namespace, ref) for _, ref in due), 1)
    unanswered = set[tuple[str, str]]()  # namespace and kind
    later = {ref: replace(rejections[ref], until_ms=now_ms + SOON_MS) for ref in refs[MOST_CHECKS:]}

    def check(ref: ObjectRef) -> Rejection:
        found, where = rejections[ref], (ref.namespace, ref.kind)
        if where in unanswered:
            return replace(found, until_ms=now_ms + SOON_MS)
        try:
            cluster.check(found.start or {})
        except (Invalid, Forbidden, ClusterUnavailable) as fault:
            if isinstance(fault, WebhookAway):
                unanswered.add(where)
            if fault.code == _NO_RIGHT and not found.lacks_a_right:
                return replace(found, until_ms=now_ms + SOON_MS)  # doubted, so the earlier message stays
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
    return SOON_MS if any(words in error for words in _SOON_OVER) else RETRY_MS


def that_hold(rejections: Rejections) -> Rejections:
    """The refusals whose write is not to be tried now."""
    return {ref: found for ref, found in rejections.items() if not found.is_open}


def that_are_doubted(rejections: Rejections) -> Rejections:
    """The holding refusals that count only as a failed write so far."""
    return {ref: found for ref, found in that_hold(rejections).items() if found.is_doubted}


def that_are_sure(rejections: Rejections) -> Rejections:
    """The holding refusals that are told, and that hold jobs."""
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
    """Whether the refusal is remembered while its write is tried again: if it is refused then, the right is missing."""
    return found.lacks_a_right and found.start is None and not found.is_open


def _reopened(found: Rejection) -> Rejection:
    return replace(found, until_ms=found.until_ms + RETRY_MS, is_open=True)


def with_refused_starts(state: ClusterState, rejections: Rejections) -> ClusterState:
    """The state in which refused starts that count are failed starts, for the ledgers to record; without such starts
    the same value."""
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
    """How long until the first doubted write is tried again, at most the longest. Other refused writes are tried again
    in the cycle after they are due: a tenant can cause many of those, and no cycle is worth their seconds."""
    waits_ms = (found.until_ms - now_ms for found in that_are_doubted(rejections).values())
    return min([longest_ms, *(wait_ms for wait_ms in waits_ms if wait_ms > 0)])


def is_of_tenant(ref: ObjectRef, error: str) -> bool:
    """Whether a tenant may have caused the refusal, by an object of its own in the place of this one.

    A missing right of gpuctl's account is not caused by a tenant; and no tenant can write quotas, namespaces or
    gpuctl's own objects.
    """
    is_bound = ref.namespace in {"", SYSTEM_NAMESPACE} or (ref.api_version, ref.kind) == RESOURCE_QUOTA
    return not is_bound and not error.startswith(_NO_RIGHT)


def waiting_for(rejections: Rejections, declared: Declared, state: ClusterState) -> Mapping[JobId, Reason]:
    """The jobs that refusals hold as they are, each with the reason: those whose own object was refused.

    Security: a refused Service or claim holds no job that has begun. A tenant can cause such a refusal, and would keep
    its run from being paused for others. If a project's namespace or ledger was refused, which no tenant can write,
    nothing of the project is written, and all of its jobs are held.
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
    """Whether the live object is unchanged. For a refused start it only has to exist. Security: a tenant can write to
    its own object as often as it likes, and other runs would be paused for each new try."""
    return bool(version) if rejection.start is not None else rejection.version == version


def _active(state: ClusterState) -> frozenset[RunKey]:
    return frozenset((run.job, run.digest) for run in state.runs if run.phase in ACTIVE)


def _is_ground(ref: ObjectRef) -> bool:
    """Whether all later writes of a project depend on the object: its namespace, or a part of its ledger."""
    return (ref.api_version, ref.kind) == NAMESPACE or is_ledger(ref)


def _run_of(body: Body, digests: Mapping[JobId, RunDigest]) -> RunKey | None:
    """The declared run that an object belongs to. An object that lasts as long as its job belongs to the run that is
    declared now."""
    run, job = run_of(body), job_of(body)
    if job is None or job not in digests:
        return None
    declared = (job, digests[job])
    return declared if run in {None, declared} else None


def _commits(declared: Declared, project: ProjectName | None) -> tuple[Revision | None, Revision | None]:
    """The commits that an object is rendered from: that of its project's files, and that of the cluster's own."""
    of_project = None if project is None else declared.project_revisions.get(project)
    return of_project, declared.project_revisions.get(OWN)


def _version(state: ClusterState, ref: ObjectRef) -> str:
    return resource_version(state.live.get(ref, {}))
