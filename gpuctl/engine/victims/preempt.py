"""Making way inside a project: for strictly higher priority, and for interactive work and services within quota.

Training never takes from interactive work or services, so that no two jobs can take from each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpuctl.engine import reasons
from gpuctl.engine.jobs.job_class import is_first_class
from gpuctl.engine.jobs.runs import Allocation
from gpuctl.engine.snapshot import Snapshot
from gpuctl.engine.victims.rules import ENDLESS, VictimTotals
from gpuctl.model.decision import Reason
from gpuctl.model.declared import DomainName
from gpuctl.model.ids import ProjectName
from gpuctl.model.job import Job, JobType
from gpuctl.model.units import GpuMilli


class Preemption:
    """The rule for one beneficiary of so many GPUs in a domain."""

    __slots__ = ("domain", "job", "milli", "snapshot")

    def __init__(self, snapshot: Snapshot, job: Job, domain: DomainName, milli: GpuMilli) -> None:
        self.snapshot = snapshot
        self.job = job
        self.domain = domain
        self.milli = milli

    @property
    def key(self) -> tuple[object, ...]:
        """The project and the job's rank in it."""
        job, makes_way = self.job, self._makes_training_way()
        return "preempt", self.domain, job.id.project, job.type.value, job.priority, job.preemptible, makes_way

    @property
    def may_wait(self) -> bool:
        """Rank in a project is no claim on what others leave."""
        return False

    def candidates(self) -> tuple[Allocation, ...]:
        """Pausable work of the same project that ranks below the job."""
        return self.snapshot.candidates(self.key, self._candidates)

    def _candidates(self) -> Iterator[Iterable[Allocation]]:
        project = self.job.id.project
        if self.snapshot.lowest(self.domain, project) < self.job.priority or self._makes_training_way():
            there = self.snapshot.pausable(self.domain).get(project, ())
            yield [
                allocation for allocation in there if allocation.job is not None and self.ranks_below(allocation.job)
            ]

    def price(self, tally: VictimTotals) -> int | None:  # noqa: ARG002 - the rule's shape: what a project loses to itself is free
        """What a project loses to itself is its own affair."""
        return 0

    def most_milli(self, project: ProjectName) -> GpuMilli:  # noqa: ARG002 - the rule's shape
        """As much as it has."""
        return ENDLESS

    def paused(self, victim: Allocation) -> Reason:
        """The reason a victim is given."""
        if victim.job is None or victim.job.priority < self.job.priority:
            return reasons.paused_by_priority(self.job.id)
        return reasons.paused_by_interactive(self.job.id)

    def ranks_below(self, theirs: Job) -> bool:
        """Whether a job of the same project makes way for the beneficiary."""
        ours_is_training = self.job.type is JobType.TRAINING
        theirs_is_training = theirs.type is JobType.TRAINING
        if ours_is_training and not theirs_is_training:
            return False
        if theirs.priority < self.job.priority:
            return True
        return theirs_is_training and self._makes_training_way()

    def _makes_training_way(self) -> bool:
        """For interactive work and services that can't be paused, as long as such work stays within quota with them."""
        if not is_first_class(self.job):
            return False
        fixed = self.snapshot.accounts.fixed(self.domain, self.job.id.project)
        return fixed + self.milli <= self.snapshot.accounts.quota(self.domain, self.job.id.project)
