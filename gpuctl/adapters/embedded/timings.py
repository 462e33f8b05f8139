"""How long things take in the embedded cluster, in milliseconds, and the few bounds it keeps."""

from __future__ import annotations

from dataclasses import dataclass

from gpuctl.model.units import DurationMs


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedTimings:
    """`start_ms`: bound until running. `termination_ms`: asked to end until gone.

    `eviction_ms`: a node is lost until its pods are evicted (the server's default toleration of 300 s).
    `fencing_ms`: a pod of a lost node is asked to end until it is gone; in a real cluster a person must fence the node.
    `retry_ms`: a controller failed until it tries again. `backoff_ms`: a Job's pod failed until its replacement,
    doubled with each failure up to `backoff_limit_ms`. `count_ms`: a Job's pod ended until the Job counts it; a real
    controller gathers the ends of a second.
    """

    start_ms: DurationMs = 1_000
    termination_ms: DurationMs = 2_000
    eviction_ms: DurationMs = 300_000
    fencing_ms: DurationMs = 30_000
    retry_ms: DurationMs = 10_000
    backoff_ms: DurationMs = 10_000
    backoff_limit_ms: DurationMs = 600_000
    count_ms: DurationMs = 0
