"""Reads objects of other controllers by the rows of their kinds: their pods, counts and ends.

From these follow the number of workers of a job with such a manifest, and when its run has ended
(`gpuctl/observe/workloads.py`). `gpuctl/k8s/suspension.py` has how its object is stopped.
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

    `at`: the path from the spec to their `entry`.
    """

    sets: PodSets
    at: tuple[str | int, ...]
    entry: Body
    name: str
    template: Body
    pods: int
    requests: Requests


def row_of(body: Body, rows: Rows) -> WorkloadKind | None:
    """The row of an object's kind; None for a kind without a row."""
    return rows.get((text(body, "apiVersion"), text(body, "kind")))


def pod_sets(row: WorkloadKind, spec: Body) -> Iterator[PodSet]:
    """The sets of pods that a spec makes, in the order of the row. Cost: linear in the containers."""
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
    """The product of the counts of an entry; none counts as less than 0."""
    found = 1
    for each in counts:
        less = bool(each.but_one and mapping(entry, *each.but_one))
        found *= max(0, number(entry, *each.path, default=each.usual) - less)
    return found


class WorkerSum(NamedTuple):
    """A workload as the engine sees it: equal workers, and pods without GPUs beside them.

    `worker`: the charge of one worker: the largest requests of any worker, and CPU and memory of all `helpers`, the
    pods without GPUs, since any of its nodes may get those. `beside`: the requests of all helpers together.
    """

    workers: int
    worker: Requests
    helpers: int = 0
    beside: Requests = Requests()

    @property
    def pods(self) -> int:
        """The number of all its pods at a time."""
        return self.workers + self.helpers


def sum_of(row: WorkloadKind, spec: Body) -> WorkerSum:
    """The workers of a spec: its pods with GPUs, or all pods if none has any."""
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
    """Whether the object reports that state; `or_nothing`: also if it reports nothing in that place."""
    if state.condition:
        told = [entry for entry in items(body, "status", "conditions") if entry.get("type") == state.condition]
        return all(entry.get("status") == "True" for entry in told) and bool(told or or_nothing)
    value = text(body, *state.field)
    return value in state.values or (or_nothing and not value)


class End(NamedTuple):
    """How a workload ended, and when, if it says so."""

    succeeded: bool
    at_ms: Instant | None


def end_of(row: WorkloadKind, body: Body) -> End | None:
    """The end that the object's own status reports; None if it goes on."""
    for state, succeeded in ((row.succeeded, True), (row.failed, False)):
        if state is not None and is_told(body, state):
            told = condition(body, state.condition)
            since = instant(body, *state.since) if state.since else None
            return End(succeeded, instant(told, "lastTransitionTime") if told else since)
    return None
