"""Where everybody stands before anybody competes, carried from cycle to cycle: only what has changed is read again.

Jobs and runs are the same as long as they are the very same objects. What time alone changes is known beforehand: it is
read again when it is due. What a cycle did to the snapshot is taken back before the next, so that it holds what is
there.
Cost of a cycle: what has changed, and one glance at each object to see that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from itertools import chain
from operator import attrgetter

from gpuctl.engine import reasons
from gpuctl.engine.admit.waitlist import Waitlist
from gpuctl.engine.cache.decision_table import DecisionTable
from gpuctl.engine.cache.run_index import RunIndex, differences
from gpuctl.engine.cache.share_rows import ShareRows
from gpuctl.engine.capacity.gang import Assignment
from gpuctl.engine.capacity.learned_mix import LearnedMix
from gpuctl.engine.capacity.nodes import Capacity, changed_nodes
from gpuctl.engine.counters import Counters
from gpuctl.engine.dirty import DirtyProjects
from gpuctl.engine.jobs.demand import Demand, StaticFit
from gpuctl.engine.jobs.division import Division
from gpuctl.engine.jobs.pending_jobs import PendingJobs, pending
from gpuctl.engine.jobs.project_queue import JobClass
from gpuctl.engine.jobs.runs import (
    IN_PLACE,
    Allocation,
    allocations_of,
    by_itself,
    given_twice,
    kept,
    next_change_ms,
    settled,
    stopped,
)
from gpuctl.engine.shares.accounts import Accounts, OwnerTree
from gpuctl.engine.snapshot import Snapshot
from gpuctl.engine.victims.elastic import parted
from gpuctl.model.decision import Decision, Keep, Pending, Reason
from gpuctl.model.declared import Declared, DomainName
from gpuctl.model.ids import JobId, NodeName, ProjectName, RunKey
from gpuctl.model.job import Job
from gpuctl.model.state import ACTIVE, ClusterState, Ledger, Run, RunPhase
from gpuctl.model.units import WHOLE_GPU, GpuMilli, Instant


class CarriedState:
    """What all jobs and runs say by themselves, who holds which place, and who waits, as of the last look.

    `only_joined`: jobs have come to wait behind others of their kind, if that; nothing else has changed.
    `in_vain`, `kept`: see `Outcome`, of the last cycle.
    """

    __slots__ = (
        "_barred", "_capacity", "_due", "_entered", "_held", "_job_list", "_jobs", "_ledgers", "_lessons", "_news",
        "_now_ms", "_over", "_overlaid", "_raw", "_restless", "_runs", "_twice", "_used", "adjustments", "decisions",
        "demand", "division", "in_vain", "kept", "lineup", "moving", "only_joined", "shares", "snapshot", "touched",
        "usable_milli", "verdicts", "waitlist",
    )  # fmt: skip

    def __init__(self, declared: Declared, capacity: Capacity, tree: OwnerTree, prospects: StaticFit) -> None:
        self._capacity = capacity
        self._held = declared.pinned
        self._barred: Mapping[JobId, str] = {}
        self._ledgers: Mapping[ProjectName, Ledger] = {}
        self._now_ms: Instant = 0
        self._job_list: tuple[Job, ...] = ()
        self._jobs: dict[JobId, Job] = {}
        self._runs = RunIndex()
        self._raw: dict[JobId, tuple[Allocation, ...]] = {}
        self._entered: dict[JobId, tuple[Allocation, ...]] = {}
        self._used: dict[tuple[NodeName, int], GpuMilli] = {}
        self._over: set[tuple[NodeName, int]] = set()
        self._twice: dict[RunKey, NodeName] = {}
        self._restless: set[JobId] = set()
        self._due: list[tuple[Instant, JobId]] = []
        self._news = news = DirtyProjects(project.name for project in declared.projects)
        self.snapshot = Snapshot(capacity, Accounts(tree, news), declared.cluster.scheduling.min_runtime_ms, news)
        self._lessons = LearnedMix(declared.cluster.pools)
        self.lineup = PendingJobs(capacity, prospects, news)
        self.waitlist = Waitlist(self.lineup, self.snapshot, news)
        self.demand = Demand(declared, capacity, self.snapshot.accounts, news)
        self.division = Division(declared, self.snapshot.accounts, self.demand)
        self.shares = ShareRows(declared, self.snapshot.accounts, self.demand, news)
        self.decisions: dict[JobId, Decision] = {}
        self.moving: dict[JobId, tuple[Job, Run]] = {}
        self.usable_milli = {domain.name: capacity.usable_milli(domain.name) for domain in declared.domains}
        self.adjustments: dict[DomainName, GpuMilli] = {}
        self.verdicts = DecisionTable()
        self.touched: dict[JobId, None] = {}
        self.only_joined = False
        self.in_vain = False
        self.kept: Mapping[JobId, tuple[Assignment, Reason]] = {}
        self._overlaid: set[JobId] = set()

    def fits(self, declared: Declared, now_ms: Instant) -> bool:
        """Whether this can be brought up to date: the clock did not step back, and the same projects are held."""
        return now_ms >= self._now_ms and declared.pinned == self._held

    @property
    def elastic(self) -> bool:
        """Whether any job may run with fewer workers."""
        return self._lessons.elastic > 0

    @property
    def allocations(self) -> Iterator[Allocation]:
        """All runs in place, whole."""
        return chain.from_iterable(self._raw.values())

    @property
    def changeable(self) -> Iterator[Allocation]:
        """Those of them that go on, and that something can be done for."""
        kept = ((raw, self._entered.get(job, ())) for job, raw in self._raw.items())
        return (
            allocation for raw, entered in kept if any(part.job is not None for part in entered) for allocation in raw
        )

    def update(
        self, declared: Declared, state: ClusterState, capacity: Capacity, now_ms: Instant, effort: Counters
    ) -> None:
        """Bring everything up to date. `capacity` is of the same pools and projects as before."""
        self.verdicts.changed = {}
        # In the order in which they come, which is nearly sorted: so sorting them costs next to nothing.
        touched = dict.fromkeys(self.snapshot.renew(now_ms, effort))
        before, self._capacity = self._capacity, capacity
        nodes = changed_nodes(before, capacity)
        self._now_ms = now_ms
        touched.update(self._changed_jobs(declared.jobs))
        touched.update(self._runs.see(state.runs))
        touched.update(dict.fromkeys(self._changed_records(declared.blocked, state.ledgers)))
        touched.update(dict.fromkeys(self._restless))
        while self._due and self._due[0][0] <= now_ms:
            touched[heappop(self._due)[1]] = None
        if nodes:
            self._news.of_all()
            touched.update(dict.fromkeys(self.snapshot.entered_on(nodes) | self.lineup.refit(capacity, nodes)))
            self.usable_milli = {domain.name: capacity.usable_milli(domain.name) for domain in declared.domains}
        jobs = sorted(touched)
        twice = self._place(jobs)
        if twice != self._twice:
            touched.update((job, None) for job, _ in dict(twice.items() ^ self._twice.items()))
            jobs, self._twice = sorted(touched), twice
        leaving, entering = self._settle(jobs, declared, state)
        self._adjust(leaving, before, -1)
        self._adjust(entering, capacity, 1)
        self.snapshot.leave_all(leaving)
        self.snapshot.refit(capacity, nodes)
        self.snapshot.enter_all(entering)
        self.touched.update(touched)
        self.only_joined = not (leaving or entering or nodes or self.elastic) and self.lineup.are_like_others(touched)
        effort.read += len(touched)

    def decide(self, overlay: Mapping[JobId, Decision], told: Iterable[JobClass]) -> None:
        """Enter this cycle's decisions: what each says by itself, what those who wait were told, and the rest."""
        verdicts = self.verdicts
        if not verdicts:
            made = self.lineup.pending(self._now_ms)
            made.update(self.decisions)
            made.update(overlay)
            verdicts.begin(sorted(self._jobs), made)
        else:
            made = pending(told)
            for job in (self.touched.keys() | self._overlaid) - made.keys() - overlay.keys():
                if job in self.decisions or job in self.lineup:
                    made[job] = self._by_itself(job)
            made.update(overlay)
            for job, decision in made.items():
                verdicts.put(job, decision)
        self._overlaid = set(overlay)
        self.touched.clear()

    def _by_itself(self, job: JobId) -> Decision:
        """What is decided about a job that nobody makes way for."""
        decision = self.decisions.get(job)
        if decision is not None:
            return decision
        record, reason = self.lineup.why(job, self._now_ms)
        return Pending(job=job, reason=reason, record=record)

    # What is different

    def _changed_jobs(self, jobs: tuple[Job, ...]) -> dict[JobId, None]:
        gone, come = differences(self._job_list, jobs, attrgetter("id"))
        self._job_list = jobs
        if gone or come:
            self._lessons.take(gone, -1)
            self._lessons.take(come)
            self.snapshot.adopt(self._lessons.habits())
        for job in gone:
            if self._jobs.get(job.id) == job:
                del self._jobs[job.id]
        named = dict(zip(map(attrgetter("id"), come), come, strict=True))
        self._jobs.update(named)
        return dict.fromkeys(named) | dict.fromkeys(map(attrgetter("id"), gone))

    def _changed_records(
        self, barred: Mapping[JobId, str], ledgers: Mapping[ProjectName, Ledger]
    ) -> set[JobId]:  # fmt: skip
        found: set[JobId] = set()
        if barred != self._barred:
            found.update(job for job, _ in barred.items() ^ self._barred.items())
        if ledgers is not self._ledgers:
            for project in ledgers.keys() | self._ledgers.keys():
                before, after = self._ledgers.get(project, _NO_LEDGER), ledgers.get(project, _NO_LEDGER)
                if before is not after:
                    found.update(job for job, _ in before.seen ^ after.seen)
                    found.update(job for job, _ in before.finished.keys() ^ after.finished.keys())
                    found.update(
                        job
                        for (job, digest), past in after.finished.items()
                        if before.finished.get((job, digest), past) != past
                    )
        self._barred, self._ledgers = barred, ledgers
        return found

    # What each says

    def _raw_allocations(self, job: JobId) -> tuple[Allocation, ...]:
        found: tuple[Allocation, ...] = ()
        digest = None
        for run in self._runs.of(job):
            if run.digest != digest and run.phase in IN_PLACE:
                declared = self._jobs.get(job)
                of_run = declared if declared is not None and declared.digest == run.digest else None
                found += allocations_of(run, of_run, self._capacity)
            digest = run.digest
        return found

    def _place(self, jobs: Iterable[JobId]) -> dict[RunKey, NodeName]:
        """Take in which places they hold now, and who uses which devices; the runs of which there is one too many."""
        gone = [allocation for job in jobs for allocation in self._raw.pop(job, ())] if self._raw else []
        come: list[Allocation] = []
        for job in self._runs.only_in(IN_PLACE, jobs):
            allocations = self._raw_allocations(job)
            if allocations:
                self._raw[job] = allocations
                come += allocations
        self._use_devices(gone, -1)
        self._use_devices(come, 1)
        if not self._over:
            return {}
        there = (allocation for allocation in self.allocations if not allocation.leaving)
        return given_twice(
            [h for h in there if any((w.node, i) in self._over for w in h.placement.workers for i in w.gpus)],
            self._held,
        )

    def _use_devices(self, allocations: Iterable[Allocation], sign: int) -> None:
        used, over = self._used, self._over
        for allocation in allocations:
            for worker in allocation.placement.workers if not allocation.leaving else ():
                milli = sign * allocation.charge.on_device(worker)
                for index in worker.gpus:
                    device = worker.node, index
                    used[device] = after = used.get(device, 0) + milli
                    if after > WHOLE_GPU:
                        over.add(device)
                    elif sign < 0:
                        over.discard(device)
                        if not after:
                            del used[device]

    def _settle(
        self, jobs: Iterable[JobId], declared: Declared, state: ClusterState
    ) -> tuple[list[Allocation], list[Allocation]]:
        """Read them one by one; then they wait who do. Who leaves the snapshot, and who enters them."""
        leaving = self._forget(jobs)
        waiting: list[Job] = []
        of_waiting: list[Run | None] = []
        staying: list[tuple[Job, Run]] = []
        for job_id in jobs:
            job = self._jobs.get(job_id)
            if job is None:
                self.verdicts.drop(job_id)
                continue
            run = self._runs.of_digest(job)
            decision = by_itself(job, run, declared, state, self._now_ms)
            if decision is None and run is not None and run.phase in ACTIVE:
                decision = stopped(job, run, self._capacity, self._twice, self._now_ms)
                if decision is None:
                    staying.append((job, run))
                    continue
            if decision is not None:
                self._note(job, run, decision)
            else:
                waiting.append(job)
                of_waiting.append(run)
                if run is None:
                    self._restless.add(job_id)
        for (job, run), keep in zip(staying, kept(staying), strict=True):
            self._note(job, run, keep)
        self.lineup.join(zip(waiting, of_waiting, strict=True), self._now_ms)
        return leaving, self._enter(filter(self._raw.__contains__, jobs), declared)

    def _enter(self, jobs: Iterable[JobId], declared: Declared) -> list[Allocation]:
        """Enter what they hold in place, as it was decided about them."""
        is_hindered = bool(declared.pinned or declared.blocked)
        entering: list[Allocation] = []
        for job_id in jobs:
            allocations, decision = self._raw[job_id], self.decisions.get(job_id)
            if is_hindered or not isinstance(decision, Keep):
                allocations = tuple([settled(allocation, decision, declared) for allocation in allocations])
            if self.elastic:
                job = self._jobs.get(job_id)
                allocations = tuple(parted(allocations)) if job is not None and job.is_elastic else allocations
            self._entered[job_id] = allocations
            entering += allocations
        return entering

    def _forget(self, jobs: Iterable[JobId]) -> list[Allocation]:
        """What they said is read again: those of them that were in place."""
        leaving: list[Allocation] = []
        for job in jobs if self.decisions or self.lineup or self._entered else ():
            self._restless.discard(job)
            leaving += self._entered.pop(job, ())
            if self.decisions.pop(job, None) is None:
                self.lineup.leave(job)
            else:
                self.moving.pop(job, None)
        return leaving

    def _adjust(self, allocations: Iterable[Allocation], capacity: Capacity, sign: int) -> None:
        """GPUs to be shared besides what new work may use: what runs on elsewhere; less what nobody declared holds."""
        nodes, chain_of = capacity.nodes, self.snapshot.accounts.tree.chain
        for allocation in allocations:
            if allocation.domain is None or allocation.leaving:
                continue
            declared = bool(chain_of(allocation.run.job.project))
            for worker in allocation.placement.workers:
                space = nodes.get(worker.node)
                if space is not None and space.usable is not declared:
                    on_node = sign * len(worker.gpus) * allocation.charge.on_device(worker)
                    milli = on_node if declared else -on_node
                    self.adjustments[allocation.domain] = self.adjustments.get(allocation.domain, 0) + milli

    def _note(self, job: Job, run: Run | None, decision: Decision) -> None:
        """Keep what was decided, and when to look again."""
        job_id = job.id
        self.decisions[job_id] = decision
        if run is not None and isinstance(decision, Pending) and _goes_elsewhere(run, decision):
            self.moving[job_id] = job, run
        at_ms = next_change_ms(job, run, decision, self._now_ms, self.snapshot.min_runtime_ms)
        if at_ms is not None and at_ms <= self._now_ms:
            self._restless.add(job_id)
        elif at_ms is not None:
            heappush(self._due, (at_ms, job_id))
            if len(self._due) > 4 * len(self._jobs) + 1000:
                self._due = list(dict.fromkeys(self._due))
                heapify(self._due)


_NO_LEDGER = Ledger(project=ProjectName(""))


def _goes_elsewhere(run: Run, decision: Pending) -> bool:
    """Whether a run stops to go on in another place."""
    return decision.reason.code == reasons.MOVED or (run.phase is RunPhase.STOPPING and run.reserved is not None)
