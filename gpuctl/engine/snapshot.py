"""The snapshot of one cycle: what is free now and in future, which run holds which place, and who may hold how much.

`idle` is free now; `future_idle` is free once all runs that are leaving have left. Places that are reserved
are taken in both. The two differ exactly by what is leaving.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from operator import attrgetter

from gpuctl.engine.capacity.free import FreeCapacity
from gpuctl.engine.capacity.gang import Assignment
from gpuctl.engine.capacity.nodes import Capacity
from gpuctl.engine.capacity.request_mix import RequestMix
from gpuctl.engine.capacity.unschedulable import UnschedulableRequests
from gpuctl.engine.counters import Counters
from gpuctl.engine.dirty import DirtyProjects, DirtyReader
from gpuctl.engine.jobs.interactive import running_ms
from gpuctl.engine.jobs.job_class import PendingJob
from gpuctl.engine.jobs.runs import Allocation, sort_in, sort_out
from gpuctl.engine.jobs.victim_order import Preference, in_order, run_order
from gpuctl.engine.shares.accounts import Accounts
from gpuctl.model.decision import Placement
from gpuctl.model.declared import DomainName
from gpuctl.model.ids import JobId, NodeName, PoolName, ProjectName
from gpuctl.model.job import Job
from gpuctl.model.units import DurationMs, GpuMilli, Instant

_ENDLESS = 1 << 62


class Snapshot:
    """Both ledgers, the accounts and the runs in place; every change goes through here and touches all of them.

    `version` counts pauses, `changes` everything. `spared` are runs that are not reclaimed for other projects. `lifted`
    are places that were set aside, and are free for a moment. `elastic`: whether there may be surplus workers among the
    runs. `leaving` counts runs whose place is coming free.
    """

    __slots__ = (
        "_candidates", "_done", "_going", "_least", "_news", "_on_node", "_pausable", "_projects", "_unschedulable",
        "accounts", "capacity", "changes", "effort", "elastic", "future_idle", "idle", "leaving", "lifted",
        "min_runtime_ms", "now_ms", "spared", "version",
    )  # fmt: skip

    def __init__(self, capacity: Capacity, accounts: Accounts, min_runtime_ms: DurationMs, news: DirtyProjects) -> None:
        self.capacity = capacity
        self.accounts = accounts
        self._news = news
        self.effort = Counters()
        self.idle = FreeCapacity.of(capacity)
        self.future_idle = FreeCapacity.of(capacity)
        self.now_ms: Instant = 0
        self.min_runtime_ms = min_runtime_ms
        self.version = 0
        self.changes = 0
        self.spared: frozenset[JobId] = frozenset()
        self.lifted: frozenset[Placement] = frozenset()
        self.elastic = False
        self.leaving = 0
        self._unschedulable: dict[object, UnschedulableRequests] = {}
        self._candidates: dict[object, tuple[Allocation, ...]] = {}
        self._projects: dict[object, tuple[DirtyReader, dict[ProjectName, None]]] = {}
        self._least: dict[tuple[DomainName, ProjectName], GpuMilli] = {}
        self._on_node: dict[NodeName, list[Allocation]] = {}
        self._going: dict[Allocation, None] = {}
        self._pausable: dict[DomainName, dict[ProjectName, list[Allocation]]] = {}
        self._done: list[tuple[Job | None, Assignment, int] | tuple[Allocation, ...]] = []

    def renew(self, now_ms: Instant, effort: Counters) -> set[JobId]:
        """Begin a cycle: what the last one did is taken back. The jobs whose runs must be entered anew."""
        touched: set[JobId] = set()
        for done in reversed(self._done):
            match done:
                case (Job() | None as job, Assignment() as seat, int() as sign):
                    self._seat(job, seat, -sign)
                case allocations:
                    touched.update(self._resume(allocations))
        self._done.clear()
        self.lifted = frozenset()
        self._change()
        self.idle.tidy()
        self.future_idle.tidy()
        self.now_ms, self.version, self.changes = now_ms, 0, 0
        self.effort = self.idle.effort = self.future_idle.effort = effort
        return touched

    def refit(self, capacity: Capacity, nodes: Collection[NodeName]) -> None:
        """Nodes that no run is entered on are as they now are."""
        self.capacity = capacity
        if nodes:
            self.idle.refit(capacity, nodes)
            self.future_idle.refit(capacity, nodes)

    def spare(self, jobs: frozenset[JobId]) -> None:
        """Have these not be reclaimed for other projects."""
        if jobs != self.spared:
            self.spared = jobs
            self._change()

    def adopt(self, habits: Mapping[PoolName, RequestMix]) -> None:
        """Place by these habits from now on."""
        self.idle.adopt(habits)
        self.future_idle.adopt(habits)

    def enter_all(self, allocations: Sequence[Allocation]) -> None:
        """Enter the runs that occupy their places now, in order of jobs and digests."""
        staying = [allocation for allocation in allocations if not allocation.leaving]
        self.leaving += len(allocations) - len(staying)
        self._going.update(dict.fromkeys(filter(attrgetter("leaving"), allocations)))
        self.idle.take_all(allocations)
        if len(staying) > len(self.future_idle.rooms):
            # To copy is cheaper than to enter so many again, and the two differ by what is leaving.
            self.future_idle = self.idle.copy()
            self.future_idle.give_back_all(self._going)
        else:
            self.future_idle.take_all(staying)
        on_node: defaultdict[NodeName, list[Allocation]] = defaultdict(list)
        of_project: defaultdict[tuple[DomainName, ProjectName], list[Allocation]] = defaultdict(list)
        for allocation in staying:
            for node in allocation.nodes():
                on_node[node].append(allocation)
            if allocation.domain is not None:
                of_project[allocation.domain, allocation.run.job.project].append(allocation)
        for node, some in on_node.items():
            there = self._on_node.get(node)
            if there:
                sort_in(there, some, _identity)
            else:
                self._on_node[node] = some
        for (domain, project), some in of_project.items():
            for preemptible in (True, False):
                milli = sum(allocation.total_milli for allocation in some if allocation.preemptible is preemptible)
                self.accounts.add(project, domain, milli, preemptible=preemptible)
            pausable = list(filter(self.is_pausable, some))
            if pausable:
                sort_in(self._of_project(domain, project), pausable, run_order)

    def leave_all(self, allocations: Collection[Allocation]) -> None:
        """Runs that are where they were no more."""
        for allocation in filter(attrgetter("leaving"), allocations):
            self.leaving -= 1
            del self._going[allocation]
        self.idle.give_back_all(allocations)
        self._let_go([allocation for allocation in allocations if not allocation.leaving])

    def _let_go(self, allocations: Collection[Allocation]) -> None:
        """They leave, and can't be paused any more, if they could."""
        self.future_idle.give_back_all(allocations)
        self._strike(allocations)

    def _strike(self, allocations: Collection[Allocation]) -> None:
        """They hold nothing any more, and are not to be had."""
        for allocation in allocations:
            self._account(allocation, -1)
            for node in allocation.nodes():
                self._on_node[node].remove(allocation)
        of_project: defaultdict[tuple[DomainName | None, ProjectName], list[Allocation]] = defaultdict(list)
        for allocation in allocations:
            of_project[allocation.domain, allocation.project].append(allocation)
        for key, some in of_project.items():
            sort_out(self._of_project(*key), some, run_order)

    def _resume(self, allocations: Iterable[Allocation]) -> Iterator[JobId]:
        """The opposite of `pause`, but for the order of those on a node."""
        for allocation in allocations:
            self.leaving -= 1
            self.future_idle.take(allocation.placement, allocation.charge)
            self._account(allocation, 1)
            for node in allocation.nodes():
                self._on_node[node].append(allocation)
            insort(self._of_project(allocation.domain, allocation.project), allocation, key=run_order)
            yield allocation.run.job

    def is_pausable(self, allocation: Allocation) -> bool:
        """Whether a run in place is preemptible and has run for minRuntime."""
        may_be = allocation.job is not None and not allocation.leaving and allocation.preemptible
        return may_be and (not self.min_runtime_ms or self._old_enough(allocation))

    def _of_project(self, domain: DomainName | None, project: ProjectName) -> list[Allocation]:
        """The list of its runs there that may be paused, to be changed."""
        if domain is None:
            return []
        self._least.pop((domain, project), None)
        return self._pausable.setdefault(domain, {}).setdefault(project, [])

    def candidates(self, key: object, find: Callable[[], Iterable[Iterable[Allocation]]]) -> tuple[Allocation, ...]:
        """The runs that `find` gives, a list of pausable ones for each project, in order of preference.

        They are looked for once for a key, until the snapshot change.
        """
        found = self._candidates.get(key)
        if found is None:
            found = self._candidates[key] = in_order(find(), self.preference)
        return found

    def projects(self, key: object, is_one: Callable[[ProjectName], bool]) -> Collection[ProjectName]:
        """The projects of which something is true that follows from what they hold and may hold, and from their runs.

        Cost: those there is news about since it was last asked for a key, equal for equal questions.
        """
        if key not in self._projects:
            self._projects[key] = self._news.reader(), {}
        reader, found = self._projects[key]
        for project in reader.take():
            if is_one(project):
                found[project] = None
            else:
                found.pop(project, None)
        return found

    def smallest(self, domain: DomainName, project: ProjectName) -> GpuMilli:
        """The GPUs of the smallest run of a project that can be paused and has any; there may be none."""
        found = self._least.get((domain, project))
        if found is None:
            there = self.pausable(domain).get(project, ())
            found = min((allocation.total_milli for allocation in there if allocation.total_milli), default=_ENDLESS)
            self._least[domain, project] = found
        return found

    def lowest(self, domain: DomainName, project: ProjectName) -> int:
        """The lowest priority of a project's runs that can be paused; there may be none."""
        there = self.pausable(domain).get(project)
        return run_order(there[0]).priority if there else _ENDLESS  # They are in this order.

    def unschedulable(self, key: object) -> UnschedulableRequests:
        """Requests for which the search named by a key found nothing; empty again whenever the snapshot change."""
        found = self._unschedulable.get(key)
        if found is None:
            found = self._unschedulable[key] = UnschedulableRequests()
        return found

    def _change(self) -> None:
        self.changes += 1
        self._candidates.clear()
        self._unschedulable.clear()

    def pause(self, allocations: Iterable[Allocation]) -> None:
        """Runs that leave by this cycle's decision: their places are free soon, and no longer count as theirs."""
        self._change()
        paused = tuple(allocations)
        if paused:
            self._done.append(paused)
        self._let_go(paused)
        self._await(paused)

    def exchange(self, allocations: Sequence[Allocation], job: Job, seat: Assignment) -> None:
        """Have runs leave for a job that takes the place: `pause` and `occupy` at once."""
        self._change()
        paused = tuple(allocations)
        self._done += [paused, (job, seat, 1)]
        self.future_idle.exchange(paused, seat)
        self._strike(paused)
        self._await(paused)
        self.idle.take(seat.placement, seat.charge)
        self._enter_seat(job, seat, 1)

    def _await(self, paused: Sequence[Allocation]) -> None:
        self.leaving += len(paused)
        self.version += len(paused)

    @contextmanager
    def looking_at(self, future_idle: FreeCapacity) -> Iterator[None]:
        """As if that were all that will be free, for a search."""
        whole, self.future_idle = self.future_idle, future_idle
        try:
            yield
        finally:
            self.future_idle = whole

    @contextmanager
    def as_if_free(self, seats: Collection[Assignment]) -> Iterator[None]:
        """As if some places that are taken were free now, for a look at nothing but `idle`."""
        changes, self.changes = self.changes, -1 - self.changes
        with self.idle.without(seats):
            yield
        self.changes = changes

    @contextmanager
    def without(self, allocations: Collection[Allocation]) -> Iterator[None]:
        """As it would be once these had left, for a trial."""
        self._depart(allocations, 1)
        try:
            yield
        finally:
            self._depart(allocations, -1)

    def _depart(self, allocations: Collection[Allocation], sign: int) -> None:
        if not allocations:
            return
        self._change()
        move = self.future_idle.give_back if sign > 0 else self.future_idle.take
        for allocation in allocations:
            move(allocation.placement, allocation.charge)
            self._account(allocation, -sign)

    def stays(self, allocation: Allocation) -> bool:
        """Whether the run is in place and is not paused so far."""
        nodes = [worker.node for worker in allocation.placement.workers[:1]]
        return any(other is allocation for node in nodes for other in self.on_node(node))

    def occupy(self, job: Job, seat: Assignment) -> None:
        """Take a place for a job, to start in now or reserved until what is there has left."""
        self._change()
        self._do(job, seat, 1)

    def vacate(self, job: Job, seat: Assignment) -> None:
        """The exact opposite of `occupy`."""
        self._change()
        self._do(job, seat, -1)

    def _do(self, job: Job | None, seat: Assignment, sign: int) -> None:
        """Take a place, or give it back, and remember that; what is undone at once need not be."""
        if self._done and self._done[-1] == (job, seat, -sign):
            self._done.pop()
        else:
            self._done.append((job, seat, sign))
        self._seat(job, seat, sign)

    def reseat(self, old: Mapping[PendingJob, Assignment], new: Mapping[PendingJob, Assignment]) -> None:
        """Leave many places for others at once, as by `vacate` and `occupy`."""
        self._change()
        for ledger in (self.idle, self.future_idle):
            ledger.give_back_all(old.values())
            ledger.take_all(new.values())
        for seats, sign in ((old, -1), (new, 1)):
            for waiting, seat in seats.items():
                self._done.append((waiting.job, seat, sign))
                self._enter_seat(waiting.job, seat, sign)

    def _seat(self, job: Job | None, seat: Assignment, sign: int) -> None:
        for ledger in (self.idle, self.future_idle):
            (ledger.take if sign > 0 else ledger.give_back)(seat.placement, seat.charge)
        if job is not None:
            self._enter_seat(job, seat, sign)

    def _enter_seat(self, job: Job, seat: Assignment, sign: int) -> None:
        domain = self.capacity.domain_of[seat.option.pool.name]
        total = sign * seat.option.request.total_milli
        self.accounts.add(job.id.project, domain, total, preemptible=job.preemptible)

    def seated(self) -> Iterator[tuple[JobId, Assignment]]:
        """The places that were taken for jobs in this cycle, to start in or as a promise. Cost: O(places taken)."""
        found: dict[tuple[JobId, int], Assignment] = {}
        for done in self._done:
            match done:
                case (Job() as job, Assignment() as seat, int() as sign):
                    if sign > 0:
                        found[job.id, id(seat)] = seat
                    else:
                        found.pop((job.id, id(seat)), None)
                case _:
                    pass
        return ((job, seat) for (job, _), seat in found.items())

    def set_aside(self, seat: Assignment) -> None:
        """Keep a place free of everybody, who is in it now excepted. It counts as nobody's."""
        self.changes += 1
        self.lifted -= {seat.placement}
        self._do(None, seat, 1)

    def put_back(self, seat: Assignment) -> None:
        """The exact opposite of `set_aside`, for a moment."""
        self.changes += 1
        self.lifted |= {seat.placement}
        self._do(None, seat, -1)

    def give_up(self, seat: Assignment) -> None:
        """A place that was put back will not be set aside again."""
        self._change()
        self.lifted -= {seat.placement}

    def on_node(self, node: NodeName) -> list[Allocation]:
        """Runs in place on a node that stay so far. Not to be changed."""
        return self._on_node.get(node, [])

    @property
    def going(self) -> Iterable[Allocation]:
        """Runs that are leaving their place by themselves, or are stopping."""
        return self._going

    def entered_on(self, nodes: Collection[NodeName]) -> set[JobId]:
        """The jobs of all that is entered on some nodes, leaving or not. Cost: O(runs there, and all that leave)."""
        staying = (allocation for node in nodes for allocation in self.on_node(node))
        going = (allocation for allocation in self._going if not frozenset(allocation.nodes()).isdisjoint(nodes))
        return {allocation.run.job for allocation in chain(staying, going)}

    def pausable(self, domain: DomainName) -> Mapping[ProjectName, list[Allocation]]:
        """Preemptible runs in place that have run for minRuntime, by project, sorted by `run_order`."""
        return self._pausable.get(domain, {})

    def _old_enough(self, allocation: Allocation) -> bool:
        """What gives up a surplus worker is not stopped, and minRuntime is about being stopped."""
        return allocation.surplus or running_ms(allocation.run, self.now_ms) >= self.min_runtime_ms

    def preference(self, allocation: Allocation) -> Preference:
        """Where a run stands among all that may be paused."""
        over = 0 if allocation.domain is None else self.accounts.over_share(allocation.domain, allocation.project)
        return Preference(-over, run_order(allocation))

    def _account(self, allocation: Allocation, sign: int) -> None:
        if allocation.domain is not None:
            milli = sign * allocation.total_milli
            self.accounts.add(allocation.project, allocation.domain, milli, preemptible=allocation.preemptible)


def _identity(allocation: Allocation) -> tuple[JobId, str]:
    return allocation.run.job, allocation.run.digest
