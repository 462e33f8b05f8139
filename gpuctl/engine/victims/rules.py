"""Who may be paused for a beneficiary, as far as the search for victims asks: the rules themselves are elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from gpuctl.engine.jobs.runs import Allocation
from gpuctl.engine.snapshot import Snapshot
from gpuctl.model.decision import Reason
from gpuctl.model.ids import ProjectName
from gpuctl.model.units import GpuMilli

ENDLESS: GpuMilli = 1 << 62
"""More than there is anywhere."""

VictimTotals: TypeAlias = Mapping[str, tuple[GpuMilli, GpuMilli]]
"""For each owner, a project or a department: GPUs of its victims together, and of the largest of them."""


class Rule(Protocol):
    """Who may be paused for a beneficiary. Rules with equal keys let the same runs be paused.

    `may_wait`: the beneficiary may also reserve what is coming free without anybody being paused for it.
    """

    @property
    def key(self) -> tuple[object, ...] | None:
        """What the rule depends on besides the snapshot; None: nothing is remembered of what it was asked."""
        ...

    @property
    def may_wait(self) -> bool:
        """See above."""
        ...

    def candidates(self) -> Sequence[Allocation]:
        """Runs that may be paused, each were it the only one, in order of preference."""
        ...

    def price(self, tally: VictimTotals) -> int | None:
        """0 for victims that may be taken, 1 for some taken as the last choice only, None for some that may not."""
        ...

    def most_milli(self, project: ProjectName) -> GpuMilli:
        """The most that a project may lose at once: no set of its runs that holds more may be taken."""
        ...

    def paused(self, victim: Allocation) -> Reason:
        """The reason a victim is given."""
        ...


@dataclass(frozen=True, slots=True)
class Among:
    """A rule for some of its runs only."""

    rule: Rule
    allocations: tuple[Allocation, ...]

    @property
    def key(self) -> None:
        """Which runs these are is not known from one time to the next."""
        return None

    @property
    def may_wait(self) -> bool:
        """As the rule."""
        return self.rule.may_wait

    def candidates(self) -> Sequence[Allocation]:
        """Those runs."""
        return self.allocations

    def price(self, tally: VictimTotals) -> int | None:
        """As the rule."""
        return self.rule.price(tally)

    def most_milli(self, project: ProjectName) -> GpuMilli:
        """As the rule."""
        return self.rule.most_milli(project)

    def paused(self, victim: Allocation) -> Reason:
        """As the rule."""
        return self.rule.paused(victim)


def tally_with(tally: VictimTotals, allocation: Allocation, snapshot: Snapshot) -> VictimTotals:
    """The tally with one victim more."""
    return tally_with_all(tally, (allocation,), snapshot)


def tally_with_all(tally: VictimTotals, allocations: Iterable[Allocation], snapshot: Snapshot) -> VictimTotals:
    """The tally with some victims more."""
    sizes: dict[ProjectName, list[GpuMilli]] = {}
    for allocation in allocations:
        sizes.setdefault(allocation.run.job.project, []).append(allocation.total_milli)
    after = dict(tally)
    for project, milli in sizes.items():
        for owner in snapshot.accounts.tree.chain(project):
            total, largest = after.get(owner, (0, 0))
            after[owner] = (total + sum(milli), max(largest, *milli))
    return after
