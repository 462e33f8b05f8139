"""The ceiling that forbids a job, and the right by which a job runs: at its start, and later as amounts change."""

from __future__ import annotations

from gpuctl.engine import reasons
from gpuctl.engine.shares.accounts import Accounts, project_owner
from gpuctl.model.decision import Reason
from gpuctl.model.ids import DomainName, ProjectName
from gpuctl.model.job import Job
from gpuctl.model.units import GpuMilli


def forbidden(accounts: Accounts, job: Job, domain: DomainName, milli: GpuMilli) -> Reason | None:
    """The ceiling that this many more GPUs would break now: a limit, or the quota for work that can't be paused."""
    hit = accounts.ceiling_hit(domain, job.id.project, milli)
    return reasons.over_limit(job, *hit) if hit is not None else beyond_quota(accounts, job, domain, milli)


def beyond_quota(accounts: Accounts, job: Job, domain: DomainName, milli: GpuMilli) -> Reason | None:
    """The quota that non-preemptible work would break at any level, scaled where quotas exceed the capacity."""
    hit = None if job.preemptible or not milli else accounts.quota_hit(domain, job.id.project, milli)
    return None if hit is None else reasons.fixed_over_quota(job, *hit)


def reason_to_run(accounts: Accounts, domain: DomainName, project: ProjectName, milli: GpuMilli) -> Reason:
    """Why work that holds `milli` runs: with it, its project is within its quota, within its share, or beyond."""
    if not milli:
        return reasons.RUNS_WITHOUT_GPU
    owner = project_owner(project)
    return reason_by_amounts(project, accounts.held(domain, owner), *accounts.entitled(domain, owner))


def reason_by_amounts(
    project: ProjectName, held_milli: GpuMilli, guarantee_milli: GpuMilli, share_milli: GpuMilli | None
) -> Reason:
    """The same from the project's guarantee and fair share; None: the share is not known."""
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
    """Why a run runs now, for people. `recorded` is the reason of its start, which stays on its object.

    `held_milli`: what its project holds now; for a run that can't be paused, what the project holds of such work. A
    recorded reason that does not follow from amounts stays: of a run without a GPU, or of one with fewer workers.
    Example: a job started beyond the quota. Another job of its project has ended since, so that it is within the quota.
    """
    if recorded.code not in reasons.BY_AMOUNTS:
        return recorded
    return reason_by_amounts(project, held_milli, guarantee_milli, share_milli)


def rights_of(accounts: Accounts, domain: DomainName, project: ProjectName, milli: GpuMilli) -> tuple[bool, bool]:
    """Whether a project stays within its guarantee, and within its share, with this many more GPUs."""
    owner = project_owner(project)
    guarantee_milli, share_milli = accounts.entitled(domain, owner)
    held_milli = accounts.held(domain, owner) + milli
    return held_milli <= guarantee_milli, held_milli <= share_milli


def stays_within_share(accounts: Accounts, domain: DomainName, project: ProjectName, milli: GpuMilli) -> bool:
    """Whether a project holds no more than its fair share with this many more GPUs; always for a job without GPUs."""
    return not milli or any(rights_of(accounts, domain, project, milli))
