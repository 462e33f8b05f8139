"""What a replay is measured by: integrals over time of what projects hold, want and are short of. Integers only.

Amounts are milli-GPU and milliseconds, so work is milli-GPU-milliseconds. Between two changes everything is constant;
states that last no time count for nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from gpuctl.model.ids import JobId, ProjectName
from gpuctl.model.units import DurationMs, GpuMilli, Instant
from gpuctl.schedule.fairshare import Claim, divide


@dataclass(frozen=True, slots=True, kw_only=True)
class Short:
    """What one project was short of.

    `unfair`: work by which it held less than its fluid share. `below_quota`: the same for min(quota, demand), whether
    or not a job of it was small enough for the difference. `violation_ms`: time that jobs waited, one of each size at a
    time, which would have left it within its quota, beyond what a reclaim takes; `longest_ms` the longest such wait,
    a reclaim included. A paused job is held no more at once, and waits from when it has left.
    """

    unfair: int
    below_quota: int
    violations: int
    violation_ms: DurationMs
    longest_ms: DurationMs


class Meter:
    """Kept up to date by the replay: `advance` first, then what changes at that instant.

    Integrals are over the window from `from_ms` to `until_ms`. `reclaim_ms` is what a reclaim takes.
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
        self._shares = dict.fromkeys(quotas, 0)
        self._asked = dict.fromkeys(quotas, 0)
        self._short: dict[ProjectName, GpuMilli] = {}
        self._missing: dict[ProjectName, GpuMilli] = {}
        self._unfair = dict.fromkeys(quotas, 0)
        self._below = dict.fromkeys(quotas, 0)
        self._enough = True
        self._touched: set[ProjectName] = set()
        self._queues: dict[ProjectName, dict[GpuMilli, OrderedDict[JobId, None]]] = {p: {} for p in quotas}
        self._clocks: dict[ProjectName, dict[GpuMilli, tuple[JobId, Instant]]] = {p: {} for p in quotas}
        self._violations = {project: [0, 0, 0] for project in quotas}

    def advance(self, at_ms: Instant) -> None:
        """Time passes with everything as it is."""
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

    def come(self, job: JobId, milli: GpuMilli) -> None:
        """A new job, which waits."""
        self._want(job.project, milli)
        self.wait(job, milli)

    def wait(self, job: JobId, milli: GpuMilli) -> None:
        """A job begins to wait: it could start from now on."""
        self._touched.add(job.project)
        self._queues[job.project].setdefault(milli, OrderedDict())[job] = None

    def pause(self, job: JobId, milli: GpuMilli) -> None:
        """A running job is told to leave: what it holds from now on is of no use to it."""
        self._hold(job.project, -milli)

    def start(self, job: JobId, milli: GpuMilli) -> None:
        """A waiting job starts."""
        project = job.project
        self._hold(project, milli)
        del self._queues[project][milli][job]

    def end(self, job: JobId, milli: GpuMilli) -> None:
        """A running job ends."""
        self._hold(job.project, -milli)
        self._want(job.project, -milli)

    def close(self) -> dict[ProjectName, Short]:
        """The window ends."""
        self.advance(self._until_ms)
        for project, clocks in self._clocks.items():
            for size in list(clocks):
                self._stop_clock(project, size)
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

    def _hold(self, project: ProjectName, milli: GpuMilli) -> None:
        self._touched.add(project)
        self._held[project] += milli
        self._held_milli += milli

    def _want(self, project: ProjectName, milli: GpuMilli) -> None:
        self._touched.add(project)
        self._demand[project] += milli
        self._demand_milli += milli

    def _settle(self) -> None:
        """Work out anew what depends on what was touched; what is so now has been so since the last instant."""
        for project in self._share_out():
            _note(self._short, project, self._shares[project] - self._held[project])
        for project in self._touched:
            held = self._held[project]
            _note(self._missing, project, min(self.quotas[project], self._demand[project]) - held)
            self._set_clocks(project, self.quotas[project] - held)
            steps = self.steps[project]
            if not steps or steps[-1][1] != held:
                steps.append((self._at_ms, held))
        self._touched.clear()

    def _share_out(self) -> Collection[ProjectName]:
        """Bring the shares up to date; whoever may now be short of another amount."""
        enough = self._demand_milli <= self._capacity_milli
        if enough and self._enough:
            for project in self._touched:
                self._shares[project] = self._asked[project] = self._demand[project]
        elif not all(self._is_open(project) for project in self._touched):
            self._shares = fluid_shares(self._capacity_milli, self.quotas, self._demand)
            self._asked = dict(self._demand)
            self._enough = enough
            return self.quotas
        return self._touched

    def _is_open(self, project: ProjectName) -> bool:
        """It wanted and wants more than its share, so that what it wants above that changes nobody's."""
        return self._shares[project] < min(self._asked[project], self._demand[project])

    def _set_clocks(self, project: ProjectName, room_milli: GpuMilli) -> None:
        """One clock for each size that would leave the project within its quota, for the first job of that size."""
        clocks = self._clocks[project]
        for size, queue in self._queues[project].items():
            first = next(iter(queue)) if queue and size <= room_milli else None
            known = clocks.get(size)
            if known is not None and known[0] != first:
                self._stop_clock(project, size)
                known = None
            if known is None and first is not None:
                clocks[size] = first, self._at_ms

    def _stop_clock(self, project: ProjectName, size: GpuMilli) -> None:
        _, since_ms = self._clocks[project].pop(size)
        waited_ms = self._at_ms - since_ms
        tally = self._violations[project]
        tally[2] = max(tally[2], waited_ms)
        if waited_ms > self._reclaim_ms:
            tally[0] += 1
            tally[1] += waited_ms - self._reclaim_ms


def _note(short: dict[ProjectName, GpuMilli], project: ProjectName, milli: GpuMilli) -> None:
    """Only who is short of something stands there: most of the time nobody is."""
    if milli > 0:
        short[project] = milli
    else:
        short.pop(project, None)


def fluid_shares(
    capacity_milli: GpuMilli, quotas: Mapping[ProjectName, GpuMilli], demand: Mapping[ProjectName, GpuMilli]
) -> dict[ProjectName, GpuMilli]:
    """Each project's fair share: guaranteed quota first, then what is spare by quota. Cost: O(n log n)."""
    if sum(demand.values()) <= capacity_milli:
        return dict(demand)
    claims = [
        Claim(owner=project, quota_milli=quota, demand_milli=demand[project], weight=quota)
        for project, quota in quotas.items()
    ]
    portions = divide(capacity_milli, claims)
    return {project: portions[project].share_milli for project in quotas}
