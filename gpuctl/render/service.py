"""The Service in front of a job's exposed ports. It has the job's name, so its address outlives a run."""

from __future__ import annotations

from collections.abc import Mapping

from gpuctl.k8s import kinds, names
from gpuctl.model.job import ExposeVia, Job
from gpuctl.model.manifest import Manifest
from gpuctl.render.owner import JobOwner


def job_service(owner: JobOwner) -> Manifest | None:
    """The Service; None if no port is reached through one: port-forwarding goes to the pod itself."""
    ports = exposed_ports(owner.job, ExposeVia.SERVICE, ExposeVia.INGRESS)
    if not ports:
        return None
    spec = {
        "selector": _selector(owner),
        "ports": [{"name": port_name(port), "port": port, "targetPort": port, "protocol": "TCP"} for port in ports],
    }
    return owner.manifest(kinds.SERVICE, names.service_name(owner.job.id.name), {"spec": spec})


def exposed_ports(job: Job, *via: ExposeVia) -> tuple[int, ...]:
    """The ports that are reached in one of these ways, ascending."""
    return tuple(sorted({expose.port for expose in job.container.expose if expose.via in via}))


def port_name(port: int) -> str:
    """The name of a port in a Service and in its Ingress."""
    return f"port-{port}"


def _selector(owner: JobOwner) -> Mapping[str, str]:
    """The pods behind the Service; of a gang, only worker 0."""
    return {**owner.selector, names.WORKER_INDEX_LABEL: "0"} if owner.is_gang else owner.selector
