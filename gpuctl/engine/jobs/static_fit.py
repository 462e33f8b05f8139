"""Which pools could ever serve a job, and with how many workers: what nodes without runs and the ceilings allow.

A job that fits no such node, or that breaks a ceiling even alone, waits for that reason, whatever else runs.
"""

from __future__ import annotations

from collections.abc import Collection

from gpuctl.engine import reasons
from gpuctl.engine.capacity.fit import Request
from gpuctl.engine.capacity.free import FreeCapacity
from gpuctl.engine.capacity.gang import PoolOption, has_place, options_of, slots_by_node
from gpuctl.engine.capacity.nodes import Capacity
from gpuctl.engine.dirty import DirtyProjects
from gpuctl.engine.jobs.project_queue import JobOptions, Likeness, likeness
from gpuctl.engine.shares.accounts import Accounts, OwnerTree
from gpuctl.engine.shares.entitlement import forbidden
from gpuctl.model.decision import Reason
from gpuctl.model.ids import NodeName, PoolName
from gpuctl.model.job import Job

MOST_ALIKE = 10_000
"""The most answers that are kept; then all are dropped. The declared jobs have few."""


class StaticFit:
    """Which pools could ever serve a job: the answer of empty nodes, independent of what runs.

    Cost: one placement for each distinct request, and one lookup for each further job. If all were computed again when
    nodes change, a cycle of 10,000 jobs in which a node comes back would take 2.2x.
    """

    def __init__(self, capacity: Capacity, tree: OwnerTree) -> None:
        self.capacity = capacity
        self._nothing_held = Accounts(tree, DirtyProjects(()))
        self._empty = FreeCapacity.of(capacity)
        self._fits_of: dict[tuple[PoolName, Request], tuple[PoolOption, bool]] = {}
        self._answers: dict[Likeness, JobOptions | Reason] = {}
        self._is_whole = True

    def refit(self, capacity: Capacity, nodes: Collection[NodeName]) -> bool:
        """Take over changed nodes. Returns whether jobs may have other options by that. Cost: O(distinct requests)."""
        self.capacity = capacity
        self._empty.refit(capacity, nodes)
        before = self._fits_of
        self._fits_of = {key: (option, has_place(self._empty, option)) for key, (option, _) in before.items()}
        same = all(not option.least and self._fits_of[key][1] is fits for key, (option, fits) in before.items())
        same &= self._is_whole  # of dropped answers it is not known which options fitted
        self._is_whole = True
        if same:
            self._answers = {alike: answer for alike, answer in self._answers.items() if isinstance(answer, JobOptions)}
        else:
            self._answers.clear()
        return not same

    def of(self, job: Job) -> JobOptions | Reason:
        """What the job could have, or the reason why it has nothing: the same object for all jobs of one likeness."""
        alike = likeness(job)
        answer = self._answers.get(alike)
        if answer is None:
            if len(self._answers) >= MOST_ALIKE:
                self._answers.clear()
                self._fits_of.clear()
                self._is_whole = False
            options = self._options(job)
            answer = options if isinstance(options, Reason) else JobOptions(job, options)
            self._answers[alike] = answer
        return answer

    def options(self, job: Job) -> tuple[PoolOption, ...]:
        """The pools that could serve the job, in its order; () if none can."""
        found = self.of(job)
        return found.options if isinstance(found, JobOptions) else ()

    def _options(self, job: Job) -> tuple[PoolOption, ...] | Reason:
        if not self._nothing_held.tree.chain(job.id.project):
            return reasons.unknown_project(job.id.project)
        fitting = tuple(filter(None, map(self._as_fits, options_of(job, self.capacity))))
        if not fitting:
            return self._why_none(job)
        legal = tuple(filter(None, (self._as_allowed(job, option) for option in fitting)))
        return legal or self._ceiling(job, fitting[0]) or reasons.no_large_node(job)

    def _as_fits(self, option: PoolOption) -> PoolOption | None:
        """The option with as many workers as fit empty nodes."""
        if self._fits(option):
            return option
        if not option.least:
            return None
        most = sum(count for _, count in slots_by_node(self._empty, option))
        fewer = option.sized(min(option.request.workers, most))
        return fewer if fewer is not None and self._fits(fewer) else None

    def _as_allowed(self, job: Job, option: PoolOption) -> PoolOption | None:
        """The option with the most workers that break no ceiling by themselves."""
        sizes = (option, *option.smaller())
        return next((each for each in sizes if self._ceiling(job, each) is None), None)

    def _why_none(self, job: Job) -> Reason:
        """Why no pool can serve the job: nodes share or cut their GPUs otherwise than declared, or are too small."""
        asked = [option for option in options_of(job, self.capacity) if option.request.gpu_milli]
        spaces = [space for option in asked for space in self.capacity.usable.get(option.pool.name, ())]
        if spaces and not any(space.served for space in spaces):
            return reasons.not_served(job, asked[0].pool)
        profiles = {option.request.profile for option in asked}
        if spaces and "" not in profiles and not any(profiles.intersection(space.profiles) for space in spaces):
            return reasons.no_slices(job, ", ".join(sorted(profiles)))
        return reasons.no_large_node(job)

    def _ceiling(self, job: Job, option: PoolOption) -> Reason | None:
        """The ceiling that the job alone would break."""
        return forbidden(self._nothing_held, job, option.domain, option.request.total_milli)

    def _fits(self, option: PoolOption) -> bool:
        key = (option.pool.name, option.request)
        found = self._fits_of.get(key)
        if found is None:
            found = self._fits_of[key] = option, has_place(self._empty, option)
        return found[1]
