"""What the engine takes owners to be entitled to, against the oracle's own division, in random worlds.

The shares of a schedule are exact, and shown so. What decisions go by is the entitlement to whole GPUs, which no report
shows: an error there, or a reader of the exact share in its place, would be seen only where it changes a decision.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpuctl.engine
from gpuctl.engine import EngineCache, schedule
from gpuctl.engine.shares.fairshare import ShareClaim, divide, in_whole_gpus
from gpuctl.model.ids import JobId

from .cluster import start
from .report import seeds
from .shares import Owner, Portion, entitle
from .view import View
from .worlds import declared, draw

WORLDS = 300
UNEVEN = 15
"""At least so many of them entitle an owner to something else than its exact share."""

ENGINE = Path(gpuctl.engine.__file__).parent
EXACT = {
    "shares/accounts.py": "where the exact share is kept, and by how much a project is above it",
    "admit/outcome.py": "the trace, which is shown",
    "admit/attempts.py": "which project has the lowest part of its share allocated",
    "jobs/under_scaled.py": "which elastic run of several regains workers first",
    "snapshot.py": "the order of victims",
    "jobs/division.py": "the rows of a report",
}
"""The modules that read exact shares, and what for. All others go by `Accounts.entitled`."""


def compared(seed: int) -> tuple[int, int]:
    """How many owners of a world at rest are entitled to what the oracle says, and how many to another amount than
    their exact share. Fails where the two differ."""
    spec = draw(seed)
    tree, cluster = declared(spec), start(spec)
    cluster.add_waiting(JobId.parse(spec.wanted))
    if cluster.settle(tree) is None:
        return 0, 0
    cache, state = EngineCache(), cluster.state()
    schedule(tree, state, cluster.now_ms, cache)
    accounts = cache.over(tree, state, cluster.now_ms).snapshot.accounts
    view = View(tree, state, cluster.now_ms)
    for (domain, owner), portion in view.entitled.items():
        assert tuple(accounts.entitled(domain, owner)) == tuple(portion), (seed, domain, owner)
        assert tuple(accounts.portion(domain, owner)) == tuple(view.portions[domain, owner]), (seed, domain, owner)
    return len(view.entitled), sum(portion != view.portions[key] for key, portion in view.entitled.items())


@pytest.mark.parametrize("first", range(0, WORLDS, WORLDS // 3))
def test_the_engine_entitles_as_the_oracle_does(first: int) -> None:
    found = [compared(seed) for seed in seeds(first, WORLDS // 3)]
    assert sum(count for count, _ in found) > WORLDS // 3
    assert sum(uneven for _, uneven in found) >= UNEVEN // 3, "too few worlds in which the two differ"


@st.composite
def siblings(draw: st.DrawFn, depth: int = 2, prefix: str = "o") -> list[ShareClaim]:
    """Owners with quotas, demands and weights, some of them with owners below; a few ask for parts of GPUs."""
    found = []
    for index in range(draw(st.integers(1, 4))):
        owner = f"{prefix}{index}"
        below = draw(siblings(depth - 1, f"{owner}.")) if depth > 1 and draw(st.booleans()) else []
        in_parts = any(each.in_parts for each in below) if below else draw(st.integers(0, 4)) == 0
        step = 500 if in_parts else 1000
        found.append(
            ShareClaim(
                owner=owner,
                quota_milli=draw(st.integers(0, 6)) * 1000,
                demand_milli=sum(e.wanted_milli for e in below) if below else draw(st.integers(0, 12)) * step,
                weight=draw(st.integers(0, 3)),
                priority=draw(st.integers(0, 1)),
                in_parts=in_parts,
                children=tuple(below),
            )
        )
    return found


def owner_of(claim: ShareClaim) -> Owner:
    """The same owner in the oracle's words."""
    below = tuple(map(owner_of, claim.children))
    return Owner(
        claim.owner, claim.quota_milli, claim.weight, claim.priority, claim.wanted_milli, claim.in_parts, below
    )  # fmt: skip


@given(gpus=st.integers(0, 16), owners=siblings(), data=st.data())
@settings(max_examples=300)
def test_any_division_entitles_as_the_oracle_does(gpus: int, owners: list[ShareClaim], data: st.DataObject) -> None:
    portions = divide(gpus * 1000, owners)
    holds = {owner: data.draw(st.integers(0, 6)) * 1000 for owner in sorted(portions)}
    found = in_whole_gpus(gpus * 1000, owners, portions, holds.__getitem__, counts_use=False)
    exact = {owner: Portion(*portion) for owner, portion in portions.items()}
    told = entitle(gpus * 1000, list(map(owner_of, owners)), exact, holds)
    assert {owner: tuple(portion) for owner, portion in found.items()} == {o: tuple(p) for o, p in told.items()}


def test_only_these_modules_of_the_engine_read_exact_shares() -> None:
    reads = re.compile(r"\.portion\(|accounts\.over_share\(")
    found = {str(path.relative_to(ENGINE)) for path in ENGINE.rglob("*.py") if reads.search(path.read_text())}
    assert found <= EXACT.keys(), "read `Accounts.entitled`, or say here what the exact share is for"
