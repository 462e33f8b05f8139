"""What the leader publishes to all teams: what projects and nodes hold, and the queue without the names of its jobs.

A waiting job's position and its forecast start are filed under tickets, which are made from the uid of the job's
object. The API server makes uids at random, and shows one only to those who may read the object: so whoever may read a
job finds both, and for others they are a position and a start of a job of which they learn neither name nor project,
nor which belongs to which.

A removed job has no object any more. The commit that removed it is filed under a ticket that is made from its name and
the uid of its project's ResourceQuota: the right to read the project's objects is what it takes to find it.
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
    """A node's GPUs by index: what jobs of all projects together have of each, what other pods have, which are lost."""

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
    """`at_ms`: since when it is so. `waiting` counts jobs that could run and have no place: the queue.

    `positions` and `starts` by ticket, of jobs that wait: the position in the queue of all projects, from 1, and the
    start by the forecast, rounded up to a minute; none for a job of which no start is forecast. `removed` by
    ticket: the jobs that were removed last. `left_out`: rows that found no room.
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
        """How long the queue is."""
        return sum(project.waiting for project in self.projects)

    def position(self, uid: str) -> int | None:
        """The position of the job with that object; None for one that is not in the queue."""
        return self.positions.get(position_ticket(uid))

    def start_ms(self, uid: str) -> Instant | None:
        """The forecast start of the job with that object."""
        return self.starts.get(start_ticket(uid))


def removal_ticket(job: JobId, quota_uid: str) -> str:
    """What the removal of a job is filed under, by the uid of its project's ResourceQuota."""
    return ticket(f"removal {job}", quota_uid)


def position_ticket(uid: str) -> str:
    """What the position of the job with that object is filed under."""
    return ticket("position", uid)


def start_ticket(uid: str) -> str:
    """What its forecast start is filed under."""
    return ticket("start", uid)


def ticket(fact: str, uid: str) -> str:
    """What a fact of the job with that object is filed under, in anything that is published."""
    return sha256(f"gpuctl {fact} {uid}".encode()).hexdigest()[:16]
