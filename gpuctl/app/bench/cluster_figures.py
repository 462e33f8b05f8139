"""The measurements of `gpuctl bench cluster`, as values."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from itertools import chain
from operator import attrgetter
from statistics import median_low
from typing import Any, TypeVar

from gpuctl.app.bench.cluster_log import Life, PodLife
from gpuctl.app.bench.cluster_tree import Scale
from gpuctl.model.ids import ObjectRef
from gpuctl.model.units import DurationMs, Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Writes of one kind: how many, and the sum of their times from request to answer."""

    count: int
    taken_ms: DurationMs


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What a measured stretch took.

    `server_cpu_ms` is the API server's. `own_cpu_ms`, memory and writes are the controller's, 0 without one; its Events
    are counted apart. `by_kind`: all writes again, Events included. `memory_mib` is resident at the end, `peak_mib` the
    maximum since its process began.
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
    """A stream of jobs, from the first write or the commit until the last job has ended.

    `filled_ms`: until all GPUs were allocated, or all jobs released. `busy_milli`: the part of the GPUs that was
    allocated from then on while a job waited, 0 if they never all were. `busy_all_milli`: the same from the beginning.
    """

    jobs: int
    costs: Costs
    filled_ms: DurationMs = 0
    busy_milli: int = 0
    busy_all_milli: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reclaimed:
    """A reclaim of borrowed GPUs: from the owner's commit until all its jobs were released."""

    wanted: int
    paused: int
    pausing_cycles: int
    made_ms: DurationMs
    costs: Costs


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """Single jobs that can start among many that can't: how long each took until its release, from its commit and from
    the creation of its object."""

    pending: int
    from_commit_ms: tuple[DurationMs, ...]
    from_object_ms: tuple[DurationMs, ...]
    costs: Costs


@dataclass(frozen=True, slots=True, kw_only=True)
class Refills:
    """Jobs that follow one another on a few GPUs: the times from the end of a pod to the binding of the next.

    Each consists of the times until the next Job was released (`released_ms`: gpuctl's, with the API server's watch and
    write), until it had a pod (`made_ms`: the Job controller's), and until that was bound (`bound_ms`:
    kube-scheduler's).
    """

    waits_ms: tuple[DurationMs, ...]
    released_ms: tuple[DurationMs, ...]
    made_ms: tuple[DurationMs, ...]
    bound_ms: tuple[DurationMs, ...]
    costs: Costs


def percentile(waits_ms: Sequence[DurationMs], percent: int) -> DurationMs:
    """The wait at this percentile of the sorted waits."""
    return waits_ms[min(len(waits_ms) - 1, len(waits_ms) * percent // 100)]


def refills_of(pods: Collection[PodLife], jobs: Mapping[ObjectRef, Life], gpus: int, costs: Costs) -> Refills:
    """The waits of one-GPU jobs on this many GPUs: the first pod that ends lets the next one be bound, and so on."""
    ends = sorted(pod.ended_ns for pod in pods)
    nexts = sorted(pods, key=attrgetter("bound_ns"))[gpus:]
    turns = [(end, jobs[pod.job].let_go_ns, pod) for end, pod in zip(ends, nexts, strict=False)]
    return Refills(
        waits_ms=_sorted_ms(pod.bound_ns - end for end, _, pod in turns),
        released_ms=_sorted_ms(released - end for end, released, _ in turns),
        made_ms=_sorted_ms(pod.made_ns - released for _, released, pod in turns),
        bound_ms=_sorted_ms(pod.bound_ns - pod.made_ns for _, _, pod in turns),
        costs=costs,
    )


def _sorted_ms(durations_ns: Iterable[int]) -> tuple[DurationMs, ...]:
    return tuple(sorted(duration_ns // 1_000_000 for duration_ns in durations_ns))


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Long jobs, more than there are GPUs: created by one controller, then found by another one that starts.

    `made`: until all GPUs were allocated and nothing was left to write; `found` likewise.
    """

    jobs: int
    made: Costs
    found: Costs


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterBench:
    """All measurements; None for a workload that was not asked for.

    `bare`: each workload without gpuctl, once a try; `queued`: the flow without gpuctl, its Jobs created suspended and
    then released, as gpuctl does it.
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
    """Merge several measurements into one: the median of each number; single waits and bare runs are pooled."""
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
    """How full the cluster was, by the instants at which each one-GPU job was released and ended.

    A Job reports its end about a second after its pod has freed the GPU. A job that was released onto that GPU in
    between adds nothing: a GPU counts once.
    """
    steps = sorted([(life.let_go_ns, 1) for life in lives] + [(life.ended_ns, -1) for life in lives])
    last_start_ns = max(life.let_go_ns for life in lives)
    given, full_ns, filled, whole, at_ns = 0, 0, last_start_ns, 0, began_ns
    for when_ns, step in steps:
        if when_ns > last_start_ns:
            break
        busy = min(given, gpus) * (when_ns - at_ns)
        whole += busy
        if filled < last_start_ns:
            full_ns += busy
        given, at_ns = given + step, when_ns
        if given >= gpus and filled == last_start_ns:
            filled = when_ns
    return Flow(
        jobs=len(lives),
        costs=costs,
        filled_ms=(filled - began_ns) // 1_000_000,
        busy_milli=1000 * full_ns // max(1, gpus * (last_start_ns - filled)),
        busy_all_milli=1000 * whole // max(1, gpus * (last_start_ns - began_ns)),
    )
