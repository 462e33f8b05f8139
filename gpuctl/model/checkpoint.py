"""What a pause costs a job: the work since its last checkpoint, which it has to do again."""

from __future__ import annotations

from gpuctl.model.units import DurationMs, Instant


def work_since_checkpoint(
    every_ms: DurationMs | None, since_ms: Instant, now_ms: Instant, said_ms: Instant | None = None
) -> DurationMs | None:
    """The work that is lost if a run that started at `since_ms` is stopped now; None if nothing is known about it.

    `every_ms`: how often it writes a checkpoint, counted from its start. `said_ms`: when it reported a checkpoint. Both
    come from the job itself (declared, or reported): people are told the result, and nothing is decided by it.
    """
    ran_ms = max(0, now_ms - since_ms)
    known = []
    if every_ms:
        known.append(ran_ms % every_ms)
    if said_ms is not None and said_ms >= since_ms:
        known.append(max(0, now_ms - said_ms))
    return min(known, default=None)
