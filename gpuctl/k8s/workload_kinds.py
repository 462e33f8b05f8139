"""Objects of other controllers, read by the rows of their kinds: pods, counts, stopped, ended.

From it follow how many workers a job with such a manifest has, how its object is stopped (`gpuctl/plan/admission.py`)
and when its run has ended (`gpuctl/observe/workloads.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from gpuctl.k8s.objects import condition, flag, instant, items, mapping, number, text, with_value
from gpuctl.k8s.requests import Requests, requests_of
from gpuctl.k8s.workload_table import Rows
from gpuctl.model.state import Body
from gpuctl.model.units import Instant
from gpuctl.model.workload_kind import Count, Kind, Path, PodSets, Told, WorkloadKind


class PodSet(NamedTuple):
    """Pods of one template: how many at a time, and what each requests.

    `at` leads from the spec to the `entry` that they are of.
    """

    sets: PodSets
    at: tuple[str | int, ...]
    entry: Body
    name: str
    template: Body
    pods: int
    requests: Requests


def row_of(body: Body, rows: Rows) -> WorkloadKind | None:
    """The row of an object's kind; None for any other kind."""
    return rows.get((text(body, "apiVersion"), text(body, "kind")))


def pod_sets(row: WorkloadKind, spec: Body) -> Iterator[PodSet]:
    """The pods that a spec makes, in the order of the row. Cost: linear in the containers."""
    for sets in row.pods:
        for at, entry in _entries(sets, spec):
            template = mapping(entry, *sets.template)
            if not template and not sets.is_list:
                continue
            name = text(entry, *sets.name) if sets.name else sets.called
            requests = requests_of(mapping(template, "spec"))
            yield PodSet(sets, at, entry, name, template, product(sets.counts, entry), requests)


def _entries(sets: PodSets, spec: Body) -> Iterator[tuple[tuple[str | int, ...], Body]]:
    if not sets.is_list:
        yield sets.entries, mapping(spec, *sets.entries)
    else:
        for position, entry in enumerate(items(spec, *sets.entries)):
            yield (*sets.entries, position), entry


def product(counts: Iterable[Count], entry: Body) -> int:
    """How many the fields say together; none is below 0."""
    found = 1
    for each in counts:
        less = bool(each.but_one and mapping(entry, *each.but_one))
        found *= max(0, number(entry, *each.path, default=each.usual) - less)
    return found


class WorkerSum(NamedTuple):
    """What a workload is to the engine: equal workers, and pods without GPUs beside them.

    `worker` is what one worker is charged: the most that any of them requests, and CPU and memory of all the `helpers`,
    the pods without GPUs, for any of its nodes may get those. `beside`: what the helpers request together.
    """

    workers: int
    worker: Requests
    helpers: int = 0
    beside: Requests = Requests()

    @property
    def pods(self) -> int:
        """All of its pods at a time."""
        return self.workers + self.helpers


def sum_of(row: WorkloadKind, spec: Body) -> WorkerSum:
    """The workers of a spec: its pods with GPUs, or all where none has any."""
    sets = list(pod_sets(row, spec))
    ask = [each for each in sets if each.requests.gpus] or sets
    worker, beside = Requests(), Requests()
    for each in ask:
        worker = worker.either(each.requests)
    helpers = 0
    for each in sets if len(ask) < len(sets) else ():
        if not each.requests.gpus:
            helpers += each.pods
            beside = beside.plus(each.requests.times(each.pods))
    return WorkerSum(sum(each.pods for each in ask), worker.plus(beside), helpers, beside)


def made_of(row: WorkloadKind, spec: Body) -> Mapping[Kind, int]:
    """How many objects of other kinds the workload's controller makes, besides pods."""
    found: Counter[Kind] = Counter()
    for each in pod_sets(row, spec):
        for made in each.sets.made:
            found[made.kind] += product(made.counts, each.entry)
    return dict(found)


def is_suspended(row: WorkloadKind, body: Body) -> bool:
    """Whether it is to have no pods."""
    return number(body, *row.suspend, default=1) <= 0 if row.is_count else flag(body, *row.suspend)


def stopped(row: WorkloadKind, body: Body) -> dict[str, Any]:
    """The object as one that is to have no pods."""
    return with_value(body, row.suspend, 0 if row.is_count else True)


def stopped_like(row: WorkloadKind, body: Body, wanted: Body) -> dict[str, Any]:
    """The object, stopped or not as another one of its kind is."""
    return with_value(body, row.suspend, mapping(wanted, *row.suspend[:-1]).get(row.suspend[-1]))


def is_at_rest(row: WorkloadKind, body: Body) -> bool:
    """Whether it is suspended, and its controller has not resumed it, or has suspended it again."""
    if not is_suspended(row, body) or any(_is_active(body, path) for path in row.active):
        return False
    return row.suspended is None or _is_told(body, row.suspended, or_nothing=True)


def _is_active(body: Body, path: Path) -> bool:
    *above, last = path
    return number(body, *path) > 0 or any(number(each, last) for each in items(body, *above))


def _is_told(body: Body, state: Told, *, or_nothing: bool = False) -> bool:
    """Whether the object tells that state; `or_nothing`: or none at all in that place."""
    if state.condition:
        told = [entry for entry in items(body, "status", "conditions") if entry.get("type") == state.condition]
        return all(entry.get("status") == "True" for entry in told) and bool(told or or_nothing)
    value = text(body, *state.field)
    return value in state.values or (or_nothing and not value)


class End(NamedTuple):
    """How and when a workload ended, as far as it says when."""

    succeeded: bool
    at_ms: Instant | None


def end_of(row: WorkloadKind, body: Body) -> End | None:
    """How it ended by its own status; None for one that goes on."""
    for state, succeeded in ((row.succeeded, True), (row.failed, False)):
        if state is not None and _is_told(body, state):
            told = condition(body, state.condition)
            since = instant(body, *state.since) if state.since else None
            return End(succeeded, instant(told, "lastTransitionTime") if told else since)
    return None
