"""What time alone does to a run: limits end it; after minRuntime other jobs may have it stopped; a start that takes
long is given up, and tried again.

The rules are in docs/concepts.md: "Limits of time", "Minimum runtime", "A start that fails" and "Retries".
The time of a start counts as running time while it is short. A start that takes longer than a minute is on record
(`RunRecord.starting_ms`), and its time counts for no limit. So only a start that was seen to be long can be given up,
and a run that has run since its release is never taken for one that has not started.
"""

from __future__ import annotations

from dataclasses import replace

from gpuctl.engine import reasons
from gpuctl.model.decision import NOT_YET, SLOW_MS, Reason, RunRecord
from gpuctl.model.declared import MinRuntime
from gpuctl.model.job import Job
from gpuctl.model.state import Run, RunPhase
from gpuctl.model.units import DurationMs, Instant

SEEN_MS: DurationMs = 60_000
"""How long after SLOW_MS a run without pods still counts as starting: later its pods may have been evicted."""
RETRIES_MS: tuple[DurationMs, ...] = (60_000, 300_000, 1_800_000)
"""How long a run waits after its first, second and each further failed start in a row."""
FULL_RIGHTS_AFTER_MS: DurationMs = 7_200_000
"""How long after its last failed start, or a later pause, a waiting run has all rights again."""


def since_start_ms(run: Run, now_ms: Instant) -> DurationMs:
    """Time since the last start, however long it took: a tenant that restarts its pods does not make a run younger. 0
    before a start, or when the clock stepped back."""
    return 0 if run.started_at_ms is None else max(0, now_ms - run.started_at_ms)


def running_ms(run: Run, now_ms: Instant) -> DurationMs:
    """The time since the last start that counts for limits: without the time of a start that took long."""
    return 0 if run.starting_ms == NOT_YET else max(0, since_start_ms(run, now_ms) - run.starting_ms)


def min_runtime_ends(run: Run, min_runtime: MinRuntime) -> tuple[Instant, ...]:
    """When a run in place is old enough to be stopped for others, for each reason, and to be spared less."""
    started_at_ms = run.started_at_ms
    if started_at_ms is None:
        return ()
    least = dict.fromkeys((*min_runtime.after(run.starts), min_runtime.fairness_ms))
    return tuple([started_at_ms + least_ms for least_ms in least if least_ms])


def latest_end_ms(job: Job | None, run: Run | None, now_ms: Instant) -> Instant | None:
    """When maxDuration ends a run, or would end a run that starts now; None: never. It may be in the past.

    Earlier running time counts; the time before a clock that stepped back does not.
    """
    if job is None or job.max_duration_ms is None:
        return None
    if run is None:
        return now_ms + job.max_duration_ms
    return now_ms - running_ms(run, now_ms) + job.max_duration_ms - run.ran_ms


def limit_reached(job: Job, run: Run, now_ms: Instant) -> Reason | None:
    """The limit that ends a running run now. A Job's own deadline normally comes first; a service has none."""
    if run.phase is not RunPhase.RUNNING:
        return None
    end_ms = latest_end_ms(job, run, now_ms)
    if end_ms is not None and end_ms <= now_ms:
        return reasons.TOO_LONG
    if job.idle_timeout_ms is not None and run.idle_since_ms is not None:
        idle_ms = now_ms - run.idle_since_ms
        return reasons.IDLE_TOO_LONG if idle_ms >= job.idle_timeout_ms else None
    return None


# Starts


def start_over_ms(run: Run, timeout_ms: DurationMs) -> Instant | None:
    """When a start that takes long is given up; None: there is no such start."""
    is_slow = run.phase is RunPhase.STARTING and run.starting_ms == NOT_YET and not run.begun
    return run.let_go_at_ms + timeout_ms if is_slow and run.let_go_at_ms is not None else None


def slow_at_ms(run: Run) -> Instant | None:
    """When a start becomes one that takes long; None: it is over, or on record as such."""
    is_open = run.phase is RunPhase.STARTING and not run.starting_ms and not run.begun
    return run.let_go_at_ms + SLOW_MS if is_open and run.let_go_at_ms is not None else None


def going_record(run: Run, now_ms: Instant, timeout_ms: DurationMs) -> RunRecord:
    """The record of a run that goes on, with what must be remembered of its start."""
    record, slow_ms = run.record, slow_at_ms(run)
    seen_ms = SEEN_MS if run.begun is None else 2 * timeout_ms
    if slow_ms is not None and slow_ms <= now_ms <= slow_ms + seen_ms:
        return record._replace(starting_ms=NOT_YET)
    if not run.begun or not (record.failed_starts or run.starting_ms == NOT_YET):
        return record
    since_ms = run.let_go_at_ms if run.started_at_ms is None else run.started_at_ms
    took_ms = max(0, now_ms - since_ms) if run.starting_ms == NOT_YET and since_ms is not None else run.starting_ms
    return record._replace(failed_starts=0, starting_ms=took_ms)


def retry_at_ms(run: Run | None) -> Instant | None:
    """From when a waiting run whose start failed may take idle GPUs; None for other runs."""
    return _retry_at_ms(run.queued_at_ms, run.failed_starts) if run is not None and _has_failed(run) else None


def full_rights_at_ms(run: Run | None) -> Instant | None:
    """From when a waiting run whose start failed may have other runs make way again; None for other runs."""
    return run.queued_at_ms + FULL_RIGHTS_AFTER_MS if run is not None and _has_failed(run) else None


def next_right_ms(run: Run, now_ms: Instant) -> Instant | None:
    """When a waiting run whose start failed gets its next right; None: it has all rights."""
    instants = retry_at_ms(run), full_rights_at_ms(run)
    return next((at_ms for at_ms in instants if at_ms is not None and at_ms > now_ms), None)


def is_retry(run: Run | None, now_ms: Instant) -> bool:
    """Whether a waiting run may take only idle GPUs, because its last start failed."""
    rights_ms = full_rights_at_ms(run)
    return rights_ms is not None and now_ms < rights_ms


def has_failed_often(run: Run) -> bool:
    """Whether a waiting run has failed to start so often that its retries have the longest interval, without end."""
    return _has_failed(run) and run.failed_starts >= len(RETRIES_MS)


def given_up(run: Run, now_ms: Instant) -> tuple[Reason, RunRecord]:
    """The reason and the record of a run whose start is given up now: the start counts as failed."""
    record = RunRecord(now_ms, max(0, run.starts - 1), run.ran_ms, failed_starts=run.failed_starts + 1)
    problem = run.problem
    words = "" if problem is None else ": ".join(filter(None, (problem.reason, problem.message)))
    return _reason(words, record), record


def refused(run: Run, words: str, at_ms: Instant) -> Run:
    """A waiting run whose start the server refused with these words, as one whose start has failed."""
    record = run.record._replace(queued_at_ms=at_ms, failed_starts=run.failed_starts + 1)
    return replace(run, **record._asdict(), reason=_reason(words, record))


def reason_to_wait(run: Run) -> Reason:
    """Why a run whose start failed waits, with what is known of that start."""
    known = dict(run.reason.params) if run.reason is not None and run.reason.code == reasons.START_FAILED else {}
    return _reason(str(known.get("problem", "")), run.record)


def _has_failed(run: Run) -> bool:
    return run.phase is RunPhase.QUEUED and run.failed_starts > 0


def _retry_at_ms(queued_at_ms: Instant, failed_starts: int) -> Instant:
    return queued_at_ms + RETRIES_MS[min(failed_starts, len(RETRIES_MS)) - 1]


def _reason(problem: str, record: RunRecord) -> Reason:
    since_ms, failed = record.queued_at_ms, record.failed_starts
    return reasons.start_failed(problem, failed, _retry_at_ms(since_ms, failed), since_ms + FULL_RIGHTS_AFTER_MS)
