"""Measure a replay: integrals over time of what projects hold, demand and are short of. Integers only.

Amounts are milli-GPU and milliseconds, so work is milli-GPU-milliseconds. Between two changes everything is constant; a
state that takes no time adds nothing.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from typing import TypeAlias

from gpuctl.engine.shares.fairshare import Portion, ShareClaim, divide
from gpuctl.model.ids import JobId, ProjectName
from gpuctl.model.units import DurationMs, GpuMilli, Instant

Place: TypeAlias = tuple[int, Instant, JobId]
"""A job's rank in its project, smallest first: (0, since when it has a reservation) or (1, since when it waits)."""

Lines: TypeAlias = dict[GpuMilli, list[Place]]
"""A project's waiting jobs by their size, in order of rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Short:
    """What one project was short of.

    - `unfair`: work by which it held less than its fluid share.
    - `below_quota`: the same for min(quota, demand), whether or not one of its jobs would have fit the difference.
    - `violation_ms`: time that jobs waited although they were `entitled` to GPUs, beyond the time of a reclaim.
    - `longest_ms`: the longest such wait, including the reclaim.

    From its pause on a job no longer counts as held; it waits once its pods are gone.
    """

    unfair: int
    below_quota: int
    violations: int
    violation_ms: DurationMs
    longest_ms: DurationMs


class Meter:
    """The measurement of one replay: call `advance` first, then record the changes at that instant.

    Integrals cover the window from `from_ms` to `until_ms`. `reclaim_ms`: the time that a reclaim takes.
    """

    def __init__(
        self,
        quotas: Mapping[ProjectName, GpuMilli],
        capacity_milli: GpuMilli,
        window: tuple[Instant, Instant],
        reclaim_ms: DurationMs,
    ) -> None:
        self.quotas = dict(quotas)
        self.steps: dict[ProjectName, list[tuple[Instant, GpuMilli]]] = {project: [] for project in quotas}
        self.used = 0
        self._capacity_milli = capacity_milli
        self._from_ms, self._until_ms = window
        self._reclaim_ms = reclaim_ms
        self._at_ms = self._from_ms
        self._held = dict.fromkeys(quotas, 0)
        self._held_milli = 0
        self._demand = dict.fromkeys(quotas, 0)
        self._demand_milli = 0
        self._portions = {project: Portion(quota, 0) for project, quota in quotas.items()}
        self._asked = dict.fromkeys(quotas, 0)
        self._short: dict[ProjectName, GpuMilli] = {}
        self._missing: dict[ProjectName, GpuMilli] = {}
        self._unfair = dict.fromkeys(quotas, 0)
        self._below = dict.fromkeys(quotas, 0)
        self._enough = True
        self._touched: set[ProjectName] = set()
        self._places: dict[JobId, Place] = {}
        self._moving: set[JobId] = set()
        self._lines: dict[ProjectName, Lines] = {project: {} for project in quotas}
        self._clocks: dict[ProjectName, dict[JobId, Instant]] = {project: {} for project in quotas}
        self._violations = {project: [0, 0, 0] for project in quotas}

    def advance(self, at_ms: Instant) -> None:
        """Add the time until an instant, with the state unchanged."""
        end_ms = min(at_ms, self._until_ms)
        lasted_ms = end_ms - self._at_ms
        if lasted_ms <= 0:
            return
        if self._touched:
            self._settle()
        self.used += lasted_ms * self._held_milli
        for project, short in self._short.items():
            self._unfair[project] += lasted_ms * short
        for project, missing in self._missing.items():
            self._below[project] += lasted_ms * missing
        self._at_ms = end_ms

    def come(self, job: JobId, milli: GpuMilli, since_ms: Instant) -> None:
        """Record a new job, which waits."""
        self._want(job.project, milli)
        self.wait(job, milli, since_ms)

    def wait(self, job: JobId, milli: GpuMilli, since_ms: Instant) -> None:
        """Record that a job could start from now on; `since_ms` gives its rank in its project."""
        self._touched.add(job.project)
        if job in self._moving:
            self._moving.remove(job)
        else:
            self._stand(job, milli, (1, since_ms, job))

    def reserve(self, job: JobId, milli: GpuMilli, at_ms: Instant) -> None:
        """Record that a waiting job has a reservation from now on, if it had none."""
        if self._places[job][0]:
            self._step_out(job, milli)
            self._stand(job, milli, (0, at_ms, job))

    def cancel_reservation(self, job: JobId, milli: GpuMilli, since_ms: Instant) -> None:
        """Record that a waiting or moving job has lost its reservation, if it had one."""
        place = self._places.get(job)
        if place is not None and not place[0]:
            self._step_out(job, milli)
            if job in self._moving:
                self._moving.remove(job)
            else:
                self._stand(job, milli, (1, since_ms, job))

    def pause(self, job: JobId, milli: GpuMilli) -> None:
        """Record that a running job is paused: from now on its GPUs do not count as held."""
        self._hold(job.project, -milli)

    def move(self, job: JobId, milli: GpuMilli, at_ms: Instant) -> None:
        """Record that a running job is moved: paused, with a reservation elsewhere while it stops."""
        self._hold(job.project, -milli)
        self._moving.add(job)
        self._stand(job, milli, (0, at_ms, job))

    def start(self, job: JobId, milli: GpuMilli) -> None:
        """Record that a waiting job starts."""
        self._hold(job.project, milli)
        self._step_out(job, milli)

    def end(self, job: JobId, milli: GpuMilli) -> None:
        """Record that a running job ends."""
        self._hold(job.project, -milli)
        self._want(job.project, -milli)

    def counted(self, project: ProjectName) -> GpuMilli:
        """The GPUs that a project holds or has reserved. Cost: O(its waiting jobs)."""
        lines = self._lines[project].items()
        return self._held[project] + sum(size for size, line in lines for unreserved, _, _ in line if not unreserved)

    def close(self) -> dict[ProjectName, Short]:
        """End the window and return what each project was short of."""
        self.advance(self._until_ms)
        for project, clocks in self._clocks.items():
            for job in list(clocks):
                self._stop_clock(project, job)
        return {
            project: Short(
                unfair=self._unfair[project],
                below_quota=self._below[project],
                violations=self._violations[project][0],
                violation_ms=self._violations[project][1],
                longest_ms=self._violations[project][2],
            )
            for project in self.quotas
        }

    def _stand(self, job: JobId, milli: GpuMilli, place: Place) -> None:
        self._touched.add(job.project)
        self._places[job] = place
        insort(self._lines[job.project].setdefault(milli, []), place)

    def _step_out(self, job: JobId, milli: GpuMilli) -> None:
        self._touched.add(job.project)
        line = self._lines[job.project][milli]
        del line[bisect_left(line, self._places.pop(job))]

    def _hold(self, project: ProjectName, milli: GpuMilli) -> None:
        self._touched.add(project)
        self._held[project] += milli
        self._held_milli += milli

    def _want(self, project: ProjectName, milli: GpuMilli) -> None:
        self._touched.add(project)
        self._demand[project] += milli
        self._demand_milli += milli

    def _settle(self) -> None:
        """Recompute what depends on the touched projects, with effect from the last instant."""
        for project in self._share_out():
            _note(self._short, project, self._portions[project].share_milli - self._held[project])
        for project in self._touched:
            held = self._held[project]
            guarantee = self._portions[project].guarantee_milli
            _note(self._missing, project, min(guarantee, self._demand[project]) - held)
            self._set_clocks(project, guarantee - held)
            steps = self.steps[project]
            if not steps or steps[-1][1] != held:
                steps.append((self._at_ms, held))
        self._touched.clear()

    def _share_out(self) -> Collection[ProjectName]:
        """Update the shares; returns the projects whose shortfall may have changed."""
        enough = self._demand_milli <= self._capacity_milli
        if enough and self._enough:
            for project in self._touched:
                self._asked[project] = self._demand[project]
                self._portions[project] = Portion(self.quotas[project], self._demand[project])
        elif not all(self._is_open(project) for project in self._touched):
            before = self._portions
            self._portions = fluid_shares(self._capacity_milli, self.quotas, self._demand)
            self._asked = dict(self._demand)
            self._enough = enough
            self._touched.update(p for p, portion in self._portions.items() if portion[0] != before[p][0])
            return self.quotas
        return self._touched

    def _is_open(self, project: ProjectName) -> bool:
        """Whether its demand was and is above its share: then a change of the demand changes no share."""
        return self._portions[project].share_milli < min(self._asked[project], self._demand[project])

    def _set_clocks(self, project: ProjectName, room_milli: GpuMilli) -> None:
        """Run a clock for each job while it is entitled to GPUs and waits."""
        clocks = self._clocks[project]
        if room_milli > 0 or clocks:
            waiting = entitled(room_milli, self._lines[project])
            for job in [job for job in clocks if job not in waiting]:
                self._stop_clock(project, job)
            for job in waiting - self._moving:
                clocks.setdefault(job, self._at_ms)

    def _stop_clock(self, project: ProjectName, job: JobId) -> None:
        waited_ms = self._at_ms - self._clocks[project].pop(job)
        tally = self._violations[project]
        tally[2] = max(tally[2], waited_ms)
        if waited_ms > self._reclaim_ms:
            tally[0] += 1
            tally[1] += waited_ms - self._reclaim_ms


def _note(short: dict[ProjectName, GpuMilli], project: ProjectName, milli: GpuMilli) -> None:
    """Keep only projects that are short of something: most of the time there are none."""
    if milli > 0:
        short[project] = milli
    else:
        short.pop(project, None)


def entitled(room_milli: GpuMilli, lines: Lines) -> set[JobId]:
    """The waiting jobs that fit, one after another, into the rest of a project's guarantee.

    Jobs with a reservation come first, since the engine's accounts count reserved GPUs as held; the others follow in
    the order in which they wait. A job larger than the rest is skipped. Cost: O(found x log(sizes)).
    """
    heads = [(line[0], size, 0) for size, line in lines.items() if line and size <= room_milli]
    heapify(heads)
    found: set[JobId] = set()
    while heads:
        (_, _, job), size, index = heads[0]
        if size > room_milli:
            heappop(heads)
            continue
        found.add(job)
        room_milli -= size
        line = lines[size]
        if index + 1 < len(line):
            heapreplace(heads, (line[index + 1], size, index + 1))
        else:
            heappop(heads)
    return found


def fluid_shares(
    capacity_milli: GpuMilli, quotas: Mapping[ProjectName, GpuMilli], demand: Mapping[ProjectName, GpuMilli]
) -> dict[ProjectName, Portion]:
    """Each project's guarantee and fair share: the guaranteed quota first, then spare GPUs by quota.

    Cost: O(n log n).
    """
    if sum(demand.values()) <= capacity_milli:
        return {project: Portion(quota, demand[project]) for project, quota in quotas.items()}
    claims = [
        ShareClaim(owner=project, quota_milli=quota, demand_milli=demand[project], weight=quota)
        for project, quota in quotas.items()
    ]
    portions = divide(capacity_milli, claims)
    return {project: portions[project] for project in quotas}
