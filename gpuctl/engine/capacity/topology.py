"""Which nodes a gang's workers go to: one node if one has room, else one rack, one block, one zone, and there the
fewest racks and nodes.

What is narrower comes first even where it takes more nodes: workers of one rack talk through one switch. It knows how
many workers each node holds and where it stands, no devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpuctl.model.ids import NodeName


@dataclass(frozen=True, slots=True)
class Site:
    """A node that holds `seats` of the workers; of equals the one with the lesser `rank` is preferred.

    `path`: its zone, block, rack; "" for one it is in none of. All paths of a pool are as long, or empty.
    """

    name: NodeName
    seats: int
    rank: int
    path: tuple[str, ...] = ()


def closest(sites: Iterable[Site], workers: int, *, packed: bool) -> list[tuple[NodeName, int]] | None:
    """How many workers each chosen node gets, by name; None when all together hold too few.

    Of several racks that have room the one with the least is taken, and where `packed` the tightest node that does as
    the last one; else the roomiest. Cost: O(nodes log nodes) a level.
    """
    everywhere = list(sites)
    if sum(site.seats for site in everywhere) < workers:
        return None
    alone = [(site.rank, site.name) for site in everywhere if site.seats >= workers]
    if alone:
        return [(min(alone)[1], workers)]
    levels = max((len(site.path) for site in everywhere), default=0)
    for depth in range(levels, 0, -1):
        inside = _domains(everywhere, depth)
        able = [path for path, members in inside.items() if path[-1] and _seats(members) >= workers]
        if able:
            tightest = min(able, key=lambda path: (_seats(inside[path]), sum(site.rank for site in inside[path]), path))
            return sorted(_spread_out(inside[tightest], depth, workers, packed=packed))
    return sorted(_spread_out(everywhere, 0, workers, packed=packed))


def most_seated(sites: Iterable[Site], more: Mapping[NodeName, int], missing: int) -> frozenset[NodeName]:
    """The nodes of one rack, else block, else zone, that could hold so many workers `more` than they do, and where most
    have a seat already; of equals the one that could hold the fewest. None where no single one could.
    """
    everywhere = list(sites)
    for depth in range(max((len(site.path) for site in everywhere), default=0), 0, -1):
        could = {
            path: (-_seats(members), sum(more.get(site.name, 0) for site in members), path)
            for path, members in _domains(everywhere, depth).items()
            if path[-1]
        }
        able = [rank for rank in could.values() if rank[1] >= missing]
        if able:
            path = min(able)[2]
            return frozenset(site.name for site in everywhere if site.path[:depth] == path)
    return frozenset()


def _spread_out(sites: Sequence[Site], depth: int, workers: int, *, packed: bool) -> list[tuple[NodeName, int]]:
    """The workers on nodes that agree in the first `depth` levels, on as few domains of the next level as hold them."""
    if all(len(site.path) <= depth for site in sites):
        order = sorted(sites, key=lambda site: (-site.seats, site.rank, site.name))
        shares = _fewest([site.seats for site in order], workers, tightest_last=packed)
        return [(order[index].name, count) for index, count in shares]
    inside = _domains(sites, depth + 1)
    paths = sorted(inside, key=lambda path: (-_seats(inside[path]), path))
    shares = _fewest([_seats(inside[path]) for path in paths], workers, tightest_last=True)
    return [
        given for index, count in shares for given in _spread_out(inside[paths[index]], depth + 1, count, packed=packed)
    ]


def _fewest(seats: Sequence[int], workers: int, *, tightest_last: bool) -> list[tuple[int, int]]:
    """Positions, and how many workers each takes: the roomiest first. `seats` descend and are enough together."""
    chosen: list[tuple[int, int]] = []
    for index, room in enumerate(seats):
        if room >= workers:
            last = max(i for i, other in enumerate(seats) if other >= workers) if tightest_last else index
            chosen.append((max(index, seats.index(seats[last])), workers))
            break
        chosen.append((index, room))
        workers -= room
    return chosen


def _domains(sites: Iterable[Site], depth: int) -> Mapping[tuple[str, ...], list[Site]]:
    """The nodes by the first levels of where they stand; those that are nowhere are together."""
    found: dict[tuple[str, ...], list[Site]] = {}
    for site in sites:
        found.setdefault(site.path[:depth] or ("",) * depth, []).append(site)
    return found


def _seats(sites: Iterable[Site]) -> int:
    return sum(site.seats for site in sites)
