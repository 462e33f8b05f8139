"""By what strategies a job may take GPUs from others, level by level of its owners.

Where the project has a claim only once own work has left, or its department once its other projects have lost what they
hold above their shares, there is a combination for the strongest such claim, and one for fairness.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from gpuctl.engine.jobs.runs import gpu_milli_of
from gpuctl.engine.shares.accounts import project_owner
from gpuctl.engine.snapshot import Snapshot
from gpuctl.engine.victims.preempt import preemptible_by
from gpuctl.engine.victims.reclaim import Beneficiary, ReclaimStrategy, excess_milli, over_allocated, surplus_milli
from gpuctl.model.ids import DomainName, ProjectName
from gpuctl.model.job import Job
from gpuctl.model.units import GpuMilli

Strategies: TypeAlias = tuple[ReclaimStrategy | None, ...]
"""By what strategy a job takes from others: first from projects that share its department, then from those that share
the department above, and so on; last from projects that share none. None: from these it takes nothing."""


def combinations_of(snapshot: Snapshot, job: Job, domain: DomainName, milli: GpuMilli) -> tuple[Strategies, ...]:
    """All combinations for a job, the one first for which no own work must leave. None for a project not declared."""
    chain = snapshot.accounts.tree.chain(job.id.project)
    if not chain:
        return ()
    plain = strategies_of(snapshot, job, domain, milli)
    found = [plain]
    if plain[-1] is not ReclaimStrategy.GUARANTEE:
        own_milli = gpu_milli_of(preemptible_by(snapshot, job, domain, milli))
        relief: dict[tuple[ReclaimStrategy, str], GpuMilli] = {}
        for owner in chain:
            mates = _mates_milli(snapshot, domain, owner, job.id.project)
            relief[ReclaimStrategy.GUARANTEE, owner] = own_milli
            relief[ReclaimStrategy.FAIRNESS, owner] = own_milli + mates
        if any(relief.values()):
            found.append(strategies_of(snapshot, job, domain, milli, relief))
            fair = {key: more for key, more in relief.items() if key[0] is ReclaimStrategy.FAIRNESS}
            found.append(strategies_of(snapshot, job, domain, milli, fair))
    return tuple(dict.fromkeys(found))


Relief: TypeAlias = Mapping[tuple[ReclaimStrategy, str], GpuMilli]
"""GPUs of an owner that may leave besides, for a claim by a strategy."""


def strategies_of(
    snapshot: Snapshot, job: Job, domain: DomainName, milli: GpuMilli, relief: Relief | None = None
) -> Strategies:
    """The strongest strategy at each level of a job's owners."""
    relief = relief or {}
    accounts, project = snapshot.accounts, job.id.project
    beneficiary = Beneficiary(project, domain, milli)
    found: list[ReclaimStrategy | None] = []
    left = list(ReclaimStrategy)
    for owner in accounts.tree.chain(project):
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
