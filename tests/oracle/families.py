"""Disagreements by family: what happened, and the hardest thing that the simplest legal way needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from .enumeration import Way, feasible
from .rules import Right, is_below_limits_only_after, is_entitled_only_after
from .worlds import WorldSpec


class Kind(StrEnum):
    """The subject of a disagreement between the engine and the oracle."""

    MISSED = "missed"
    """An added job has a legal way to run, and gets no place."""
    WAITS = "waits at rest"
    """The cluster is at rest, and a waiting job has a legal way to run."""
    STAYS_SMALL = "stays small at rest"
    """The cluster is at rest, and an elastic run that lacks workers has a legal way to one more."""
    STARTS_SMALL = "starts small"
    """An elastic job starts with fewer workers than have a place on idle GPUs."""
    DEAR = "dear"
    """Room was made at a higher price than that of the cheapest legal set, counting what follows."""
    ILLEGAL = "illegal"
    """Room was made by a set that the rules forbid."""
    COMING = "paused beside free GPUs"
    """Runs were paused for a job although idle GPUs, or those of a removed job, would have served it."""
    SHARE_FIRST = "within share first"
    """A job above its project's share started on GPUs that a waiting job within its share could use."""
    IN_VAIN = "paused in vain"
    """A run lost GPUs for a job that does not run once the cluster is at rest."""
    TWICE = "stopped twice"
    """A run was stopped twice for one change."""
    UNREST = "no rest"
    """The cluster does not come to rest, or not within three cycles with changes."""
    UNGUARANTEED = "guarantee waits"
    """A job within guarantees at each level waits although preemptible work above quota could make room for it."""
    REPLICAS = "service stopped whole"
    """A service that can do with fewer workers was stopped although enough of them were on existing nodes."""
    OVERCOMMITTED = "overcommitted"
    """A device carries more than one device's worth."""
    SHARES = "shares"
    """The engine's fair shares are not those of DESIGN 4.2."""


class Need(StrEnum):
    """What a way needs, from the simplest. A way's need is the last of these that applies."""

    IDLE = "idle GPUs"
    ONE = "one run"
    SEVERAL = "several runs"
    GANG = "a gang as beneficiary"
    GANG_VICTIM = "a gang as victim"
    SURPLUS = "surplus workers"
    FEWER = "fewer workers of the job"
    FAIR_WITHIN = "fairness for a project within its guarantee"
    STRADDLE = "a straddled guarantee"
    LIMIT = "a ceiling judged after victims left"
    AFTER = "entitlement judged after victims left"
    MIXED = "mixed rights"
    MOVE = "moves"
    MOVE_AND_PAUSE = "moves and pauses"


_ORDER = tuple(Need)


@dataclass(frozen=True, slots=True)
class Disagreement:
    """One disagreement in one world. `job`: the judged job; `tells`: the evidence."""

    kind: Kind
    need: str
    spec: WorldSpec
    job: str
    tells: str

    @property
    def family(self) -> str:
        """The row of the table that it belongs to."""
        kind = "waits" if self.kind in (Kind.MISSED, Kind.WAITS, Kind.UNGUARANTEED) else str(self.kind)
        return f"{kind}: {self.need}" if self.need else kind


def need_of(way: Way) -> Need:
    """The hardest thing that a way needs."""
    return max(_needs(way), key=_ORDER.index)


def _needs(way: Way) -> set[Need]:
    if way.is_idle:
        return {Need.FEWER if way.workers < way.claim.job.workers else Need.IDLE}
    own = way.claim.chain[0]
    is_within = way.claim.left(own) + way.claim.milli <= way.claim.guarantee(own)
    tests = {
        Need.ONE: True,
        Need.SEVERAL: len(way.losses) > 1,
        Need.GANG: way.workers > 1,
        Need.GANG_VICTIM: any(loss.workers > 1 and not loss.is_surplus for loss in way.losses),
        Need.SURPLUS: any(loss.is_surplus for loss in way.losses),
        Need.FEWER: way.workers < way.claim.job.workers,
        Need.FAIR_WITHIN: is_within and Right.FAIRNESS in way.rights,
        Need.STRADDLE: Right.STRADDLE in way.rights,
        Need.LIMIT: is_below_limits_only_after(way.claim),
        Need.AFTER: is_entitled_only_after(way.claim),
        Need.MIXED: len({_whole(right) for right in way.rights}) > 1,
        Need.MOVE: bool(way.moved),
        Need.MOVE_AND_PAUSE: bool(way.moved and way.losses),
    }
    return {need for need, applies in tests.items() if applies}


def _whole(right: Right) -> Right:
    """A straddled guarantee is taken by the right of a guarantee."""
    return Right.GUARANTEE if right is Right.STRADDLE else right


def simplest(found: Sequence[Way]) -> Way | None:
    """The way with places that needs the least; of these, the cheapest."""
    return next(feasible(sorted(found, key=lambda way: (_ORDER.index(need_of(way)), way.price))), None)
