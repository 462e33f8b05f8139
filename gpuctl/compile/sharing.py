"""How pools provide GPUs: checks what a pool declares about it, and which pools can serve a job.

A request for a part of a GPU that no pool of the job can serve is a mistake in the job; the message says why.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from gpuctl.compile.containers_v1 import InitContainer
from gpuctl.compile.document import Document, Path
from gpuctl.compile.lower import node_pool
from gpuctl.compile.pool_v1 import NodePool
from gpuctl.compile.resolve import Resolved, ResolvedJob
from gpuctl.compile.shape import nearest
from gpuctl.compile.spec_v1 import JobSpec
from gpuctl.compile.sweeps import variable_paths
from gpuctl.compile.text import Params
from gpuctl.compile.worker import started, worker_of
from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.diag.wording import all_of
from gpuctl.k8s import names
from gpuctl.k8s.pod_keys import reserved_after
from gpuctl.model import declared as model
from gpuctl.model.mig import profiles_of
from gpuctl.model.units import WHOLE_GPU, GpuMilli

GPUS = ("spec", "gpus")
GPU_MEMORY = ("spec", "gpuMemory")
MANIFEST = ("spec", "manifest")


def pool_words(pools: Sequence[NodePool]) -> str:
    """Pools in a sentence."""
    return f"{'pool' if len(pools) == 1 else 'pools'} {all_of(pool.name for pool in pools)}"


def request_path(spec: JobSpec) -> Path:
    """The path of a job's request for GPUs."""
    if spec.manifest is not None:
        return MANIFEST
    return GPUS if spec.gpu_memory is None else GPU_MEMORY


def asked(spec: JobSpec, pool: NodePool) -> GpuMilli:
    """The GPUs that one worker asks for on a pool. A request by memory is rounded up to whole milli."""
    if spec.gpu_memory is None or not pool.gpu_memory:
        return worker_of(spec).gpu_milli
    return -(-spec.gpu_memory * WHOLE_GPU // pool.gpu_memory)


class Backends:
    """The cluster's pools, and what each grants for a request."""

    def __init__(self, resolved: Resolved) -> None:
        cluster = resolved.cluster
        self._pools: Mapping[str, model.NodePool] = {} if cluster is None else {
            pool.name: node_pool(pool, cluster.document.name) for pool in resolved.pools.values()
        }  # fmt: skip

    def nodes(self, pool: NodePool) -> Sequence[model.DeclaredNode]:
        """A pool's declared inventory."""
        return self._pools[pool.name].nodes

    def grant(self, spec: JobSpec, pool: NodePool) -> model.Grant | None:
        """What one worker gets on a pool; None if the pool can't serve it."""
        return self._pools[pool.name].grant(asked(spec, pool))

    def charge(self, spec: JobSpec, pool: NodePool) -> GpuMilli:
        """The GPUs that one worker is charged on a pool."""
        grant = self.grant(spec, pool)
        return asked(spec, pool) if grant is None else grant.gpu_milli

    def kind(self, spec: JobSpec, pool: NodePool) -> tuple[model.Way, str]:
        """How a worker's pod asks for its GPUs on a pool: pods of one kind have the same template."""
        grant = self.grant(spec, pool)
        return self._pools[pool.name].way, "" if grant is None else grant.profile

    def serve(self, job: ResolvedJob) -> tuple[ResolvedJob, Diagnostic | None]:
        """The job with the pools that can serve it, or the reason why none can."""
        document, spec = job.declaration.document, job.spec
        params: Params
        if spec.scaling is not None:
            counted = self._counted(job)
            if not counted:
                params = {"pools": pool_words(job.pools)}
                return job, document.mistake("GPU3120", ("spec", "scaling"), params, at_key=True)
            job = replace(job, pools=counted)
        if spec.manifest is not None and spec.gpus:
            counted = self._counted(job)
            params = {"pools": pool_words(job.pools)}
            found = None if counted else document.mistake("GPU3106", MANIFEST, params, at_key=True)
            return replace(job, pools=counted or job.pools), found
        with_gpus = next((each.path for each in started(spec) if each.container.gpus), None)
        if with_gpus is not None:
            return self._of_several(job, (*with_gpus, "gpus"))
        if spec.gpu_memory is None and (not spec.gpus or spec.gpus % WHOLE_GPU == 0):
            return job, None
        sharing = tuple(pool for pool in job.pools if pool.sharing != "device-plugin")
        if not sharing:
            return job, document.mistake("GPU3019", request_path(spec), {"pools": pool_words(job.pools)})
        large = tuple(pool for pool in sharing if (pool.gpu_memory or 0) >= (spec.gpu_memory or 0))
        if not large:
            largest = max(pool.gpu_memory or 0 for pool in sharing)
            params = {"need": spec.gpu_memory or 0, "pools": pool_words(sharing), "largest": largest}
            return job, document.mistake("GPU3021", request_path(spec), params)
        if any(pool.sharing == "mig" and not self._pools[pool.name].profiles for pool in large):
            return replace(job, pools=large), None  # the pool has its own mistake
        able = tuple(pool for pool in large if self.grant(spec, pool) is not None)
        if not able:
            return job, self._no_slice(document, spec, large)
        if spec.workers > 1 and spec.type != "inference":
            joined = tuple(pool for pool in able if not self.kind(spec, pool)[1])
            if not joined:
                params = {"workers": spec.workers, "pools": pool_words(able)}
                return job, document.mistake("GPU3048", ("spec", "workers"), params)
            able = joined
        return replace(job, pools=able), None

    def _of_several(self, job: ResolvedJob, path: Path) -> tuple[ResolvedJob, Diagnostic | None]:
        """A job with GPUs in several containers: they must be whole, from pools whose device plugin gives them by
        number."""
        spec = job.spec
        if spec.gpu_memory is not None or not spec.gpus or spec.gpus % WHOLE_GPU:
            return job, job.mistake("GPU3111", path)
        counted = self._counted(job)
        if not counted:
            return job, job.mistake("GPU3112", path, {"pools": pool_words(job.pools)})
        return replace(job, pools=counted), None

    def _counted(self, job: ResolvedJob) -> tuple[NodePool, ...]:
        """The pools of a job that provide GPUs by number."""
        return tuple(pool for pool in job.pools if self._pools[pool.name].way is model.Way.COUNT)

    def _no_slice(self, document: Document, spec: JobSpec, pools: Sequence[NodePool]) -> Diagnostic:
        """Why none of these pools, which provide at most slices, has a large enough one."""
        path, need = request_path(spec), min(asked(spec, pool) for pool in pools)
        profiles = [profile for pool in pools for profile in self._pools[pool.name].profiles]
        params: Params = {"pools": pool_words(pools), "need": need}
        if not profiles:
            return document.mistake("GPU3046", path, {"pools": pool_words(pools)})
        if need * 2 > WHOLE_GPU:
            return document.mistake("GPU3044", path, params)
        largest = max(profiles, key=lambda profile: profile.holds_milli)
        return document.mistake("GPU3045", path, {**params, "largest": largest.holds_milli, "profile": largest.name})


def check_sharing(document: Document, here: Path, pool: NodePool) -> Iterator[Diagnostic]:
    """Mistakes in how a pool declares that it provides GPUs."""
    claims_of_nvidia = pool.sharing == "dra" and pool.driver == "nvidia"
    for field, used in (
        ("driver", pool.sharing == "dra"),
        ("mig", pool.sharing == "mig" or claims_of_nvidia),
        ("gpuSlots", pool.sharing == "hami"),
    ):
        given = {"driver": pool.driver, "mig": pool.mig, "gpuSlots": pool.gpu_slots}[field]
        if given and not used:
            sharing = f"{pool.sharing} and driver: hami" if field == "mig" and pool.sharing == "dra" else pool.sharing
            span = document.key_span((*here, field))
            yield document.diagnostic("GPU3043", span, {"field": field, "sharing": sharing})
            return
    cuts = list(_cuts(here, pool))
    if pool.sharing == "mig" and not any(mig for _, mig in cuts):
        yield document.diagnostic("GPU3040", document.span((*here, "sharing")), {"pool": pool.name})
    if pool.gpu_memory is None:
        if (pool.sharing == "dra" and not claims_of_nvidia) or any(mig for _, mig in cuts):
            yield document.diagnostic("GPU3026", document.span((*here, "sharing")), {"pool": pool.name})
        return
    known = [profile.name for profile in profiles_of(pool.gpu_memory)]
    for path, mig in cuts:
        for name in mig:
            if name not in known:
                can = (
                    f"such a GPU can be cut into {all_of(known)}" if known else "GPUs of that memory are not cut by MIG"
                )
                params: Params = {"profile": name, "memory": pool.gpu_memory}
                yield document.diagnostic(
                    "GPU3041", document.key_span((*path, name)), params, nearest(name, known) or can
                )
    yield from _too_many(document, here, pool)


def _cuts(here: Path, pool: NodePool) -> Iterator[tuple[Path, Mapping[str, int]]]:
    """Every place where a pool declares how GPUs are cut."""
    yield (*here, "mig"), pool.mig
    for index, node in enumerate(pool.nodes):
        if not isinstance(node, str) and node.mig is not None:
            yield (*here, "nodes", index, "mig"), node.mig


def _too_many(document: Document, here: Path, pool: NodePool) -> Iterator[Diagnostic]:
    """A mistake at the first node with more cut GPUs than it has GPUs."""
    for index, node in enumerate(node_pool(pool, document.name).nodes):
        if node.whole_gpus < 0:
            entry = pool.nodes[index]
            own = not isinstance(entry, str) and entry.mig is not None
            path = (*here, "nodes", index, "mig") if own else (*here, "mig")
            params: Params = {"node": node.name, "gpus": node.gpus, "cut": node.gpus - node.whole_gpus}
            yield document.diagnostic("GPU3042", document.key_span(path), params)
            return


def check_environment(job: ResolvedJob) -> Iterator[Diagnostic]:
    """Variables of a job's containers that would give them more GPUs than they were assigned."""
    spec = job.spec
    for name, path in variable_paths(spec.sweep):
        yield from _reserved(job, name, path)
    containers: list[tuple[JobSpec | InitContainer, Path]] = [(spec, ("spec",))]
    for container, here in (*containers, *((each.container, each.path) for each in started(spec))):
        for name in container.env:
            yield from _reserved(job, name, (*here, "env", name))
        for position, source in enumerate(container.env_from):
            could_be = reserved_after(source.prefix)
            if could_be:
                params: Params = {"prefix": source.prefix, "name": could_be}
                yield job.mistake("GPU3049", (*here, "envFrom", position, "prefix"), params)


def _reserved(job: ResolvedJob, name: str, path: Path) -> Iterator[Diagnostic]:
    if name in names.RESERVED_ENV_NAMES or name.startswith(names.RESERVED_ENV_PREFIXES):
        yield job.mistake("GPU3047", path, {"name": name}, at_key=True)
