"""The scheduler's snapshot of one cycle: free capacity, allocations and accounts. It is the only thing a cycle changes.

`idle` is free now; `future_idle` is free once all leaving runs have left. A place that is taken in this cycle, for a
start or as a reservation, is taken in both. Example: a node of 4 GPUs has one run on 3 of them that is being paused: 1
GPU is idle, 4 are future idle.
Invariant: `idle` and `future_idle` differ by exactly the leaving runs.
The next cycle undoes the changes of this one, and begins with the real state of the cluster.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from operator import attrgetter
from typing import Any, TypeAlias, TypeVar

from gpuctl.engine.capacity.fit import UnschedulableRequests
from gpuctl.engine.capacity.free import FreeCapacity
from gpuctl.engine.capacity.gang import Assignment, PoolOption
from gpuctl.engine.capacity.nodes import Capacity
from gpuctl.engine.capacity.request_mix import RequestMix
from gpuctl.engine.counters import Counters
from gpuctl.engine.jobs.runs import Allocation, gpu_milli_of
from gpuctl.engine.jobs.timing import since_start_ms
from gpuctl.engine.jobs.victim_order import Preference, RunOrder
from gpuctl.engine.restraints import UNRESTRAINED, Restraints
from gpuctl.engine.shares.accounts import Accounts
from gpuctl.engine.shares.entitlement import beyond_quota, forbidden, stays_within_share
from gpuctl.model.decision import Placement
from gpuctl.model.declared import MinRuntime
from gpuctl.model.ids import DomainName, JobId, NodeName, ProjectName
from gpuctl.model.job import Job
from gpuctl.model.units import DurationMs, Instant

_ENDLESS = 1 << 62

T = TypeVar("T")

ByProject: TypeAlias = dict[DomainName, dict[ProjectName, list[Allocation]]]


def _on_node_order(allocation: Allocation) -> tuple[JobId, str, int]:
    """The order of runs on a node, whatever the order in which they were entered."""
    return allocation.run.job, allocation.run.digest, len(allocation.leaves_with)


def _in_project_order(allocation: Allocation) -> tuple[RunOrder, int]:
    """The order of a project's runs. Of the parts of an elastic run, those that leave first come first."""
    return allocation.order, len(allocation.leaves_with)


class Snapshot:
    """Free capacity, the accounts, and the allocations by node and by project.

    `protected` runs are not reclaimed for other projects. `settled` runs are not reclaimed by fairness for a certain
    project, nor preempted by its jobs (`victims/settled.py`). `lifted`: head reservations whose place may be used for a
    moment; failed searches are remembered for each such set. `depth`: how many what-ifs are open. `spent`: by project,
    the runs and parts of elastic runs listed in this cycle in searches for its jobs, and sets tried in them.
    """

    def __init__(self, capacity: Capacity, accounts: Accounts, min_runtime: MinRuntime) -> None:
        self.capacity = capacity
        self.accounts = accounts
        self.counters = Counters()
        self.spent = Counter[ProjectName]()
        self.idle = FreeCapacity.of(capacity)
        self.future_idle = FreeCapacity.of(capacity)
        self.now_ms: Instant = 0
        self.min_runtime = min_runtime
        self.protected: frozenset[JobId] = frozenset()
        self.restraints = UNRESTRAINED
        self._untouched: frozenset[JobId] = frozenset()
        self.settled: Mapping[ProjectName, frozenset[JobId]] = {}
        self.lifted: frozenset[Placement] = frozenset()
        self._found: dict[object, Any] = {}
        self.depth = 0
        self._on_node: dict[NodeName, list[Allocation]] = {}
        self._leaving: dict[Allocation, None] = {}
        self._pausable: ByProject = {}
        self._without_gpus: ByProject = {}
        self._taken: dict[tuple[JobId | None, int], tuple[Job | None, Assignment]] = {}
        self._paused: list[Allocation] = []

    # Between cycles

    def renew(self, now_ms: Instant, counters: Counters) -> set[JobId]:
        """Begin a cycle: undo what the last one did. Returns the jobs whose runs must be entered again."""
        touched = {allocation.run.job for allocation in self._paused}
        self._undo(0, 0)
        self.lifted = frozenset()
        self._found.clear()
        self.spent.clear()
        self.now_ms = now_ms
        self.counters = self.idle.counters = self.future_idle.counters = counters
        return touched

    def refit(self, capacity: Capacity, nodes: Collection[NodeName]) -> None:
        """Take over the new state of some nodes, on which no run may be entered."""
        self.capacity = capacity
        if nodes:
            self.idle.refit(capacity, nodes)
            self.future_idle.refit(capacity, nodes)

    def protect(
        self, jobs: frozenset[JobId], settled: Mapping[ProjectName, frozenset[JobId]], restraints: Restraints
    ) -> bool:
        """Set the protected and settled runs, and the restraints, of this cycle. Returns whether any has changed."""
        self._untouched = restraints.untouched
        if (jobs, settled, restraints) == (self.protected, self.settled, self.restraints):
            return False
        self.protected, self.settled, self.restraints = jobs, settled, restraints
        self._found.clear()
        return True

    def leave_alone(self, job: JobId) -> None:
        """Keep a run from making way in the rest of the cycle, because other runs make way for its job."""
        self._untouched |= {job}
        self._found.clear()

    def adopt(self, mix: RequestMix) -> None:
        """Rank places by this request mix from now on."""
        self.idle.adopt(mix)
        self.future_idle.adopt(mix)

    def enter_all(self, allocations: Sequence[Allocation]) -> None:
        """Enter runs that occupy their places now, in the order of jobs and digests.

        The claim of a displaced run counts as held by its project, but the project can't lose it.
        """
        staying = [allocation for allocation in allocations if not allocation.leaving]
        self._leaving.update(dict.fromkeys(filter(attrgetter("leaving"), allocations)))
        self._claim(allocations, 1)
        self.idle.take(allocations)
        self.future_idle.take(staying)
        self._enter(staying)

    def leave_all(self, allocations: Collection[Allocation]) -> None:
        """Remove runs that are no longer where they were."""
        for allocation in filter(attrgetter("leaving"), allocations):
            del self._leaving[allocation]
        self._claim(allocations, -1)
        self.idle.give_back(allocations)
        self._remove([allocation for allocation in allocations if not allocation.leaving])

    # State

    def on_node(self, node: NodeName) -> list[Allocation]:
        """Runs in place on a node that are not leaving. Read only."""
        return self._on_node.get(node, [])

    def stays(self, allocation: Allocation) -> bool:
        """Whether the run is in place: it was not paused in this cycle."""
        nodes = [worker.node for worker in allocation.placement.workers[:1]]
        return any(other is allocation for node in nodes for other in self.on_node(node))

    @property
    def is_freeing(self) -> bool:
        """Whether GPUs of runs are coming free."""
        return bool(self._leaving or self._paused)

    @property
    def leaving_runs(self) -> Iterable[Allocation]:
        """Runs that were leaving their place when the cycle began."""
        return self._leaving

    def entered_on(self, nodes: Collection[NodeName]) -> set[JobId]:
        """The jobs of all runs entered on some nodes, leaving or not. Cost: O(runs there, and all that leave)."""
        staying = (allocation for node in nodes for allocation in self.on_node(node))
        leaving = (allocation for allocation in self._leaving if not frozenset(allocation.nodes()).isdisjoint(nodes))
        return {allocation.run.job for allocation in chain(staying, leaving)}

    def pausable(self, domain: DomainName) -> Mapping[ProjectName, list[Allocation]]:
        """Preemptible runs in place, old enough to be stopped and not untouched, by project, in run order."""
        return self._touchable("pausable", self._pausable.get(domain, {}), domain)

    def without_gpus(self, domain: DomainName) -> Mapping[ProjectName, list[Allocation]]:
        """The pausable runs that hold only CPU and memory."""
        return self._touchable("without GPUs", self._without_gpus.get(domain, {}), domain)

    def _touchable(
        self, kind: str, runs: Mapping[ProjectName, list[Allocation]], domain: DomainName
    ) -> Mapping[ProjectName, list[Allocation]]:
        untouched = self._untouched
        if not untouched:
            return runs

        def rest(of: Iterable[Allocation]) -> list[Allocation]:
            return [run for run in of if run.run.job not in untouched]

        return self.once((kind, domain), lambda: {project: rest(of) for project, of in runs.items()})

    def is_pausable(self, allocation: Allocation) -> bool:
        """Whether a run in place is preemptible and has run for the least of its minRuntimes."""
        if allocation.job is None or allocation.leaving or not allocation.preemptible:
            return False
        return self.has_run(allocation, self.min_runtime.least_ms)

    def has_run(self, allocation: Allocation, least_ms: DurationMs) -> bool:
        """Whether a run has run for `least_ms`. A surplus worker needs no such time: its run goes on without it."""
        return allocation.is_extra or since_start_ms(allocation.run, self.now_ms) >= least_ms

    def is_young(self, allocation: Allocation) -> bool:
        """Whether fairness spares a run because it started a short time ago."""
        return not self.has_run(allocation, self.min_runtime.after(allocation.run.starts).fairness_ms)

    def is_settled(self, allocation: Allocation, project: ProjectName) -> bool:
        """Whether a run is settled against a project. A surplus worker never is: the run that gives it up goes on."""
        return not allocation.is_extra and allocation.run.job in self.settled.get(project, ())

    def spared(self, allocation: Allocation) -> int:
        """How much a run is spared: 0 unless young, else its starts; most in the first minRuntime after each start."""
        if not self.is_young(allocation):
            return 0
        starts = max(1, allocation.run.starts)
        return starts if self.has_run(allocation, self.min_runtime.fairness_ms) else starts + _ENDLESS

    def preference(self, allocation: Allocation) -> Preference:
        """The position of a run in the order of victims."""
        over = 0 if allocation.domain is None else self.accounts.over_share(allocation.domain, allocation.project)
        return Preference(self.spared(allocation), -over, allocation.order)

    def lowest(self, domain: DomainName, project: ProjectName) -> int:
        """The lowest priority of a project's pausable runs; higher than any priority if there is none."""
        pausable = self.pausable(domain).get(project)
        return pausable[0].order.priority if pausable else _ENDLESS  # The list is in this order.

    def allows(self, job: Job, option: PoolOption) -> bool:
        """Whether an option of a job breaks no ceiling now."""
        return forbidden(self.accounts, job, option.domain, option.request.total_milli) is None

    def is_open(self, job: Job, option: PoolOption) -> bool:
        """Whether no quota forbids an option of a job. Limits do not count for room that is still to be made: the runs
        that use them up could make way."""
        return beyond_quota(self.accounts, job, option.domain, option.request.total_milli) is None

    def stays_within_share(self, job: Job, option: PoolOption, victims: Iterable[Allocation] = ()) -> bool:
        """Whether a job's project holds no more than its fair share with an option, once the victims have left."""
        project = job.id.project
        own_milli = gpu_milli_of(victim for victim in victims if victim.project == project)
        return stays_within_share(self.accounts, option.domain, project, option.request.total_milli - own_milli)

    def once(self, key: object, find: Callable[[], T]) -> T:
        """The result of `find`, kept for each key until the snapshot changes; head reservations are no such change.

        Without it, with 10,000 jobs, a cycle after one event takes 4x and a first one 1.5x.
        """
        if key not in self._found:
            self._found[key] = find()
        found: T = self._found[key]
        return found

    def candidates(self, key: object, find: Callable[[], Iterable[Iterable[Allocation]]]) -> tuple[Allocation, ...]:
        """The runs that `find` returns, in order of preference; found once for each key.

        Cost: O(runs) if few are young, because the runs of each project are sorted.
        """
        return self.once(key, lambda: tuple(sorted(chain.from_iterable(find()), key=self.preference)))

    def unschedulable(self, search: str, option: PoolOption, rule: object = None) -> UnschedulableRequests:
        """The failed requests of a search by a rule, for the option's pool and profile, since the snapshot changed."""
        key = search, self.lifted, rule, option.pool.name, option.request.profile
        return self.once(key, UnschedulableRequests)

    def spend(self, project: ProjectName, steps: int) -> None:
        """Count runs listed and sets tried in searches for a project's jobs, except inside a what-if."""
        if self.depth == 0:
            self.spent[project] += steps

    # Changes in a cycle

    @property
    def pauses(self) -> int:
        """How many runs were paused in this cycle."""
        return len(self._paused)

    def pause(self, allocations: Collection[Allocation]) -> None:
        """Make runs leave: their GPUs become future idle, and no longer count as held by their projects."""
        self._found.clear()
        self._remove(allocations)
        self._paused += allocations

    def occupy(self, job: Job, assignment: Assignment) -> None:
        """Take a place for a job: to start in now, or reserved until the runs there have left."""
        self._found.clear()
        self._do(job, assignment, 1)

    def vacate(self, job: Job, assignment: Assignment) -> None:
        """The exact opposite of `occupy`."""
        self._found.clear()
        self._do(job, assignment, -1)

    def assigned(self) -> Iterator[tuple[JobId, Assignment]]:
        """The places taken for jobs in this cycle, to start in or reserved. Cost: O(places taken)."""
        return ((job.id, assignment) for job, assignment in self._taken.values() if job is not None)

    def hold(self, assignment: Assignment) -> None:
        """Take a place for a head reservation. It counts as held by no project."""
        self.lifted -= {assignment.placement}
        self._do(None, assignment, 1)

    def lift(self, assignment: Assignment) -> None:
        """The exact opposite of `hold`, for one attempt."""
        self.lifted |= {assignment.placement}
        self._do(None, assignment, -1)

    def drop(self, assignment: Assignment) -> None:
        """End a head reservation whose place is lifted."""
        self._found.clear()
        self.lifted -= {assignment.placement}

    # What-if

    @contextmanager
    def searching(self, future_idle: FreeCapacity) -> Iterator[None]:
        """What if only this capacity were future idle: true inside the `with`, for one search."""
        whole, self.future_idle = self.future_idle, future_idle
        try:
            yield
        finally:
            self.future_idle = whole

    @contextmanager
    def supposing(self) -> Iterator[None]:
        """What if: all pauses and places taken inside are undone at the end. Inside, all leaving runs have left."""
        found, idle, taken, paused = self._found, self.idle, len(self._taken), len(self._paused)
        self._found, self.idle = {}, self.future_idle
        self.depth += 1
        yield
        self.depth -= 1
        self._undo(taken, paused)
        self._found, self.idle = found, idle

    # Steps

    def _undo(self, taken: int, paused: int) -> None:
        """Undo this cycle's changes, except the first `taken` places and the first `paused` pauses."""
        for key in list(self._taken)[taken:]:
            self._assign(*self._taken.pop(key), -1)
        gone = self._paused[paused:]
        self.future_idle.take(gone)
        self._enter(gone)
        del self._paused[paused:]

    def _do(self, job: Job | None, assignment: Assignment, sign: int) -> None:
        key = None if job is None else job.id, id(assignment)
        if sign > 0:
            self._taken[key] = job, assignment
        else:
            del self._taken[key]
        self._assign(job, assignment, sign)

    def _assign(self, job: Job | None, assignment: Assignment, sign: int) -> None:
        """Take a place, or give it back. With a job it counts as held by the job's project."""
        for free in {self.idle, self.future_idle}:  # inside `supposing` both are one object
            (free.take if sign > 0 else free.give_back)((assignment,))
        if job is not None:
            option, milli = assignment.option, sign * assignment.option.request.total_milli
            self.accounts.assign(job.id.project, option.domain, milli, preemptible=job.preemptible)

    def _remove(self, allocations: Collection[Allocation]) -> None:
        """Remove runs from everything but `idle`."""
        self.future_idle.give_back(allocations)
        for allocation in allocations:
            self._account(allocation, -1)
            for node in allocation.nodes():
                self._on_node[node].remove(allocation)
        removed = set(map(id, allocations))
        for domain, project in dict.fromkeys((run.domain, run.project) for run in allocations if run.domain):
            for kind in (self._pausable, self._without_gpus):
                runs = kind.get(domain, {}).get(project, [])
                runs[:] = [allocation for allocation in runs if id(allocation) not in removed]

    def _enter(self, allocations: Iterable[Allocation]) -> None:
        """Enter runs in place in everything but free capacity."""
        for allocation in allocations:
            self._account(allocation, 1)
            for node in allocation.nodes():
                insort(self._on_node.setdefault(node, []), allocation, key=_on_node_order)
            if allocation.domain is None or not self.is_pausable(allocation):
                continue
            for kind in (self._pausable,) if allocation.total_milli else (self._pausable, self._without_gpus):
                runs = kind.setdefault(allocation.domain, {}).setdefault(allocation.project, [])
                insort(runs, allocation, key=_in_project_order)

    def _account(self, allocation: Allocation, sign: int) -> None:
        if allocation.domain is not None:
            milli = sign * allocation.total_milli
            self.accounts.add(allocation.project, allocation.domain, milli, preemptible=allocation.preemptible)

    def _claim(self, allocations: Iterable[Allocation], sign: int) -> None:
        for each in filter(attrgetter("keeps_claim"), allocations):
            if each.domain is not None:
                milli = sign * each.total_milli
                self.accounts.assign(each.project, each.domain, milli, preemptible=each.preemptible)
