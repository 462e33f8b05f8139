"""How long things take in the embedded cluster, in milliseconds, and its few bounds."""

from __future__ import annotations

from dataclasses import dataclass

from gpuctl.model.units import DurationMs


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedTimings:
    """`start_ms`: from bound to running. `termination_ms`: from asked to end to gone.

    `eviction_ms`: from the loss of a node to the eviction of its pods (the server's default toleration of 300 s).
    `fencing_ms`: from a pod of a lost node being asked to end to its being gone; in a real cluster a person must fence
    the node. `retry_ms`: from a controller's failure to its next try. `backoff_ms`: from the failure of a Job's pod to
    its replacement, doubled with each failure up to `backoff_limit_ms`. `count_ms`: from the end of a Job's pod to the
    Job's count of it; a real controller gathers the ends of a second.
    """

    start_ms: DurationMs = 1_000
    termination_ms: DurationMs = 2_000
    eviction_ms: DurationMs = 300_000
    fencing_ms: DurationMs = 30_000
    retry_ms: DurationMs = 10_000
    backoff_ms: DurationMs = 10_000
    backoff_limit_ms: DurationMs = 600_000
    count_ms: DurationMs = 0
