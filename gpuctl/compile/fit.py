"""Checks jobs against what they run on: the limits and quota of their project, the declared pools and nodes.

A job that could never start is reported as a mistake here, not after a week in the queue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

from gpuctl.compile import quota
from gpuctl.compile.containers import check_containers
from gpuctl.compile.containers_v1 import InitContainer, Sidecar
from gpuctl.compile.declarations import Declaration, Declarations
from gpuctl.compile.document import CHARACTERS_A_VALUE, Path, values_in
from gpuctl.compile.fields_v1 import Spec
from gpuctl.compile.lower import is_preemptible, project_max_duration
from gpuctl.compile.manifest_v1 import MOST_VALUES
from gpuctl.compile.pod_v1 import Probe
from gpuctl.compile.pool_v1 import NodePool
from gpuctl.compile.resolve import Names, Resolved, ResolvedJob, resolve_job, too_long_grace
from gpuctl.compile.security import check_security
from gpuctl.compile.sharing import Backends, check_environment, pool_words, request_path
from gpuctl.compile.spec_v1 import DepartmentV1, JobSpec, JobV1, ProjectV1
from gpuctl.compile.sweeps import check_sweep, size_of
from gpuctl.compile.text import Params
from gpuctl.compile.worker import worker_of
from gpuctl.diag.diagnostic import Diagnostic, Severity
from gpuctl.diag.wording import memory, thousandths
from gpuctl.model.declared import WHOLE_CLUSTER, DeclaredNode, Grant
from gpuctl.model.ids import DomainName
from gpuctl.model.memo import Memo
from gpuctl.model.units import WHOLE_GPU, GpuMilli, MemBytes

MOST_JOBS = 50_000
"""The most jobs of one project."""
_MOST_TEXT_BYTES = 1 << 20
_CPU = ("spec", "resources", "cpu")
_MEMORY = ("spec", "resources", "memory")


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """A job with only the pools that can serve it, or None, and its mistakes."""

    job: ResolvedJob | None
    diagnostics: Sequence[Diagnostic] = ()


def fit_jobs(
    declarations: Declarations, resolved: Resolved, fitted: Memo[Declaration[Any], Fitted]
) -> tuple[list[ResolvedJob], list[Diagnostic]]:
    """The jobs that fit, and the mistakes in all jobs.

    Cost: linear in the jobs that were not fitted before; each kind of node is checked once for each kind of worker.
    """
    fitted.turn()
    fitting = _Fitting(declarations, resolved)
    above = {name: quota.departments_above(resolved, each.model.spec) for name, each in resolved.projects.items()}
    jobs: list[ResolvedJob] = []
    found: list[Diagnostic] = []
    counts: Counter[str] = Counter()
    for job in declarations.jobs:
        name = job.model.metadata.project
        before = counts[name]
        counts[name] += size_of(job.model.spec.sweep)
        if counts[name] > MOST_JOBS:
            found.extend(_one_too_many(job) if before <= MOST_JOBS else ())
            continue
        project = resolved.projects.get(name)
        if project is None:  # not cached: the message depends on all names that are declared
            one = fitting.of(job)
        else:
            inputs = project, above[name], resolved.cluster, resolved.domains
            one = fitted.get(job, inputs, partial(fitting.of, job))
        found.extend(one.diagnostics)
        if one.job is not None:
            jobs.append(one.job)
    return jobs, found


def _one_too_many(job: Declaration[JobV1]) -> Iterator[Diagnostic]:
    whose = f'project "{job.model.metadata.project}"'
    yield job.document.diagnostic("GPU3031", job.document.name, {"whose": whose, "limit": MOST_JOBS, "what": "jobs"})


class _Fitting:
    """The declarations that jobs are checked against."""

    def __init__(self, declarations: Declarations, resolved: Resolved) -> None:
        self._resolved = resolved
        self._names = Names(declarations, resolved)
        self._backends = Backends(resolved)
        self._nodes = _Nodes(resolved, self._backends)

    def of(self, declaration: Declaration[JobV1]) -> Fitted:
        """Check one job, after its references are resolved."""
        job, found = resolve_job(declaration, self._names)
        if job is None:
            return Fitted(None, found)
        job = replace(job, text_bytes=_text_bytes(job.spec))
        found.extend(_lesser_mistakes(self._resolved, job))
        job, mistake = self._backends.serve(job)
        if mistake is not None:
            return Fitted(None, [*found, mistake])
        job, narrowed = self._nodes.of_one_kind(job)
        found.extend(narrowed)
        found.extend(_within_project(self._resolved, job, self._nodes.roomy(job) or job.pools, self._backends))
        found.extend(self._nodes.mistakes(job))
        return Fitted(job, found)


_USUAL_VALUES, _VALUE_BYTES, _CONTAINER_VALUES = 24, 256, 4
_WORDS = frozenset({"command", "args", "manifest", "sweep"})
"""The controller holds up to 1.1 KiB for a value and 7 KiB for a container while a commit changes them, compiled and in
the desired objects: 2,000 jobs of a template with 60 volumes took 530 MiB, of 384 that `install --jobs 2000` gives."""


def _texts(spec: JobSpec) -> Mapping[str, int]:
    """The bytes of a job's texts of unbounded length that its objects carry, by field."""
    return {
        "command": sum(map(_size, spec.command)),
        "args": sum(map(_size, spec.args)),
        "preStop": sum(map(_size, spec.pre_stop)),
        "probes": sum(_size(text) for probe in _probes(spec) for text in probe.exec or ()),
        "env": _size_of_env(spec),
        "initContainers": sum(map(_size_of_container, spec.init_containers)),
        "sidecars": sum(map(_size_of_container, spec.sidecars)),
    }


def _too_large(job: ResolvedJob) -> Iterator[Diagnostic]:
    """A mistake if a job's texts exceed what an object of the API server may hold (1.5 MiB, with everything else)."""
    if job.text_bytes <= _MOST_TEXT_BYTES:
        return
    texts = _texts(job.spec)
    total = sum(texts.values())
    if total > _MOST_TEXT_BYTES:
        largest = max(texts, key=lambda field: texts[field])
        yield job.mistake("GPU3060", ("spec", largest), {"found": total >> 10}, at_key=True)


def _text_bytes(spec: JobSpec) -> int:
    """The bytes of a job's texts of unbounded length; a manifest counts by its values. Other things that a job may have
    hundreds of, such as volumes, take memory by their number: those beyond the usual number count as text."""
    more = sum(_size(key) + _size(text) for key, text in spec.annotations.items())
    values = 0 if spec.manifest is None else values_in(spec.manifest, MOST_VALUES)
    further = max(0, _values(spec) - _USUAL_VALUES)
    return sum(_texts(spec).values()) + more + CHARACTERS_A_VALUE * values + _VALUE_BYTES * further


def _values(spec: JobSpec) -> int:
    """How many values a job has, without those that count as text; a container counts as some more."""
    count, rest = _CONTAINER_VALUES * (len(spec.init_containers) + len(spec.sidecars)), list[object]()
    rest.extend(getattr(spec, name) for name in spec.model_fields_set - _WORDS)
    while rest:
        count += 1
        here = rest.pop()
        if isinstance(here, Spec):
            rest.extend(getattr(here, name) for name in here.model_fields_set)
        elif isinstance(here, dict):
            rest.extend(here.values())
        elif isinstance(here, list | tuple):
            rest.extend(here)
    return count


def _size_of_container(container: InitContainer) -> int:
    probes = _probes(container) if isinstance(container, Sidecar) else ()
    texts = chain(container.command, container.args, *(probe.exec or () for probe in probes))
    return sum(map(_size, texts)) + _size_of_env(container)


def _size_of_env(container: JobSpec | InitContainer) -> int:
    return sum(_size(name) + _size(value) for name, value in container.env.items() if isinstance(value, str))


def _probes(spec: JobSpec | Sidecar) -> Iterator[Probe]:
    asked = (spec.probes.startup, spec.probes.readiness, spec.probes.liveness)
    return (probe for probe in asked if probe is not None)


def _size(text: str) -> int:
    return len(text.encode())


def _lesser_mistakes(resolved: Resolved, job: ResolvedJob) -> Iterator[Diagnostic]:
    document, spec = job.declaration.document, job.spec
    yield from _too_large(job)
    yield from check_environment(job)
    yield from check_sweep(job)
    yield from check_containers(job)
    if spec.git is not None and any(volume.mount_path == spec.git.path for volume in spec.volumes):
        fix = "give each a folder of its own"
        yield job.mistake("GPU2021", ("spec", "git", "path"), {"found": spec.git.path}, fix)
    yield from check_security(resolved, job)
    if spec.min_workers == 0 and not (resolved.cluster and resolved.cluster.model.spec.scheduling.scale_to_zero):
        yield job.mistake("GPU3121", ("spec", "minWorkers"))
    yield from too_long_grace(document, spec.pause_grace, resolved)
    if resolved.cluster is not None and resolved.cluster.model.spec.ingress is None:
        for position, port in enumerate(spec.expose):
            if port.via == "ingress":
                yield document.mistake("GPU3023", ("spec", "expose", position, "via"), {"port": port.port})
    limit = project_max_duration(spec, job.project.model.spec)
    if limit is not None and spec.max_duration is not None and spec.max_duration > limit:
        params = {"found": spec.max_duration, "limit": limit}
        found = document.mistake("GPU3025", ("spec", "maxDuration"), params)
        yield replace(found, severity=Severity.WARNING)


def _within_project(
    resolved: Resolved, job: ResolvedJob, pools: Sequence[NodePool], backends: Backends
) -> Iterator[Diagnostic]:
    """Check a job against the limits of its project and departments and, if it can't be stopped, the quota of its
    project, in the domain where the least is missing."""
    document, spec, project = job.declaration.document, job.spec, job.project.model
    limits = {domain.name: _lowest_limit(resolved, job.project, domain.name) for domain in resolved.domains}
    asked = [
        (backends.charge(spec, pool) * _together(spec), limits[domain.name], domain.name)
        for domain in resolved.domains
        for pool in pools
        if pool.name in domain.pools
    ]
    over = [(need - limit[0], need, *limit) for need, limit, _ in asked if limit is not None and need > limit[0]]
    path, name = request_path(spec), project.metadata.name
    if over and len(over) == len(asked):
        _, need, most, owner = min(over)
        params: Params = {"need": need, "owner": owner, "limit": most}
        yield document.mistake("GPU3014", path, params)
        return
    within = [(need, domain) for need, limit, domain in asked if limit is None or need <= limit[0]]
    lacking = [
        (need - (own := quota.in_domain(project.spec.quota, domain)), need, own, domain) for need, domain in within
    ]
    if lacking and not is_preemptible(spec) and min(lacking)[0] > 0:
        _, need, own, domain = min(lacking)
        where = "the cluster" if domain == WHOLE_CLUSTER else f'pool "{domain}"'
        params = {"need": need, "project": name, "quota": own, "where": where}
        yield document.mistake("GPU3015", path, params)


def _lowest_limit(
    resolved: Resolved, project: Declaration[ProjectV1], domain: DomainName
) -> tuple[GpuMilli, str] | None:
    """The lowest limit of a project and the departments above it in a domain, and its owner; None without a limit."""
    owners: list[ProjectV1 | DepartmentV1] = [project.model]
    owners += [each.model for each in quota.departments_above(resolved, project.model.spec)]
    limits = [(quota.limit_in(owner.spec.limit, domain), owner) for owner in owners]
    found = [(limit, f'{owner.kind.lower()} "{owner.metadata.name}"') for limit, owner in limits if limit is not None]
    return min(found, key=lambda each: each[0], default=None)


def _together(spec: JobSpec) -> int:
    """The number of workers that must start together; 1 for a service that scales to zero."""
    return spec.workers if spec.min_workers is None else max(1, spec.min_workers)


class _Nodes:
    """The declared nodes, and how many workers of each kind they hold."""

    def __init__(self, resolved: Resolved, backends: Backends) -> None:
        self.backends = backends
        self.by_pool = {pool.name: backends.nodes(pool) for pool in resolved.pools.values()}
        self.kinds = {name: _kinds(nodes) for name, nodes in self.by_pool.items()}
        self.rooms: dict[tuple[object, ...], int] = {}

    def mistakes(self, job: ResolvedJob) -> Iterator[Diagnostic]:
        """A mistake if no node can hold one worker, or no pool all workers that must start together."""
        if not all(self.by_pool[pool.name] for pool in job.pools):
            return
        spec, document = job.spec, job.declaration.document
        roomiest = max(job.pools, key=lambda pool: self._room(spec, pool))
        room = self._room(spec, roomiest)
        together = _together(spec)
        if room == 0:
            yield self._no_node(job)
        elif room < together:
            path = ("spec", "minWorkers") if spec.min_workers else ("spec", "workers")
            params: Params = {"need": together, "pools": pool_words([roomiest]), "room": room}
            yield document.mistake("GPU3017", path, params)

    def roomy(self, job: ResolvedJob) -> list[NodePool]:
        """The job's pools with room for all workers that must start together. A pool without declared nodes counts as
        such."""
        spec = job.spec
        return [p for p in job.pools if not self.by_pool[p.name] or self._room(spec, p) >= _together(spec)]

    def of_one_kind(self, job: ResolvedJob) -> tuple[ResolvedJob, list[Diagnostic]]:
        """The job with only those pools that provide GPUs in the same way as the first one with room. A warning if the
        job names others.

        How a pod gets its GPUs is part of its template, which may not change while the run waits.
        """
        spec, document = job.spec, job.declaration.document
        first = next(iter(self.roomy(job)), None)
        others = tuple(pool for pool in job.pools if first is not None and not self._alike(spec, pool, first))
        if first is None or not others or not (spec.gpus or spec.gpu_memory):
            return job, []
        alike = tuple(pool for pool in job.pools if pool not in others)
        if not spec.node_pools:
            return replace(job, pools=alike), []
        params: Params = {"used": pool_words(alike), "unused": pool_words(others), "sharing": first.sharing}
        warning = document.mistake("GPU3028", ("spec", "nodePools"), params)
        return replace(job, pools=alike), [replace(warning, severity=Severity.WARNING)]

    def _alike(self, spec: JobSpec, pool: NodePool, other: NodePool) -> bool:
        return self.backends.kind(spec, pool) == self.backends.kind(spec, other)

    def _room(self, spec: JobSpec, pool: NodePool) -> int:
        _, cpu, size = worker_of(spec)
        grant = self.backends.grant(spec, pool)
        kind = (pool.name, grant, cpu, size)
        if kind not in self.rooms:
            nodes = self.kinds[pool.name]
            self.rooms[kind] = sum(count * _workers(node, grant, cpu, size) for node, count in nodes)
        return self.rooms[kind]

    def _no_node(self, job: ResolvedJob) -> Diagnostic:
        spec = job.spec
        nodes = [(node, self.backends.grant(spec, pool)) for pool in job.pools for node in self.by_pool[pool.name]]
        gpu_milli, cpu, size = worker_of(spec)
        fix = ""
        path: Path
        if all(not _workers(node, grant, 0, 0) for node, grant in nodes):
            whole = any(node.mig for node, _ in nodes) and gpu_milli >= WHOLE_GPU
            path, need = request_path(spec), f"{thousandths(gpu_milli)} {'GPUs that are not cut' if whole else 'GPUs'}"
        elif all(node.cpu_milli < cpu for node, _ in nodes):
            path, need = _CPU, f"{thousandths(cpu)} CPUs"
        elif all(node.mem_bytes < size for node, _ in nodes):
            path, need = _MEMORY, f"{memory(size)} of memory"
        else:
            path, need = ("spec",), "that much of GPUs, CPUs and memory together"
        if path in {_CPU, _MEMORY}:
            largest = max(node.cpu_milli if path is _CPU else node.mem_bytes for node, _ in nodes)
            fix = "" if largest else "declare resourcesPerNode of the pool"
        return job.mistake("GPU3016", path, {"pools": pool_words(job.pools), "need": need}, fix=fix)


def _kinds(nodes: Sequence[DeclaredNode]) -> Sequence[tuple[DeclaredNode, int]]:
    """One node of each kind, and how many nodes are like it."""
    found: dict[tuple[object, ...], tuple[DeclaredNode, int]] = {}
    for node in nodes:
        kind = node.whole_gpus, tuple(sorted(node.mig.items())), node.cpu_milli, node.mem_bytes
        first, count = found.get(kind, (node, 0))
        found[kind] = first, count + 1
    return tuple(found.values())


def _workers(node: DeclaredNode, grant: Grant | None, cpu_milli: int, mem_bytes: MemBytes) -> int:
    """How many workers a node holds. A part of a GPU must be on one device. A worker that needs nothing always fits."""
    rooms = []
    gpu_milli = 0 if grant is None else grant.gpu_milli
    if grant is not None and grant.profile:
        rooms.append(node.mig.get(grant.profile, 0) * (WHOLE_GPU // gpu_milli))
    elif gpu_milli >= WHOLE_GPU:
        rooms.append(node.whole_gpus * WHOLE_GPU // gpu_milli)
    elif gpu_milli:
        rooms.append(node.whole_gpus * (WHOLE_GPU // gpu_milli))
    if cpu_milli:
        rooms.append(node.cpu_milli // cpu_milli)
    if mem_bytes:
        rooms.append(node.mem_bytes // mem_bytes)
    return min(rooms, default=1_000_000)
