"""Which nodes a gang's workers go to: one node if it has room, else one rack, one block, one zone.

Workers of one rack talk through one switch, so the narrowest topology domain wins, even if it takes more nodes. Inside
it: the fewest blocks, in these the fewest racks, in these the fewest nodes. Only the location of each node and the
number of workers it can hold are known here; no devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpuctl.model.ids import NodeName


@dataclass(frozen=True, slots=True)
class Site:
    """A node that can hold `slots` of the workers. Of equal nodes the one with the lower `rank` is preferred.

    `path`: its zone, block, rack; "" where unknown. All paths of a pool have the same length, or are empty.
    """

    name: NodeName
    slots: int
    rank: int
    path: tuple[str, ...] = ()


def closest(sites: Iterable[Site], workers: int, *, packed: bool) -> list[tuple[NodeName, int]] | None:
    """How many workers each chosen node gets, by name; None if all nodes together hold too few.

    Of several racks with room the one with the least is taken. If `packed`, the last node is the tightest that
    suffices, else the roomiest. Cost: O(nodes log nodes) for each level.
    """
    everywhere = sorted(sites, key=lambda site: (site.rank, site.name))
    if sum(site.slots for site in everywhere) < workers:
        return None
    alone = [(site.rank, site.name) for site in everywhere if site.slots >= workers]
    if alone:
        return [(min(alone)[1], workers)]
    levels = max((len(site.path) for site in everywhere), default=0)
    here, widest = everywhere, 0
    for depth in range(levels, 0, -1):
        inside = _domains(everywhere, depth)
        able = [path for path, members in inside.items() if path[-1] and _total_slots(members) >= workers]
        if able:
            tightest = min(
                able, key=lambda path: (_total_slots(inside[path]), sum(site.rank for site in inside[path]), path)
            )
            here, widest = inside[tightest], depth
            break
    for depth in range(widest + 1, levels + 1):
        inside = _domains(here, depth)
        paths = sorted(inside, key=lambda path: (-_total_slots(inside[path]), path))
        fewest = _fewest([_total_slots(inside[path]) for path in paths], workers, tightest_last=True)
        here = [site for index, _ in fewest for site in inside[paths[index]]]
    order = sorted(here, key=lambda site: -site.slots)  # of equal nodes those of the roomiest domain come first
    given = _fewest([site.slots for site in order], workers, tightest_last=packed)
    return sorted((order[index].name, count) for index, count in given)


def most_seated(sites: Iterable[Site], more: Mapping[NodeName, int], missing: int) -> frozenset[NodeName]:
    """The nodes of the rack, else block, else zone where most workers run already and `missing` more have room.

    `more`: how many more each node could hold. Of equals the domain with the least room. Empty if no single one has
    room.
    """
    everywhere = list(sites)
    for depth in range(max((len(site.path) for site in everywhere), default=0), 0, -1):
        could = {
            path: (-_total_slots(members), sum(more.get(site.name, 0) for site in members), path)
            for path, members in _domains(everywhere, depth).items()
            if path[-1]
        }
        able = [rank for rank in could.values() if rank[1] >= missing]
        if able:
            path = min(able)[2]
            return frozenset(site.name for site in everywhere if site.path[:depth] == path)
    return frozenset()


def _fewest(slots: Sequence[int], workers: int, *, tightest_last: bool) -> list[tuple[int, int]]:
    """Positions, and how many workers each takes, the roomiest first. `slots` descend, and suffice together."""
    chosen: list[tuple[int, int]] = []
    for index, room in enumerate(slots):
        if room >= workers:
            last = max(i for i, other in enumerate(slots) if other >= workers) if tightest_last else index
            chosen.append((max(index, slots.index(slots[last])), workers))
            break
        chosen.append((index, room))
        workers -= room
    return chosen


def _domains(sites: Iterable[Site], depth: int) -> Mapping[tuple[str, ...], list[Site]]:
    """The nodes by the first levels of their paths; nodes without a path are together."""
    found: dict[tuple[str, ...], list[Site]] = {}
    for site in sites:
        found.setdefault(site.path[:depth] or ("",) * depth, []).append(site)
    return found


def _total_slots(sites: Iterable[Site]) -> int:
    return sum(site.slots for site in sites)
