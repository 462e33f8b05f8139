"""The rules of DESIGN 4, one function for each: ceilings, what a project may lose to itself and to others, and moves.

Each rule judges one set of victims for one job, in the state after the whole set has left. A `Claim` holds the job and
what every owner loses. The rules do not look at places: `enumeration.py` does.

Interpretations where DESIGN leaves a choice:
- A department's guarantee may be straddled like a project's: by the largest of its victims, if there is no other way.
- A department's guarantee covers what its projects hold within their own guarantees: "a project's own guarantee is
  never lost to what its department lent", also if its room is made by what another department has borrowed.
- Work that can't be paused is bounded at each level by the quota, and by the guarantee, which is lower if quotas exceed
  the capacity; but a job that is an owner's only such work is bounded by the quota alone.
- Workers that a run lost with a node count towards no quota and no limit, like everything that is leaving.
- A job of a project above its fair share may take work of its own project that ranks below it, and idle GPUs.
- Elastic surplus first: of ways that lose as many GPUs, the one that stops fewer runs, because its victims lose only
  extra workers.
- An elastic run that stops is one victim, which may straddle a guarantee; otherwise each of its extra workers is one.
- A service gives up no replica for another job: Kubernetes, not gpuctl, chooses which of its pods goes. It stops whole.
- minRuntime protects a run from being stopped; surplus workers of a younger run may leave, because the run goes on.
- Runs are moved only if the runs that a job has rights over make no room, or would straddle a guarantee: a move stops a
  run that is within its rights, and the run loses its work since its start.
- A run that last stopped for a job is not moved for the same job.
- For a job within its project's guarantee a run may be moved as soon as it could be paused.
- A run may be moved for a job whose project stays within its fair share; the share of its department does not matter.
- "The beneficiary of every pause runs in the end" (4.5): as long as a run that was paused for the beneficiary waits, or
  lacks workers that it gave up for it, the beneficiary's run loses GPUs to a project only by that project's guarantee,
  unless a job of that project has come since the run started. A job that could not run on an empty cluster is in no
  queue, and has not come. What follows from a set of victims is decided together with it, if the job that they make way
  for has come and does not run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from gpuctl.model.declared import MinRuntime
from gpuctl.model.ids import DomainName, ProjectName
from gpuctl.model.job import Job, JobType
from gpuctl.model.state import RunPhase

from .view import Held, View


class Right(StrEnum):
    """The right by which a victim's project loses work to the job."""

    OWN = "own"
    GUARANTEE = "guarantee"
    FAIRNESS = "fairness"
    STRADDLE = "straddle"


@dataclass(frozen=True, slots=True)
class Loss:
    """This many workers of a run leave: all of them, or those that an elastic run can do without."""

    held: Held
    workers: int

    @property
    def milli(self) -> int:
        """GPUs that leave."""
        return self.held.run.gpu_milli * self.workers

    @property
    def is_surplus(self) -> bool:
        """Whether the run goes on."""
        return self.workers < len(self.held.workers)


@dataclass(frozen=True, slots=True)
class Claim:
    """A job that would run with `milli` GPUs in a domain once the victims have left. `view`: the state before."""

    view: View
    job: Job
    milli: int
    losses: tuple[Loss, ...] = ()

    @property
    def domain(self) -> DomainName:
        """The domain in which its GPUs count."""
        return self.view.domain_for(self.job)

    @property
    def chain(self) -> tuple[str, ...]:
        """Its project and the department above."""
        return self.view.chains[self.job.id.project]

    def losses_of(self, owner: str) -> list[Loss]:
        """The losses of one owner, victim by victim."""
        return [loss for loss in self.losses if owner in self.view.chains[loss.held.job.id.project]]

    def left(self, owner: str) -> int:
        """What an owner holds once the victims have left. What is only reserved for the job does not count."""
        return self.view.holds[self.domain, owner] - sum(loss.milli for loss in self.losses_of(owner))

    def covered(self, owner: str) -> int:
        """What the owner's guarantee would have to cover with the job: all that a project holds; of a department, what
        its projects hold within their own guarantees. The rest of what they hold is only lent to them."""
        view, own = self.view, self.chain[0]
        if owner == own:
            return self.left(owner) + self.milli
        below = (chain[0] for chain in view.chains.values() if owner in chain)
        holds = {each: self.left(each) + (self.milli if each == own else 0) for each in below}
        return sum(min(milli, self.guarantee(each)) for each, milli in holds.items())

    def guarantee(self, owner: str) -> int:
        """The owner's guarantee, in whole GPUs if its jobs ask for those."""
        return self.view.entitled[self.domain, owner].guarantee

    def share(self, owner: str) -> int:
        """The owner's fair share, in whole GPUs if its jobs ask for those."""
        return self.view.entitled[self.domain, owner].share


def within_ceilings(claim: Claim) -> bool:
    """DESIGN 3 (limit) and 4.4 (work that can't be paused never exceeds quota), for the project and its department."""
    return within_limits(claim) and not broken_quota(claim)


def within_limits(claim: Claim) -> bool:
    """DESIGN 3: `limit` is a hard ceiling, also for GPUs beyond the quota."""
    for owner in claim.chain:
        limit = claim.view.allowance(claim.domain, owner).limit_milli
        if limit is not None and claim.left(owner) + claim.milli > limit:
            return False
    return True


def broken_quota(claim: Claim) -> str:
    """DESIGN 4.4: which quota work that can't be paused would exceed, scaled where GPUs are short; "" for none."""
    for owner in claim.chain if not claim.job.preemptible else ():
        others = claim.view.fixed[claim.domain, owner]
        if others + claim.milli > claim.view.allowance(claim.domain, owner).quota_milli:
            return "a project's quota" if owner == claim.chain[0] else "a department's quota"
        if others and others + claim.milli > claim.guarantee(owner):
            return "a scaled quota"
    return ""


def within_share(claim: Claim) -> bool:
    """DESIGN 4.4: whether the job leaves its project within its fair share."""
    return claim.left(claim.chain[0]) + claim.milli <= max(claim.share(claim.chain[0]), claim.guarantee(claim.chain[0]))


def may_stop(held: Held, view: View) -> bool:
    """DESIGN 4.4: whether a run may stop: never if it can't be paused, or is younger than every minRuntime."""
    return held.job.preemptible and _age_ms(held, view) >= _min_runtime(held, view).least_ms


def _age_ms(held: Held, view: View) -> int:
    return 0 if held.run.started_at_ms is None else view.now_ms - held.run.started_at_ms


def _min_runtime(held: Held, view: View) -> MinRuntime:
    return view.tree.cluster.scheduling.min_runtime.after(held.run.starts)


def _are_old_enough(claim: Claim, project: ProjectName, right: Right) -> bool:
    """minRuntime: whether the runs of a project that stop have run long enough to be lost by this right."""
    stopped = (loss.held for loss in claim.losses if _is_of(loss, project) and not loss.is_surplus)
    least = ((held, _min_runtime(held, claim.view)) for held in stopped)
    by_fairness = right is Right.FAIRNESS
    return all(
        _age_ms(held, claim.view) >= (each.fairness_ms if by_fairness else each.guarantee_ms) for held, each in least
    )


def makes_way(victim: Job, job: Job) -> bool:
    """DESIGN 4.4, preemption in a project: a job of strictly lower priority makes way, and training makes way for
    interactive work within quota.

    Training never takes from interactive work or services.
    """
    if job.type is JobType.TRAINING:
        return victim.type is JobType.TRAINING and victim.priority < job.priority
    if victim.type is JobType.TRAINING and not job.preemptible:
        return True
    return victim.priority < job.priority


def rights(claim: Claim) -> dict[ProjectName, Right] | None:
    """DESIGN 4.4, reclaim: the right by which each project loses its victims; None if the set may not be taken.

    Rights combine: each project that loses something is judged separately, after all victims have left.
    """
    found: dict[ProjectName, Right] = {}
    for project in {loss.held.job.id.project for loss in claim.losses}:
        theirs = [loss for loss in claim.losses if _is_of(loss, project)]
        if project == claim.job.id.project:
            right = Right.OWN if all(makes_way(loss.held.job, claim.job) for loss in theirs) else None
        else:
            right = _right_over(claim, project)
            right = None if right is None or not _are_old_enough(claim, project, right) else right
        if right in (Right.OWN, Right.FAIRNESS) and any(_is_settled(loss, claim) for loss in theirs):
            right = None
        if right is None:
            return None
        found[project] = right
    return found


def _is_settled(loss: Loss, claim: Claim) -> bool:
    """Whether a run is settled: a run that was paused for it still waits, or lacks workers that it gave up, and the
    claiming project has had no new job since the settled run started.

    Surplus workers are not settled, because the run that gives them up goes on.
    """
    held, runs = loss.held, claim.view.runs.values()
    paused = (run for run in runs if run.paused_for == held.job.id and run.job in claim.view.declared)
    smaller = (each for each in claim.view.held if each.run.paused_for == held.job.id)
    waits = any(run.phase in (RunPhase.QUEUED, RunPhase.STOPPING) for run in paused) or any(
        map(claim.view.lacks, smaller)
    )
    if loss.is_surplus or not waits:
        return False
    came = (
        claim.view.runs[job.id].queued_at_ms
        for job in claim.view.came
        if job.id.project == claim.job.id.project
        and claim.view.runs[job.id].paused_for is None
        and claim.view.most_workers(job)
    )
    started_ms = claim.view.now_ms if held.run.started_at_ms is None else held.run.started_at_ms
    return all(at_ms <= started_ms for at_ms in came)


def _is_of(loss: Loss, project: ProjectName) -> bool:
    return loss.held.job.id.project == project


def _right_over(claim: Claim, project: ProjectName) -> Right | None:
    """The strongest right over one other project, if any. Owners are compared below their nearest common department."""
    theirs = claim.view.chains[project]
    gainers = [owner for owner in claim.chain if owner not in theirs]
    losers = [owner for owner in theirs if owner not in claim.chain]
    if all(claim.covered(owner) <= claim.guarantee(owner) for owner in gainers):
        if all(claim.left(owner) >= claim.guarantee(owner) for owner in losers):
            return Right.GUARANTEE
        if all(_stays_or_straddles(claim, owner) for owner in losers):
            return Right.STRADDLE
    if all(claim.left(owner) + claim.milli <= claim.share(owner) for owner in gainers) and all(
        claim.left(owner) >= claim.share(owner) for owner in losers
    ):
        return Right.FAIRNESS
    return None


def _stays_or_straddles(claim: Claim, owner: str) -> bool:
    """DESIGN 4.4: a job that straddles its project's quota line may be taken whole, as the last choice."""
    left, losses = claim.left(owner), claim.losses_of(owner)
    largest = max((loss.held.run.gpu_milli if loss.is_surplus else loss.milli for loss in losses), default=0)
    return left >= claim.guarantee(owner) or left + largest > claim.guarantee(owner)


def may_move_others(claim: Claim, moved: Iterable[Held]) -> bool:
    """DESIGN 3 (consolidation): preemptible jobs may be moved if that lets a job within its fair share start.

    minRuntime: each moved run has run long enough.
    """
    project = claim.chain[0]
    is_guaranteed = claim.left(project) + claim.milli <= claim.guarantee(project)
    for held in moved:
        least = _min_runtime(held, claim.view)
        if _age_ms(held, claim.view) < (min(least.guarantee_ms, least.moves_ms) if is_guaranteed else least.moves_ms):
            return False
    return claim.view.tree.cluster.scheduling.consolidation and within_share(claim)


def is_below_limits_only_after(claim: Claim) -> bool:
    """Whether the claim is within ceilings only once its victims have left."""
    return not within_ceilings(Claim(claim.view, claim.job, claim.milli))


def is_entitled_only_after(claim: Claim) -> bool:
    """Whether an owner above the job comes within the bound of a right only once the victims have left."""
    before = Claim(claim.view, claim.job, claim.milli)
    for project, right in (rights(claim) or {}).items():
        if right is not Right.OWN:
            gainers = [owner for owner in claim.chain if owner not in claim.view.chains[project]]
            if right is Right.FAIRNESS:
                if any(before.left(owner) + claim.milli > claim.share(owner) for owner in gainers):
                    return True
            elif any(before.covered(owner) > claim.guarantee(owner) for owner in gainers):
                return True
    return False
