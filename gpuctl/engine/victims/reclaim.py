"""Reclaim between projects: what a job may take from others, and what every owner keeps.

A project is entitled with a job if with the job it stays within its guarantee (strategy GUARANTEE), or within its fair
share (FAIRNESS), both in whole GPUs (`in_whole_gpus`). It takes from projects above theirs, which keep at least that
much. Owners are compared level by level below their nearest common department, as things stand after the victims have
left. GPUs are not taken back and forth: what a project may reach is also what it keeps, and its share is no less than
its guarantee, so each reclaim raises what all projects together hold within theirs. Examples: docs/concepts.md,
"Reclaim by guarantee", "Straddling the quota line", "Reclaim by fairness", "Reclaim across departments".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from gpuctl.engine.jobs.runs import Allocation, gpu_milli_of
from gpuctl.engine.shares.accounts import Accounts, is_project, project_owner
from gpuctl.engine.snapshot import Snapshot
from gpuctl.engine.victims.preempt import preemptible_by
from gpuctl.model.ids import DomainName, ProjectName
from gpuctl.model.job import Job
from gpuctl.model.units import GpuMilli

VictimTotals: TypeAlias = Mapping[str, tuple[GpuMilli, GpuMilli]]
"""For each owner, a project or a department: the GPUs of all its victims, and of the largest of them."""


class Beneficiary(NamedTuple):
    """What a job would hold in addition: GPUs of a domain, for its project and every department above it."""

    project: ProjectName
    domain: DomainName
    milli: GpuMilli


class ReclaimStrategy(StrEnum):
    """The right by which GPUs are taken back, the stronger first."""

    GUARANTEE = "guarantee"
    FAIRNESS = "fairness"


Strategies: TypeAlias = tuple[ReclaimStrategy | None, ...]
"""The strategies by which a job takes from others: first from projects that share its department, then from those that
share the department above, and so on; last from projects that share none. None: from these it takes nothing."""


def floor_milli(accounts: Accounts, domain: DomainName, strategy: ReclaimStrategy, owner: str) -> GpuMilli:
    """What an owner keeps when it loses by a strategy, and what it may reach when it gains by it."""
    entitled = accounts.entitled(domain, owner)
    return entitled.guarantee_milli if strategy is ReclaimStrategy.GUARANTEE else entitled.share_milli


def surplus_milli(accounts: Accounts, domain: DomainName, strategy: ReclaimStrategy, owner: str) -> GpuMilli:
    """How much more an owner's runs in place hold than the owner keeps by a strategy.

    Places gained in this cycle do not count: reservations do not put a project above its quota.
    """
    return accounts.in_use(domain, owner) - floor_milli(accounts, domain, strategy, owner)


def excess_milli(
    accounts: Accounts, strategy: ReclaimStrategy, owner: str, beneficiary: Beneficiary, totals: VictimTotals
) -> GpuMilli:
    """How far an owner of the beneficiary would be above what it may reach, once the victims have left.

    A department's guarantee covers what its projects hold within their own guarantees: a project does not lose its
    guarantee to what its department lends to another project. Cost: O(projects below the owner).
    """
    floor = floor_milli(accounts, beneficiary.domain, strategy, owner)
    if strategy is ReclaimStrategy.FAIRNESS or is_project(owner):
        return accounts.held(beneficiary.domain, owner) - totals.get(owner, (0, 0))[0] + beneficiary.milli - floor
    within = 0
    for name in accounts.tree.below.get(owner, ()):
        below = project_owner(name)
        held = accounts.held(beneficiary.domain, below) - totals.get(below, (0, 0))[0]
        held += beneficiary.milli if name == beneficiary.project else 0
        within += min(held, accounts.entitled(beneficiary.domain, below).guarantee_milli)
    return within - floor


def price_of_loss(
    accounts: Accounts, domain: DomainName, strategy: ReclaimStrategy, owner: str, lost: tuple[GpuMilli, GpuMilli]
) -> int | None:
    """What it means for an owner to lose its victims (`lost`: their GPUs, and those of the largest).

    0: it keeps its floor, or loses runs without GPUs. 1: it falls below its guarantee, but only by the largest victim;
    that is allowed only if there is no other way. None: it may not lose so much.
    """
    total, largest = lost
    left, floor = accounts.in_use(domain, owner) - total, floor_milli(accounts, domain, strategy, owner)
    if left >= floor or not total:
        return 0
    return 1 if strategy is ReclaimStrategy.GUARANTEE and left + largest > floor else None


def over_allocated(snapshot: Snapshot, domain: DomainName, strategy: ReclaimStrategy) -> Collection[ProjectName]:
    """The projects that hold more than they keep by a strategy, and have a pausable run.

    Cost: O(projects with runs), once until the snapshot changes.
    """
    accounts, pausable = snapshot.accounts, snapshot.pausable(domain)

    def find() -> list[ProjectName]:
        with_runs = (project for project, runs in pausable.items() if runs)
        return [each for each in with_runs if surplus_milli(accounts, domain, strategy, project_owner(each)) > 0]

    return snapshot.once(("over-allocated", strategy, domain), find)


def totals_with(totals: VictimTotals, allocations: Collection[Allocation], snapshot: Snapshot) -> VictimTotals:
    """The totals with more victims. An elastic run that stops is one victim; otherwise each surplus part is one."""
    lost: dict[ProjectName, tuple[GpuMilli, GpuMilli]] = {}
    for allocation in allocations:
        milli, (total, largest) = allocation.total_milli, lost.get(allocation.project, (0, 0))
        together = () if allocation.is_extra else allocation.leaves_with
        victim_milli = milli + gpu_milli_of(each for each in together if each in allocations)
        lost[allocation.project] = total + milli, max(largest, victim_milli)
    after = dict(totals)
    for project, (milli, victim_milli) in lost.items():
        for owner in snapshot.accounts.tree.chain(project):
            total, largest = after.get(owner, (0, 0))
            after[owner] = (total + milli, max(largest, victim_milli))
    return after


# The strategies of a job


def combinations_of(snapshot: Snapshot, job: Job, domain: DomainName, milli: GpuMilli) -> tuple[Strategies, ...]:
    """All combinations for a job; first the one for which no own work must leave. () for a project that is not
    declared.

    If the project is entitled only once own work has left, or its department only once its other projects have lost
    what they hold above their shares, there is a combination for the strongest such right, and one for fairness.
    """
    accounts, beneficiary = snapshot.accounts, Beneficiary(job.id.project, domain, milli)
    chain = accounts.tree.chain(job.id.project)
    if not chain:
        return ()
    found = [_strategies(accounts, beneficiary, {})]
    if found[0][-1] is not ReclaimStrategy.GUARANTEE:
        own_milli = gpu_milli_of(preemptible_by(snapshot, job, domain, milli))
        relief: dict[tuple[ReclaimStrategy, str], GpuMilli] = {}
        for owner in chain:
            mates = _mates_milli(snapshot, domain, owner, job.id.project)
            relief[ReclaimStrategy.GUARANTEE, owner] = own_milli
            relief[ReclaimStrategy.FAIRNESS, owner] = own_milli + mates
        if any(relief.values()):
            found.append(_strategies(accounts, beneficiary, relief))
            fair = {key: more for key, more in relief.items() if key[0] is ReclaimStrategy.FAIRNESS}
            found.append(_strategies(accounts, beneficiary, fair))
    return tuple(dict.fromkeys(found))


def _strategies(
    accounts: Accounts, beneficiary: Beneficiary, relief: Mapping[tuple[ReclaimStrategy, str], GpuMilli]
) -> Strategies:
    """The strongest strategy at each level of a job's owners. `relief`: by strategy, the GPUs that leave an owner."""
    found: list[ReclaimStrategy | None] = []
    left = list(ReclaimStrategy)
    for owner in accounts.tree.chain(beneficiary.project):
        left = [
            strategy
            for strategy in left
            if excess_milli(accounts, strategy, owner, beneficiary, {}) <= relief.get((strategy, owner), 0)
        ]
        found.append(left[0] if left else None)
    return tuple(found)


def _mates_milli(snapshot: Snapshot, domain: DomainName, owner: str, project: ProjectName) -> GpuMilli:
    """What the other projects of a department hold above their fair shares, and could lose."""
    tree, fairness = snapshot.accounts.tree, ReclaimStrategy.FAIRNESS
    mates = (
        name for name in over_allocated(snapshot, domain, fairness) if name != project and owner in tree.chain(name)
    )
    return sum(surplus_milli(snapshot.accounts, domain, fairness, project_owner(name)) for name in mates)
