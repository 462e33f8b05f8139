"""The cheapest evictions so that a job fits: fewest GPUs lost, then fewest runs, then by preference.

A walk goes from node to node, the node that could be cheapest first, and takes the cheapest set there for one worker
after another. If there are few evictions in all, sets over all nodes are tried besides, and the walk's set is the one
to beat.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from operator import itemgetter
from typing import NamedTuple, TypeAlias

from gpuctl.engine.capacity.fit import UnschedulableRequests
from gpuctl.engine.capacity.free import NodeFree
from gpuctl.engine.capacity.gang import PoolOption, has_place, place_in, slots_by_node
from gpuctl.engine.capacity.topology import Site, most_seated
from gpuctl.engine.jobs.runs import Allocation, gpu_milli_of
from gpuctl.engine.jobs.victim_order import Preference
from gpuctl.engine.snapshot import Snapshot
from gpuctl.engine.victims.eviction import (
    Eviction,
    EvictionSearch,
    Follows,
    Found,
    paused,
    pauses,
    victims_of,
)
from gpuctl.engine.victims.reclaim import VictimTotals, totals_with
from gpuctl.engine.victims.rules import Cost, VictimRule
from gpuctl.engine.victims.what_if_node import WhatIfNodes
from gpuctl.model.decision import Placement
from gpuctl.model.ids import JobId, NodeName
from gpuctl.model.units import GpuMilli

MAX_STEPS = 2_000
"""The most sets of runs tried on one node, or of all candidates. All sets of 10 are fewer; bounds cut most of those of
20. A search that finds nothing up to here counts as cut off, and its failure is not remembered."""

MAX_STEPS_BESIDE_GPUS = 200
"""The same on one node where only CPU or memory is short. All sets of 7 are fewer. With MAX_STEPS, a schedule takes 10x
if 10,000 runs without GPUs are on 100 nodes and jobs need their CPU."""

MAX_CANDIDATES = 40
"""With more candidates not all sets are tried: what the walk finds is taken, and what it misses is missed."""

MAX_SPENT = 100_000
"""The most runs and parts of elastic runs listed in a cycle in searches for one project's jobs, plus sets tried in
them; beyond it these searches are cut off. Bench workloads need up to 40,000. Without it one project's jobs can make a
cycle take any time: 1,500 that all differ in CPU and memory take 10x on 40 nodes if sets do not count."""

Order: TypeAlias = tuple[tuple[int, ...], tuple[tuple[int, ...], ...], bool, tuple[Preference, ...]]
"""Which set is taken first: by its cost and its losses; of equals, close nodes first; then by time and name."""


class Entry(NamedTuple):
    """A node in the heap: the least that one more worker costs there, or, once it was searched, the set that makes room
    for it.

    `version` of the node and `taken`, the number of evictions taken by then, tell whether the entry is out of date.
    """

    order: Order
    name: NodeName
    version: int
    taken: int = 0
    chosen: tuple[Eviction, ...] = ()


def _slots(snapshot: Snapshot, option: PoolOption) -> dict[NodeName, int]:
    """How many workers each node holds once the leaving runs have left.

    For a single worker no node is read: the attempt before has shown that it has no place anywhere. Without that, a
    lost node, after which many single workers are searched for, takes 1.6x with 10,000 jobs and 2.3x with 100,000.
    """
    free = snapshot.future_idle
    is_gang = option.request.workers > 1
    return dict(slots_by_node(free, option)) if is_gang or has_place(free, option) else {}


def place_without(rule: VictimRule, victims: Sequence[Allocation]) -> Placement | None:
    """Where all workers of a rule's job go once the victims have left. Cost: O(victims), and a placement."""
    future_idle = rule.snapshot.future_idle
    with future_idle.without(victims):
        return place_in(future_idle, rule.option)


class EvictionWalk:
    """Evictions for all workers of a job: a heap of nodes by what one more worker costs there, at least or exactly.

    A node is searched only once no other can be better. What follows is computed for the last set, together with all
    that were taken before. For a gang, nodes of one rack are preferred if that costs no more.
    """

    def __init__(
        self,
        rule: VictimRule,
        evictions: Iterable[Eviction],
        follows: Follows | None = None,
        steps: int | None = None,
    ) -> None:
        """`steps`: how many sets may be tried on all nodes together; None: each node has its own bound."""
        self._follows = follows
        self._snapshot = rule.snapshot
        self._rule = rule
        self._steps = steps
        option = rule.option
        self._wanted = option.request.workers
        rooms, slots = self._snapshot.future_idle.rooms, _slots(self._snapshot, option)
        self._on_node: dict[NodeName, list[Eviction]] = {}
        for eviction in evictions:
            for name in eviction.nodes():
                if name in rooms and rooms[name].pool == option.pool.name:
                    self._on_node.setdefault(name, []).append(eviction)
        self._nodes = WhatIfNodes([rooms[name] for name in self._on_node], option.request, slots)
        self._close = _in_one_rack(option, rooms, slots, self._on_node)
        self._taken: dict[JobId, Eviction] = {}
        self._totals: VictimTotals = {}
        self._versions = dict.fromkeys(self._on_node, 0)
        self._heap: list[Entry] = []
        self.is_exhaustive = True
        for name in self._on_node:
            self._enter(name)

    def run(self) -> tuple[Eviction, ...] | None:
        """The evictions; None if they do not make enough room."""
        while self._nodes.slots < self._wanted:
            if not self._heap:
                return None
            entry = heappop(self._heap)
            if entry.version != self._versions[entry.name]:
                continue
            if not (entry.chosen and self._take(entry)):
                self._search(entry.name)
        return self._without_spare()

    def _search(self, name: NodeName) -> None:
        self._snapshot.counters.searches += 1
        steps = MAX_STEPS if self._nodes.fits[name].short_milli else MAX_STEPS_BESIDE_GPUS
        steps = steps if self._steps is None else self._steps
        wanted = self._nodes.fits[name].slots + 1
        follows = self._follows_last if self._follows is not None and self._wanted - self._nodes.slots <= 1 else None
        nodes, left = self._nodes.alone(name), self._left(self._on_node[name])
        search = EvictionSearch(self._rule, nodes, wanted, left, steps, follows)
        found = search.run(self._totals)
        self._snapshot.spend(self._rule.job.id.project, steps - search.steps)
        self._steps = None if self._steps is None else search.steps
        self.is_exhaustive &= search.steps >= 0
        if found is not None:
            cost, chosen = found
            heappush(self._heap, Entry(self._order(cost, name), name, self._versions[name], len(self._taken), chosen))

    def _follows_last(self, chosen: tuple[Eviction, ...]) -> tuple[GpuMilli, int] | None:
        return None if self._follows is None else self._follows((*self._taken.values(), *chosen))

    def _left(self, evictions: Iterable[Eviction]) -> list[Eviction]:
        """The evictions without the allocations that were taken already."""
        found = []
        for eviction in evictions:
            taken = self._taken.get(eviction.job)
            left = eviction.without(taken.allocations) if taken else eviction
            if left is not None:
                found.append(left)
        return found

    def _order(self, cost: Cost, name: NodeName) -> Order:
        of_runs = dict.fromkeys(cost.preferences)  # an elastic run that is paused whole is one loss
        lost = tuple([preference.lost(self._snapshot.now_ms) for preference in of_runs])
        return cost[:-1], lost, name not in self._close, cost.preferences

    def _enter(self, name: NodeName) -> None:
        """Enter a node by the least that one more worker can cost there: no fewer GPUs than a sum of some of its runs,
        and as many losses as runs must stop, each like that of the first in order. A node where all runs are too few is
        left out."""
        left, short = self._left(self._on_node[name]), self._nodes.fits[name].short_milli
        moves = [eviction for eviction in left if eviction.is_move]
        stays = [eviction for eviction in left if not eviction.is_move]
        by_pauses = max(0, short - sum(eviction.total_milli for eviction in moves))
        if not left or sum(eviction.total_milli for eviction in stays) < by_pauses:
            return
        if moves:
            loss = 0
            for eviction in moves if not by_pauses else ():
                part = min(short, eviction.total_milli)
                loss += eviction.moved_loss(self._snapshot.now_ms) * part // max(1, eviction.total_milli)
                short -= part
            order = self._order(Cost(0, by_pauses, 0, 0, loss, 0, by_pauses, ()), name)
        else:
            order = self._least(stays, short, name)
        heappush(self._heap, Entry(order, name, self._versions[name]))

    def _least(self, stays: Sequence[Eviction], short_milli: GpuMilli, name: NodeName) -> Order:
        """The least that pauses cost that free this much on a node."""
        milli = _least_sum([eviction.total_milli for eviction in stays], short_milli)
        exact = [eviction for eviction in stays if eviction.total_milli == milli]
        fewest, first = 0, stays[0]
        if all(eviction.stops for eviction in stays):
            fewest = 1 if exact else max(2, -(-milli // max(eviction.total_milli for eviction in stays)))
            first = exact[0] if exact and all(len(each.allocations) == 1 for each in exact) else first
        preference = self._snapshot.preference(first.allocations[0])
        cost = Cost(0, milli, fewest, 0, 0, 0, milli, (preference,))
        amounts, lost, is_apart, preferences = self._order(cost, name)
        return amounts, lost * max(1, fewest), is_apart, preferences

    def _take(self, entry: Entry) -> bool:
        """Take a set, if it is still allowed at the price at which it was found. Other sets may have been taken since,
        of an elastic run even some of the same workers, on other nodes."""
        chosen = self._left(entry.chosen)
        totals = totals_with(self._totals, victims_of(chosen), self._snapshot)
        if entry.taken < len(self._taken) and (self._follows or self._rule.price(totals) != entry.order[0][0]):
            return False
        for eviction in chosen:
            known = self._taken.get(eviction.job)
            together = dict.fromkeys((*known.allocations, *eviction.allocations)) if known else ()
            self._taken[eviction.job] = paused(tuple(together)) if together else eviction
        self._totals = totals
        for name in self._nodes.remove([allocation for each in chosen for allocation in each.allocations]):
            self._versions[name] += 1
            self._enter(name)
        return True

    def _without_spare(self) -> tuple[Eviction, ...]:
        """The evictions taken, without the pauses that later ones made needless; the largest is spared first.

        A worker is spared only if the workers of its run that it would leave with stay too. If each node gave room for
        one worker, by runs of its own, all are needed: without that check a reclaim on 1,000 nodes takes 4x.
        """
        taken = tuple(self._taken.values())
        if len(taken) == 1 or (self._nodes.slots == self._wanted and all(each < 2 for each in self._versions.values())):
            return taken
        victims, preference, spared = victims_of(taken), self._snapshot.preference, set[Allocation]()
        for allocation in sorted(victims, key=lambda h: (-gpu_milli_of((h, *h.leaves_with)), preference(h))):
            if not any(allocation in other.leaves_with for other in victims if other not in spared):
                before = self._nodes.remove((allocation,), -1)
                if self._nodes.slots < self._wanted:
                    self._nodes.restore(before)
                else:
                    spared.add(allocation)
        return tuple([left for eviction in taken if (left := eviction.without(spared)) is not None])


def _least_sum(sizes: Sequence[GpuMilli], short_milli: GpuMilli) -> GpuMilli:
    """The least sum of one or more of the sizes that is at least `short_milli`.

    The sums are the bits of a number; no minimal set of sizes that are each too small adds up to twice as much. Cost:
    O(sizes) operations on 2 * `short_milli` bits. With the smallest size as the bound most nodes would be searched: the
    workload `rebalance` of `gpuctl bench engine` takes 2.5x.
    """
    found = [size for size in sizes if size >= short_milli]
    sums, within = 1, (1 << 2 * short_milli) - 1
    for size in sizes:
        if size < short_milli:
            sums |= sums << size & within
    enough = sums >> short_milli if short_milli else 0
    if enough:
        found.append(short_milli + (enough & -enough).bit_length() - 1)
    return min(found)


def _in_one_rack(
    option: PoolOption,
    rooms: Mapping[NodeName, NodeFree],
    slots: Mapping[NodeName, int],
    on_node: Mapping[NodeName, Sequence[Eviction]],
) -> frozenset[NodeName]:
    """Nodes of one rack that could hold all workers of a gang without a place yet, once the runs that may leave have
    left. Cost: O(runs that may leave) if there are racks."""
    names = on_node.keys() | slots.keys()
    if option.request.workers == 1 or not any(rooms[name].topology for name in names):
        return frozenset()
    more: dict[NodeName, int] = {}
    for name, evictions in on_node.items():
        emptied = rooms[name].without([eviction.allocations[0] for eviction in evictions])
        more[name] = emptied.slots(option.request) - slots.get(name, 0)
    sites = [Site(name, slots.get(name, 0), 0, rooms[name].topology) for name in sorted(names)]
    return most_seated(sites, more, option.request.workers - sum(slots.values()))


def find_victims(rule: VictimRule, follows: Follows) -> Found | None:
    """The runs and surplus workers to pause so that a rule's job fits once they have left, as the rule allows.

    None if there are none. The cost includes what follows. A failure is remembered for single workers only. Cost:
    O(candidates), and the sets tried on the nodes that may be cheapest; if that need not be exact and candidates are
    few, a search of all sets besides.
    """
    request, failed, is_plain = rule.option.request, _unschedulable(rule), rule.is_plain
    if failed is not None and failed.cover(request):
        return None
    snapshot = rule.snapshot
    if is_over(rule):
        snapshot.counters.cut_off += 1
        return None
    evictions = pauses(rule)
    listed = sum(len(eviction.allocations) for eviction in evictions)
    snapshot.counters.considered += listed
    snapshot.spend(rule.job.id.project, listed)
    # For a gang the walk goes node by node, and what follows is known only for the whole set.
    walk = EvictionWalk(rule, evictions, follows if request.workers == 1 else None)
    taken = walk.run()
    victims = victims_of(taken or ())
    if taken is not None and not is_plain:
        victims = rule.complete(victims) or ()
    cost = rule.cost(victims) if victims else None
    first = None if cost is None else (cost.more(*(follows((paused(victims),)) or (0, 0))), (paused(victims),))
    if is_plain and request.workers == 1 and (first is None or first[0] == cost):
        if taken is None and not walk.is_exhaustive:
            snapshot.counters.cut_off += 1
        elif taken is None and failed is not None:
            failed.add(request)
        return first
    # A set that was found stays the best of equals if only room was missing: the walk knows which nodes are close.
    kept = first if is_plain else None

    def allowed(chosen: tuple[Eviction, ...]) -> tuple[GpuMilli, int] | None:
        return None if rule.cost(victims_of(chosen)) is None else follows(chosen)

    others = cheapest_of_few(rule, evictions, allowed, kept)
    return min((found for found in (first, others) if found is not None), key=itemgetter(0), default=None)


def is_over(rule: VictimRule) -> bool:
    """Whether so much was searched in this cycle for jobs of a rule's project that its further searches are cut off."""
    return rule.snapshot.spent[rule.job.id.project] > MAX_SPENT


def cheapest_of_few(
    rule: VictimRule, evictions: Sequence[Eviction], follows: Follows, first: Found | None
) -> Found | None:
    """The cheapest of all sets of a few evictions with which all workers of a rule's job fit.

    The walk never goes back. So it misses sets that free several nodes at once, as a gang does, and sets that must also
    hold work on other nodes, so that a project holds less. `first`: a set that makes room, if one is known. With more
    than MAX_CANDIDATES it is the result; if there is none, the search is cut off, unless all evictions together free
    too little. Example: a job asks for 2 workers of 1 GPU; its project may take 2 GPUs from another, which runs a gang
    on nodes 1 and 2 and a job on node 3. A walk takes the job, and then may not take the gang. The gang alone is the
    answer.
    """
    snapshot, option = rule.snapshot, rule.option
    if len(evictions) > MAX_CANDIDATES:
        if first is None and place_without(rule, _all_of(evictions)) is not None:
            snapshot.counters.cut_off += 1
        return first
    rooms = snapshot.future_idle.rooms
    names = {name for allocation in _all_of(evictions) for name in allocation.nodes()} & rooms.keys()
    here = [rooms[name] for name in sorted(names) if rooms[name].pool == option.pool.name]
    nodes = WhatIfNodes(here, option.request, _slots(snapshot, option))
    nodes.limit(_all_of(evictions))
    search = EvictionSearch(rule, nodes, option.request.workers, evictions, MAX_STEPS, follows, first)
    found = search.run({})
    snapshot.spend(rule.job.id.project, MAX_STEPS - search.steps)
    snapshot.counters.cut_off += found is None and search.steps < 0
    return found


def _all_of(evictions: Iterable[Eviction]) -> tuple[Allocation, ...]:
    return tuple(dict.fromkeys(allocation for eviction in evictions for allocation in eviction.allocations))


def is_unschedulable(rule: VictimRule) -> bool:
    """Whether a search is known to fail: there are no candidates, or a search for no more has failed."""
    unschedulable = _unschedulable(rule)
    return not rule.candidates() or (unschedulable is not None and unschedulable.cover(rule.option.request))


def _unschedulable(rule: VictimRule) -> UnschedulableRequests | None:
    """The failed requests of equal searches; None if they are not remembered."""
    if rule.key is None or rule.option.request.workers > 1 or not rule.is_plain:
        return None
    return rule.snapshot.unschedulable("pauses", rule.option, rule.key)
