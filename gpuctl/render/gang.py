"""What makes a job of several workers a gang: an Indexed Job, a headless Service, and where its workers meet.

Worker 0 is the meeting point, and the last to be given up. `WORLD_SIZE` is read from a label of the pod: an elastic
gang may be let go with fewer workers, and a template's labels may change while it waits, its environment never. It is
the number at the start. A worker that joins or leaves later is a peer found or lost to the others, as torchrun takes
it, between `MIN_WORKERS` and `MAX_WORKERS` of them.
"""

from __future__ import annotations

from gpuctl.k8s import kinds, names
from gpuctl.model.manifest import Manifest
from gpuctl.render.owner import JobOwner, Spec

MASTER_PORT = 29500


def gang_labels(owner: JobOwner, workers: int) -> Spec:
    """On a gang's pods: how many there are."""
    return {names.WORKERS_LABEL: str(workers)} if owner.is_gang else {}


def gang_spec(owner: JobOwner) -> Spec:
    """Gives each worker the host name `<run>-<index>.<service>`."""
    return {"subdomain": names.service_name(owner.run)} if owner.is_gang else {}


def gang_ports(owner: JobOwner) -> list[Spec]:
    """The port on which worker 0 meets the others."""
    return [{"containerPort": MASTER_PORT, "name": "rendezvous", "protocol": "TCP"}] if owner.is_gang else []


def gang_env(owner: JobOwner) -> tuple[Spec, ...]:
    """The variables by which PyTorch's launcher and its like find the other workers."""
    if not owner.is_gang:
        return ()
    master = f"{owner.run}-0.{names.service_name(owner.run)}.{owner.namespace}.svc"
    bounds = (("MIN_WORKERS", owner.job.min_workers), (names.MAX_WORKERS_VARIABLE, owner.job.workers))
    elastic = ({"name": name, "value": str(workers)} for name, workers in bounds) if owner.job.is_elastic else ()
    return (
        {"name": "MASTER_ADDR", "value": master},
        {"name": "MASTER_PORT", "value": str(MASTER_PORT)},
        {"name": "NODE_RANK", "valueFrom": _own(f"metadata.labels['{names.WORKER_INDEX_LABEL}']")},
        {"name": "WORLD_SIZE", "valueFrom": _own(f"metadata.labels['{names.WORKERS_LABEL}']")},
        *elastic,
    )


def rendezvous_service(owner: JobOwner) -> Manifest:
    """The headless Service behind the workers' host names; it answers before they are ready, for they wait for it."""
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {**owner.selector, names.RUN_LABEL: owner.job.digest},
        "ports": [{"name": "rendezvous", "port": MASTER_PORT, "protocol": "TCP"}],
    }
    return owner.manifest(kinds.SERVICE, names.service_name(owner.run), {"spec": spec})


def _own(field_path: str) -> Spec:
    return {"fieldRef": {"fieldPath": field_path}}
