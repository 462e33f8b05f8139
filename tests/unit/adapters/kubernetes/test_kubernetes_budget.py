"""The write budget: a burst, then a steady rate, whatever the clock does in between."""

import pytest

from gpuctl.adapters.kubernetes.budget import Budget
from gpuctl.adapters.kubernetes.timings import WriteLimits, limited

MS = 1_000_000


class Hand:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 5 * MS

    def __call__(self) -> int:
        return self.now


def test_a_burst_is_free_and_what_follows_waits_its_turn() -> None:
    clock = Hand()
    budget = Budget(10, 3, clock)
    assert [budget.take() // MS for _ in range(6)] == [0, 0, 0, 100, 200, 300]


def test_waiting_gives_back_what_was_spent_and_not_more() -> None:
    clock = Hand()
    budget = Budget(10, 3, clock)
    for _ in range(3):
        budget.take()
    clock.now += 200 * MS
    assert [budget.take() // MS for _ in range(3)] == [0, 0, 100]
    clock.now += 3_600_000 * MS
    assert [budget.take() // MS for _ in range(4)] == [0, 0, 0, 100]


@pytest.mark.parametrize(
    ("asked", "had"), [((None, None), (400, 800)), ((10, None), (10, 20)), ((None, 5), (400, 5)), ((10, 5), (10, 5))]
)
def test_limits_that_are_asked_for_and_the_usual_ones(
    asked: tuple[int | None, int | None], had: tuple[int, int]
) -> None:
    limits = limited(*asked)
    assert (limits.per_second, limits.burst, limits.at_once) == (*had, WriteLimits().at_once)
