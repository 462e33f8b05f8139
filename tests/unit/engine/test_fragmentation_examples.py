"""What a node's free GPUs can be used for, and what the remainders of devices are worth."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuctl.engine.capacity.fragmentation import MICRO, SCORES, Fragmentation, usual
from gpuctl.engine.capacity.free import NodeFree, Ranking
from gpuctl.engine.capacity.prices import worth_of_rest
from gpuctl.model.ids import NodeName, PoolName

HALVES_AND_PAIRS = (((500, 1000), 3), ((2000, 1000), 1))


def test_a_score_is_the_hundredths_of_a_sigmoid() -> None:
    for saved in range(-6_000_000, 6_000_000, 997):
        expected = int(100 / (1 + math.exp(-saved / MICRO)))
        assert sum(step <= saved for step in SCORES) == expected, saved


def test_what_no_job_could_use_is_lost() -> None:
    measure = Fragmentation(HALVES_AND_PAIRS)
    fits = measure.cpu_step(1000)
    assert measure.lost((0, 400), fits) == 3 * 400 + 400, "too little for a half, and no pair"
    assert measure.lost((400, 1000), fits) == 3 * 400 + 1400, "a half fits the whole device only"
    assert measure.lost((1000, 1000), fits) == 0
    assert measure.lost((1000, 1000), measure.cpu_step(999)) == 4 * 2000, "without CPU nothing of it can be used"


def test_an_unknown_mix_prefers_nothing() -> None:
    measure = Fragmentation(())
    assert measure.score((500, 1000), 0, (0, 1000), 0) == 50


def test_breaking_a_pair_scores_less_than_taking_a_single() -> None:
    measure = Fragmentation((((1000, 0), 1), ((2000, 0), 1)))
    single = measure.score((0, 1000), 1, (0, 0), 1)
    pair = measure.score((1000, 1000), 1, (0, 1000), 1)
    assert single > 50 > pair


def test_the_rarest_are_not_usual() -> None:
    assert usual((((1000, 0), 96), ((500, 0), 4))) == (((1000, 0), 96),)
    assert usual(()) == ()


@pytest.mark.parametrize(
    ("counts", "free", "part"),
    [
        ({500: 1}, 500, Fraction(1, 2)),
        ({500: 1}, 499, Fraction(0)),
        ({500: 1}, 999, Fraction(1, 2)),
        ({810: 5, 470: 3}, 1000, Fraction(1)),
        ({810: 5, 470: 3}, 530, Fraction(1, 2)),
        ({810: 5, 470: 3}, 190, Fraction(0)),
        ({333: 7}, 667, Fraction(2, 3)),
        ({600: 1, 400: 1}, 400, Fraction(0)),
        ({600: 1, 400: 3}, 400, Fraction(1, 2)),
    ],
)
def test_a_rest_is_worth_what_it_saves_of_a_device(counts: dict[int, int], free: int, part: Fraction) -> None:
    worth = worth_of_rest(counts)
    assert Fraction(worth[free], worth[1000]) == part


def test_without_fractions_nothing_has_a_worth() -> None:
    assert worth_of_rest({}) == ()
    assert worth_of_rest({1000: 4}) == ()


MIXES = st.dictionaries(st.integers(1, 20).map(lambda n: 50 * n), st.integers(1, 40), min_size=1, max_size=6)


@given(counts=MIXES)
@settings(max_examples=200, deadline=None)
def test_worth_never_says_that_two_parts_are_less_than_both(counts: dict[int, int]) -> None:
    worth = worth_of_rest(counts)
    for first in range(0, 1001, 50) if worth else ():
        assert worth[first] <= worth[min(1000, first + 50)]
        for second in range(0, 1001 - first, 50):
            assert worth[first] + worth[second] <= worth[first + second]


@given(counts=MIXES)
@settings(max_examples=100, deadline=None)
def test_prices_are_a_bound_that_is_reached(counts: dict[int, int]) -> None:
    """Weak duality against any filling: first-fit decreasing needs at least as many devices as the prices add up to."""
    parts = {size: count for size, count in counts.items() if size < 1000}
    worth = worth_of_rest(parts)
    if not parts:
        return
    bound = sum(Fraction(worth[size], worth[1000]) * count for size, count in parts.items())
    devices: list[int] = []
    for size in sorted((size for size, count in parts.items() for _ in range(count)), reverse=True):
        room = next((i for i, free in enumerate(devices) if free >= size), None)
        if room is None:
            devices.append(1000 - size)
        else:
            devices[room] -= size
    assert bound <= len(devices) <= Fraction(11, 9) * math.ceil(bound) + 2


@given(seed=st.integers(0, 1000))
@settings(max_examples=50, deadline=None)
def test_a_ranking_says_what_looking_at_all_would(seed: int) -> None:
    chance = random.Random(seed)
    names = [NodeName(f"n{i:02}") for i in range(12)]
    rooms = {name: NodeFree(name, PoolName("pool"), [], chance.randrange(9), 0) for name in names}
    touched: list[NodeName] = []

    def grade(room: NodeFree) -> tuple[int, ...] | None:
        return (room.cpu_milli,) if room.cpu_milli >= 3 else None

    ranking = Ranking(grade)
    for _ in range(60):
        for name in chance.sample(sorted(rooms), chance.randrange(4)):
            rooms[name].cpu_milli = chance.randrange(9)
            rooms[name].version += 1
            touched.append(name)
        able = sorted(((room.cpu_milli,), name) for name, room in rooms.items() if room.cpu_milli >= 3)
        assert ranking.best(rooms, touched, lambda: rooms) == (able[0] if able else None)
