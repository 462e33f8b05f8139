"""What `gpuctl bench cluster` measures, as values."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from itertools import chain
from statistics import median_low
from typing import Any, TypeVar

from gpuctl.app.bench.cluster_log import Life
from gpuctl.app.bench.cluster_tree import Scale
from gpuctl.model.units import DurationMs, Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Writes of one kind: how many, and their time from request to answer, added up."""

    count: int
    taken_ms: DurationMs


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What a stretch of work took: `server_cpu_ms` of the API server; `own_cpu_ms`, memory and writes of the
    controller, none without one; its Events are counted apart. `by_kind`: all of them again, Events too.

    `memory_mib` is resident at the end, `peak_mib` the most since its process began.
    """

    wall_ms: DurationMs
    server_cpu_ms: DurationMs
    own_cpu_ms: DurationMs = 0
    memory_mib: int = 0
    peak_mib: int = 0
    writes: int = 0
    ledger_writes: int = 0
    events: int = 0
    by_kind: Mapping[str, Written] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """Brief jobs, from the first write or the commit until the last has ended.

    `filled_ms`: until all GPUs were given away, or all jobs let go; `busy_milli`: what part of the GPUs was given away
    from then on as long as a job waited, 0 where they never were; `busy_all_milli`: the same from the beginning.
    """

    jobs: int
    costs: Costs
    filled_ms: DurationMs = 0
    busy_milli: int = 0
    busy_all_milli: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reclaimed:
    """Borrowed GPUs go back: from the owner's commit until all its jobs were let go."""

    wanted: int
    paused: int
    pausing_cycles: int
    made_ms: DurationMs
    costs: Costs


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """Many jobs that can't start, then single ones that can: how long each took from its commit, and from when its
    object was there, until it was let go."""

    pending: int
    from_commit_ms: tuple[DurationMs, ...]
    from_object_ms: tuple[DurationMs, ...]
    costs: Costs


@dataclass(frozen=True, slots=True, kw_only=True)
class Refills:
    """Jobs that follow one another on a few GPUs: from the end of one until the next was let go, API included."""

    waits_ms: tuple[DurationMs, ...]
    costs: Costs

    def percentile(self, percent: int) -> DurationMs:
        """The wait that so many do not exceed."""
        return self.waits_ms[min(len(self.waits_ms) - 1, len(self.waits_ms) * percent // 100)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Jobs that last, more than there are GPUs: made from nothing by one controller, then found by another that starts.

    `made` until all GPUs were given away and nothing was left to write; `found` likewise.
    """

    jobs: int
    made: Costs
    found: Costs


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterBench:
    """All that was measured; None for what was not asked for.

    `bare`: each workload without gpuctl, as often as tried; `queued`: the flow without it, its Jobs made suspended and
    let go as they are by gpuctl.
    """

    scale: Scale
    bare: Mapping[str, tuple[Costs, ...]] = field(default_factory=dict)
    flow: Flow | None = None
    queued: Costs | None = None
    turnover: Flow | None = None
    reclaim: Reclaimed | None = None
    crowd: Crowd | None = None
    refills: Refills | None = None
    memory: Held | None = None


T = TypeVar("T")


def medians(rounds: Sequence[T]) -> T:
    """Several measurements as one: each number the median of its likes, single waits and bare runs all together."""
    found: Any = _median(rounds)
    return found  # type: ignore[no-any-return]


def _median(values: Sequence[Any]) -> Any:
    first = values[0]
    if is_dataclass(first) and not isinstance(first, type):
        return type(first)(**{one.name: _median([getattr(v, one.name) for v in values]) for one in fields(first)})
    if isinstance(first, Mapping):
        keys = sorted({key for value in values for key in value})
        return {key: _median([value[key] for value in values if key in value]) for key in keys}
    if isinstance(first, tuple):
        pooled = tuple(chain.from_iterable(values))
        return tuple(sorted(pooled)) if all(isinstance(one, int) for one in pooled) else pooled
    return first if first is None else median_low(values)


def fullness(lives: Collection[Life], gpus: int, began_ns: Instant, costs: Costs) -> Flow:
    """How full the cluster was, by when each job of one GPU was let go and ended."""
    steps = sorted([(life.let_go_ns, 1) for life in lives] + [(life.ended_ns, -1) for life in lives])
    last_start_ns = max(life.let_go_ns for life in lives)
    given, full_ns, filled, whole, at_ns = 0, 0, last_start_ns, 0, began_ns
    for when_ns, step in steps:
        if when_ns > last_start_ns:
            break
        whole += given * (when_ns - at_ns)
        if filled < last_start_ns:
            full_ns += given * (when_ns - at_ns)
        given, at_ns = given + step, when_ns
        if given == gpus and filled == last_start_ns:
            filled = when_ns
    return Flow(
        jobs=len(lives),
        costs=costs,
        filled_ms=(filled - began_ns) // 1_000_000,
        busy_milli=1000 * full_ns // max(1, gpus * (last_start_ns - filled)),
        busy_all_milli=1000 * whole // max(1, gpus * (last_start_ns - began_ns)),
    )
