"""The oracle's view of a cluster: what is free, which run holds what, which jobs wait, and each owner's portion.

Counted independently from the model's values. Owners are "department <name>" and "project <name>".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpuctl.model.declared import Allowance, Declared, Sharing
from gpuctl.model.ids import DomainName, JobId, PoolName, ProjectName
from gpuctl.model.job import Job, JobType
from gpuctl.model.state import ACTIVE, ClusterState, Run, RunPhase
from gpuctl.model.units import Instant

from .shares import Owner, Portion, divide, entitle

Devices = tuple[int, ...]
"""Free milli of each device of a node."""
Worker = tuple[str, tuple[int, ...]]
NONE = Allowance(quota_milli=0)


@dataclass(frozen=True, slots=True)
class Held:
    """A run in its place."""

    job: Job
    run: Run
    domain: DomainName
    pool: PoolName
    workers: tuple[Worker, ...]

    @property
    def reserved(self) -> tuple[Worker, ...]:
        """Places that are reserved for workers that it lacks."""
        return () if self.run.reserved is None else tuple((str(w.node), w.gpus) for w in self.run.reserved.workers)

    @property
    def milli(self) -> int:
        """Its GPUs."""
        return self.run.gpu_milli * len(self.workers)


class View:
    """A cluster at a moment. `portions`: exact, as shown; `entitled`: the whole GPUs that they entitle to."""

    def __init__(self, tree: Declared, state: ClusterState, now_ms: Instant, asked: JobId | None = None) -> None:
        """`asked`: the job that is being decided about; what follows from its start is decided with it."""
        self.tree = tree
        self.now_ms = now_ms
        self.domain_of = {pool: domain.name for domain in tree.domains for pool in domain.pools}
        self.capacity: dict[PoolName, dict[str, Devices]] = {pool.name: {} for pool in tree.cluster.pools}
        self.pool_of: dict[str, PoolName] = {}
        for node in state.nodes:
            pool = next((p for p in tree.cluster.pools if p.selects(node.labels)), None)
            if pool is not None:
                self.pool_of[node.name] = pool.name
                if node.ready and node.usable:
                    self.capacity[pool.name][node.name] = (1000,) * node.gpus
        self.fractions = {pool.name: pool.sharing is not Sharing.DEVICE_PLUGIN for pool in tree.cluster.pools}
        self.chains = {p.name: self._chain(p.name) for p in tree.projects}
        self._allowances = {f"project {p.name}": p.allowances for p in tree.projects}
        self._allowances |= {f"department {d.name}": d.allowances for d in tree.departments}
        self._read(state)
        self.came = [*self.waiting, *(job for job in tree.jobs if job.id == asked)]
        self.portions: dict[tuple[DomainName, str], Portion] = {}
        self.entitled: dict[tuple[DomainName, str], Portion] = {}
        self._divide()

    def _read(self, state: ClusterState) -> None:
        jobs = {job.id: job for job in self.tree.jobs}
        self.declared = frozenset(jobs)
        self.held: list[Held] = []
        self.waiting: list[Job] = []
        self.runs = {run.job: run for run in state.runs}
        self.holds: defaultdict[tuple[DomainName, str], int] = defaultdict(int)
        self.fixed: defaultdict[tuple[DomainName, str], int] = defaultdict(int)
        for run in state.runs:
            job = jobs.get(run.job)
            if job is None:
                continue
            if run.phase is RunPhase.QUEUED:
                self.waiting.append(job)
            if run.phase not in ACTIVE or run.placement is None:
                continue
            workers = tuple((str(w.node), w.gpus) for w in run.placement.workers)
            pool = self.pool_of[workers[0][0]]
            held = Held(job, run, self.domain_of[pool], pool, workers)
            self.held.append(held)
            for owner in self.chains[job.id.project]:
                self.holds[held.domain, owner] += held.milli
                self.fixed[held.domain, owner] += 0 if job.preemptible else held.milli

    def _chain(self, project: ProjectName) -> tuple[str, ...]:
        """The project and its department."""
        above = self.tree.project(project).department
        return (f"project {project}",) if above is None else (f"project {project}", f"department {above}")

    def allowance(self, domain: DomainName, owner: str) -> Allowance:
        """An owner's declared allowance in a domain."""
        return self._allowances[owner].get(domain, NONE)

    def domain_for(self, job: Job) -> DomainName:
        """The domain that a job counts in: all its pools are in one."""
        return self.domain_of[job.pools[0]]

    def free(self, gone: Iterable[tuple[Held, int]] = ()) -> dict[PoolName, dict[str, Devices]]:
        """The free part of each device once so many of the last workers of some runs have left.

        GPUs that were freed for an elastic run stay reserved for it while it runs.
        """
        leaves = {held.job.id: count for held, count in gone}
        rooms = {pool: {node: list(left) for node, left in nodes.items()} for pool, nodes in self.capacity.items()}
        for held in self.held:
            kept = held.workers[: len(held.workers) - leaves.get(held.job.id, 0)]
            for node, gpus in (*kept, *(held.reserved if kept else ())):
                room = rooms[held.pool].get(node)
                for gpu in gpus if room is not None else ():
                    room[gpu] -= min(1000, held.run.gpu_milli)  # type: ignore[index]
        return {pool: {node: tuple(left) for node, left in nodes.items()} for pool, nodes in rooms.items()}

    # Demand and division

    def _divide(self) -> None:
        for domain in self.tree.domains:
            demand = self.demand(domain.name)
            capacity = sum(sum(left) for pool in domain.pools for left in self.capacity[pool].values())
            below = {
                d.name: tuple(
                    self._owner(domain.name, p.name, demand) for p in self.tree.projects if p.department == d.name
                )
                for d in self.tree.departments
            }
            top = [self._owner(domain.name, p.name, demand) for p in self.tree.projects if p.department is None]
            top += [self._department(domain.name, name, owners) for name, owners in below.items() if owners]
            found = divide(capacity, top)
            holds = {owner: self.holds[domain.name, owner] for owner in found}
            entitled = entitle(capacity, top, found, holds)
            self.portions |= {(domain.name, owner): portion for owner, portion in found.items()}
            self.entitled |= {(domain.name, owner): portion for owner, portion in entitled.items()}

    def _owner(self, domain: DomainName, project: ProjectName, demand: dict[ProjectName, int]) -> Owner:
        allowance = self.allowance(domain, f"project {project}")
        wants = demand.get(project, 0)
        limit = allowance.limit_milli
        priority = self.tree.project(project).priority
        wants = wants if limit is None else min(wants, limit)
        jobs = (*self.waiting, *(held.job for held in self.held))
        in_parts = any(job.gpu_milli % 1000 for job in jobs if job.id.project == project)
        return Owner(f"project {project}", allowance.quota_milli, allowance.weight, priority, wants, in_parts)

    def _department(self, domain: DomainName, name: str, below: tuple[Owner, ...]) -> Owner:
        allowance = self.allowance(domain, f"department {name}")
        wants = sum(owner.wants for owner in below)
        limit = allowance.limit_milli
        wants = wants if limit is None else min(wants, limit)
        in_parts = any(owner.in_parts for owner in below)
        return Owner(f"department {name}", allowance.quota_milli, allowance.weight, 0, wants, in_parts, below)

    def demand(self, domain: DomainName) -> dict[ProjectName, int]:
        """DESIGN 4.1: what a project holds, what its elastic runs lack, and what its waiting jobs could use."""
        wants: defaultdict[ProjectName, int] = defaultdict(int)
        fixed: defaultdict[ProjectName, int] = defaultdict(int)
        for held in self.held:
            if held.domain == domain:
                wants[held.job.id.project] += held.milli + self.lacks(held) * held.run.gpu_milli
                fixed[held.job.id.project] += 0 if held.job.preemptible else held.milli
        for job in sorted(self.waiting, key=lambda job: rank(job, self.runs[job.id])):
            most, project = self.most_workers(job), job.id.project
            if self.domain_for(job) != domain or not most:
                continue
            if not job.preemptible:  # Bounded by its own quota: it asks for as many workers as the quota allows.
                left = self.allowance(domain, f"project {project}").quota_milli - fixed[project]
                sizes = range(most, job.min_workers - 1, -1)
                most = next((workers for workers in sizes if job.gpu_milli * workers <= left), 0)
                fixed[project] += job.gpu_milli * most
            milli = job.gpu_milli * most
            wants[project] += milli
        return dict(wants)

    def most_workers(self, job: Job) -> int:
        """The most workers that a job could run with in an empty cluster; 0: it can't run."""
        for workers in range(job.workers, job.min_workers - 1, -1):
            if not self._breaks_a_ceiling_alone(job, workers) and any(
                place([(job.gpu_milli, workers)], self.capacity[pool]) is not None
                for pool in job.pools
                if self.can_share(job, pool)
            ):
                return workers
        return 0

    def can_share(self, job: Job, pool: PoolName) -> bool:
        """Whether the pool provides such a part of a GPU."""
        return job.gpu_milli % 1000 == 0 or self.fractions[pool]

    def _breaks_a_ceiling_alone(self, job: Job, workers: int) -> bool:
        domain, milli = self.domain_for(job), job.gpu_milli * workers
        for owner in self.chains[job.id.project]:
            allowance = self.allowance(domain, owner)
            if allowance.limit_milli is not None and milli > allowance.limit_milli:
                return True
            if not job.preemptible and milli > allowance.quota_milli:
                return True
        return False

    def reach(self, held: Held) -> dict[str, frozenset[int]]:
        """The devices that a run's new pods can have while it runs, by node: those that its pods were made for."""
        made = held.run.made_with
        there = self.capacity[held.pool]
        if made is None:
            return {}
        if not self.fractions[held.pool]:
            return {node: frozenset(range(len(there[node]))) for node in made.nodes if node in there}
        found: defaultdict[str, set[int]] = defaultdict(set)
        for worker in made.workers:
            found[worker.node].update(worker.gpus)
        return {node: frozenset(gpus) for node, gpus in found.items()}

    def lacks(self, held: Held) -> int:
        """The number of workers that an elastic run could have in addition, where its pods can be."""
        made = held.run.made_with
        if made is None or len(held.workers) >= held.job.workers:
            return 0
        if self.fractions[held.pool]:  # Its pods request GPUs by name.
            return max(0, min(held.job.workers, len(made.workers)) - len(held.workers))
        nodes = {node: self.capacity[held.pool][node] for node in made.nodes if node in self.capacity[held.pool]}
        each = held.run.gpu_milli // 1000
        return max(0, min(held.job.workers, sum(len(left) // each for left in nodes.values())) - len(held.workers))


def rank(job: Job, run: Run) -> tuple[bool, int, Instant, JobId]:
    """DESIGN 4.3: inference and interactive before training, then priority, then first queued, then name."""
    return job.type is JobType.TRAINING, -job.priority, run.queued_at_ms, job.id


# Placement


def place(asks: Sequence[tuple[int, int]], nodes: dict[str, Devices]) -> list[list[Worker]] | None:
    """Places for all workers of all asks (milli, workers) together, found by trying all; None if there are none."""
    order = sorted(range(len(asks)), key=lambda index: -asks[index][0])
    workers = [(index, asks[index][0]) for index in order for _ in range(asks[index][1])]
    trial = _Trial(workers, sorted(nodes), {name: dict(enumerate(left)) for name, left in nodes.items()})
    if not trial.seat(0, 0):
        return None
    found: list[list[Worker]] = [[] for _ in asks]
    for (index, _), worker in zip(workers, trial.found, strict=True):
        found[index].append(worker)
    return found


class _Trial:
    """A depth-first trial of all places for a list of (ask, milli of one worker)."""

    def __init__(self, workers: list[tuple[int, int]], names: list[str], rooms: dict[str, dict[int, int]]) -> None:
        self.workers = workers
        self.names = names
        self.rooms = rooms
        self.found: list[Worker] = []

    def seat(self, at: int, first: int) -> bool:
        """Whether the workers from `at` on have places; equal workers are placed in the order of nodes."""
        if at == len(self.workers):
            return True
        milli = self.workers[at][1]
        is_alike = at > 0 and self.workers[at - 1] == self.workers[at]
        for position in range(first if is_alike else 0, len(self.names)):
            room = self.rooms[self.names[position]]
            for gpus in _choices(room, milli):
                for gpu in gpus:
                    room[gpu] -= min(1000, milli)
                self.found.append((self.names[position], gpus))
                if self.seat(at + 1, position):
                    return True
                self.found.pop()
                for gpu in gpus:
                    room[gpu] += min(1000, milli)
        return False


def _choices(room: dict[int, int], milli: int) -> list[tuple[int, ...]]:
    """The choices of devices for one worker, one for each different free amount; equal devices are interchangeable."""
    if milli >= 1000:
        whole = [gpu for gpu, left in room.items() if left >= 1000]
        return [tuple(whole[: milli // 1000])] if len(whole) >= milli // 1000 else []
    by_room = {left: gpu for gpu, left in room.items() if left >= milli}
    return [(by_room[left],) for left in sorted(by_room)]
