"""The cheapest evictions so that a job fits: least GPUs lost, then fewest runs, then by preference.

It knows rooms and runs; which runs may be taken is the rule's. Two searches do it. The walk goes from node to node, the
node that could be cheapest first, and takes for one worker after another the cheapest set there. Where all evictions
are few, sets over all nodes are tried besides, with the walk's as the one to beat.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from operator import itemgetter
from typing import NamedTuple, TypeAlias

from gpuctl.engine.capacity.gang import PoolOption, has_place, place_in, slots_by_node
from gpuctl.engine.capacity.unschedulable import UnschedulableRequests
from gpuctl.engine.jobs.runs import Allocation, gpu_milli_of
from gpuctl.engine.jobs.victim_order import Preference
from gpuctl.engine.snapshot import Snapshot
from gpuctl.engine.victims.eviction import (
    Accepts,
    Eviction,
    EvictionSearch,
    Follows,
    Found,
    Steps,
    paused,
    pauses,
    victims_of,
)
from gpuctl.engine.victims.reclaim import VictimTotals, totals_with
from gpuctl.engine.victims.rules import Cost, VictimRule
from gpuctl.engine.victims.what_if_node import WhatIfNodes, in_one_rack
from gpuctl.model.decision import Placement
from gpuctl.model.ids import JobId, NodeName, ProjectName
from gpuctl.model.units import GpuMilli

MAX_STEPS = 2_000
"""Sets of runs tried on one node, or of all candidates. All sets of 10 are fewer; bounds cut most of those of 20.

A search that finds nothing up to here is counted as cut off (`Counters.cut_off`), and its failure is not remembered."""

MAX_CANDIDATES = 40
"""With more candidates not all sets are tried: what the walk finds is taken, and what it misses is missed."""

Order: TypeAlias = tuple[tuple[int, ...], tuple[tuple[int, ...], ...], bool, tuple[Preference, ...]]
"""Which set is taken first: by its cost, but where that is known by where it is rather than by time and name."""


class Entry(NamedTuple):
    """A node in the heap: the least that one worker more costs there, and the set that does it, once it was searched.

    `version` of the node and `taken`, the number of evictions taken, tell whether it is out of date.
    """

    order: Order
    name: NodeName
    version: int
    taken: int = 0
    chosen: tuple[Eviction, ...] = ()


def by_node(snapshot: Snapshot, option: PoolOption, evictions: Iterable[Eviction]) -> dict[NodeName, list[Eviction]]:
    """Evictions by the nodes of an option's pool that each is for, in their order."""
    found: dict[NodeName, list[Eviction]] = {}
    for eviction in evictions:
        for node in eviction.nodes():
            room = snapshot.future_idle.rooms.get(node)
            if room is not None and room.pool == option.pool.name:
                found.setdefault(node, []).append(eviction)
    return found


def _slots(snapshot: Snapshot, option: PoolOption) -> dict[NodeName, int]:
    """How many workers each node holds once those that leave have left.

    That one worker has no place anywhere is known from the attempt before, so that no node is read for it. That earns
    1.5x of an event after which many single workers are searched for.
    """
    free = snapshot.future_idle
    is_gang = option.request.workers > 1
    return slots_by_node(free, option) if is_gang or has_place(free, option) else {}


def place_without(snapshot: Snapshot, option: PoolOption, victims: Sequence[Allocation]) -> Placement | None:
    """Where all workers go once these have left. Cost: O(victims), and a placement."""
    snapshot.future_idle.give_back(victims)
    placement = place_in(snapshot.future_idle, option)
    snapshot.future_idle.take(victims)
    return placement


class EvictionWalk:
    """Evictions for all workers of an option: a heap of nodes by what one worker more costs there, at least or exactly.

    A node is searched only once nothing else can be better. Where evictions have to be accepted, the set taken last
    must be, with all that were taken before.
    """

    __slots__ = (
        "_accepts", "_close", "_follows", "_heap", "_most", "_nodes", "_on_node", "_rule", "_snapshot", "_steps",
        "_taken", "_totals", "_versions", "_wanted", "is_exhaustive",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913, PLR0917 - what is searched, for what, by what rule, and how far
        self,
        option: PoolOption,
        rule: VictimRule,
        evictions: Sequence[Eviction],
        accepts: Accepts | None = None,
        steps: Steps | None = None,
        follows: Follows | None = None,
    ) -> None:
        """`steps`: how many sets may be tried on all nodes together, if that is not left to each node."""
        self._follows = follows
        self._snapshot = rule.snapshot
        self._rule = rule
        self._accepts = accepts
        self._steps = steps
        self._wanted = option.request.workers
        self._on_node = by_node(self._snapshot, option, evictions)
        rooms, slots = self._snapshot.future_idle.rooms, _slots(self._snapshot, option)
        elsewhere = sum(count for name, count in slots.items() if name not in self._on_node)
        self._nodes = WhatIfNodes([rooms[name] for name in self._on_node], option.request, elsewhere)
        leaving = {name: [h for e in on for h in e.allocations[:1]] for name, on in self._on_node.items()}
        is_gang = option.request.workers > 1
        self._close = in_one_rack(rooms, option.request, slots, leaving) if is_gang else frozenset[NodeName]()
        self._most: dict[ProjectName, GpuMilli] = {}
        self._taken: dict[JobId, Eviction] = {}
        self._totals: VictimTotals = {}
        self._versions = dict.fromkeys(self._on_node, 0)
        self.is_exhaustive = True
        self._heap = [entry for name in self._on_node if (entry := self._at_least(name)) is not None]
        heapify(self._heap)

    def run(self) -> tuple[Eviction, ...] | None:
        """The evictions, or None when there are not enough."""
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
        steps = self._steps or Steps(MAX_STEPS)
        wanted = self._nodes.fits[name].slots + 1
        accepts = self._accepts_last if self._accepts is not None and self._wanted - self._nodes.slots <= 1 else None
        nodes, left = self._nodes.alone(name), self._left(name)
        search = EvictionSearch(self._rule, nodes, wanted, left, steps, accepts, follows=self._follows)
        found = search.run(self._totals)
        self.is_exhaustive = self.is_exhaustive and not steps.are_over
        if found is not None:
            cost, chosen = found
            heappush(self._heap, Entry(self._order(cost, name), name, self._versions[name], len(self._taken), chosen))

    def _accepts_last(self, chosen: tuple[Eviction, ...]) -> bool:
        return self._accepts is not None and self._accepts((*self._taken.values(), *chosen))

    def _left(self, name: NodeName) -> list[Eviction]:
        found = []
        for eviction in self._on_node[name]:
            taken = self._taken.get(eviction.job)
            left = eviction.without(taken.allocations) if taken else eviction
            if left is not None:
                found.append(left)
        return found

    def _order(self, cost: Cost, name: NodeName) -> Order:
        preferences = cost.preferences
        lost = tuple([preference.lost(self._snapshot.now_ms) for preference in preferences]) if self._close else ()
        return cost[:6], lost, name not in self._close, preferences

    def _at_least(self, name: NodeName) -> Entry | None:
        """What one worker more on a node costs at the least, so much being short there: no less than the smallest run
        on it, and by the first in order of them. None where all together are too few.
        """
        left, short = self._left(name), self._nodes.fits[name].short_milli
        moves = [eviction for eviction in left if eviction.is_move]
        stays = [eviction for eviction in left if not eviction.is_move]
        by_pauses = max(0, short - sum(eviction.total_milli for eviction in moves))
        if not left or self._most_milli(stays) < by_pauses:
            return None
        if moves:
            loss = 0
            for eviction in moves if not by_pauses else ():
                part = min(short, eviction.total_milli)
                loss += eviction.moved_loss(self._snapshot.now_ms) * part // max(1, eviction.total_milli)
                short -= part
            cost = Cost(0, by_pauses, 0, loss, 0, by_pauses, ())
        else:
            sizes = [eviction.total_milli for eviction in stays]
            milli = max(short, min(sizes))
            fewest = -(-milli // max(1, *sizes)) if all(eviction.stops for eviction in stays) else 0
            cost = Cost(0, milli, fewest, 0, 0, milli, (self._snapshot.preference(stays[0].allocations[0]),))
        return Entry(self._order(cost, name), name, self._versions[name])

    def _most_milli(self, evictions: Iterable[Eviction]) -> GpuMilli:
        """What can be taken by some pauses at the very most, whichever."""
        of_project: dict[ProjectName, GpuMilli] = {}
        for eviction in evictions:
            project = eviction.job.project
            of_project[project] = of_project.get(project, 0) + eviction.total_milli
        for project in of_project.keys() - self._most.keys():
            self._most[project] = self._rule.most_milli(project)
        return sum(min(milli, self._most[project]) for project, milli in of_project.items())

    def _take(self, entry: Entry) -> bool:
        """Take a set, if it still is allowed at the price at which it was found, others having been taken since."""
        totals = totals_with(self._totals, victims_of(entry.chosen), self._snapshot)
        if entry.taken < len(self._taken) and (self._accepts or self._rule.price(totals) != entry.order[0][0]):
            return False
        for eviction in entry.chosen:
            known = self._taken.get(eviction.job)
            together = dict.fromkeys((*known.allocations, *eviction.allocations)) if known else ()
            self._taken[eviction.job] = paused(tuple(together)) if together else eviction
        self._totals = totals
        for name in self._nodes.remove([allocation for each in entry.chosen for allocation in each.allocations]):
            self._versions[name] += 1
            left = self._at_least(name)
            if left is not None:
                heappush(self._heap, left)
        return True

    def _without_spare(self) -> tuple[Eviction, ...]:
        """The evictions taken, less the pauses that later ones made needless; the largest is spared first.

        A worker is spared only if those of its run stay that it would leave with. Where each node gave room for one
        worker, by runs of its own, all are needed.
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


def find_victims(option: PoolOption, rule: VictimRule, follows: Follows) -> tuple[Cost, tuple[Allocation, ...]] | None:
    """The runs, and extra workers, to pause so that an option fits when they have left, and the rule allows it.

    None when there are none; else what they cost, with what follows. A worker that asks for no less than one that
    failed fails; a gang's workers are seated one by one, which proves nothing for a larger gang.
    Cost: O(candidates), and the sets tried on the nodes that may be cheapest; where that need not be exact, and
    candidates are few, a search of all sets besides.
    """
    unschedulable, is_plain = _unschedulable(option, rule), rule.is_plain
    if unschedulable is not None and unschedulable.cover(option.request.sizes):
        return None
    evictions = pauses(rule)
    walk = EvictionWalk(option, rule, evictions, follows=follows)
    taken = walk.run()
    victims = None if taken is None else victims_of(taken)
    if victims is not None and not is_plain:
        victims = rule.complete(victims)
    cost = rule.cost(victims) if victims else None
    more = follows(victims) if victims and cost else (0, 0)
    if is_plain and option.request.workers == 1 and not any(more):
        if victims is None and not walk.is_exhaustive:
            rule.snapshot.counters.cut_off += 1
        elif victims is None and unschedulable is not None:
            unschedulable.add(option.request.sizes)
        return (cost, victims) if victims and cost else None
    first = (cost.more(*more), (paused(victims),)) if victims and cost else None
    # One that was found stays the best of equals where only room was missing: the walk knows which nodes are close.
    kept = first if is_plain else None

    def accepts(chosen: tuple[Eviction, ...]) -> bool:
        return rule.cost(victims_of(chosen)) is not None

    others = cheapest_of_few(option, rule, evictions, accepts, kept, follows)
    best = min((found for found in (first, others) if found is not None), key=itemgetter(0), default=None)
    return None if best is None else (best[0], victims_of(best[1]))


def cheapest_of_few(  # noqa: PLR0913, PLR0917 - what is searched, for what, by what rule, and what is known
    option: PoolOption,
    rule: VictimRule,
    evictions: Sequence[Eviction],
    accepts: Accepts,
    first: Found | None = None,
    follows: Follows | None = None,
) -> Found | None:
    """The cheapest of all sets of a few evictions with which all workers of an option fit.

    A walk takes worker after worker from the node where that costs least, with no way back. It misses sets that free
    several nodes at once, as a gang does, and sets that must also hold work on other nodes, to make a project smaller.
    `first`: a set that does, if one is known. With more than MAX_CANDIDATES it is all that is found: if there is none,
    the search is cut off, unless all candidates together leave too little room.

    Example: a job asks for 2 workers of 1 GPU; its project may take 2 GPUs from another, which runs a gang on nodes 1
    and 2 and a job on node 3. A walk takes the job, and then may not take the gang. The gang alone is the answer.
    """
    snapshot = rule.snapshot
    if len(evictions) > MAX_CANDIDATES:
        if first is None and place_without(snapshot, option, _all_of(evictions)) is not None:
            snapshot.counters.cut_off += 1
        return first
    names = {node for eviction in evictions for allocation in eviction.allocations for node in allocation.nodes()}
    rooms, slots = snapshot.future_idle.rooms, _slots(snapshot, option)
    elsewhere = sum(count for name, count in slots.items() if name not in names)
    here = [rooms[name] for name in sorted(names & rooms.keys()) if rooms[name].pool == option.pool.name]
    nodes = WhatIfNodes(here, option.request, elsewhere)
    nodes.limit(_all_of(evictions))
    steps = Steps(MAX_STEPS)
    found = EvictionSearch(rule, nodes, option.request.workers, evictions, steps, accepts, first, follows).run({})
    snapshot.counters.cut_off += found is None and steps.are_over
    return found


def _all_of(evictions: Iterable[Eviction]) -> tuple[Allocation, ...]:
    return tuple(dict.fromkeys(allocation for eviction in evictions for allocation in eviction.allocations))


def is_unschedulable(option: PoolOption, rule: VictimRule) -> bool:
    """Whether a search is known to fail: there are no candidates, or a request for no more failed."""
    unschedulable = _unschedulable(option, rule)
    return not rule.candidates() or (unschedulable is not None and unschedulable.cover(option.request.sizes))


def _unschedulable(option: PoolOption, rule: VictimRule) -> UnschedulableRequests | None:
    """The failed requests of equal searches; None where they are not remembered."""
    key, snapshot = rule.key, rule.snapshot
    if key is None or option.request.workers > 1 or not rule.is_plain:
        return None
    return snapshot.unschedulable(("victims", snapshot.lifted, key, option.pool.name, option.request.profile))
