"""Who may hold how much of a domain's GPUs: guaranteed quota first, then the spare by priority band and weight.

Arithmetic only: it knows claims and milli-GPU, no jobs and no nodes. Shares never exceed the capacity, the demand or
the limit, and equal the exact rational solution to within one milli-GPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gpuctl.model.units import GpuMilli
from gpuctl.schedule.usage import tempered


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What one owner (a project, or a department over its `children`) may ask of a domain."""

    owner: str
    quota_milli: GpuMilli
    demand_milli: GpuMilli
    limit_milli: GpuMilli | None = None
    weight: int = 0
    priority: int = 0
    used_milli_hours: int = 0
    children: tuple[Claim, ...] = ()

    @property
    def wanted_milli(self) -> GpuMilli:
        """Demand up to the limit."""
        demand = max(0, self.demand_milli)
        return demand if self.limit_milli is None else min(demand, max(0, self.limit_milli))


class Portion(NamedTuple):
    """An owner's part. `guarantee_milli` is its quota, scaled down only where quotas exceed what there is."""

    guarantee_milli: GpuMilli
    share_milli: GpuMilli


NOTHING = Portion(guarantee_milli=0, share_milli=0)


class Vessel(NamedTuple):
    """One taker in a water-filling: it takes in proportion to `weight` until it holds `cap`."""

    owner: str
    weight: int
    cap: int


def water_fill(amount: int, vessels: Iterable[Vessel]) -> dict[str, int]:
    """Pour an amount over vessels by weight, none above its cap; nothing is left over while one has room.

    What whole units leave over goes by largest remainder, ties by owner. Weight 0 takes nothing.
    Cost: O(n log n), and O(n) where there is enough for all.
    """
    filling = [vessel for vessel in vessels if vessel[1] > 0 and vessel[2] > 0]
    rest = max(0, amount)
    if sum(cap for _, _, cap in filling) <= rest:
        return {owner: cap for owner, _, cap in filling}
    weights = sum(weight for _, weight, _ in filling)
    # The level at which a vessel is full is cap / weight. With that many binary places no two of them look alike.
    places = 2 * weights.bit_length()
    by_level = sorted([((cap << places) // weight, owner, weight, cap) for owner, weight, cap in filling])
    given: dict[str, int] = {}
    for full, (_, owner, weight, cap) in enumerate(by_level):
        if cap * weights > rest * weight:
            given.update(_in_proportion(rest, weights, [entry[1:3] for entry in by_level[full:]]))
            break
        given[owner] = cap
        rest -= cap
        weights -= weight
    return given


def _in_proportion(rest: int, weights: int, takers: list[tuple[str, int]]) -> dict[str, int]:
    """Whole units by weight, then one unit each to the largest remainders."""
    given = {owner: rest * weight // weights for owner, weight in takers}
    left = rest - sum(given.values())
    for _, owner in sorted([(-(rest * weight % weights), owner) for owner, weight in takers])[:left]:
        given[owner] += 1
    return given


def _spare(amount: int, claims: Sequence[Claim], wanted: Mapping[str, int], held: dict[str, int], full: int) -> None:
    """Pour spare GPUs into `held`, band by band from the highest, weight 0 after everybody else.

    A band takes all it can, remainders included, before a lower one sees any. Among weights of 0 all count alike.
    """
    rest = amount
    bands: dict[tuple[bool, int], list[Vessel]] = {}
    used = {claim.owner: claim.used_milli_hours for claim in claims} if full else {}
    for claim in claims:
        owner = claim.owner
        cap = wanted[owner] - held[owner]
        if cap > 0:
            weight = claim.weight
            bands.setdefault((weight <= 0, -claim.priority), []).append(Vessel(owner, max(weight, 1), cap))
    for band in sorted(bands):
        if rest <= 0:
            break
        poured = water_fill(rest, _by_use(bands[band], used, full) if full else bands[band])
        for owner, milli in poured.items():
            held[owner] += milli
        rest -= sum(poured.values())


def _by_use(band: list[Vessel], used: Mapping[str, int], full: int) -> list[Vessel]:
    """The takers with weights that past use has tempered."""
    weights = tempered([vessel.weight for vessel in band], [used[vessel.owner] for vessel in band], full)
    return [Vessel(vessel.owner, weight, vessel.cap) for vessel, weight in zip(band, weights, strict=True)]


def divide(capacity_milli: GpuMilli, claims: Sequence[Claim], full: int = 0) -> dict[str, Portion]:
    """Divide a capacity among siblings and, top-down, each one's share among its children.

    `full`: the use that past use is measured by, all that there could have been of it; 0: past use does not count.
    Cost: O(n log n) a level. Source: DESIGN of the fair share, items 1 and 2.
    """
    capacity = max(0, capacity_milli)
    wanted = {claim.owner: claim.wanted_milli for claim in claims}
    in_quota = {c.owner: min(max(0, c.quota_milli), wanted[c.owner]) for c in claims}
    scarce = sum(in_quota.values()) > capacity
    if scarce:
        poured = water_fill(capacity, [Vessel(c.owner, c.quota_milli, in_quota[c.owner]) for c in claims])
        in_quota = {claim.owner: poured.get(claim.owner, 0) for claim in claims}
    held = dict(in_quota)
    _spare(capacity - sum(held.values()), claims, wanted, held, full)
    guarantees = in_quota if scarce else {claim.owner: max(0, claim.quota_milli) for claim in claims}
    portions = {owner: Portion(guarantee, held[owner]) for owner, guarantee in guarantees.items()}
    for claim in claims:
        if claim.children:
            below = full * held[claim.owner] // capacity if capacity else 0
            portions.update(divide(held[claim.owner], claim.children, below))
    return portions
