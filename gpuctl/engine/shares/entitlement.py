"""The ceiling that forbids a job, and the right by which it runs."""

from __future__ import annotations

from gpuctl.engine import reasons
from gpuctl.engine.shares.accounts import Accounts, project_owner
from gpuctl.model.decision import Reason
from gpuctl.model.declared import DomainName
from gpuctl.model.ids import ProjectName
from gpuctl.model.job import Job
from gpuctl.model.units import GpuMilli


def forbidden(accounts: Accounts, job: Job, domain: DomainName, milli: GpuMilli) -> Reason | None:
    """The ceiling that so many more GPUs would break now: a limit, or the quota for work that can't be paused."""
    hit = accounts.ceiling_hit(domain, job.id.project, milli)
    return reasons.over_limit(job, *hit) if hit is not None else beyond_quota(accounts, job, domain, milli)


def beyond_quota(accounts: Accounts, job: Job, domain: DomainName, milli: GpuMilli) -> Reason | None:
    """The quota that non-preemptible work would break at any level, scaled where quotas exceed what there is."""
    hit = None if job.preemptible or not milli else accounts.quota_hit(domain, job.id.project, milli)
    return None if hit is None else reasons.fixed_over_quota(job, *hit)


def reason_to_run(accounts: Accounts, domain: DomainName, project: ProjectName, held_milli: GpuMilli) -> Reason:
    """Why work runs: its project then holds `held_milli`, which is within its quota, its share, or beyond."""
    entitled = accounts.entitled(domain, project_owner(project))
    if held_milli <= entitled.guarantee_milli:
        return reasons.runs_in_quota(project)
    return reasons.runs_in_share(project) if held_milli <= entitled.share_milli else reasons.runs_on_idle(project)


def is_owed(accounts: Accounts, domain: DomainName, project: ProjectName, milli: GpuMilli) -> bool:
    """Whether a project stays within its guarantee with so many more GPUs."""
    return rights_of(accounts, domain, project, milli)[0]


def rights_of(accounts: Accounts, domain: DomainName, project: ProjectName, milli: GpuMilli) -> tuple[bool, bool]:
    """Whether a project stays within its guarantee, and within its share, with so many more GPUs."""
    owner = project_owner(project)
    guarantee_milli, share_milli = accounts.entitled(domain, owner)
    held_milli = accounts.held(domain, owner) + milli
    return held_milli <= guarantee_milli, held_milli <= share_milli


def stays_within_share(accounts: Accounts, domain: DomainName, project: ProjectName, milli: GpuMilli) -> bool:
    """Whether a project holds no more than its fair share with so many GPUs more; a job without GPUs takes no part."""
    owner = project_owner(project)
    return not milli or accounts.held(domain, owner) + milli <= max(accounts.entitled(domain, owner))
