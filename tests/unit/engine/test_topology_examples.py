"""Gangs close together: one node before one rack, one rack before one block, and as few of each as possible."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from gpuctl.engine.capacity.topology import Site, closest, most_seated
from gpuctl.model.ids import NodeName


def _site(name: str, seats: int, *path: str, rank: int = 0) -> Site:
    return Site(NodeName(name), seats, rank, path)


def test_two_racks_of_a_block_before_fewer_nodes_of_two_blocks() -> None:
    sites = [
        _site("a", 4, "b1", "r1"),
        _site("b", 2, "b2", "r2"),
        _site("c", 2, "b2", "r3"),
        _site("d", 2, "b2", "r3"),
        _site("e", 1, "b3", "r4"),
    ]
    assert closest(sites, 5, packed=True) == [("b", 1), ("c", 2), ("d", 2)]


def test_a_rack_without_a_block_is_a_rack() -> None:
    sites = [_site("a", 1, "", "r1"), _site("b", 1, "", "r2"), _site("c", 1, "", "r2")]
    assert closest(sites, 2, packed=True) == [("b", 1), ("c", 1)]


def test_nodes_that_are_nowhere_are_no_rack() -> None:
    sites = [_site("a", 1), _site("b", 1), _site("c", 1, "r1"), _site("d", 1, "r1")]
    assert closest(sites, 2, packed=True) == [("c", 1), ("d", 1)]


def test_the_last_is_the_tightest_in_a_packed_pool_only() -> None:
    sites = [_site("a", 4), _site("b", 3), _site("c", 2)]
    assert closest(sites, 6, packed=True) == [("a", 4), ("c", 2)]
    assert closest(sites, 6, packed=False) == [("a", 4), ("b", 2)]


def test_of_equals_the_lesser_rank() -> None:
    sites = [_site("a", 2, rank=4), _site("b", 2, rank=2)]
    assert closest(sites, 2, packed=True) == [("b", 2)]
    assert closest(sites, 3, packed=True) == [("a", 1), ("b", 2)]


def test_too_few_seats() -> None:
    assert closest([], 1, packed=True) is None
    assert closest([_site("a", 2)], 3, packed=True) is None


SITES = st.lists(
    st.tuples(st.integers(1, 4), st.sampled_from(["", "b1", "b2"]), st.sampled_from(["", "r1", "r2", "r3"])),
    min_size=1,
    max_size=9,
)


@given(SITES, st.integers(1, 12), st.booleans(), st.randoms(use_true_random=False))
def test_all_workers_as_close_as_can_be(
    shapes: list[tuple[int, str, str]],
    workers: int,
    packed: bool,  # noqa: FBT001
    order: random.Random,
) -> None:
    sites = [_site(f"n{i}", seats, block, rack) for i, (seats, block, rack) in enumerate(shapes)]
    chosen = closest(sites, workers, packed=packed)
    if chosen is None:
        assert sum(site.slots for site in sites) < workers
        return
    shuffled = list(sites)
    order.shuffle(shuffled)
    assert closest(shuffled, workers, packed=packed) == chosen
    by_name = {site.name: site for site in sites}
    assert sum(count for _, count in chosen) == workers
    assert all(0 < count <= by_name[name].slots for name, count in chosen)
    if any(site.slots >= workers for site in sites):
        assert len(chosen) == 1
        return
    for depth in (2, 1):
        rooms: dict[tuple[str, ...], int] = {}
        for site in sites:
            if site.path[depth - 1]:
                rooms[site.path[:depth]] = rooms.get(site.path[:depth], 0) + site.slots
        if any(room >= workers for room in rooms.values()):
            assert len({by_name[name].path[:depth] for name, _ in chosen}) == 1
            return


def test_the_rack_that_could_hold_all_and_holds_most_is_chosen() -> None:
    sites = [
        _site("n1", 0, "b1", "r1"),
        _site("n2", 0, "b1", "r1"),
        _site("n3", 1, "b1", "r2"),
        _site("n4", 0, "b1", "r2"),
    ]
    names = [site.name for site in sites]
    assert most_seated(sites, dict.fromkeys(names, 1), 2) == {"n3", "n4"}
    assert most_seated(sites, dict(zip(names, (1, 1, 0, 1), strict=True)), 2) == {"n1", "n2"}
    assert most_seated(sites, dict.fromkeys(names, 1), 3) == set(names)
    assert most_seated(sites, dict.fromkeys(names, 1), 5) == frozenset()
    nowhere = [_site("n1", 0, "", ""), _site("n2", 0, "", "")]
    assert most_seated(nowhere, dict.fromkeys(names, 1), 2) == frozenset()
