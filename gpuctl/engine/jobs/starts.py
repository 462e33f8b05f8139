"""Starts that fail: when a start is given up, when the run is tried again, and what it may take then.

A run whose workers do not all run within startTimeout is stopped. It waits for a minute, after the second failed start
in a row for 5 minutes, after each further one for 30. Then it is a retry: it takes idle GPUs that no other job takes,
and claims nothing, for what it lacks may still be missing. Once it has waited for `FULL_RIGHTS_AFTER_MS` it is pending
like any other job, for one start, so that it comes to run again on a full cluster after an outage of a registry. A new
run of the job has no failed start.

Example: a start fails at 10:00, the first of its run. From 10:01 the run takes idle GPUs; from 12:00 runs may make way
for it. It starts and fails at 12:20: from 12:25 it takes idle GPUs, from 14:20 runs may make way for it.

The time of a start counts as running time while it is short. One that takes longer than a minute is on record
(`RunRecord.starting_ms`): its time counts for no limit. So only a start that was seen to be long can be given up, and a
run that has run once since it was let go is never taken for one that has not started.
"""

from __future__ import annotations

from gpuctl.engine import reasons
from gpuctl.model.decision import NOT_YET, Reason, RunRecord
from gpuctl.model.state import Run, RunPhase
from gpuctl.model.units import DurationMs, Instant

SLOW_MS: DurationMs = 60_000
"""A start that takes longer is on record."""
RETRIES_MS: tuple[DurationMs, ...] = (60_000, 300_000, 1_800_000)
"""How long a run waits after its first, second and each further start in a row that was given up."""
FULL_RIGHTS_AFTER_MS: DurationMs = 7_200_000
"""How long a run has waited since its last failed start, or since a pause after it, when it has all rights again."""


def start_over_ms(run: Run, timeout_ms: DurationMs) -> Instant | None:
    """When a start that is seen to take long is given up; None: it is not."""
    is_slow = run.phase is RunPhase.STARTING and run.starting_ms == NOT_YET and not run.begun
    return run.let_go_at_ms + timeout_ms if is_slow and run.let_go_at_ms is not None else None


def slow_at_ms(run: Run) -> Instant | None:
    """When a start becomes one that takes long; None: it is over, or on record as such."""
    is_open = run.phase is RunPhase.STARTING and not run.starting_ms and not run.begun
    return run.let_go_at_ms + SLOW_MS if is_open and run.let_go_at_ms is not None else None


def going_record(run: Run, now_ms: Instant, timeout_ms: DurationMs) -> RunRecord:
    """The record of a run that goes on: with what is to be remembered of its start."""
    record, slow_ms = run.record, slow_at_ms(run)
    if slow_ms is not None and slow_ms <= now_ms <= slow_ms + 2 * timeout_ms:
        return record._replace(starting_ms=NOT_YET)
    if not run.begun or not (record.failed_starts or run.starting_ms == NOT_YET):
        return record
    since_ms = run.let_go_at_ms if run.started_at_ms is None else run.started_at_ms
    took_ms = max(0, now_ms - since_ms) if run.starting_ms == NOT_YET and since_ms is not None else run.starting_ms
    return record._replace(failed_starts=0, starting_ms=took_ms)


def retry_at_ms(run: Run | None) -> Instant | None:
    """From when a waiting run that did not start may take idle GPUs; None: it waits for no such instant."""
    return _retry_at_ms(run.queued_at_ms, run.failed_starts) if run is not None and _has_failed(run) else None


def full_rights_at_ms(run: Run | None) -> Instant | None:
    """From when runs may make way again for a waiting run that did not start; None: it waits for no such instant."""
    return run.queued_at_ms + FULL_RIGHTS_AFTER_MS if run is not None and _has_failed(run) else None


def next_right_ms(run: Run, now_ms: Instant) -> Instant | None:
    """When a waiting run that did not start may take more than it may now; None: it may take what others may."""
    instants = retry_at_ms(run), full_rights_at_ms(run)
    return next((at_ms for at_ms in instants if at_ms is not None and at_ms > now_ms), None)


def is_retry(run: Run | None, now_ms: Instant) -> bool:
    """Whether a waiting run may take idle GPUs at most, for its last start failed."""
    rights_ms = full_rights_at_ms(run)
    return rights_ms is not None and now_ms < rights_ms


def has_failed_often(run: Run) -> bool:
    """Whether a waiting run has failed to start so often that it is tried again in the longest steps, without end."""
    return _has_failed(run) and run.failed_starts >= len(RETRIES_MS)


def given_up(run: Run, now_ms: Instant) -> tuple[Reason, RunRecord]:
    """Why a run waits whose start is given up now, and its record: it did not start."""
    record = RunRecord(now_ms, max(0, run.starts - 1), run.ran_ms, failed_starts=run.failed_starts + 1)
    problem = run.problem
    words = "" if problem is None else ": ".join(filter(None, (problem.reason, problem.message)))
    return _reason(words, record), record


def reason_to_wait(run: Run) -> Reason:
    """Why a run waits that did not start, by what is known of its last start."""
    known = dict(run.reason.params) if run.reason is not None and run.reason.code == reasons.START_FAILED else {}
    return _reason(str(known.get("problem", "")), run.record)


def _has_failed(run: Run) -> bool:
    return run.phase is RunPhase.QUEUED and run.failed_starts > 0


def _retry_at_ms(queued_at_ms: Instant, failed_starts: int) -> Instant:
    return queued_at_ms + RETRIES_MS[min(failed_starts, len(RETRIES_MS)) - 1]


def _reason(problem: str, record: RunRecord) -> Reason:
    since_ms, failed = record.queued_at_ms, record.failed_starts
    return reasons.start_failed(problem, failed, _retry_at_ms(since_ms, failed), since_ms + FULL_RIGHTS_AFTER_MS)
