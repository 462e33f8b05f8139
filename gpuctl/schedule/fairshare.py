"""Who may hold how much of a domain's GPUs: guaranteed quota first, then the spare by priority band and weight.

Arithmetic only: it knows claims and milli-GPU, no jobs and no nodes. Shares never exceed the capacity, the demand or
the limit, and equal the exact rational solution to within one milli-GPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cmp_to_key

from gpuctl.model.units import GpuMilli


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What one owner (a project, or a department over its `children`) may ask of a domain."""

    owner: str
    quota_milli: GpuMilli
    demand_milli: GpuMilli
    limit_milli: GpuMilli | None = None
    weight: int = 0
    priority: int = 0
    children: tuple[Claim, ...] = ()

    @property
    def wanted_milli(self) -> GpuMilli:
        """Demand up to the limit."""
        demand = max(0, self.demand_milli)
        return demand if self.limit_milli is None else min(demand, max(0, self.limit_milli))


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    """An owner's part. `guarantee_milli` is its quota, scaled down only where quotas exceed what there is."""

    guarantee_milli: GpuMilli
    share_milli: GpuMilli


NOTHING = Portion(guarantee_milli=0, share_milli=0)


@dataclass(frozen=True, slots=True)
class Vessel:
    """One taker in a water-filling: it takes in proportion to `weight` until it holds `cap`."""

    owner: str
    weight: int
    cap: int


def _by_level(left: Vessel, right: Vessel) -> int:
    """Order by the level at which a vessel is full, cap / weight, without dividing."""
    difference = left.cap * right.weight - right.cap * left.weight
    if difference:
        return difference
    return -1 if left.owner < right.owner else int(left.owner > right.owner)


def water_fill(amount: int, vessels: Iterable[Vessel]) -> dict[str, int]:
    """Pour an amount over vessels by weight, none above its cap; nothing is left over while one has room.

    What whole units leave over goes by largest remainder, ties by owner. Weight 0 takes nothing.
    Cost: O(n log n).
    """
    filling = sorted((v for v in vessels if v.weight > 0 and v.cap > 0), key=cmp_to_key(_by_level))
    given: dict[str, int] = {}
    rest = max(0, amount)
    weights = sum(v.weight for v in filling)
    full = 0
    for vessel in filling:
        if vessel.cap * weights > rest * vessel.weight:
            break
        given[vessel.owner] = vessel.cap
        rest -= vessel.cap
        weights -= vessel.weight
        full += 1
    open_vessels = filling[full:]
    for vessel in open_vessels:
        given[vessel.owner] = rest * vessel.weight // weights
    left = rest - sum(given[v.owner] for v in open_vessels)
    by_remainder = sorted(open_vessels, key=lambda v: (-(rest * v.weight % weights), v.owner))
    for vessel in by_remainder[:left]:
        given[vessel.owner] += 1
    return given


def _spare(amount: int, claims: Sequence[Claim], held: dict[str, int]) -> None:
    """Pour spare GPUs into `held`, band by band from the highest, weight 0 after everybody else.

    A band takes all it can, remainders included, before a lower one sees any. Among weights of 0 all count alike.
    """
    rest = amount
    bands = sorted({(claim.weight <= 0, -claim.priority) for claim in claims})
    for unweighted, negative_priority in bands:
        band = [c for c in claims if (c.weight <= 0, -c.priority) == (unweighted, negative_priority)]
        poured = water_fill(
            rest, [Vessel(c.owner, 1 if unweighted else c.weight, c.wanted_milli - held[c.owner]) for c in band]
        )
        for owner, milli in poured.items():
            held[owner] += milli
            rest -= milli


def divide(capacity_milli: GpuMilli, claims: Sequence[Claim]) -> dict[str, Portion]:
    """Divide a capacity among siblings and, top-down, each one's share among its children.

    Cost: O(n log n) a level. Source: DESIGN of the fair share, items 1 and 2.
    """
    capacity = max(0, capacity_milli)
    in_quota = {c.owner: min(max(0, c.quota_milli), c.wanted_milli) for c in claims}
    scarce = sum(in_quota.values()) > capacity
    if scarce:
        poured = water_fill(capacity, [Vessel(c.owner, c.quota_milli, in_quota[c.owner]) for c in claims])
        in_quota = {c.owner: poured.get(c.owner, 0) for c in claims}
    held = dict(in_quota)
    _spare(capacity - sum(held.values()), claims, held)
    portions: dict[str, Portion] = {}
    for claim in claims:
        guarantee = in_quota[claim.owner] if scarce else max(0, claim.quota_milli)
        portions[claim.owner] = Portion(guarantee_milli=guarantee, share_milli=held[claim.owner])
        portions.update(divide(held[claim.owner], claim.children))
    return portions
