"""Small worlds as plain values: the declarations, the runs and their places, the waiting jobs, and the judged job.

`draw` makes one from a seed. `declared` and `start` turn it into the model's values, `scenario.py` into YAML.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from gpuctl.diag.span import SourceSpan
from gpuctl.model.declared import (
    WHOLE_CLUSTER,
    Allowance,
    Cluster,
    Declared,
    DeclaredNode,
    Department,
    MinRuntime,
    NodePool,
    PlacementStrategy,
    Project,
    QuotaDomain,
    SchedulingPolicy,
    Sharing,
)
from gpuctl.model.ids import DomainName, JobId, NodeName, PoolName, ProjectName, RunDigest
from gpuctl.model.job import Container, Job, JobType

SPAN = SourceSpan(file="oracle.yaml")
DIGEST = RunDigest("00000001")
GIB = 1024**3
LISTED = 0.25
"""The part of the jobs with several pools that list them in order."""
Places = tuple[tuple[str, tuple[int, ...]], ...]
"""The node and the devices of each worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSpec:
    """A pool: the GPUs of each node, and whether it provides parts of a GPU."""

    name: str
    nodes: tuple[int, ...]
    fractions: bool = True
    spread: bool = False

    def node_names(self) -> tuple[str, ...]:
        """Its nodes, in order."""
        return tuple(f"{self.name}{index + 1}" for index in range(len(self.nodes)))


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerSpec:
    """A project or a department. `quotas` in milli-GPU, one for each domain; `weight` None: as the quota."""

    name: str
    quotas: tuple[int, ...]
    limit: int | None = None
    weight: int | None = None
    department: str | None = None
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A job; `least` is minWorkers, and less than `workers` for an elastic job. `in_order`: it lists its pools."""

    project: str
    name: str
    kind: str = "training"
    milli: int = 1000
    workers: int = 1
    least: int = 1
    priority: int = 0
    preemptible: bool = True
    pools: tuple[str, ...] = ("p",)
    in_order: bool = False

    @property
    def id(self) -> str:
        """As `project/name`."""
        return f"{self.project}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """A run at the start: since when it runs or waits, and where it runs; without a place, it waits."""

    job: str
    ago_s: int
    places: Places = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldSpec:
    """A world. `wanted`: the job that is added once the rest is at rest; "" for none.

    `min_runtime_s`: minRuntime against guarantees; `fair_runtime_s`: against fairness and moves.
    """

    pools: tuple[PoolSpec, ...]
    projects: tuple[OwnerSpec, ...]
    jobs: tuple[JobSpec, ...]
    runs: tuple[RunSpec, ...] = ()
    departments: tuple[OwnerSpec, ...] = ()
    wanted: str = ""
    by_pool: bool = False
    overcommit: bool = False
    consolidation: bool = True
    min_runtime_s: int = 0
    fair_runtime_s: int = 0

    @property
    def domains(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Quota domains by name, each with its pools."""
        names = tuple(pool.name for pool in self.pools)
        return tuple((name, (name,)) for name in names) if self.by_pool else ((WHOLE_CLUSTER, names),)

    def job(self, name: str) -> JobSpec:
        """The job of that id."""
        return next(job for job in self.jobs if job.id == name)

    def without(self, name: str) -> WorldSpec:
        """The world without a job and its run."""
        jobs = tuple(job for job in self.jobs if job.id != name)
        return replace(self, jobs=jobs, runs=tuple(run for run in self.runs if run.job != name))


def declared(spec: WorldSpec) -> Declared:
    """The declarations as the compiler would give them."""
    policy = SchedulingPolicy(
        min_runtime=MinRuntime(1000 * spec.min_runtime_s, 1000 * spec.fair_runtime_s, 1000 * spec.fair_runtime_s),
        consolidation=spec.consolidation,
        overcommit_quota=spec.overcommit,
    )
    cluster = Cluster(
        name="c", namespace_prefix="gpu-", pools=tuple(map(_pool, spec.pools)), ingress=None, scheduling=policy,
        span=SPAN,
    )  # fmt: skip
    domains = tuple(
        QuotaDomain(name=DomainName(name), pools=tuple(PoolName(p) for p in pools)) for name, pools in spec.domains
    )
    names = [domain.name for domain in domains]
    return Declared(
        cluster=cluster,
        domains=domains,
        departments=tuple(
            Department(name=d.name, allowances=_allowances(d, names), span=SPAN)
            for d in sorted(spec.departments, key=lambda d: d.name)
        ),
        projects=tuple(_project(p, names) for p in sorted(spec.projects, key=lambda p: p.name)),
        jobs=tuple(sorted(map(_job, spec.jobs), key=lambda job: job.id)),
    )


def _pool(spec: PoolSpec) -> NodePool:
    nodes = tuple(
        DeclaredNode(name=NodeName(name), gpus=gpus, cpu_milli=64_000, mem_bytes=512 * GIB)
        for name, gpus in zip(spec.node_names(), spec.nodes, strict=True)
    )
    return NodePool(
        name=PoolName(spec.name),
        match_labels={"gpuctl.dev/pool": spec.name},
        nodes=nodes,
        gpu_mem_bytes=32 * GIB,
        gpu_product="V100",
        placement=PlacementStrategy.SPREAD if spec.spread else PlacementStrategy.BINPACK,
        sharing=Sharing.DRA if spec.fractions else Sharing.DEVICE_PLUGIN,
        span=SPAN,
    )


def _allowances(spec: OwnerSpec, domains: Sequence[DomainName]) -> Mapping[DomainName, Allowance]:
    return {
        domain: Allowance(
            quota_milli=quota, limit_milli=spec.limit, weight=quota if spec.weight is None else spec.weight
        )
        for domain, quota in zip(domains, spec.quotas, strict=True)
    }


def _project(spec: OwnerSpec, domains: Sequence[DomainName]) -> Project:
    return Project(
        name=ProjectName(spec.name), namespace=f"gpu-{spec.name}", allowances=_allowances(spec, domains),
        department=spec.department, priority=spec.priority, span=SPAN,
    )  # fmt: skip


def _job(spec: JobSpec) -> Job:
    return Job(
        id=JobId.parse(spec.id), digest=DIGEST, type=JobType(spec.kind), container=Container(image="train"),
        gpu_milli=spec.milli, workers=spec.workers, min_workers=spec.least, priority=spec.priority,
        preemptible=spec.preemptible, pools=tuple(PoolName(p) for p in spec.pools),
        pools_in_order=spec.in_order, span=SPAN,
    )  # fmt: skip


def quotas_fit(spec: WorldSpec) -> bool:
    """Whether quotas add up to no more than what they divide, as the compiler requires unless overcommit is allowed."""
    if spec.overcommit:
        return True
    for index, (_, pools) in enumerate(spec.domains):
        there = 1000 * sum(sum(pool.nodes) for pool in spec.pools if pool.name in pools)
        top = [owner for owner in (*spec.departments, *spec.projects) if owner.department is None]
        if sum(owner.quotas[index] for owner in top) > there:
            return False
        for department in spec.departments:
            members = [p.quotas[index] for p in spec.projects if p.department == department.name]
            if sum(members) > department.quotas[index]:
                return False
    return True


# Drawing


def draw(seed: int) -> WorldSpec:
    """The world of a seed, in which GPUs are scarce."""
    random = Random(seed)
    pools = _draw_pools(random)
    by_pool = len(pools) > 1 and random.random() < 0.3
    domains = [[pool] for pool in pools] if by_pool else [pools]
    overcommit = random.random() < 0.12
    departments, projects = _draw_owners(random, domains, overcommit=overcommit)
    lists = Random(f"lists {seed}")
    jobs = [
        replace(job, in_order=len(job.pools) > 1 and lists.random() < LISTED)
        for job in _draw_jobs(random, pools, projects, by_pool=by_pool)
    ]
    min_runtime_s = random.choice((0,) * 9 + (60,))
    spec = WorldSpec(
        pools=tuple(pools),
        projects=tuple(projects),
        departments=tuple(departments),
        jobs=tuple(jobs),
        wanted=jobs[-1].id,
        by_pool=by_pool,
        overcommit=overcommit,
        consolidation=random.random() < 0.7,
        min_runtime_s=min_runtime_s,
        fair_runtime_s=max(min_runtime_s, Random(f"minRuntime {seed}").choice((0,) * 9 + (60,))),
    )
    return replace(spec, runs=_draw_runs(random, spec))


def _draw_pools(random: Random) -> list[PoolSpec]:
    sizes = [random.choice((1, 2, 2, 3, 4)) for _ in range(random.choice((1, 2, 2, 3)))]
    fractions, spread = random.random() < 0.6, random.random() < 0.2
    if len(sizes) == 1 or random.random() < 0.75:
        return [PoolSpec(name="p", nodes=tuple(sizes), fractions=fractions, spread=spread)]
    cut = random.randint(1, len(sizes) - 1)
    return [
        PoolSpec(name="p", nodes=tuple(sizes[:cut]), fractions=fractions, spread=spread),
        PoolSpec(name="q", nodes=tuple(sizes[cut:]), fractions=fractions, spread=spread),
    ]


def _draw_owners(
    random: Random, domains: Sequence[Sequence[PoolSpec]], *, overcommit: bool
) -> tuple[list[OwnerSpec], list[OwnerSpec]]:
    """Departments and projects whose quotas fit what they divide, unless overcommit is allowed."""
    there = [1000 * sum(sum(pool.nodes) for pool in pools) for pools in domains]
    left = {"": list(there)}
    departments = []
    for name in ("d1", "d2")[: random.choice((0, 0, 1, 2))]:
        quotas = tuple(_take(random, left[""], index, overcommit=overcommit) for index in range(len(domains)))
        left[name] = list(quotas)
        departments.append(OwnerSpec(name=name, quotas=quotas, weight=_draw_weight(random), limit=_draw_limit(random)))
    projects = []
    for name in ("a", "b", "c", "e")[: random.choice((1, 2, 2, 3, 3, 4))]:
        above = random.choice(("", *(d.name for d in departments), *(d.name for d in departments)))
        quotas = tuple(_take(random, left[above], index, overcommit=overcommit) for index in range(len(domains)))
        projects.append(
            OwnerSpec(
                name=name, quotas=quotas, weight=_draw_weight(random), limit=_draw_limit(random),
                department=above or None, priority=random.choice((0, 0, 0, 0, 1)),
            )
        )  # fmt: skip
    return departments, projects


def _take(random: Random, left: list[int], index: int, *, overcommit: bool) -> int:
    quota = random.choice((0, 0, 1000, 1000, 2000, 2000, 3000, 4000, 500, 1500))
    if overcommit:
        return quota
    quota = min(quota, left[index])
    left[index] -= quota
    return quota


def _draw_weight(random: Random) -> int | None:
    return random.choice((None, None, None, 0, 1000, 1000, 2000))


def _draw_limit(random: Random) -> int | None:
    return random.choice((None,) * 9 + (2000, 3000))


def _draw_jobs(
    random: Random, pools: Sequence[PoolSpec], projects: Sequence[OwnerSpec], *, by_pool: bool
) -> list[JobSpec]:
    jobs = []
    for index in range(random.choice((2, 3, 4, 5, 5, 6, 6, 7, 7))):
        kind = random.choice(("training",) * 7 + ("interactive", "interactive", "inference"))
        parts = (500, 300, 700, 500) if pools[0].fractions else ()
        milli = random.choice((1000, 1000, 1000, 1000, 2000, 2000, 3000, *parts))
        workers = random.choice((1, 1, 1, 1, 2, 2, 3)) if milli in (500, 1000, 2000) else 1
        is_elastic = workers > 1 and random.random() < 0.4
        names = [pool.name for pool in pools]
        random.shuffle(names)
        jobs.append(
            JobSpec(
                project=random.choice(projects).name, name=f"j{index}", kind=kind, milli=milli, workers=workers,
                least=random.randint(1, workers - 1) if is_elastic else workers,
                priority=random.choice((0, 0, 0, 1, 2)),
                preemptible=kind == "training" if random.random() < 0.85 else kind != "training",
                pools=tuple(names[:1] if by_pool or random.random() < 0.3 else names),
            )
        )  # fmt: skip
    return jobs


def _draw_runs(random: Random, spec: WorldSpec) -> tuple[RunSpec, ...]:
    """Most of the jobs run in random places, within their ceilings; the rest wait."""
    free = {
        name: [1000] * gpus for pool in spec.pools for name, gpus in zip(pool.node_names(), pool.nodes, strict=True)
    }
    ages = random.sample(range(10, 500), len(spec.jobs))
    runs: list[RunSpec] = []
    for age, job in zip(ages, spec.jobs, strict=True):
        if job.id == spec.wanted:
            continue
        places: Places = ()
        if random.random() < 0.85 and _is_allowed(spec, job, runs):
            places = _draw_places(random, spec, job, free)
        runs.append(RunSpec(job=job.id, ago_s=age if places else age // 4, places=places))
    return tuple(runs)


def _is_allowed(spec: WorldSpec, job: JobSpec, runs: Sequence[RunSpec]) -> bool:
    """Whether limits allow the job, and, for work that can't be paused, quotas; counted over all domains."""
    project = next(p for p in spec.projects if p.name == job.project)
    above = [d for d in spec.departments if d.name == project.department]
    held = [(run, spec.job(run.job)) for run in runs if run.places]
    for owner in (project, *above):
        members = {p.name for p in spec.projects if owner.name in (p.name, p.department)}
        mine = [(run, other) for run, other in held if other.project in members]
        total = sum(other.milli * len(run.places) for run, other in mine) + job.milli * job.workers
        fixed = sum(other.milli * len(run.places) for run, other in mine if not other.preemptible)
        if owner.limit is not None and total > owner.limit:
            return False
        if not job.preemptible and (spec.overcommit or fixed + job.milli * job.workers > min(owner.quotas)):
            return False
    return True


def _draw_places(random: Random, spec: WorldSpec, job: JobSpec, free: dict[str, list[int]]) -> Places:
    """Random places in one pool for all workers, which are taken from `free`; () if there are none."""
    chosen = random.choice(job.pools)
    pool = next(p for p in spec.pools if p.name == chosen)
    left = {name: list(free[name]) for name in pool.node_names()}
    places = []
    for _ in range(job.workers):
        names = list(left)
        random.shuffle(names)
        for name in names:
            gpus = _devices(random, left[name], job.milli)
            if gpus:
                for gpu in gpus:
                    left[name][gpu] -= min(1000, job.milli)
                places.append((name, gpus))
                break
        else:
            return ()
    free.update(left)
    return tuple(places)


def _devices(random: Random, free: Sequence[int], milli: int) -> tuple[int, ...]:
    if milli < 1000:
        able = [index for index, left in enumerate(free) if left >= milli]
        return (random.choice(able),) if able else ()
    able = [index for index, left in enumerate(free) if left == 1000]
    return tuple(able[: milli // 1000]) if len(able) >= milli // 1000 else ()
