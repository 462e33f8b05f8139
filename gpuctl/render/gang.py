"""The parts that make a job of several workers a gang: an Indexed Job, a headless Service, and a meeting point.

Worker 0 is the meeting point, and the last to be given up. `WORLD_SIZE` is read from a label of the pod: an elastic
gang may be released with fewer workers, and a template's labels may change while it waits, but its environment may not.
It is the number at the start. For the others, a worker that joins or leaves later is a peer found or lost, which
torchrun handles, between `MIN_WORKERS` and `MAX_WORKERS` of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from gpuctl.k8s import kinds, names
from gpuctl.model.job import Framework, Success
from gpuctl.model.manifest import Manifest
from gpuctl.model.units import WHOLE_GPU
from gpuctl.render.owner import JobOwner, Spec

MASTER_PORT = 29500
JOIN_TIMEOUT_S = 1800
"""How long torchrun waits for a worker: a Job replaces a pod up to 10 minutes after it failed, and it then starts."""
Variable: TypeAlias = str | Spec
"""The value of a variable: a text, or the source of its value."""


def _label(key: str) -> Spec:
    return {"fieldRef": {"fieldPath": f"metadata.labels['{key}']"}}


_RANK, _SIZE = _label(names.WORKER_INDEX_LABEL), _label(names.WORKERS_LABEL)


def gang_labels(owner: JobOwner, workers: int) -> Spec:
    """The label on a gang's pods with the number of its workers."""
    return {names.WORKERS_LABEL: str(workers)} if owner.is_gang else {}


def gang_spec(owner: JobOwner) -> Spec:
    """Gives each worker the host name `<run>-<index>.<service>`."""
    return {"subdomain": names.service_name(owner.run)} if owner.is_gang else {}


def gang_ports(owner: JobOwner) -> list[Spec]:
    """The port on which worker 0 meets the others."""
    return [{"containerPort": MASTER_PORT, "name": "rendezvous", "protocol": "TCP"}] if owner.is_gang else []


def gang_success(owner: JobOwner) -> Spec:
    """The workers that must succeed, if not all must: the Job controller then stops the others."""
    rules = {Success.WORKER_0: {"succeededIndexes": "0"}, Success.ANY: {"succeededCount": 1}}
    rule = rules.get(owner.job.container.success) if owner.is_gang else None
    return {} if rule is None else {"successPolicy": {"rules": [rule]}}


def gang_env(owner: JobOwner) -> tuple[Spec, ...]:
    """The variables by which workers find each other, and those that their framework reads."""
    framework = owner.job.container.framework
    if not owner.is_gang:
        return _variables(_torchrun(owner)) if framework is Framework.PYTORCH else ()
    bounds = (("MIN_WORKERS", owner.job.min_workers), (names.MAX_WORKERS_VARIABLE, owner.job.workers))
    elastic = ({"name": name, "value": str(workers)} for name, workers in bounds) if owner.job.is_elastic else ()
    return (
        {"name": "MASTER_ADDR", "value": _master(owner)},
        {"name": "MASTER_PORT", "value": str(MASTER_PORT)},
        {"name": "NODE_RANK", "valueFrom": _RANK},
        {"name": "WORLD_SIZE", "valueFrom": _SIZE},
        *elastic,
        *(_variables(_READ_BY[framework](owner)) if framework is not None else ()),
    )


def _master(owner: JobOwner) -> str:
    """The host name of worker 0."""
    return f"{owner.run}-0.{names.service_name(owner.run)}.{owner.namespace}.svc"


def _torchrun(owner: JobOwner) -> Mapping[str, Variable]:
    """Variables that torchrun takes in place of arguments, so that it needs none. RANK is for one process a worker.

    Workers whose number varies, or of which one may be started again, meet by c10d: torchrun's default, static, meets
    only once, with all of them.
    """
    job = owner.job
    own: Mapping[str, Variable] = {"PET_NPROC_PER_NODE": str(max(1, job.own_gpu_milli // WHOLE_GPU))}
    if not owner.is_gang:
        return {"PET_NNODES": "1", **own}
    if job.is_elastic or job.container.retries_per_worker:
        return {
            **own,
            "RANK": _RANK,
            "PET_NNODES": f"{job.min_workers}:{job.workers}" if job.is_elastic else _SIZE,
            "PET_RDZV_BACKEND": "c10d",
            "PET_RDZV_ENDPOINT": f"{_master(owner)}:{MASTER_PORT}",
            "PET_RDZV_ID": owner.run,
            **_waiting(owner),
        }
    return {
        **own,
        "RANK": _RANK,
        "PET_NNODES": _SIZE,
        "PET_NODE_RANK": _RANK,
        "PET_MASTER_ADDR": _master(owner),
        "PET_MASTER_PORT": str(MASTER_PORT),
    }


def _waiting(owner: JobOwner) -> Mapping[str, Variable]:
    """Settings for restarts of single workers: torchrun waits for a restarted worker, and then restarts its own
    processes.

    A process fails once another one that it talks to is gone, and that counts as one of torchrun's restarts. So
    torchrun gets as many restarts as all workers together may fail.
    """
    job = owner.job
    if not job.container.retries_per_worker:
        return {}
    failures = job.workers * job.container.retries_per_worker
    return {
        "PET_MAX_RESTARTS": str(min(failures, job.container.retries or failures)),
        "PET_RDZV_CONF": f"join_timeout={JOIN_TIMEOUT_S}",
    }


def _jax(owner: JobOwner) -> Mapping[str, Variable]:
    """Variables for one process a worker; `jax.distributed.initialize` reads the address by itself."""
    return {
        "JAX_COORDINATOR_ADDRESS": f"{_master(owner)}:{MASTER_PORT}",
        "JAX_NUM_PROCESSES": _SIZE,
        "JAX_PROCESS_ID": _RANK,
    }


_READ_BY: Mapping[Framework, Callable[[JobOwner], Mapping[str, Variable]]] = {
    Framework.PYTORCH: _torchrun,
    Framework.JAX: _jax,
}


def _variables(named: Mapping[str, Variable]) -> tuple[Spec, ...]:
    return tuple(
        {"name": name, "value": value} if isinstance(value, str) else {"name": name, "valueFrom": value}
        for name, value in named.items()
    )


def rendezvous_service(owner: JobOwner) -> Manifest:
    """The headless Service for the workers' host names. It answers before they are ready, as they wait for each
    other."""
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {**owner.selector, names.RUN_LABEL: owner.job.digest},
        "ports": [{"name": "rendezvous", "port": MASTER_PORT, "protocol": "TCP"}],
    }
    return owner.manifest(kinds.SERVICE, names.service_name(owner.run), {"spec": spec})
