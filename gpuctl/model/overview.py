"""What the leader publishes to all teams: what projects and nodes hold, and the queue without the names of its jobs.

Security: a waiting job's position and forecast start are filed under tickets, made from the uid of the job's object.
The API server makes uids at random and shows one only to users who may read the object. So a user who may read a job
finds both. For other users they are a position and a start of an unknown job of an unknown project, and they can't tell
which position and which start belong together.

A removed job has no object any more. The commit that removed it is filed under a ticket made from the job's name and
the uid of its project's ResourceQuota: finding it takes the right to read the project's objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from gpuctl.model.declared import Allowance
from gpuctl.model.ids import DomainName, JobId, NodeName, ProjectName
from gpuctl.model.state import Removal
from gpuctl.model.units import CpuMilli, GpuMilli, Instant, MemBytes
from gpuctl.model.workload_kind import WorkloadKind


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectOverview:
    """A project's claims by quota domain, its fair shares, and its jobs by number and GPUs."""

    name: ProjectName
    namespace: str
    department: str = ""
    allowances: Mapping[DomainName, Allowance] = field(default_factory=dict)
    share_milli: Mapping[DomainName, GpuMilli] = field(default_factory=dict)
    allocated_milli: GpuMilli = 0
    running: int = 0
    waiting: int = 0
    waiting_milli: GpuMilli = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DepartmentOverview:
    """A department's claims by quota domain. `parent`: the department above it, "" for none."""

    name: str
    parent: str = ""
    allowances: Mapping[DomainName, Allowance] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOverview:
    """A node's GPUs by index: the part held by jobs of all projects, the part held by other pods, and the lost GPUs."""

    name: NodeName
    status: str
    job_milli: tuple[GpuMilli, ...]
    foreign_milli: tuple[GpuMilli, ...]
    lost: frozenset[int] = frozenset()
    cpu_milli: CpuMilli = 0
    cpu_requested_milli: CpuMilli = 0
    mem_bytes: MemBytes = 0
    mem_requested_bytes: MemBytes = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The published state. `at_ms`: since when it holds. `waiting`: jobs that could run and have no place, the queue.

    - `positions`, `starts`: of waiting jobs by ticket: the position in the queue of all projects, from 1, and the
      forecast start, rounded up to a minute; no start for a job without a forecast.
    - `removed`: the jobs removed last, by ticket.
    - `left_out`: how many rows did not fit.
    """

    at_ms: Instant
    projects: tuple[ProjectOverview, ...] = ()
    departments: tuple[DepartmentOverview, ...] = ()
    nodes: tuple[NodeOverview, ...] = ()
    positions: Mapping[str, int] = field(default_factory=dict)
    starts: Mapping[str, Instant] = field(default_factory=dict)
    removed: Mapping[str, Removal] = field(default_factory=dict)
    workload_kinds: tuple[WorkloadKind, ...] = ()
    left_out: int = 0

    @property
    def waiting(self) -> int:
        """The length of the queue."""
        return sum(project.waiting for project in self.projects)

    def position(self, uid: str) -> int | None:
        """The position of the job with that object; None if it is not in the queue."""
        return self.positions.get(position_ticket(uid))

    def start_ms(self, uid: str) -> Instant | None:
        """The forecast start of the job with that object."""
        return self.starts.get(start_ticket(uid))


def removal_ticket(job: JobId, quota_uid: str) -> str:
    """The ticket of a job's removal, by the uid of its project's ResourceQuota."""
    return ticket(f"removal {job}", quota_uid)


def position_ticket(uid: str) -> str:
    """The ticket of the position of the job with that object."""
    return ticket("position", uid)


def start_ticket(uid: str) -> str:
    """The ticket of the forecast start of the job with that object."""
    return ticket("start", uid)


def ticket(fact: str, uid: str) -> str:
    """The ticket of a fact of the job with that object, for anything that is published."""
    return sha256(f"gpuctl {fact} {uid}".encode()).hexdigest()[:16]
