"""The cheapest runs to pause so that a job fits: least GPUs, then fewest runs, then by preference.

It knows rooms and runs; which runs may be taken is the rule's. What it returns is minimal: no run of it can be spared.
The search goes node by node, the node that could be cheapest first, and is exact for one worker up to MAX_STEPS a
node; workers of a gang are seated one after another at the least cost each, and of equals close together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple, TypeAlias

from gpuctl.engine.capacity.fit import Request
from gpuctl.engine.capacity.fragmentation import Free
from gpuctl.engine.capacity.gang import PoolOption, place_in, slots_by_node
from gpuctl.engine.capacity.unschedulable import UnschedulableRequests
from gpuctl.engine.jobs.runs import Allocation
from gpuctl.engine.jobs.victim_order import Preference
from gpuctl.engine.snapshot import Snapshot
from gpuctl.engine.victims.node_search import NodeSearch, Steps
from gpuctl.engine.victims.reclaim import VictimTotals
from gpuctl.engine.victims.rules import Cost, VictimRule, totals_with, totals_with_all
from gpuctl.engine.victims.what_if_node import WhatIfNode, in_one_rack
from gpuctl.model.decision import Placement
from gpuctl.model.ids import JobId, NodeName, ProjectName
from gpuctl.model.units import WHOLE_GPU, GpuMilli

MAX_STEPS = 2_000
"""Sets of runs tried on one node. Eight devices with whole-GPU jobs need far fewer."""

Order: TypeAlias = tuple[int, GpuMilli, int, tuple[tuple[int, ...], ...], bool, tuple[Preference, ...]]
"""Which set is taken first: by its cost, but where that is known by where it is rather than by time and name."""


def by_node(
    snapshot: Snapshot, option: PoolOption, allocations: Iterable[Allocation]
) -> dict[NodeName, list[Allocation]]:
    """Runs by the nodes of an option's pool that they are on, in their order."""
    found: dict[NodeName, list[Allocation]] = {}
    for allocation in allocations:
        for node in allocation.nodes():
            room = snapshot.future_idle.rooms.get(node)
            if room is not None and room.pool == option.pool.name:
                found.setdefault(node, []).append(allocation)
    return found


def place_without(snapshot: Snapshot, option: PoolOption, victims: Sequence[Allocation]) -> Placement | None:
    """Where all workers go once these have left. Cost: O(victims), and a placement."""
    snapshot.future_idle.give_back_all(victims)
    placement = place_in(snapshot.future_idle, option)
    snapshot.future_idle.take_all(victims)
    return placement


class _State(NamedTuple):
    """What some victims come to: the rule's price, GPUs, runs, and what each owner loses."""

    price: int
    milli: GpuMilli
    runs: int
    totals: VictimTotals


class _Victims:
    """The aim of the least cost by a rule, for one worker more on one node; `best` is the cheapest set so far."""

    __slots__ = (
        "_allocations", "_floor", "_lost_milli", "_preferences", "_request", "_rule", "_snapshot", "_wanted", "best",
    )  # fmt: skip

    def __init__(
        self,
        snapshot: Snapshot,
        rule: VictimRule,
        request: Request,
        floor: WhatIfNode,
        allocations: Sequence[Allocation],
    ) -> None:
        self._snapshot = snapshot
        self._rule = rule
        self._request = request
        self._floor = floor
        self._wanted = floor.slots(request) + 1
        self._preferences = {allocation: snapshot.preference(allocation) for allocation in allocations}
        self._lost_milli = {allocation: rule.lost_milli((allocation,)) for allocation in allocations}
        self._allocations = sorted(allocations, key=self._preferences.__getitem__)
        self.best: tuple[Cost, tuple[Allocation, ...]] | None = None

    def run(self, totals: VictimTotals) -> bool:
        """Look for the cheapest set besides the victims already tallied; whether nothing was left out for being too
        much to look at."""
        if self._first_of_equals(totals):
            return True
        self._greedy(totals)
        steps = Steps(MAX_STEPS)
        NodeSearch(self._floor, self._request, self._allocations, self, steps).run(_State(0, 0, 0, totals))
        return not steps.are_over

    def with_run(self, state: _State, allocation: Allocation) -> _State | None:
        """See `Aim`."""
        totals = totals_with(state.totals, allocation, self._snapshot)
        price = self._rule.price(totals)
        return (
            None if price is None else _State(price, state.milli + self._lost_milli[allocation], state.runs + 1, totals)
        )

    def is_beaten(self, state: _State, short_milli: GpuMilli, more_runs: int) -> bool:
        """See `Aim`."""
        least = state.price, state.milli + short_milli, state.runs + more_runs
        return self.best is not None and least > self.best[0][:3]

    def consider(self, state: _State, chosen: tuple[Allocation, ...]) -> None:
        """See `Aim`."""
        self._consider(chosen, state.price)

    def _fits(self) -> bool:
        return self._floor.slots(self._request) >= self._wanted

    def _first_of_equals(self, totals: VictimTotals) -> bool:
        """Where all runs are of one size, the first in order of preference, if they fit: nothing is cheaper."""
        size = self._allocations[0].total_milli if self._allocations else 0
        count, rest = divmod(self._floor.short_milli(self._request, self._wanted), size) if size else (0, 1)
        if rest or not 0 < count <= len(self._allocations) or any(lost != size for lost in self._lost_milli.values()):
            return False
        chosen = tuple(self._allocations[:count])
        for allocation in chosen:
            self._floor.remove(allocation)
        if self._fits() and self._rule.price(totals_with_all(totals, chosen, self._snapshot)) == 0:
            self._consider(chosen, 0)
        for allocation in chosen:
            self._floor.remove(allocation, -1)
        return self.best is not None

    def _greedy(self, totals: VictimTotals) -> None:
        """A first set, for the search to beat: take runs in order until it fits, then spare each that can be spared."""
        chosen: list[Allocation] = []
        taken = totals
        for allocation in self._allocations:
            after = totals_with(taken, allocation, self._snapshot)
            if self._fits():
                break
            if self._rule.price(after) is not None:
                taken = after
                chosen.append(allocation)
                self._floor.remove(allocation)
        fits = self._fits()
        for allocation in sorted(chosen, key=lambda h: -h.total_milli) if fits else ():
            self._floor.remove(allocation, -1)
            if self._fits():
                chosen.remove(allocation)
            else:
                self._floor.remove(allocation)
        price = self._rule.price(totals_with_all(totals, chosen, self._snapshot)) if fits else None
        if price is not None:
            self._consider(tuple(chosen), price)
        for allocation in chosen:
            self._floor.remove(allocation, -1)

    def _consider(self, chosen: tuple[Allocation, ...], price: int) -> None:
        preferences = tuple([self._preferences[allocation] for allocation in chosen])
        cost = (price, sum(self._lost_milli[run] for run in chosen), len(chosen), preferences)
        if chosen and (self.best is None or cost < self.best[0]):
            self.best = (cost, chosen)


class _Search:
    """Victims for all workers of an option: a heap of nodes by what one worker more costs there, at least or exactly.

    A node is searched only once nothing else can be better: `priced` says what had been taken when it was priced by the
    first in order of those left there.
    """

    __slots__ = (
        "candidates", "close", "exhaustive", "floors", "heap", "most", "priced", "request", "rule", "shorts",
        "slots_by_node", "snapshot", "stamp", "taken", "totals",
    )  # fmt: skip

    def __init__(
        self, snapshot: Snapshot, option: PoolOption, rule: VictimRule, candidates: Sequence[Allocation]
    ) -> None:
        self.snapshot = snapshot
        self.rule = rule
        self.request = option.request
        self.exhaustive = True
        self.candidates = by_node(snapshot, option, candidates)
        self.floors: dict[NodeName, WhatIfNode] = {}
        self.shorts: dict[tuple[Free, int], GpuMilli] = {}
        self.most: dict[ProjectName, GpuMilli] = {}
        is_gang = bool(self.candidates) and option.request.workers > 1
        self.slots_by_node = slots_by_node(snapshot.future_idle, option) if is_gang else {}
        rooms = snapshot.future_idle.rooms
        self.close = in_one_rack(rooms, self.request, self.slots_by_node, self.candidates) if is_gang else frozenset()
        self.taken: dict[JobId, Allocation] = {}
        self.totals: VictimTotals = {}
        self.stamp = dict.fromkeys(self.candidates, 0)
        self.priced: dict[NodeName, tuple[VictimTotals, list[Allocation]]] = {}
        self.heap = [self._at_least(name) for name in self.candidates]
        heapify(self.heap)

    def run(self) -> tuple[Allocation, ...] | None:
        """The victims, or None when there are not enough."""
        missing = self.request.workers - sum(self.slots_by_node.values())
        while missing > 0:
            if not self.heap:
                return None
            order, name, stamp, taken, victims = heappop(self.heap)
            if stamp != self.stamp[name]:
                continue
            if victims:
                totals = totals_with_all(self.totals, victims, self.snapshot)
                if taken == len(self.taken) or self.rule.price(totals) is not None:
                    missing -= self._take(victims, totals)
                    continue
            if name not in self.priced:
                self._price(name, stamp, self._short(name) if victims else order[1])
                continue
            totals, left = self.priced.pop(name)
            self.snapshot.counters.searches += 1
            search = _Victims(self.snapshot, self.rule, self.request, self._floor(name), left)
            self.exhaustive = search.run(totals) and self.exhaustive
            if search.best is not None:
                heappush(self.heap, (self._order(search.best[0], name), name, stamp, taken, search.best[1]))
        return self._without_spare(-missing)

    def _price(self, name: NodeName, stamp: int, short: GpuMilli) -> None:
        """What one worker more on a node costs at the least, so much being short there: no less than the smallest run
        on it, and by the first in order of them.
        """
        left, taken = self.candidates[name], self.taken
        if taken:
            left = [allocation for allocation in left if allocation.run.job not in taken]
        if not left or self._most_milli(left) < short:
            return
        sizes = [allocation.total_milli for allocation in left]
        milli = max(short, min(sizes))
        fewest = -(-milli // max(1, *sizes))
        order = self._order((0, milli, fewest, (self.snapshot.preference(left[0]),)), name)
        self.priced[name] = self.totals, left
        heappush(self.heap, (order, name, stamp, len(self.taken), ()))

    def _order(self, cost: Cost, name: NodeName) -> Order:
        price, milli, count, preferences = cost
        lost = tuple([preference.lost(self.snapshot.now_ms) for preference in preferences]) if self.close else ()
        return price, milli, count, lost, name not in self.close, preferences

    def _at_least(self, name: NodeName) -> tuple[Order, NodeName, int, int, tuple[Allocation, ...]]:
        """What one worker more on a node costs at the very least, whichever runs are there."""
        return (0, self._short(name), 0, (), name not in self.close, ()), name, self.stamp[name], 0, ()

    def _short(self, name: NodeName) -> GpuMilli:
        """GPUs that must leave a node, at least, for one worker more: the same where the same is free."""
        room, wanted = self.snapshot.future_idle.rooms[name], self.slots_by_node.get(name, 0) + 1
        if name in self.floors or room.profiles:
            return self._floor(name).short_milli(self.request, wanted)
        state = room.free, wanted
        if state not in self.shorts:
            self.shorts[state] = WhatIfNode(room).short_milli(self.request, wanted)
        return self.shorts[state]

    def _floor(self, name: NodeName) -> WhatIfNode:
        """A node as it is without those taken."""
        floor = self.floors.get(name)
        if floor is None:
            floor = self.floors[name] = WhatIfNode(self.snapshot.future_idle.rooms[name])
        return floor

    def _most_milli(self, allocations: Iterable[Allocation]) -> GpuMilli:
        """What can be taken of some runs at the very most, whichever."""
        of_project: dict[ProjectName, GpuMilli] = {}
        for allocation in allocations:
            of_project[allocation.project] = of_project.get(allocation.project, 0) + allocation.total_milli
        for project in of_project.keys() - self.most.keys():
            self.most[project] = self.rule.most_milli(project)
        return sum(min(milli, self.most[project]) for project, milli in of_project.items())

    def _take(self, victims: tuple[Allocation, ...], totals: VictimTotals) -> int:
        """Take victims; `totals` are those of all that are taken then. Returns how many workers more fit."""
        won = 0
        self.taken.update((allocation.run.job, allocation) for allocation in victims)
        self.totals = totals
        for name in self._touched(victims):
            for allocation in victims:
                self._floor(name).remove(allocation)
            won += self._recount(name)
            self.stamp[name] += 1
            self.priced.pop(name, None)
            heappush(self.heap, self._at_least(name))
        return won

    def _touched(self, victims: tuple[Allocation, ...]) -> list[NodeName]:
        nodes = {node for allocation in victims for node in allocation.nodes()}
        return sorted(nodes & self.candidates.keys())

    def _recount(self, name: NodeName) -> int:
        before = self.slots_by_node.get(name, 0)
        self.slots_by_node[name] = self.floors[name].slots(self.request)
        return self.slots_by_node[name] - before

    def _without_spare(self, more: int) -> tuple[Allocation, ...]:
        """The victims taken, less those that later ones made needless; the largest is spared first."""
        kept = dict(self.taken)
        # A victim that is needed at first is still needed when others have been spared.
        doubtful = [h for h in self.taken.values() if more or not self._is_needed(h)] if len(kept) > 1 else []
        for allocation in sorted(doubtful, key=lambda h: (-h.total_milli, self.snapshot.preference(h))):
            if not more and self._is_needed(allocation):
                continue
            touched = self._touched((allocation,))
            for name in touched:
                self.floors[name].remove(allocation, -1)
            lost = -sum(self._recount(name) for name in touched)
            if lost <= more:
                more -= lost
                del kept[allocation.run.job]
                continue
            for name in touched:
                self.floors[name].remove(allocation)
                self._recount(name)
        return tuple(kept.values())

    def _is_needed(self, allocation: Allocation) -> bool:
        """It leaves a device whole on a node where every whole one is asked for."""
        for worker in allocation.placement.workers:
            floor = self.floors.get(worker.node)
            if floor is not None and not floor.profiles and self.request.devices:
                whole = sum(milli >= WHOLE_GPU for milli in floor.gpu_milli)
                if whole == self.slots_by_node[worker.node] * self.request.devices and any(
                    0 <= index < len(floor.gpu_milli) and floor.gpu_milli[index] >= WHOLE_GPU for index in worker.gpus
                ):
                    return True
        return False


def find_victims(snapshot: Snapshot, option: PoolOption, rule: VictimRule) -> tuple[Allocation, ...] | None:
    """The runs to pause so that all workers of an option fit when they have left; None when the rule can't do that.

    The option must not fit already. A worker that asks for no less than one that failed fails; a gang's workers are
    seated one by one, which proves nothing for a larger gang.
    Cost: O(candidates), and the sets tried on the nodes that may be cheapest.
    """
    unschedulable = _unschedulable(snapshot, option, rule)
    if unschedulable is not None and unschedulable.cover(option.request.sizes):
        return None
    candidates = rule.candidates()
    single = _exact_fit(snapshot, option, rule, candidates)
    if single is not None:
        return (single,)
    search = _Search(snapshot, option, rule, candidates) if candidates else None
    victims = None if search is None else search.run()
    if victims is None and (search is None or search.exhaustive) and unschedulable is not None:
        unschedulable.add(option.request.sizes)
    return victims


def finds_nobody(snapshot: Snapshot, option: PoolOption, rule: VictimRule) -> bool:
    """Whether a search is known to fail: there are no candidates, or a request for no more failed."""
    unschedulable = _unschedulable(snapshot, option, rule)
    return not rule.candidates() or (unschedulable is not None and unschedulable.cover(option.request.sizes))


def _unschedulable(snapshot: Snapshot, option: PoolOption, rule: VictimRule) -> UnschedulableRequests | None:
    """The failed requests of equal searches; None where they are not remembered."""
    key = rule.key
    if key is None or option.request.workers > 1 or not rule.is_plain:
        return None
    return snapshot.unschedulable(("victims", snapshot.lifted, key, option.pool.name, option.request.profile))


def _exact_fit(
    snapshot: Snapshot, option: PoolOption, rule: VictimRule, candidates: Iterable[Allocation]
) -> Allocation | None:
    """The first run that alone makes room and has no GPU more than must leave in the best of cases: nothing is cheaper.

    Finds the usual victim, the job of the same size, without a search. None says nothing: there may be others.
    """
    request = option.request
    if request.workers != 1 or request.profile or snapshot.future_idle.partial_devices(option.pool.name):
        return None
    free = max((n for n, nodes in enumerate(snapshot.future_idle.nodes_by_whole(option.pool.name)) if nodes), default=0)
    least = request.gpu_milli - WHOLE_GPU * min(free, request.devices)
    for allocation in candidates:
        if (
            allocation.total_milli == rule.lost_milli((allocation,)) == least > 0
            and rule.price(totals_with({}, allocation, snapshot)) == 0
        ):
            for node in allocation.nodes():
                room = snapshot.future_idle.rooms.get(node)
                if room is None or room.pool != option.pool.name:
                    continue
                floor = WhatIfNode(room)
                floor.remove(allocation)
                if floor.slots(request):
                    return allocation
    return None
