"""Taking back between projects: under the quota guarantee, and towards fair shares.

Owners are compared below the department they have in common: what moves inside a department is nobody else's business.
Neither rule can undo the other's work, so nothing is taken back and forth: a beneficiary ends within its guarantee, or
within its share while the loser keeps its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from enum import StrEnum

from gpuctl.engine import reasons
from gpuctl.engine.capacity.gang import PoolOption
from gpuctl.engine.jobs.runs import Allocation
from gpuctl.engine.shares.accounts import project_owner
from gpuctl.engine.snapshot import Snapshot
from gpuctl.engine.victims.rules import ENDLESS, VictimTotals
from gpuctl.model.decision import Reason
from gpuctl.model.declared import DomainName
from gpuctl.model.ids import JobId, ProjectName
from gpuctl.model.units import GpuMilli


class ReclaimStrategy(StrEnum):
    """By what right GPUs are taken back."""

    GUARANTEE = "guarantee"
    FAIRNESS = "fairness"


class Reclaim:
    """The rule for one beneficiary of so many GPUs in a domain."""

    __slots__ = ("_said", "chain", "claim", "domain", "job", "milli", "snapshot")

    def __init__(
        self, snapshot: Snapshot, job: JobId, domain: DomainName, milli: GpuMilli, claim: ReclaimStrategy
    ) -> None:
        self.snapshot = snapshot
        self.job = job
        self.domain = domain
        self.milli = milli
        self.claim = claim
        self.chain = snapshot.accounts.tree.chain(job.project)
        self._said: Reason | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """The departments above, and which of the chain may gain: all who are entitled may take the same of others.

        A project that is entitled holds no more than it keeps, so it has nothing that others could take.
        """
        return self.claim.value, self.domain, self.chain[1:], *map(self._stays_within, self.chain)

    @property
    def may_wait(self) -> bool:
        """It has a claim, so what comes free is held for it."""
        return True

    def entitled(self) -> bool:
        """With the job its project stays within the guarantee or share it claims."""
        return bool(self.chain) and self._stays_within(self.chain[0])

    def candidates(self) -> tuple[Allocation, ...]:
        """Pausable work of other projects, whose owners can lose it, as far as ours may gain from them."""
        return self.snapshot.candidates(self.key, self._candidates)

    def may_take(self, allocation: Allocation) -> bool:
        """Whether it could be paused for the beneficiary, were it the only one."""
        return any(True for _ in self._of(allocation.project, [allocation]))

    def _candidates(self) -> Iterator[Iterable[Allocation]]:
        pausable = self.snapshot.pausable(self.domain)
        return (self._of(project, pausable[project]) for project in overdrawn(self.snapshot, self.domain, self.claim))

    def _of(self, project: ProjectName, allocations: list[Allocation]) -> Iterable[Allocation]:
        """What one project can lose to ours."""
        theirs = self.snapshot.accounts.tree.chain(project)
        losers = [owner for owner in theirs if owner not in self.chain]
        gainers = [owner for owner in self.chain if owner not in theirs]
        if project == self.job.project or not all(map(self._stays_within, gainers)):
            return ()
        most = min(map(self._slack, losers), default=0)
        if most <= 0:
            return ()
        # By the guarantee the last one may straddle the line; shares are kept.
        return (
            allocation
            for allocation in allocations
            if allocation.total_milli > 0
            and (allocation.total_milli <= most or self.claim is ReclaimStrategy.GUARANTEE)
            and allocation.run.job not in self.snapshot.spared
        )

    def price(self, tally: VictimTotals) -> int | None:
        """1 when an owner falls below its guarantee by the last of its victims, which must be the only way."""
        worst = 0
        for owner, (total, largest) in tally.items():
            if owner not in self.chain:
                price = self._price_for(owner, total, largest)
                if price is None:
                    return None
                worst = max(worst, price)
        return worst

    def most_milli(self, project: ProjectName) -> GpuMilli:
        """What it holds above its share; by the guarantee a last one may straddle the line, however large."""
        if self.claim is ReclaimStrategy.GUARANTEE:
            return ENDLESS
        losers = (owner for owner in self.snapshot.accounts.tree.chain(project) if owner not in self.chain)
        return max(0, min(map(self._slack, losers), default=0))

    def paused(self, victim: Allocation) -> Reason:  # noqa: ARG002 - the rule's shape
        """The reason a victim is given: the same for all."""
        if self._said is None:
            by_guarantee = self.claim is ReclaimStrategy.GUARANTEE
            self._said = (reasons.paused_by_guarantee if by_guarantee else reasons.paused_by_fairness)(self.job)
        return self._said

    def _stays_within(self, owner: str) -> bool:
        return self._slack(owner) + self.milli <= 0

    def _slack(self, owner: str) -> GpuMilli:
        """By how much an owner holds more than it keeps."""
        return slack(self.snapshot, self.domain, self.claim, owner)

    def _floor(self, owner: str) -> GpuMilli:
        return _floor(self.snapshot, self.domain, self.claim, owner)

    def _price_for(self, owner: str, total: GpuMilli, largest: GpuMilli) -> int | None:
        """What it means to an owner to lose these: nothing, its last job above the guarantee, or more than may be."""
        left = self.snapshot.accounts.held(self.domain, owner) - total
        floor = self._floor(owner)
        if left >= floor:
            return 0
        straddles = self.claim is ReclaimStrategy.GUARANTEE and left + largest > floor
        return 1 if straddles else None


def claims_of(snapshot: Snapshot, job: JobId, option: PoolOption) -> Iterator[Reclaim]:
    """What a job's project may claim of others for an option, the strongest first."""
    domain = snapshot.capacity.domain_of[option.pool.name]
    for claim in ReclaimStrategy:
        rule = Reclaim(snapshot, job, domain, option.request.total_milli, claim)
        if rule.entitled():
            yield rule


def overdrawn(snapshot: Snapshot, domain: DomainName, claim: ReclaimStrategy) -> Collection[ProjectName]:
    """The projects that can lose something to anybody, as far as they themselves are concerned."""

    def is_one(project: ProjectName) -> bool:
        most = slack(snapshot, domain, claim, project_owner(project))
        if most <= 0 or not snapshot.pausable(domain).get(project):
            return False
        return claim is ReclaimStrategy.GUARANTEE or snapshot.smallest(domain, project) <= most

    return snapshot.projects((claim, domain), is_one)


def slack(snapshot: Snapshot, domain: DomainName, claim: ReclaimStrategy, owner: str) -> GpuMilli:
    """By how much an owner holds more than it keeps by a claim; below zero what it may gain by it."""
    return snapshot.accounts.held(domain, owner) - _floor(snapshot, domain, claim, owner)


def _floor(snapshot: Snapshot, domain: DomainName, claim: ReclaimStrategy, owner: str) -> GpuMilli:
    """What a loser keeps, and what a beneficiary may reach."""
    portion = snapshot.accounts.portion(domain, owner)
    return portion.guarantee_milli if claim is ReclaimStrategy.GUARANTEE else portion.share_milli
