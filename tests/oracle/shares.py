"""Guarantee and fair share of every owner, by DESIGN 4.2, in fractions; milli-GPU by largest remainder at each step.

`entitle` gives the whole GPUs that they entitle to (DESIGN 4.4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

WHOLE = 1000


class Portion(NamedTuple):
    """An owner's guarantee and fair share in a domain, in milli-GPU."""

    guarantee: int
    share: int


@dataclass(frozen=True, slots=True)
class Owner:
    """A project, or a department with the owners `below` it. `wants`: its demand up to its limit.

    `in_parts`: a job of it asks for a part of a GPU.
    """

    name: str
    quota: int
    weight: int
    priority: int
    wants: int
    in_parts: bool = False
    below: tuple[Owner, ...] = ()


def divide(capacity: int, owners: Sequence[Owner]) -> dict[str, Portion]:
    """DESIGN 4.2: min(quota, demand) first, by quota where that exceeds the capacity; then the spare, band by band."""
    ordered = sorted(owners, key=lambda owner: owner.name)
    first = {owner.name: min(owner.quota, owner.wants) for owner in ordered}
    guarantees = {owner.name: owner.quota for owner in ordered}
    if sum(first.values()) > capacity:
        first = fill(capacity, [(owner.name, owner.quota, first[owner.name]) for owner in ordered])
        guarantees = dict(first)
    shares = dict(first)
    rest = capacity - sum(shares.values())
    # Weight 0 gets only what no other owner wants, so it comes after every band.
    for band in sorted({(owner.weight <= 0, -owner.priority) for owner in ordered}):
        takers = [owner for owner in ordered if (owner.weight <= 0, -owner.priority) == band]
        asks = [(o.name, o.weight if o.weight > 0 else 1, o.wants - shares[o.name]) for o in takers]
        for name, milli in fill(rest, asks).items():
            shares[name] += milli
            rest -= milli
    portions = {owner.name: Portion(guarantees[owner.name], shares[owner.name]) for owner in ordered}
    for owner in ordered:
        if owner.below:
            portions |= divide(shares[owner.name], owner.below)
    return portions


def fill(amount: int, asks: Sequence[tuple[str, int, int]]) -> dict[str, int]:
    """Water-filling: each (name, weight, cap) takes in proportion to its weight, up to its cap. Ties go by name."""
    taken = {name: 0 for name, _, _ in asks}
    left = [(name, weight, cap) for name, weight, cap in asks if weight > 0 and cap > 0]
    rest = amount
    while left:
        weights = sum(weight for _, weight, _ in left)
        full = [(name, weight, cap) for name, weight, cap in left if Fraction(rest * weight, weights) >= cap]
        if not full:
            exact = {name: Fraction(rest * weight, weights) for name, weight, _ in left}
            return taken | largest_remainder(exact, rest, 1)
        for name, _, cap in full:
            taken[name] = cap
            rest -= cap
        left = [ask for ask in left if ask not in full]
    return taken


def largest_remainder(exact: Mapping[str, Fraction], amount: int, unit: int) -> dict[str, int]:
    """Round each part down to whole units; the remaining units go one each to the largest remainders, ties by name."""
    whole = {name: int(part // unit) * unit for name, part in exact.items()}
    left = (amount - sum(whole.values())) // unit
    for name in sorted(exact, key=lambda name: (whole[name] - exact[name], name))[: max(0, left)]:
        whole[name] += unit
    return whole


def entitle(
    amount: int, owners: Sequence[Owner], portions: Mapping[str, Portion], holds: Mapping[str, int]
) -> dict[str, Portion]:
    """DESIGN 4.4: entitlement to whole GPUs, by largest remainder among siblings. An owner `in_parts` keeps its exact
    portion, and a guarantee above its demand stays as it is.
    """
    whole = [owner for owner in owners if not owner.in_parts]
    rest = amount - sum(portions[owner.name].share for owner in owners if owner.in_parts)
    shares = round_off({o.name: portions[o.name].share for o in whole}, rest, {o.name: o.wants for o in whole}, holds)
    firm = {o.name: min(portions[o.name]) for o in whole}
    guarantees = round_off(firm, sum(firm.values()), shares, holds)
    found = {owner.name: portions[owner.name] for owner in owners}
    for owner in whole:
        guarantee, share = portions[owner.name]
        kept = guarantee if guarantee > share else guarantees[owner.name]
        found[owner.name] = Portion(kept, shares[owner.name])
    for owner in owners:
        found |= entitle(found[owner.name].share, owner.below, portions, holds)
    return found


def round_off(
    parts: Mapping[str, int], amount: int, most: Mapping[str, int], holds: Mapping[str, int]
) -> dict[str, int]:
    """Whole GPUs: the remaining ones go to the largest remainders that want one; of equal ones, to one that holds it.

    If less than one remains, the parts stay exact.
    """
    whole = {name: milli // WHOLE * WHOLE for name, milli in parts.items()}
    able = [n for n, milli in parts.items() if milli > whole[n] and whole[n] + WHOLE <= most[n]]
    left = (amount - sum(whole.values())) // WHOLE
    if left <= 0 and sum(parts.values()) <= amount:
        return dict(parts)
    by_size = sorted((parts[n] - whole[n] for n in able), reverse=True)
    cut = by_size[min(left, len(able)) - 1] if left > 0 and able else 0
    sure = [n for n in able if left > 0 and parts[n] - whole[n] > cut + 1]
    even = [n for n in able if left > 0 and abs(parts[n] - whole[n] - cut) <= 1]
    even.sort(key=lambda n: (holds[n] < whole[n] + WHOLE, whole[n] - parts[n], n))
    for name in (sure + even)[: max(0, left)]:
        whole[name] += WHOLE
    return whole
