"""Fair shares calculated by hand, including cases that another scheduler is known to get wrong."""

from __future__ import annotations

import pytest

from gpuctl.engine.shares.fairshare import ShareClaim, divide


def claim(
    owner: str, quota: int = 0, demand: int = 100_000, *, weight: int = 0, priority: int = 0, limit: int | None = None
) -> ShareClaim:
    return ShareClaim(
        owner=owner, quota_milli=quota, demand_milli=demand, weight=weight, priority=priority, limit_milli=limit
    )


def shares(capacity: int, *claims: ShareClaim) -> dict[str, int]:
    return {owner: portion.share_milli for owner, portion in divide(capacity, claims).items()}


@pytest.mark.parametrize(
    ("capacity", "claims", "wanted"),
    [
        pytest.param(
            11_000, [claim("a", 2000, 10_000, weight=1), claim("b", 2000, 10_000, weight=4)], [3400, 7600],
            id="spare by weight, exactly",
        ),
        pytest.param(10_000, [claim("a", 8000, 8000), claim("b", 8000, 8000)], [5000, 5000], id="scarce quotas scale"),
        pytest.param(1000, [claim("a", demand=600, weight=1), claim("b", demand=600, weight=1)], [500, 500],
            id="fractions share one device"),
        pytest.param(
            3000,
            [claim("a", weight=1, priority=1), claim("b", weight=1, priority=1), claim("c", weight=1)],
            [1500, 1500, 0],
            id="a higher band leaves nothing it wants",
        ),
        pytest.param(
            7001,
            [*(claim(name, weight=1, priority=1) for name in "abcd"), claim("e", weight=1)],
            [1751, 1750, 1750, 1750, 0],
            id="remainders stay in their band, ties by name",
        ),
        pytest.param(
            10_000, [claim("a", weight=1, limit=2000), claim("b", weight=1)], [2000, 8000], id="limits cap"
        ),
        pytest.param(
            10_000, [claim("a", demand=1500, weight=9), claim("b", weight=1)], [1500, 8500], id="demand caps"
        ),
        pytest.param(
            10_000, [claim("a"), claim("b", 1000, 4000, weight=1)], [6000, 4000], id="weight 0 gets what no other wants"
        ),
        pytest.param(10_000, [claim("a"), claim("b", 1000, weight=1)], [0, 10_000], id="weight 0 gets nothing else"),
        pytest.param(0, [claim("a", 1000), claim("b", 1000)], [0, 0], id="nothing there"),
    ],
)  # fmt: skip
def test_shares(capacity: int, claims: list[ShareClaim], wanted: list[int]) -> None:
    assert list(shares(capacity, *claims).values()) == wanted


def test_departments_divide_what_they_get() -> None:
    research = ShareClaim(
        owner="research",
        quota_milli=8000,
        demand_milli=12_000,
        weight=8000,
        children=(claim("vision", 2000, 8000, weight=2000), claim("speech", 2000, 4000, weight=2000)),
    )
    result = shares(16_000, research, claim("product", 8000, 16_000, weight=8000))
    assert result == {"research": 8000, "product": 8000, "vision": 4000, "speech": 4000}


def test_a_guarantee_is_the_quota_unless_quotas_exceed_what_is_there() -> None:
    plenty = divide(10_000, [claim("a", 4000, 1000), claim("b", 4000)])
    assert plenty["a"].guarantee_milli == 4000
    scarce = divide(6000, [claim("a", 8000), claim("b", 4000)])
    assert (scarce["a"].guarantee_milli, scarce["b"].guarantee_milli) == (4000, 2000)


def test_where_quotas_exceed_what_is_there_a_project_that_has_none_and_wants_none_is_no_matter() -> None:
    assert shares(1000, claim("a", 4000), claim("b", 0, 0), claim("c", 4000)) == {"a": 500, "b": 0, "c": 500}


def test_past_use_counts_among_the_projects_of_a_department_too() -> None:
    heavy = ShareClaim(owner="heavy", quota_milli=0, demand_milli=16_000, weight=1, used_milli_hours=1000)
    light = ShareClaim(owner="light", quota_milli=0, demand_milli=16_000, weight=1)
    above = ShareClaim(
        owner="r", quota_milli=0, demand_milli=32_000, weight=1, used_milli_hours=1000, children=(heavy, light)
    )
    found = {owner: portion.share_milli for owner, portion in divide(8000, [above], 4000).items()}
    assert found == {"r": 8000, "heavy": 3429, "light": 4571}, "6000 to 8000: 2 W - U"
    assert divide(0, [above], 4000)["heavy"].share_milli == 0
