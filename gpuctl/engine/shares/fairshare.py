"""Divides a domain's GPUs: guaranteed quota first, then the rest by priority band and weight.

Example: of 8 GPUs, A and B with a quota of 2 each ask for 8. Both are guaranteed 2; the other 4 go by weight, so with
weights 3 and 1 the shares are 5 and 3. Arithmetic only: no jobs, no nodes. Invariant: shares never exceed capacity,
demand or limit, and equal the exact rational solution to within one milli-GPU.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from operator import attrgetter, itemgetter, sub
from typing import NamedTuple, TypeAlias

from gpuctl.engine.shares.usage import tempered
from gpuctl.model.units import WHOLE_GPU, GpuMilli


class ShareClaim(NamedTuple):
    """What one owner (a project, or a department over its `children`) brings to the division of a domain.

    `in_parts`: one of its jobs asks for a part of a GPU.
    """

    owner: str
    quota_milli: GpuMilli
    demand_milli: GpuMilli
    limit_milli: GpuMilli | None = None
    weight: int = 0
    priority: int = 0
    used_milli_hours: int = 0
    in_parts: bool = False
    children: tuple[ShareClaim, ...] = ()

    @property
    def wanted_milli(self) -> GpuMilli:
        """Demand up to the limit."""
        demand, limit = self.demand_milli, self.limit_milli
        if limit is not None and limit < demand:
            demand = limit
        return max(0, demand)


class Portion(NamedTuple):
    """An owner's part. `guarantee_milli` is its quota, scaled down where quotas exceed the capacity."""

    guarantee_milli: GpuMilli
    share_milli: GpuMilli


NOTHING = Portion(guarantee_milli=0, share_milli=0)


Taker: TypeAlias = tuple[int, int, int]
"""One taker in a division by weight: its position, its weight and its cap, both above 0. It takes in proportion to the
weight until it has reached the cap."""


def water_fill(amount: int, takers: Sequence[Taker]) -> list[tuple[int, int]]:
    """Divide an amount among takers by weight, none above its cap, until all is given or all caps are reached.

    Units left over by rounding go to the largest remainders, ties by position. Returns (position, amount) pairs.
    Cost: O(n log n), and O(n) if there is enough for all.
    """
    rest = max(0, amount)
    if sum(map(itemgetter(2), takers)) <= rest:
        return [(taker, cap) for taker, _, cap in takers]
    weights = sum(map(itemgetter(1), takers))
    # A taker is at its cap at level cap / weight. With this many binary places different levels stay different.
    places = 2 * weights.bit_length()
    by_level = sorted([((cap << places) // weight, taker, weight, cap) for taker, weight, cap in takers])
    given: list[tuple[int, int]] = []
    for full, (_, taker, weight, cap) in enumerate(by_level):
        if cap * weights > rest * weight:
            return given + _in_proportion(rest, weights, [(taker, weight) for _, taker, weight, _ in by_level[full:]])
        given.append((taker, cap))
        rest -= cap
        weights -= weight
    return given


def _in_proportion(rest: int, weights: int, takers: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Divide whole units by weight, then give one unit each to the largest remainders."""
    given = {taker: rest * weight // weights for taker, weight in takers}
    left = rest - sum(given.values())
    for _, taker in sorted([(-(rest * weight % weights), taker) for taker, weight in takers])[:left]:
        given[taker] += 1
    return list(given.items())


def _spare(amount: int, claims: Sequence[ShareClaim], wanted: Sequence[int], held: list[int], full: int) -> None:
    """Add spare GPUs to `held`, band by band from the highest priority, owners of weight 0 last.

    A band takes all it can, remainders included, before a lower band gets any. Owners of weight 0 all count the same.
    """
    rest = amount
    bands: defaultdict[tuple[bool, int], list[Taker]] = defaultdict(list)
    for taker, (claim, cap) in enumerate(zip(claims, map(sub, wanted, held), strict=True)):
        if cap > 0:
            last = claim.weight <= 0
            bands[last, -claim.priority].append((taker, 1 if last else claim.weight, cap))
    for band in sorted(bands):
        if rest <= 0:
            break
        for taker, milli in water_fill(rest, _by_use(bands[band], claims, full) if full else bands[band]):
            held[taker] += milli
            rest -= milli


def _by_use(band: list[Taker], claims: Sequence[ShareClaim], full: int) -> list[Taker]:
    """The takers with their weights lowered by past use."""
    used = [claims[taker].used_milli_hours for taker, _, _ in band]
    weights = tempered([weight for _, weight, _ in band], used, full)
    return [(taker, weight, cap) for (taker, _, cap), weight in zip(band, weights, strict=True)]


def divide(capacity_milli: GpuMilli, claims: Iterable[ShareClaim], full: int = 0) -> dict[str, Portion]:
    """Divide a capacity among siblings and, top-down, each one's share among its children.

    `full`: the most use that was possible, by which past use is measured; 0: past use does not count. Ties go by owner.
    Cost: O(n log n) for each level.
    """
    capacity = max(0, capacity_milli)
    siblings = sorted(claims, key=attrgetter("owner"))
    wanted = [claim.wanted_milli for claim in siblings]
    guarantees = list(map(max, repeat(0), map(attrgetter("quota_milli"), siblings)))
    held = list(map(min, guarantees, wanted))
    if sum(held) > capacity:
        takers = [(taker, guarantees[taker], cap) for taker, cap in enumerate(held) if cap > 0]
        held = [0] * len(siblings)
        for taker, milli in water_fill(capacity, takers):
            held[taker] = milli
        guarantees = list(held)
    _spare(capacity - sum(held), siblings, wanted, held, full)
    owners = [claim.owner for claim in siblings]
    portions = dict(zip(owners, map(Portion, guarantees, held), strict=True))
    for claim, share in zip(siblings, held, strict=True):
        if claim.children:
            below = full * share // capacity if capacity else 0
            portions.update(divide(share, claim.children, below))
    return portions


def in_whole_gpus(
    capacity_milli: GpuMilli,
    claims: Iterable[ShareClaim],
    portions: Mapping[str, Portion],
    held: Callable[[str], GpuMilli],
    *,
    counts_use: bool,
) -> dict[str, Portion]:
    """What owners are entitled to: their portions, in whole GPUs where all their jobs ask for whole ones.

    Rounded by largest remainder among siblings, top-down. The rules, with an example: docs/concepts.md, "Whole GPUs".
    Where past use counts, shares move with it until each project has had its part, so they are not rounded: a GPU would
    change hands whenever two remainders cross.
    Invariant: a share is at least the wanted part of the guarantee, GPUs are added only where they are wanted, and all
    of them together are no more than the capacity.
    """
    siblings = list(claims)
    whole = [claim for claim in siblings if not claim.in_parts]
    left = capacity_milli - sum(portions[claim.owner].share_milli for claim in siblings if claim.in_parts)
    most = {claim.owner: claim.wanted_milli for claim in whole}
    if not counts_use:
        most = _largest_remainders({owner: portions[owner].share_milli for owner in most}, left, most, held)
    firm = {owner: min(portions[owner]) for owner in most}
    guarantees = _largest_remainders(firm, sum(firm.values()), most, held)
    entitled: dict[str, Portion] = {}
    for claim in siblings:
        owner, (guarantee, share) = claim.owner, portions[claim.owner]
        if not claim.in_parts:
            guarantee = guarantee if guarantee > share else guarantees[owner]
            share = max(share, guarantees[owner]) if counts_use else most[owner]
        entitled[owner] = Portion(guarantee, share)
        if claim.children:
            entitled.update(in_whole_gpus(share, claim.children, portions, held, counts_use=counts_use))
    return entitled


def _largest_remainders(
    parts: Mapping[str, GpuMilli], amount: GpuMilli, most: Mapping[str, GpuMilli], held: Callable[[str], GpuMilli]
) -> dict[str, GpuMilli]:
    """The parts in whole GPUs: rounded down, and one GPU more for the largest remainders, as far as `amount` goes.

    If less than one GPU remains, the parts stay exact: rounding them down would gain nothing for another of these
    owners. Remainders count as equal if they differ by no more than the rounding of the division, 1 milli-GPU.
    """
    given = {owner: milli - milli % WHOLE_GPU for owner, milli in parts.items()}
    rest = {o: parts[o] - milli for o, milli in given.items() if parts[o] > milli and milli + WHOLE_GPU <= most[o]}
    units = max(0, amount - sum(given.values())) // WHOLE_GPU
    if not units and sum(parts.values()) <= amount:
        return dict(parts)
    ranked = sorted(rest, key=lambda owner: (-rest[owner], owner))
    if 0 < units < len(ranked):
        last = rest[ranked[units - 1]]

        def order(owner: str) -> int:
            if abs(rest[owner] - last) > 1:
                return 0 if rest[owner] > last else 3
            return 1 if held(owner) >= given[owner] + WHOLE_GPU else 2

        ranked.sort(key=order)
    for owner in ranked[:units]:
        given[owner] += WHOLE_GPU
    return given
