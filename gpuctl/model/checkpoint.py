"""What a pause costs a job: the work that it has done since it last wrote a checkpoint, and has to do again."""

from __future__ import annotations

from gpuctl.model.units import DurationMs, Instant


def work_since_checkpoint(
    every_ms: DurationMs | None, since_ms: Instant, now_ms: Instant, said_ms: Instant | None = None
) -> DurationMs | None:
    """The work that is lost where a run that started at `since_ms` is stopped now; None where nothing is known of it.

    `every_ms`: how often it writes a checkpoint, from its start on. `said_ms`: when it said that it had written one. A
    job declares the one and says the other itself: people are told what follows, and nothing is decided by it.
    """
    ran_ms = max(0, now_ms - since_ms)
    known = []
    if every_ms:
        known.append(ran_ms % every_ms)
    if said_ms is not None and said_ms >= since_ms:
        known.append(max(0, now_ms - said_ms))
    return min(known, default=None)
