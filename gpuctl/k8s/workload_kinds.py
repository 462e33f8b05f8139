"""Objects of other controllers, read by the rows of their kinds: pods, counts, ended.

From it follow how many workers a job with such a manifest has, and when its run has ended
(`gpuctl/observe/workloads.py`). How its object is stopped is in `gpuctl/k8s/suspension.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from gpuctl.k8s.objects import condition, instant, items, mapping, number, text
from gpuctl.k8s.requests import Requests, requests_of
from gpuctl.k8s.workload_table import Rows
from gpuctl.model.state import Body
from gpuctl.model.units import Instant
from gpuctl.model.workload_kind import Count, Kind, PodSets, Told, WorkloadKind


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


def is_told(body: Body, state: Told, *, or_nothing: bool = False) -> bool:
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
        if state is not None and is_told(body, state):
            told = condition(body, state.condition)
            since = instant(body, *state.since) if state.since else None
            return End(succeeded, instant(told, "lastTransitionTime") if told else since)
    return None
