"""Exposed ports by URL: `/<project>/<job>`, or `/<project>/<job>/<port>` if a job has several.

Security: a browser treats all pages of one host as one origin. A page that a job of one team serves may then, with the
viewer's cookies, read the pages of other teams' jobs and act on them. With a host for each project it may not.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

from gpuctl.k8s import kinds, names
from gpuctl.model.job import ExposeVia
from gpuctl.model.manifest import Manifest
from gpuctl.render.owner import JobOwner, Spec
from gpuctl.render.service import exposed_ports, port_name


def job_ingress(owner: JobOwner) -> Manifest | None:
    """The Ingress of a job; None if it publishes no port. It has the name of the Service behind it."""
    ports = exposed_ports(owner.job, ExposeVia.INGRESS)
    if not ports:
        return None
    settings = owner.project.cluster.cluster.ingress
    name = names.service_name(owner.job.id.name)
    base = f"/{owner.job.id.project}/{owner.job.id.name}"
    paths = [base] if len(ports) == 1 else [f"{base}/{port}" for port in ports]
    rule: dict[str, Any] = {
        "http": {"paths": [_path(path, name, port) for path, port in zip(paths, ports, strict=True)]}
    }
    facts = {}
    if settings is not None and _is_address(settings.host):
        facts[names.HOST_ANNOTATION] = settings.host
    elif settings is not None:
        rule["host"] = f"{owner.job.id.project}.{settings.host}" if settings.host_per_project else settings.host
    spec: dict[str, Any] = {"rules": [rule]}
    if settings is not None and settings.class_name is not None:
        spec["ingressClassName"] = settings.class_name
    return owner.manifest(kinds.INGRESS, name, {"spec": spec}, facts)


def _path(path: str, service: str, port: int) -> Spec:
    backend = {"service": {"name": service, "port": {"name": port_name(port)}}}
    return {"path": path, "pathType": "Prefix", "backend": backend}


def _is_address(host: str) -> bool:
    """Whether the host is an IP address. An Ingress rule may not have one as host; without a host it serves every
    name."""
    try:
        ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True
