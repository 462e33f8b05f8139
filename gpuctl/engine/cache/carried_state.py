"""The state of all jobs and runs before they compete, carried from cycle to cycle: only what changed is read again.

Example: when one run of 10,000 ends, one job is read, and one project's demand is counted. A job or run is unchanged if
it is the very same object. Changes by time alone are known beforehand, and read when they are due. What a cycle did to
the snapshot is undone before the next one. Cost of a cycle: what changed, and one comparison for each object.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from itertools import chain
from operator import attrgetter, is_

from gpuctl.engine import reasons
from gpuctl.engine.admit.pending_reasons import PendingReasons
from gpuctl.engine.cache.differences import differences
from gpuctl.engine.capacity.gang import Assignment
from gpuctl.engine.capacity.nodes import Capacity, changed_nodes, survey
from gpuctl.engine.capacity.request_mix import LearnedMix
from gpuctl.engine.counters import Counters
from gpuctl.engine.dirty import DirtyProjects
from gpuctl.engine.jobs.demand import Demand
from gpuctl.engine.jobs.division import Division
from gpuctl.engine.jobs.pending_jobs import PendingJobs, pending_decisions
from gpuctl.engine.jobs.project_queue import JobClass
from gpuctl.engine.jobs.runs import (
    IN_PLACE,
    Allocation,
    allocations_of,
    by_itself,
    decided,
    given_twice,
    kept,
    next_change_ms,
    stopped,
)
from gpuctl.engine.jobs.static_fit import StaticFit
from gpuctl.engine.shares.accounts import Accounts, OwnerTree
from gpuctl.engine.snapshot import Snapshot
from gpuctl.engine.victims.elastic import parted
from gpuctl.model.decision import Decision, Finished, Keep, Pending, Reason, Suspended, TimeOut
from gpuctl.model.declared import Declared
from gpuctl.model.ids import DomainName, JobId, NodeName, ProjectName, RunKey
from gpuctl.model.job import Job
from gpuctl.model.state import ACTIVE, ClusterState, Ledger, Node, Run, RunPhase, uuids_of
from gpuctl.model.units import GpuMilli, Instant


class CarriedState:
    """The nodes' capacity, what each job and run says on its own, the allocations, and the pending jobs.

    `is_unchanged`: nothing was read again in this cycle. `all_unschedulable`, `kept`: from the last cycle's `Outcome`.
    """

    def __init__(self, declared: Declared, nodes: tuple[Node, ...]) -> None:
        self._terms = _terms(declared)
        self._nodes = nodes
        self.capacity = capacity = survey(declared, nodes)
        self.uuids = uuids_of(nodes)
        self.tree = OwnerTree(declared)
        self.static_fit = StaticFit(capacity, self.tree)
        self._pinned = declared.pinned
        self._start_timeout_ms = declared.cluster.scheduling.start_timeout_ms
        self._blocked: Mapping[JobId, Reason] = {}
        self._ledgers: Mapping[ProjectName, Ledger] = {}
        self._now_ms: Instant = 0
        self._job_list: tuple[Job, ...] = ()
        self._jobs: dict[JobId, Job] = {}
        self._run_list: tuple[Run, ...] = ()
        self._runs: dict[JobId, tuple[Run, ...]] = {}
        self._in_place: dict[JobId, tuple[Allocation, ...]] = {}
        self._entered: dict[JobId, tuple[Allocation, ...]] = {}
        self._read_always: set[JobId] = set()
        self._due: list[tuple[Instant, JobId]] = []
        self.dirty = dirty = DirtyProjects(project.name for project in declared.projects)
        self.snapshot = Snapshot(capacity, Accounts(self.tree, dirty), declared.cluster.scheduling.min_runtime)
        self._learned_mix = LearnedMix(declared.cluster.pools)
        self.pending_jobs = PendingJobs(capacity, self.static_fit, dirty)
        self.pending_reasons = PendingReasons(dirty)
        self.demand = Demand(declared, self.snapshot.accounts, dirty)
        self.division = Division(declared, self.snapshot.accounts, self.demand, dirty)
        self.decisions: dict[JobId, Decision] = {}
        self.moving: dict[JobId, tuple[Job, Run]] = {}
        self.usable_milli = {domain.name: capacity.usable_milli(domain.name) for domain in declared.domains}
        self.adjustments: dict[DomainName, GpuMilli] = {}
        self._all: dict[JobId, Decision] = {}  # in order of jobs
        self._touched: frozenset[JobId] = frozenset()
        self.is_unchanged = False
        self.all_unschedulable = False
        self.cut_off: frozenset[JobId] = frozenset()
        self.unaided: frozenset[JobId] = frozenset()
        self.kept: Mapping[JobId, tuple[Assignment, Reason]] = {}
        self._overlaid: set[JobId] = set()

    def fits(self, declared: Declared, now_ms: Instant) -> bool:
        """Whether this state can be updated: the clock did not step back, the same projects are pinned, and cluster and
        projects are the same objects. With equal objects the cache begins anew, which gives the same result."""
        is_same = all(map(is_, _terms(declared), self._terms))
        return is_same and now_ms >= self._now_ms and declared.pinned == self._pinned

    @property
    def elastic(self) -> bool:
        """Whether any job may run with fewer workers."""
        return self._learned_mix.elastic > 0

    @property
    def allocations(self) -> Iterator[Allocation]:
        """All runs in place, each elastic run as a whole."""
        return chain.from_iterable(self._in_place.values())

    @property
    def changeable(self) -> Iterator[Allocation]:
        """Those of them that go on, and whose job is neither pinned nor blocked."""
        for job, raw in self._in_place.items():
            if any(part.job is not None for part in self._entered.get(job, ())):
                yield from raw

    def stopping(self, moving: Container[JobId]) -> Iterator[Job]:
        """The jobs whose runs were paused for others and are stopping, except `moving` ones, which hold a place."""
        for allocation in self.snapshot.leaving_runs:
            run = allocation.run
            is_paused = run.phase is RunPhase.STOPPING and run.paused_for is not None and run.job not in moving
            if is_paused and isinstance(self.decisions.get(run.job), Pending):
                yield self._jobs[run.job]

    def beneficiaries(self, gave_up_for: Iterable[JobId | None]) -> dict[JobId, Instant]:
        """The start of each running beneficiary for which runs wait, stop or gave up workers; now if unknown."""
        stopping = (allocation.run.paused_for for allocation in self.snapshot.leaving_runs)
        found: dict[JobId, Instant] = {}
        for job in chain(self.pending_jobs.paused_for, stopping, gave_up_for):
            for allocation in self._in_place.get(job, ())[:1] if job is not None else ():
                run = allocation.run
                if run.phase in ACTIVE:
                    known = (at_ms for at_ms in (run.let_go_at_ms, run.started_at_ms) if at_ms is not None)
                    found[run.job] = next(known, self._now_ms)
        return found

    def update(self, declared: Declared, state: ClusterState, now_ms: Instant, counters: Counters) -> None:
        """Read what has changed since the last cycle."""
        # A dict keeps its keys in order. They are nearly sorted, so that sorting them is cheap.
        touched = dict.fromkeys(self.snapshot.renew(now_ms, counters))
        before, nodes = self.capacity, self._changed_nodes(declared, state.nodes)
        self._now_ms = now_ms
        touched.update(self._changed_jobs(declared.jobs))
        touched.update(dict.fromkeys(self._changed_runs(state.runs)))
        touched.update(dict.fromkeys(self._changed_records(declared.blocked, state.ledgers)))
        touched.update(dict.fromkeys(self._read_always))
        while self._due and self._due[0][0] <= now_ms:
            touched[heappop(self._due)[1]] = None
        if nodes:
            self.dirty.of_all()
            touched.update(dict.fromkeys(self.snapshot.entered_on(nodes)))
            touched.update(dict.fromkeys(self.pending_jobs.refit(self.capacity, nodes)))
            self.usable_milli = {domain.name: self.capacity.usable_milli(domain.name) for domain in declared.domains}
        jobs = sorted(touched)
        self._place(jobs)
        leaving, entering = self._settle(jobs, declared, state, {})
        self._exchange(leaving, entering, before, nodes)
        twice = self._given_twice(entering)
        if twice:
            jobs = sorted({job for job, _ in twice})
            touched.update(dict.fromkeys(jobs))
            leaving, entering = self._settle(jobs, declared, state, twice)
            self._exchange(leaving, entering, self.capacity)
        self._touched = frozenset(touched)
        self.is_unchanged = not (touched or nodes or self.elastic)
        counters.read += len(touched)

    def decide(self, overlay: Mapping[JobId, Decision], with_reason: Iterable[JobClass]) -> None:
        """Enter this cycle's decisions: `overlay`, classes with a new reason, and other jobs that changed."""
        made = pending_decisions(with_reason)
        for job in (self._touched | self._overlaid) - made.keys() - overlay.keys():
            if job in self.decisions or job in self.pending_jobs:
                made[job] = self._by_itself(job)
        made.update(overlay)
        known = len(self._all)
        for job, decision in made.items():
            before = self._all.get(job)
            if before is not decision and before != decision:
                self._all[job] = decision
        if len(self._all) > known:
            self._all = {job: self._all[job] for job in sorted(self._all)}
        self._overlaid = set(overlay)

    # The result

    def all_decisions(self) -> tuple[Decision, ...]:
        """All decisions, in order of jobs; an unchanged one stays the same object."""
        return tuple(self._all.values())

    def _by_itself(self, job: JobId) -> Decision:
        """A job's decision where admission decides nothing: its own, or to wait for its last reason."""
        decision = self.decisions.get(job)
        if decision is not None:
            return decision
        record, reason = self.pending_jobs.why(job, self._now_ms)
        return Pending(job=job, reason=reason, record=record)

    # What changed

    def _changed_nodes(self, declared: Declared, nodes: tuple[Node, ...]) -> frozenset[NodeName]:
        """Survey the nodes again if any has changed. Returns those whose capacity has."""
        if self._nodes == nodes:
            return frozenset()
        names = {node.name: node for node in self._nodes}
        before, known = self.capacity, self.capacity.nodes
        same = {node.name: known[node.name] for node in nodes if names.get(node.name) is node}
        self.capacity, self._nodes, self.uuids = survey(declared, nodes, same), nodes, uuids_of(nodes)
        return changed_nodes(before, self.capacity)

    def _changed_jobs(self, jobs: tuple[Job, ...]) -> dict[JobId, None]:
        gone, come = differences(self._job_list, jobs, attrgetter("id"))
        self._job_list = jobs
        if gone or come:
            self._learned_mix.take(gone, -1)
            self._learned_mix.take(come)
            self.snapshot.adopt(self._learned_mix.mix())
        for job in gone:
            if self._jobs.get(job.id) == job:
                del self._jobs[job.id]
        self._jobs.update({job.id: job for job in come})
        return dict.fromkeys(job.id for job in chain(come, gone))

    def _changed_runs(self, runs: tuple[Run, ...]) -> Iterable[JobId]:
        """Read the present runs. Few jobs have more than one."""
        gone, come = differences(self._run_list, runs, attrgetter("job", "digest"))
        self._run_list = runs
        for run in gone:
            left = list(self._runs.pop(run.job))
            left.remove(run)
            if left:
                self._runs[run.job] = tuple(left)
        for run in come:
            others = self._runs.get(run.job)
            self._runs[run.job] = tuple(sorted((*others, run), key=_seniority)) if others else (run,)
        return [run.job for run in chain(come, gone)]

    def _changed_records(self, blocked: Mapping[JobId, Reason], ledgers: Mapping[ProjectName, Ledger]) -> set[JobId]:
        found: set[JobId] = set()
        if blocked != self._blocked:
            found.update(job for job, _ in blocked.items() ^ self._blocked.items())
        if ledgers is not self._ledgers:
            for project in ledgers.keys() | self._ledgers.keys():
                before, after = self._ledgers.get(project, _EMPTY_LEDGER), ledgers.get(project, _EMPTY_LEDGER)
                if before is not after:
                    found.update(job for job, _ in before.seen ^ after.seen)
                    found.update(job for (job, _), _ in before.finished.items() ^ after.finished.items())
        self._blocked, self._ledgers = blocked, ledgers
        return found

    # What each job and run says

    def _allocations_of(self, job: JobId) -> tuple[Allocation, ...]:
        found: tuple[Allocation, ...] = ()
        digest = None
        for run in self._runs.get(job, ()):
            if run.digest != digest and run.phase in IN_PLACE:
                declared = self._jobs.get(job)
                of_run = declared if declared is not None and declared.digest == run.digest else None
                found += allocations_of(run, of_run, self.capacity)
            digest = run.digest
        return found

    def _place(self, jobs: Iterable[JobId]) -> None:
        for job in jobs:
            self._in_place.pop(job, None)
            allocations = self._allocations_of(job)
            if allocations:
                self._in_place[job] = allocations

    def _given_twice(self, entered: Iterable[Allocation]) -> dict[RunKey, NodeName]:
        """The runs to move from devices that were given out twice, on the nodes of the allocations entered now.

        Elsewhere nothing has changed, and runs that the last cycle was to move are read in each cycle. If all
        allocations were checked, an unchanged cycle of 10,000 jobs would take 4x.
        """
        nodes = {worker.node for each in entered if not each.leaving for worker in each.placement.workers}
        return given_twice(dict.fromkeys(each for node in nodes for each in self.snapshot.on_node(node)))

    def _settle(
        self, jobs: Iterable[JobId], declared: Declared, state: ClusterState, twice: Mapping[RunKey, NodeName]
    ) -> tuple[list[Allocation], list[Allocation]]:
        """Read jobs one by one. Returns the allocations that leave the snapshot, and those that enter it.

        `twice`: runs on devices that were given to others too.
        """
        leaving = self._forget(jobs)
        pending: list[tuple[Job, Run | None]] = []
        for job_id in jobs:
            job = self._jobs.get(job_id)
            if job is None:
                self._all.pop(job_id, None)
                continue
            run = next((run for run in self._runs.get(job_id, ()) if run.digest == job.digest), None)
            decision = by_itself(job, run, declared, state, self._now_ms)
            self.demand.see(job, ends=isinstance(decision, Finished | Suspended | TimeOut))
            if decision is None and run is not None and run.phase in ACTIVE:
                decision = stopped(job, run, self.capacity, twice, self._now_ms, self._start_timeout_ms)
                decision = decision or kept(job, run, self._now_ms, self._start_timeout_ms)
            if decision is not None:
                self._note(job, run, decision)
            else:
                pending.append((job, run))
                self._read_again(job, run, None)
        self.pending_jobs.join(pending, self._now_ms)
        return leaving, self._enter(filter(self._in_place.__contains__, jobs), declared)

    def _exchange(
        self,
        leaving: list[Allocation],
        entering: list[Allocation],
        before: Capacity,
        nodes: Collection[NodeName] = (),
    ) -> None:
        """Replace allocations in the snapshot, and in between the changed `nodes`; `before`: their old capacity."""
        self._adjust(leaving, before, -1)
        self.snapshot.leave_all(leaving)
        self.snapshot.refit(self.capacity, nodes)
        self._adjust(entering, self.capacity, 1)
        self.snapshot.enter_all(entering)

    def _enter(self, jobs: Iterable[JobId], declared: Declared) -> list[Allocation]:
        """The allocations of jobs in place, as their decisions leave them."""
        is_hindered = bool(declared.pinned or declared.blocked)
        entering: list[Allocation] = []
        for job_id in jobs:
            allocations, decision = self._in_place[job_id], self.decisions.get(job_id)
            if is_hindered or not isinstance(decision, Keep):
                found = (decided(allocation, decision, declared) for allocation in allocations)
                allocations = tuple(chain.from_iterable(found))
            if self.elastic and isinstance(decision, Keep):
                job = self._jobs.get(job_id)
                allocations = tuple(parted(allocations)) if job is not None and job.is_elastic else allocations
            self._entered[job_id] = allocations
            entering += allocations
        return entering

    def _forget(self, jobs: Iterable[JobId]) -> list[Allocation]:
        """Drop what is known of jobs. Returns their allocations."""
        leaving: list[Allocation] = []
        for job in jobs if self.decisions or self.pending_jobs or self._entered else ():
            self._read_always.discard(job)
            self.demand.forget(job)
            leaving += self._entered.pop(job, ())
            if self.decisions.pop(job, None) is None:
                self.pending_jobs.leave(job)
            else:
                self.moving.pop(job, None)
        return leaving

    def _adjust(self, allocations: Iterable[Allocation], capacity: Capacity, sign: int) -> None:
        """Correct the GPUs to divide: add what runs on unusable nodes, subtract what undeclared projects hold."""
        nodes, chain_of = capacity.nodes, self.snapshot.accounts.tree.chain
        for allocation in allocations:
            if allocation.domain is None or allocation.leaving:
                continue
            declared = bool(chain_of(allocation.run.job.project))
            for worker in allocation.placement.workers:
                space = nodes.get(worker.node)
                if space is not None and space.usable is not declared:
                    on_node = sign * len(worker.gpus) * allocation.per_worker.on_device(worker)
                    milli = on_node if declared else -on_node
                    self.adjustments[allocation.domain] = self.adjustments.get(allocation.domain, 0) + milli

    def _note(self, job: Job, run: Run | None, decision: Decision) -> None:
        self.decisions[job.id] = decision
        if run is not None and isinstance(decision, Pending):
            has_next_place = run.phase is RunPhase.STOPPING and run.reserved is not None
            if has_next_place or decision.reason.code == reasons.MOVED:
                self.moving[job.id] = job, run
        self._read_again(job, run, decision)

    def _read_again(self, job: Job, run: Run | None, decision: Decision | None) -> None:
        """Plan to read a job when time alone may change its decision; None: to wait like other jobs."""
        at_ms = next_change_ms(job, run, decision, self._now_ms, self.snapshot.min_runtime, self._start_timeout_ms)
        if at_ms is not None and at_ms <= self._now_ms:
            self._read_always.add(job.id)
        elif at_ms is not None:
            heappush(self._due, (at_ms, job.id))
            if len(self._due) > 4 * len(self._jobs) + 1000:
                self._due = list(dict.fromkeys(self._due))
                heapify(self._due)


def _terms(declared: Declared) -> tuple[object, ...]:
    return declared.cluster, declared.domains, declared.departments, declared.projects


_EMPTY_LEDGER = Ledger(project=ProjectName(""))


def _seniority(run: Run) -> tuple[str, RunPhase, str]:
    return run.digest, run.phase, repr(run)
