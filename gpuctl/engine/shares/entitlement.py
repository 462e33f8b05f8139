"""What the accounts say of a job: the ceiling that forbids it, and by what right it runs."""

from __future__ import annotations

from gpuctl.engine import reasons
from gpuctl.engine.shares.accounts import Accounts, project_owner
from gpuctl.model.decision import Reason
from gpuctl.model.declared import DomainName
from gpuctl.model.ids import ProjectName
from gpuctl.model.job import Job
from gpuctl.model.units import GpuMilli


def forbidden(accounts: Accounts, job: Job, domain: DomainName, milli: GpuMilli) -> Reason | None:
    """The ceiling that so many GPUs more would break now: a limit, or the quota for work that can't be paused."""
    hit = accounts.ceiling_hit(domain, job.id.project, milli)
    return reasons.over_limit(job, *hit) if hit is not None else beyond_quota(accounts, job, domain, milli)


def beyond_quota(accounts: Accounts, job: Job, domain: DomainName, milli: GpuMilli) -> Reason | None:
    """Work that can't be paused never exceeds its project's quota."""
    if job.preemptible or not milli:
        return None
    quota = accounts.quota(domain, job.id.project)
    fixed = accounts.fixed(domain, job.id.project)
    return None if fixed + milli <= quota else reasons.fixed_over_quota(job, quota)


def standing(accounts: Accounts, domain: DomainName, project: ProjectName, held_milli: GpuMilli) -> Reason:
    """Why work of a project may run that then holds so much: where the project stands with it."""
    portion = accounts.portion(domain, project_owner(project))
    if held_milli <= portion.guarantee_milli:
        return reasons.runs_in_quota(project)
    return reasons.runs_in_share(project) if held_milli <= portion.share_milli else reasons.runs_on_idle(project)


def is_owed(accounts: Accounts, domain: DomainName, project: ProjectName, milli: GpuMilli) -> bool:
    """Whether a project stays within what it is guaranteed with so many GPUs more."""
    return rights_of(accounts, domain, project, milli)[0]


def rights_of(accounts: Accounts, domain: DomainName, project: ProjectName, milli: GpuMilli) -> tuple[bool, bool]:
    """Whether a project stays within its guarantee, and within its share, with so many GPUs more."""
    owner = project_owner(project)
    guarantee_milli, share_milli = accounts.portion(domain, owner)
    held_milli = accounts.held(domain, owner) + milli
    return held_milli <= guarantee_milli, held_milli <= share_milli
