"""Past use: how it fades, how it counts, and that its record is not rewritten while nothing changes."""

from __future__ import annotations

from decimal import Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuctl.engine.shares.fairshare import ShareClaim, divide
from gpuctl.engine.shares.usage import next_usage, tempered, used_by
from gpuctl.model.decision import FairShare
from gpuctl.model.declared import WHOLE_CLUSTER
from gpuctl.model.ids import ProjectName
from gpuctl.model.state import Ledger
from gpuctl.model.units import DurationMs
from gpuctl.model.usage import Usage, full_use, left_after

TEAM = ProjectName("a")
HOUR: DurationMs = 3_600_000
DAY = 24 * HOUR


@given(st.integers(0, 60 * DAY), st.integers(1000, 30 * DAY))
def test_a_decay_is_exact_to_one_part_in_two_to_the_31(elapsed_ms: int, half_life_ms: int) -> None:
    with localcontext(prec=60):
        exact = Decimal(2) ** 64 * Decimal(2) ** (Decimal(-elapsed_ms) / Decimal(half_life_ms))
        error = abs(exact - left_after(elapsed_ms, half_life_ms))
        assert error <= exact / 2**31 + 1


@given(st.integers(0, 10**9), st.integers(0, 10**6), st.integers(0, 40 * DAY), st.integers(0, 40 * DAY))
def test_it_is_the_same_however_often_it_was_written_down(milli_hours: int, rate: int, first: int, then: int) -> None:
    use = Usage(at_ms=0, milli_hours=milli_hours, rate_milli=rate)
    between = Usage(at_ms=first, milli_hours=use.value(first, DAY), rate_milli=rate)
    at_once, in_two = use.value(first + then, DAY), between.value(first + then, DAY)
    assert abs(at_once - in_two) <= 3 + at_once // 2**28


def test_steady_use_comes_to_a_bound_and_half_of_it_in_a_half_life() -> None:
    assert full_use(1000, DAY) == 34_624
    assert Usage(at_ms=0, rate_milli=1000).value(DAY, DAY) == 17_312
    assert Usage(at_ms=0, rate_milli=1000).value(1000 * DAY, DAY) == 34_624
    assert Usage(at_ms=0, milli_hours=8).value(3 * DAY, DAY) == 1


def test_a_clock_that_steps_back_changes_nothing() -> None:
    assert Usage(at_ms=DAY, milli_hours=8, rate_milli=1000).value(0, DAY) == 8


def row(allocated: int, quota: int = 1000) -> FairShare:
    return FairShare(
        domain=WHOLE_CLUSTER, project=TEAM, quota_milli=quota, demand_milli=0, share_milli=0, allocated_milli=allocated
    )


def test_as_long_as_nothing_starts_or_stops_nothing_is_to_be_written() -> None:
    first = next_usage({}, [row(3000)], DAY, 0)
    assert first == {TEAM: Usage(at_ms=0, rate_milli=2000)}
    ledgers = {TEAM: Ledger(project=TEAM, usage=first[TEAM])}
    assert next_usage(ledgers, [row(3000)], DAY, 5 * DAY) == first
    stopped = next_usage(ledgers, [row(0)], DAY, DAY)
    assert stopped == {TEAM: Usage(at_ms=DAY, milli_hours=full_use(2000, DAY) // 2)}
    assert used_by({TEAM: Ledger(project=TEAM, usage=stopped[TEAM])}, DAY, 2 * DAY) == {TEAM: full_use(2000, DAY) // 4}


def test_use_within_quota_and_without_a_half_life_leave_no_trace() -> None:
    assert next_usage({}, [row(1000)], DAY, 0) == {}
    assert next_usage({}, [row(3000)], None, 0) == {}


@pytest.mark.parametrize(
    ("used", "wanted"),
    [
        pytest.param((0, 0), [8000, 8000], id="nothing used"),
        pytest.param((50, 0), [5333, 10_667], id="half of all: the peer's own example"),
        pytest.param((100, 0), [0, 16_000], id="all there was"),
        pytest.param((30, 30), [8000, 8000], id="as much"),
    ],
)
def test_shares_after_use(used: tuple[int, int], wanted: list[int]) -> None:
    claims = [
        ShareClaim(owner=name, quota_milli=0, demand_milli=16_000, weight=1, used_milli_hours=1000 * use)
        for name, use in zip("ab", used, strict=True)
    ]
    assert [portion.share_milli for portion in divide(16_000, claims, 100_000).values()] == wanted


@given(st.lists(st.tuples(st.integers(1, 1000), st.integers(0, 10_000)), min_size=1, max_size=6), st.integers(0, 5000))
def test_a_project_that_has_used_more_never_weighs_more(takers: list[tuple[int, int]], full: int) -> None:
    weights, used = [weight for weight, _ in takers], [use for _, use in takers]
    before = tempered(weights, used, full)
    more = tempered(weights, [used[0] + 1, *used[1:]], full)
    assert all(weight > 0 for weight in before)
    assert more[0] * sum(before) <= before[0] * sum(more)
