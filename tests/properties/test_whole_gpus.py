"""Entitlement to whole GPUs: what it comes to for every division, and that no two projects take back and forth."""

from __future__ import annotations

from draws import among
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import claims
from worlds import World, declared, job, live_nodes, pool, project

from gpuctl.engine.shares.fairshare import Portion, ShareClaim, divide, in_whole_gpus
from gpuctl.model.declared import Declared, SchedulingPolicy
from gpuctl.model.units import WHOLE_GPU

ENOUGH_CYCLES = 9
"""See `test_liveness`."""


def entitled(
    capacity: int, siblings: list[ShareClaim], held: dict[str, int] | None = None, *, counts_use: bool = False
) -> dict[str, Portion]:
    """What each of some siblings, and of those below them, is entitled to."""
    portions = divide(capacity, siblings)
    return in_whole_gpus(capacity, siblings, portions, lambda o: (held or {}).get(o, 0), counts_use=counts_use)


def two(**weights: int) -> list[ShareClaim]:
    """Claims of owners without quota that want all of 8 GPUs."""
    return [ShareClaim(owner=name, quota_milli=0, demand_milli=8000, weight=weight) for name, weight in weights.items()]


def test_the_largest_remainder_has_the_gpu_that_is_left() -> None:
    assert {o: p.share_milli for o, p in entitled(8000, two(a=1, b=2)).items()} == {"a": 3000, "b": 5000}


def test_of_equal_remainders_that_counts_whose_owner_holds_the_gpu() -> None:
    for held, shares in (({}, [3000, 3000, 2000]), ({"c": 3000, "b": 3000}, [2000, 3000, 3000])):
        found = entitled(8000, two(a=1, b=1, c=1), held)
        assert [found[owner].share_milli for owner in "abc"] == shares


@given(capacity=st.integers(0, 40).map(lambda gpus: gpus * 1000), siblings=claims(), counts_use=st.booleans())
@settings(max_examples=300)
def test_entitlement_is_near_the_share_and_no_more_than_there_is(
    capacity: int, siblings: list[ShareClaim], *, counts_use: bool
) -> None:
    portions, found = divide(capacity, siblings), entitled(capacity, siblings, counts_use=counts_use)

    def check(above: int, below: tuple[ShareClaim, ...]) -> None:
        for claim in below:
            (guarantee, share), exact = found[claim.owner], portions[claim.owner]
            assert share >= min(guarantee, claim.wanted_milli) // WHOLE_GPU * WHOLE_GPU
            assert abs(share - exact.share_milli) < WHOLE_GPU
            assert share <= max(claim.wanted_milli, exact.share_milli)
            check(share, claim.children)
        if not counts_use:
            assert sum(found[claim.owner].share_milli for claim in below) <= above

    check(capacity, tuple(siblings))


@st.composite
def contests(draw: st.DrawFn) -> tuple[Declared, Declared]:
    """Projects of all weights and quotas, first the jobs of some, then of all; clusters in which shares are uneven."""
    pools = [pool(nodes=draw(among((5,), (7,), (3, 4), (1, 2, 4))))]
    names = draw(among(("a", "b"), ("a", "b", "c"), ("a", "b", "c", "d")))
    projects = [project(name, 1000 * draw(among(0, 0, 1, 2, 5)), weight=draw(st.integers(0, 5))) for name in names]
    jobs = [
        job(
            f"{draw(among(*names))}/j{index}", draw(among(500, 700, 1000, 1000, 1000, 2000)),
            workers=draw(among(1, 1, 1, 2, 3)), priority=draw(among(0, 0, 0, 1)),
        )
        for index in range(draw(st.integers(3, 10)))
    ]  # fmt: skip
    policy = SchedulingPolicy(consolidation=draw(st.booleans()))
    first = draw(st.integers(0, len(jobs)))
    return tuple(declared(projects, some, pools, policy=policy) for some in (jobs[:first], jobs))  # type: ignore[return-value]


@given(contests())
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_no_two_projects_take_back_and_forth(contest: tuple[Declared, Declared]) -> None:
    world = World(nodes=live_nodes(contest[0].cluster.pools))
    for tree in contest:
        before = len(world.paused)
        for _ in range(ENOUGH_CYCLES):
            runs = dict(world.runs), set(world.seen)
            world.cycle(tree)
            if (world.runs, world.seen) == runs:
                break
        else:
            raise AssertionError("still changing")
        victims = [job for job, beneficiary in world.paused[before:] if beneficiary is not None]
        assert len(victims) == len(set(victims))
