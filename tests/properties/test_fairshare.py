"""Fair shares against the same rules in rational numbers."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import claims

from gpuctl.engine.shares.fairshare import ShareClaim, divide

CAPACITIES = st.integers(0, 40_000)


def poured(amount: Fraction, vessels: list[tuple[str, int, Fraction]]) -> dict[str, Fraction]:
    """Water-filling in small steps: share by weight, a project that is full leaves, the rest share again."""
    given_out = {owner: Fraction(0) for owner, _, _ in vessels}
    thirsty = [v for v in vessels if v[1] > 0 and v[2] > 0]
    while amount > 0 and thirsty:
        level = min((cap - given_out[owner]) / weight for owner, weight, cap in thirsty)
        step = min(level, amount / sum(weight for _, weight, _ in thirsty))
        for owner, weight, _ in thirsty:
            given_out[owner] += step * weight
            amount -= step * weight
        thirsty = [v for v in thirsty if given_out[v[0]] < v[2]]
    return given_out


def reference(capacity: Fraction, siblings: Sequence[ShareClaim]) -> dict[str, Fraction]:
    """Shares of one level without rounding."""
    quota = {c.owner: Fraction(min(c.quota_milli, c.wanted_milli)) for c in siblings}
    if sum(quota.values()) > capacity:
        quota = poured(capacity, [(c.owner, c.quota_milli, quota[c.owner]) for c in siblings])
    held = dict(quota)
    rest = capacity - sum(held.values())
    for weightless in (False, True):
        for priority in sorted({c.priority for c in siblings}, reverse=True):
            band = [c for c in siblings if (c.weight == 0) is weightless and c.priority == priority]
            spare = poured(rest, [(c.owner, c.weight or 1, c.wanted_milli - held[c.owner]) for c in band])
            for owner, milli in spare.items():
                held[owner] += milli
                rest -= milli
    return held


@given(CAPACITIES, claims(depth=1))
@settings(max_examples=300)
def test_shares_equal_the_rational_reference_within_a_milli_each(capacity: int, siblings: list[ShareClaim]) -> None:
    exact = reference(Fraction(capacity), siblings)
    for owner, portion in divide(capacity, siblings).items():
        assert abs(portion.share_milli - exact[owner]) < 1


@given(CAPACITIES, claims())
@settings(max_examples=200)
def test_shares_keep_capacity_demand_limit_and_leave_nothing_that_is_wanted(
    capacity: int, siblings: list[ShareClaim]
) -> None:
    portions = divide(capacity, siblings)

    def check(total: int, level: Sequence[ShareClaim]) -> None:
        shares = {c.owner: portions[c.owner].share_milli for c in level}
        wanted = {c.owner: c.wanted_milli for c in level}
        assert sum(shares.values()) == min(total, sum(wanted.values()))
        assert all(0 <= shares[owner] <= wanted[owner] for owner in shares)
        if sum(min(c.quota_milli, c.wanted_milli) for c in level) <= total:
            assert all(shares[c.owner] >= min(c.quota_milli, c.wanted_milli) for c in level)
        for claim in level:
            check(shares[claim.owner], claim.children)

    check(capacity, siblings)


@given(CAPACITIES, claims(), st.randoms(use_true_random=False))
def test_shares_do_not_depend_on_order(capacity: int, siblings: list[ShareClaim], random: object) -> None:
    shuffled = list(siblings)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert divide(capacity, shuffled) == divide(capacity, siblings)


@given(st.integers(0, 40), st.permutations("abcde"))
def test_what_is_left_of_equal_claims_goes_by_name(capacity: int, names: list[str]) -> None:
    alike = [ShareClaim(owner=name, quota_milli=0, demand_milli=40, weight=1) for name in names]
    shares = divide(capacity, alike)
    assert [shares[name].share_milli for name in "abcde"] == [(capacity + 4 - place) // 5 for place in range(5)]


@given(CAPACITIES, claims(depth=1), st.integers(1, 5_000))
def test_a_larger_quota_never_means_a_smaller_share(capacity: int, siblings: list[ShareClaim], more: int) -> None:
    first = siblings[0]
    raised = ShareClaim(
        owner=first.owner,
        quota_milli=first.quota_milli + more,
        demand_milli=first.demand_milli,
        limit_milli=first.limit_milli,
        weight=first.weight,
        priority=first.priority,
    )
    before = divide(capacity, siblings)[first.owner].share_milli
    assert divide(capacity, [raised, *siblings[1:]])[first.owner].share_milli >= before - 1
