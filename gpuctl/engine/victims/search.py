"""The cheapest runs to pause, or to move, so that a job fits: least GPUs, then fewest runs, then by preference.

It knows rooms and runs; which runs may be taken is the rule's. A set of victims is minimal: no run of it can be spared.
The search goes node by node, the node that could be cheapest first, and is exact for one worker up to its bound in
steps; workers of a gang are seated one after another at the least cost each, and of equals close together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import accumulate
from typing import NamedTuple, TypeAlias

from gpuctl.engine.capacity.fragmentation import Free
from gpuctl.engine.capacity.gang import PoolOption, place_in, slots_by_node
from gpuctl.engine.capacity.unschedulable import UnschedulableRequests
from gpuctl.engine.jobs.interactive import running_ms
from gpuctl.engine.jobs.runs import Allocation, gpu_milli_of
from gpuctl.engine.jobs.victim_order import Preference
from gpuctl.engine.snapshot import Snapshot
from gpuctl.engine.victims.eviction import Eviction, EvictionSearch, Found, Steps, moved, paused, victims_of
from gpuctl.engine.victims.reclaim import VictimTotals
from gpuctl.engine.victims.rules import Cost, VictimRule, totals_with
from gpuctl.engine.victims.what_if_node import WhatIfNode, WhatIfNodes, in_one_rack
from gpuctl.model.decision import Placement
from gpuctl.model.ids import JobId, NodeName, ProjectName
from gpuctl.model.units import WHOLE_GPU, GpuMilli

MAX_STEPS = 2_000
"""Sets of runs tried on one node, or of all candidates. All sets of 10 are fewer; bounds cut most of those of 20."""

MAX_CANDIDATES = 40
"""With more candidates not all sets are tried: what the walk finds is taken, and what it misses is missed."""

Order: TypeAlias = tuple[tuple[int, ...], tuple[tuple[int, ...], ...], bool, tuple[Preference, ...]]
"""Which set is taken first: by its cost, but where that is known by where it is rather than by time and name."""

Entry: TypeAlias = tuple[Order, NodeName, int, int, tuple[Eviction, ...]]
"""A node in the heap: its order, its version, how many had been taken, and the set there, if it was searched."""

Movable: TypeAlias = Mapping[NodeName, Sequence[Allocation]]
"""The runs on each node that may be moved, those first that lose least by it."""


class Moves(NamedTuple):
    """Which runs may be moved, whether a set leaves a place for all that it moves, and how many sets may be tried."""

    movable: Movable
    accepts: Callable[[tuple[Eviction, ...]], bool]
    steps: Steps


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


class EvictionWalk:
    """Evictions for all workers of an option: a heap of nodes by what one worker more costs there, at least or exactly.

    A node is searched only once nothing else can be better: `priced` says what had been taken when it was priced by the
    first in order of those left there. Where runs may be moved, the last set taken must leave a place for all that are.
    """

    __slots__ = (
        "close", "exhaustive", "floors", "heap", "missing", "most", "moves", "priced", "request", "rule", "runs",
        "shorts", "slots_by_node", "snapshot", "stamp", "taken", "totals",
    )  # fmt: skip

    def __init__(
        self,
        option: PoolOption,
        rule: VictimRule,
        candidates: Iterable[Allocation] = (),
        moves: Moves | None = None,
    ) -> None:
        """`candidates`: the runs that may be paused; else `moves`: those that may be moved."""
        snapshot = self.snapshot = rule.snapshot
        self.rule = rule
        self.request = option.request
        self.moves = moves
        self.runs = moves.movable if moves else by_node(snapshot, option, candidates)
        self.exhaustive = True
        self.missing = 0
        self.floors: dict[NodeName, WhatIfNode] = {}
        self.shorts: dict[tuple[Free, int], GpuMilli] = {}
        self.most: dict[ProjectName, GpuMilli] = {}
        is_gang = bool(self.runs) and option.request.workers > 1
        self.slots_by_node = slots_by_node(snapshot.future_idle, option) if is_gang else {}
        rooms = snapshot.future_idle.rooms
        self.close = in_one_rack(rooms, self.request, self.slots_by_node, self.runs) if is_gang else frozenset()
        self.taken: dict[JobId, Eviction] = {}
        self.totals: VictimTotals = {}
        self.stamp = dict.fromkeys(self.runs, 0)
        self.priced: dict[NodeName, tuple[VictimTotals, list[Allocation]]] = {}
        self.heap = [entry for name in self.runs if (entry := self._at_least(name)) is not None]
        heapify(self.heap)

    def run(self) -> tuple[Eviction, ...] | None:
        """The evictions, or None when there are not enough."""
        self.missing = self.request.workers - sum(self.slots_by_node.values())
        while self.missing > 0:
            if not self.heap:
                return None
            order, name, stamp, taken, chosen = heappop(self.heap)
            if stamp != self.stamp[name]:
                continue
            if chosen:
                totals = totals_with(self.totals, victims_of(chosen), self.snapshot)
                if taken == len(self.taken) or (self.moves is None and self.rule.price(totals) is not None):
                    self._take(chosen, totals)
                    continue
            if name in self.priced or self.moves is not None:
                self._search(name, stamp)
            else:
                self._price(name, stamp, self._short(name) if chosen else order[0][1])
        return tuple(self.taken.values())

    def _search(self, name: NodeName, stamp: int) -> None:
        """Find the cheapest set on one node."""
        totals, left = self.priced.pop(name, (self.totals, self._left(name)))
        self.snapshot.counters.searches += 1
        found = None if self.moves else self._first_of_equals(name, left, totals)
        if found is None:
            steps, accepts = Steps(MAX_STEPS), None
            if self.moves is None:
                evictions = [self._paused(allocation) for allocation in left]
            else:
                evictions = [moved(self.snapshot, allocation) for allocation in left]
                steps, accepts = self.moves.steps, self._leaves_all_a_place if self.missing <= 1 else None
            nodes, wanted = WhatIfNodes((self._floor(name),), self.request), self.slots_by_node.get(name, 0) + 1
            found = EvictionSearch(self.rule, nodes, wanted, evictions, steps, accepts).run(totals)
            self.exhaustive = self.exhaustive and not steps.are_over
        if found is not None:
            heappush(self.heap, (self._order(found[0], name), name, stamp, len(self.taken), found[1]))

    def _paused(self, allocation: Allocation) -> Eviction:
        """The eviction of a run, or of the last workers of an elastic one, as far as they were not taken yet."""
        known = self.taken.get(allocation.run.job)
        return paused(self.rule, allocation, known.allocations if known else ())

    def _leaves_all_a_place(self, chosen: tuple[Eviction, ...]) -> bool:
        return self.moves is not None and self.moves.accepts((*self.taken.values(), *chosen))

    def _first_of_equals(self, name: NodeName, left: Sequence[Allocation], totals: VictimTotals) -> Found | None:
        """Where all runs are of one size, the first in order of preference, if they fit: nothing is cheaper.

        Earns 1.6x of a reclaim on 1,000 nodes.
        """
        size, floor, wanted = left[0].total_milli if left else 0, self._floor(name), self.slots_by_node.get(name, 0) + 1
        count, rest = divmod(floor.short_milli(self.request, wanted), size) if size else (0, 1)
        if rest or not 0 < count <= len(left) or any(each.leaves_with or each.is_extra for each in left):
            return None
        if any(self.rule.lost_milli((each,)) != size for each in left):
            return None
        chosen = left[:count]
        for allocation in chosen:
            floor.remove(allocation)
        fits = floor.slots(self.request) >= wanted
        for allocation in chosen:
            floor.remove(allocation, -1)
        if not fits or self.rule.price(totals_with(totals, chosen, self.snapshot)) != 0:
            return None
        cost = Cost(0, size * count, count, 0, 0, tuple(map(self.snapshot.preference, chosen)))
        return cost, tuple([Eviction((allocation,), size, 1) for allocation in chosen])

    def _left(self, name: NodeName) -> list[Allocation]:
        """The runs, and extra workers, on a node that were not taken."""
        taken = self.taken
        return [h for h in self.runs[name] if h.run.job not in taken or h not in taken[h.run.job].allocations]

    def _price(self, name: NodeName, stamp: int, short: GpuMilli) -> None:
        """What one worker more on a node costs at the least, so much being short there: no less than the smallest run
        on it, and by the first in order of them.
        """
        left = self._left(name)
        if not left or self._most_milli(left) < short:
            return
        sizes = [allocation.total_milli for allocation in left]
        milli = max(short, min(sizes))
        fewest = 0 if any(allocation.is_extra for allocation in left) else -(-milli // max(1, *sizes))
        order = self._order(Cost(0, milli, fewest, 0, 0, (self.snapshot.preference(left[0]),)), name)
        self.priced[name] = self.totals, left
        heappush(self.heap, (order, name, stamp, len(self.taken), ()))

    def _order(self, cost: Cost, name: NodeName) -> Order:
        preferences = cost.preferences
        lost = tuple([preference.lost(self.snapshot.now_ms) for preference in preferences]) if self.close else ()
        return cost[:5], lost, name not in self.close, preferences

    def _at_least(self, name: NodeName) -> Entry | None:
        """What one worker more on a node costs at the very least, whichever runs are there: GPUs that must leave, by
        those that lose least, as many runs as the largest of them would be. None where not enough can be moved.
        """
        short = missing = self._short(name)
        least: tuple[int, ...] = (0, short, 0, 0, 0)
        if self.moves is not None:
            loss, left = 0, self._left(name)
            for allocation in left:
                part = min(missing, allocation.total_milli)
                loss += part * running_ms(allocation.run, self.snapshot.now_ms)
                missing -= part
            together = accumulate(sorted((allocation.total_milli for allocation in left), reverse=True))
            count = 1 + sum(milli < short for milli in together)
            if missing:
                return None
            least = (0, 0, 0, loss, count if left else 0)
        return (least, (), name not in self.close, ()), name, self.stamp[name], 0, ()

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

    def _take(self, chosen: tuple[Eviction, ...], totals: VictimTotals) -> None:
        """Take a set, and count what is missing then; `totals` are those of all that are taken."""
        allocations = [allocation for eviction in chosen for allocation in eviction.allocations]
        for eviction in chosen:
            job = eviction.allocations[0].run.job
            known = self.taken.get(job)
            self.taken[job] = eviction if known is None else known.with_more(eviction)
        self.totals = totals
        for name in self._touched(allocations):
            for allocation in allocations:
                self._floor(name).remove(allocation)
            self.missing -= self._recount(name)
            self.stamp[name] += 1
            self.priced.pop(name, None)
            entry = self._at_least(name)
            if entry is not None:
                heappush(self.heap, entry)

    def _touched(self, allocations: Iterable[Allocation]) -> list[NodeName]:
        nodes = {node for allocation in allocations for node in allocation.nodes()}
        return sorted(nodes & self.stamp.keys())

    def _recount(self, name: NodeName) -> int:
        before = self.slots_by_node.get(name, 0)
        self.slots_by_node[name] = self.floors[name].slots(self.request)
        return self.slots_by_node[name] - before

    def victims(self) -> tuple[Allocation, ...]:
        """The victims taken, less those that later ones made needless; the largest is spared first.

        A worker is spared only if those of its run stay that it would leave with.
        """
        kept, more = dict.fromkeys(victims_of(self.taken.values())), -self.missing
        # A victim that is needed at first is still needed when others have been spared.
        doubtful = [h for h in kept if more or not self._is_needed(h)] if len(self.taken) > 1 else []
        for allocation in sorted(
            doubtful, key=lambda h: (-gpu_milli_of((h, *h.leaves_with)), self.snapshot.preference(h))
        ):
            if any(allocation in other.leaves_with for other in kept) or (not more and self._is_needed(allocation)):
                continue
            touched = self._touched((allocation,))
            for name in touched:
                self.floors[name].remove(allocation, -1)
            lost = -sum(self._recount(name) for name in touched)
            if lost <= more:
                more -= lost
                del kept[allocation]
                continue
            for name in touched:
                self.floors[name].remove(allocation)
                self._recount(name)
        return tuple(kept)

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


def find_victims(option: PoolOption, rule: VictimRule) -> tuple[Allocation, ...] | None:
    """The runs, and extra workers, to pause so that all workers of an option fit when they have left; None when the
    rule can't do that.

    The option must not fit already. A worker that asks for no less than one that failed fails; a gang's workers are
    seated one by one, which proves nothing for a larger gang.
    Cost: O(candidates), and the sets tried on the nodes that may be cheapest.
    """
    unschedulable = _unschedulable(option, rule)
    if unschedulable is not None and unschedulable.cover(option.request.sizes):
        return None
    candidates = rule.candidates()
    single = _exact_fit(option, rule, candidates)
    if single is not None:
        return single.allocations
    walk = EvictionWalk(option, rule, candidates) if candidates else None
    found = None if walk is None or walk.run() is None else walk.victims()
    if found is None and (walk is None or walk.exhaustive) and unschedulable is not None:
        unschedulable.add(option.request.sizes)
    return found


def cheapest_of_few(
    option: PoolOption,
    rule: VictimRule,
    evictions: Sequence[Eviction],
    accepts: Callable[[tuple[Eviction, ...]], bool],
    first: Found | None = None,
) -> Found | None:
    """The cheapest of all sets of a few evictions with which all workers of an option fit.

    A walk takes worker after worker from the node where that costs least, with no way back. It misses sets that free
    several nodes at once, as a gang does, and sets that must also hold work on other nodes, to make a project smaller.
    `first`: a set that does, if one is known. With more than MAX_CANDIDATES it is all that is found.

    Example: a job asks for 2 workers of 1 GPU; its project may take 2 GPUs from another, which runs a gang on nodes 1
    and 2 and a job on node 3. A walk takes the job, and then may not take the gang. The gang alone is the answer.
    """
    if len(evictions) > MAX_CANDIDATES:
        return first
    snapshot = rule.snapshot
    allocations = [allocation for eviction in evictions for allocation in eviction.allocations]
    rooms, slots = snapshot.future_idle.rooms, slots_by_node(snapshot.future_idle, option)
    names = list(by_node(snapshot, option, allocations))
    elsewhere = sum(count for name, count in slots.items() if name not in names)
    nodes = WhatIfNodes([WhatIfNode(rooms[name]) for name in names], option.request, elsewhere)
    ranked = sorted(evictions, key=lambda e: (not e.is_move, e[1:4], snapshot.preference(e.allocations[0])))
    workers = option.request.workers
    return EvictionSearch(rule, nodes, workers, ranked, Steps(MAX_STEPS), accepts, first).run({})


def finds_nobody(option: PoolOption, rule: VictimRule) -> bool:
    """Whether a search is known to fail: there are no candidates, or a request for no more failed."""
    unschedulable = _unschedulable(option, rule)
    return not rule.candidates() or (unschedulable is not None and unschedulable.cover(option.request.sizes))


def _unschedulable(option: PoolOption, rule: VictimRule) -> UnschedulableRequests | None:
    """The failed requests of equal searches; None where they are not remembered."""
    key, snapshot = rule.key, rule.snapshot
    if key is None or option.request.workers > 1 or not rule.is_plain:
        return None
    return snapshot.unschedulable(("victims", snapshot.lifted, key, option.pool.name, option.request.profile))


def _exact_fit(option: PoolOption, rule: VictimRule, candidates: Sequence[Allocation]) -> Eviction | None:
    """The first eviction that alone makes room and has no GPU more than must leave in the best of cases: nothing is
    cheaper. Where extra workers may leave, only of those, for other sets of them may be cheaper than a whole run.

    Finds the usual victim, the job of the same size, without a search. None says nothing: there may be others.
    """
    request, snapshot = option.request, rule.snapshot
    if request.workers != 1 or request.profile or snapshot.future_idle.partial_devices(option.pool.name):
        return None
    free = max((n for n, nodes in enumerate(snapshot.future_idle.nodes_by_whole(option.pool.name)) if nodes), default=0)
    least = request.gpu_milli - WHOLE_GPU * min(free, request.devices)
    for allocation in [each for each in candidates if each.is_extra] or candidates:
        eviction = paused(rule, allocation) if allocation.total_milli <= least else None
        if eviction is None or not eviction.total_milli == eviction.lost_milli == least > 0:
            continue
        if rule.price(totals_with({}, eviction.allocations, snapshot)) != 0:
            continue
        for node in allocation.nodes():
            room = snapshot.future_idle.rooms.get(node)
            if room is None or room.pool != option.pool.name:
                continue
            floor = WhatIfNode(room)
            for each in eviction.allocations:
                floor.remove(each)
            if floor.slots(request):
                return eviction
    return None
