"""The books of one cycle: what is free now and soon, who holds which place, and who may hold how much.

`now` is what can be used at once. `soon` is what can be used when everything has left that is leaving; places reserved
are taken in both. The two differ exactly by what is leaving.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager

from gpuctl.model.declared import DomainName
from gpuctl.model.ids import JobId, NodeName, ProjectName
from gpuctl.model.job import Job
from gpuctl.model.units import DurationMs, GpuMilli, Instant
from gpuctl.schedule.accounts import Accounts
from gpuctl.schedule.capacity import Capacity
from gpuctl.schedule.effort import Effort
from gpuctl.schedule.gang import Seat
from gpuctl.schedule.interactive import running_ms
from gpuctl.schedule.ledger import Ledger
from gpuctl.schedule.refusals import Refusals
from gpuctl.schedule.runs import Holder


class Books:
    """Both ledgers, the accounts and the runs in place; every change goes through here and touches all of them.

    `version` counts pauses, `changes` everything. `spared` are runs that are not reclaimed for other projects.
    """

    __slots__ = (
        "_candidates", "_in_vain", "_on_node", "_pausable", "accounts", "capacity", "changes", "effort",
        "min_runtime_ms", "now", "now_ms", "soon", "spared", "version",
    )  # fmt: skip

    def __init__(
        self, capacity: Capacity, accounts: Accounts, now_ms: Instant, min_runtime_ms: DurationMs, effort: Effort
    ) -> None:
        self.capacity = capacity
        self.accounts = accounts
        self.effort = effort
        self.now = Ledger({}, effort)
        self.soon = Ledger({}, effort)
        self.now_ms = now_ms
        self.min_runtime_ms = min_runtime_ms
        self.version = 0
        self.changes = 0
        self.spared: frozenset[JobId] = frozenset()
        self._candidates: dict[object, tuple[Holder, ...]] = {}
        self._in_vain: dict[object, Refusals] = {}
        self._on_node: dict[NodeName, list[Holder]] = {}
        self._pausable: dict[DomainName, dict[ProjectName, list[Holder]]] = {}

    def enter_all(self, holders: Iterable[Holder]) -> None:
        """Enter the runs that occupy their places now, all of them at once, into empty books."""
        entered = tuple(holders)
        places = [(holder.placement, holder.charge) for holder in entered]
        staying = [(holder.placement, holder.charge) for holder in entered if not holder.leaving]
        self.now = Ledger.of(self.capacity, self.effort, places)
        self.soon = Ledger.of(self.capacity, self.effort, staying)
        for holder in entered:
            self._enter(holder)
        for by_project in self._pausable.values():
            for pausable in by_project.values():
                pausable.sort(key=self.preference)

    def _enter(self, holder: Holder) -> None:
        if holder.leaving:
            return
        self._account(holder, 1)
        for node in {worker.node for worker in holder.placement.workers}:
            self._on_node.setdefault(node, []).append(holder)
        if holder.job is not None and holder.preemptible and holder.domain is not None and self._old_enough(holder):
            self._pausable.setdefault(holder.domain, {}).setdefault(holder.project, []).append(holder)

    def candidates(self, key: object, find: Callable[[], Iterable[Holder]]) -> tuple[Holder, ...]:
        """What `find` gives: looked for once for a key, until the books change."""
        found = self._candidates.get(key)
        if found is None:
            found = self._candidates[key] = tuple(find())
        return found

    def in_vain(self, key: object) -> Refusals:
        """Requests for which a rule found nobody to pause, until the books change."""
        found = self._in_vain.get(key)
        if found is None:
            found = self._in_vain[key] = Refusals()
        return found

    def _change(self) -> None:
        self.changes += 1
        self._candidates.clear()
        self._in_vain.clear()

    def pause(self, holders: Iterable[Holder]) -> None:
        """Runs that leave by this cycle's decision: their places are free soon, and no longer count as theirs."""
        self._change()
        for holder in holders:
            self.soon.give_back(holder.placement, holder.charge)
            self._account(holder, -1)
            for node in {worker.node for worker in holder.placement.workers}:
                self._on_node[node].remove(holder)
            if holder.domain is not None:
                self._pausable[holder.domain][holder.project].remove(holder)
            self.version += 1

    @contextmanager
    def without(self, holders: Collection[Holder]) -> Iterator[None]:
        """As it would be once these had left, for a trial."""
        self._depart(holders, 1)
        try:
            yield
        finally:
            self._depart(holders, -1)

    def _depart(self, holders: Collection[Holder], sign: int) -> None:
        if not holders:
            return
        self._change()
        move = self.soon.give_back if sign > 0 else self.soon.take
        for holder in holders:
            move(holder.placement, holder.charge)
            self._account(holder, -sign)

    def stays(self, holder: Holder) -> bool:
        """Whether the run is in place and is not paused so far."""
        nodes = [worker.node for worker in holder.placement.workers[:1]]
        return any(other is holder for node in nodes for other in self.on_node(node))

    def occupy(self, job: Job, seat: Seat) -> None:
        """Take a place for a job, to start in now or reserved until what is there has left."""
        self._change()
        charge = seat.offer.request.charge
        self.now.take(seat.placement, charge)
        self.soon.take(seat.placement, charge)
        domain = self.capacity.domain_of[seat.offer.pool.name]
        total = seat.offer.request.total_milli
        self.accounts.add(job.id.project, domain, total, preemptible=job.preemptible)

    def vacate(self, job: Job, seat: Seat) -> None:
        """The exact opposite of `occupy`."""
        self._change()
        charge = seat.offer.request.charge
        self.now.give_back(seat.placement, charge)
        self.soon.give_back(seat.placement, charge)
        domain = self.capacity.domain_of[seat.offer.pool.name]
        total = seat.offer.request.total_milli
        self.accounts.add(job.id.project, domain, -total, preemptible=job.preemptible)

    def set_aside(self, seat: Seat) -> None:
        """Keep a place free of everybody, who is in it now excepted. It counts as nobody's."""
        self._change()
        self.now.take(seat.placement, seat.offer.request.charge)
        self.soon.take(seat.placement, seat.offer.request.charge)

    def put_back(self, seat: Seat) -> None:
        """The exact opposite of `set_aside`."""
        self._change()
        self.now.give_back(seat.placement, seat.offer.request.charge)
        self.soon.give_back(seat.placement, seat.offer.request.charge)

    def on_node(self, node: NodeName) -> list[Holder]:
        """Runs in place on a node that stay so far. Not to be changed."""
        return self._on_node.get(node, [])

    def pausable(self, domain: DomainName) -> Mapping[ProjectName, list[Holder]]:
        """Preemptible runs in place that have run for minRuntime, by project, in order of preference."""
        return self._pausable.get(domain, {})

    def _old_enough(self, holder: Holder) -> bool:
        """What gives up a surplus worker is not stopped, and minRuntime is about being stopped."""
        return holder.surplus or running_ms(holder.run, self.now_ms) >= self.min_runtime_ms

    def preference(self, holder: Holder) -> tuple[GpuMilli, int, DurationMs, Instant, JobId]:
        """Who is paused first among equals: most over its share, lowest priority, least progress, newest, name."""
        over = 0 if holder.domain is None else self.accounts.over_share(holder.domain, holder.project)
        started = holder.run.started_at_ms or 0
        priority = holder.job.priority if holder.job else 0
        return -over, priority, running_ms(holder.run, self.now_ms), -started, holder.run.job

    def _account(self, holder: Holder, sign: int) -> None:
        if holder.domain is not None:
            milli = sign * holder.total_milli
            self.accounts.add(holder.project, holder.domain, milli, preemptible=holder.preemptible)
