"""The ceiling that forbids a job, and the right by which it runs: when it starts, and as things stand later."""

from __future__ import annotations

from gpuctl.engine import reasons
from gpuctl.engine.shares.accounts import Accounts, project_owner
from gpuctl.model.decision import Reason
from gpuctl.model.ids import DomainName, ProjectName
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


def reason_to_run(accounts: Accounts, domain: DomainName, project: ProjectName, milli: GpuMilli) -> Reason:
    """Why work runs that holds `milli`: with it its project is within its quota, its share, or beyond."""
    if not milli:
        return reasons.RUNS_WITHOUT_GPU
    owner = project_owner(project)
    return reason_by_amounts(project, accounts.held(domain, owner), *accounts.entitled(domain, owner))


def reason_by_amounts(
    project: ProjectName, held_milli: GpuMilli, guarantee_milli: GpuMilli, share_milli: GpuMilli | None
) -> Reason:
    """The same by what the project is guaranteed, and its fair share; None: that is not known."""
    if held_milli <= guarantee_milli:
        return reasons.runs_in_quota(project)
    if share_milli is None:
        return reasons.runs_over_quota(project)
    return reasons.runs_in_share(project) if held_milli <= share_milli else reasons.runs_on_idle(project)


def reason_now(
    recorded: Reason,
    project: ProjectName,
    held_milli: GpuMilli,
    guarantee_milli: GpuMilli,
    share_milli: GpuMilli | None,
) -> Reason:
    """Why a run runs now, for people: `recorded` is why it was started, which stays on its object.

    `held_milli`: what its project holds now, or, for a run that can't be paused, holds of work that can't. A recorded
    reason that is none by amounts stays: a run without a GPU, or one that goes on with fewer workers.
    Example: a job started over the quota. Another job of its project has ended since, so that it is within the quota.
    """
    if recorded.code not in reasons.BY_AMOUNTS:
        return recorded
    return reason_by_amounts(project, held_milli, guarantee_milli, share_milli)


def rights_of(accounts: Accounts, domain: DomainName, project: ProjectName, milli: GpuMilli) -> tuple[bool, bool]:
    """Whether a project stays within its guarantee, and within its share, with so many more GPUs."""
    owner = project_owner(project)
    guarantee_milli, share_milli = accounts.entitled(domain, owner)
    held_milli = accounts.held(domain, owner) + milli
    return held_milli <= guarantee_milli, held_milli <= share_milli


def stays_within_share(accounts: Accounts, domain: DomainName, project: ProjectName, milli: GpuMilli) -> bool:
    """Whether a project holds no more than its fair share with so many GPUs more; a job without GPUs takes no part."""
    return not milli or any(rights_of(accounts, domain, project, milli))
