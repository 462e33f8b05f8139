"""Checks folders of nodes and NFS servers that jobs mount, and users they run as, against what the Cluster allows.

Security: only the Cluster, the administrators' declaration, has fields that allow anything. A project can't grant
itself more.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.compile.choices_v1 import Level, Security
from gpuctl.compile.containers_v1 import ContainerSecurity
from gpuctl.compile.document import Path
from gpuctl.compile.folders import is_exported, is_within
from gpuctl.compile.manifest_security import check_manifest
from gpuctl.compile.pod_v1 import PodSecurity
from gpuctl.compile.resolve import Resolved, ResolvedJob
from gpuctl.compile.worker import started
from gpuctl.diag.diagnostic import Diagnostic


def level_of(security: Security, project: str) -> Level:
    """The Pod Security level that the project's namespace enforces."""
    return security.exceptions.get(project, security.pod_security)


def check_security(resolved: Resolved, job: ResolvedJob) -> Iterator[Diagnostic]:
    """Each folder, driver and user that is not allowed, or that the API server would refuse."""
    spec = job.spec
    if resolved.cluster is None:
        return
    security, project = resolved.cluster.model.spec.security, job.project.model.metadata.name
    level = level_of(security, project)
    if level == "restricted":
        yield from _of_restricted(job, spec.security, ("spec", "security"))
        for each in started(spec):
            yield from _of_restricted(job, each.container.security, (*each.path, "security"))
    if spec.git is not None and resolved.cluster.model.spec.git_sync is None:
        yield job.mistake("GPU3078", ("spec", "git"), at_key=True)
    yield from _check_volumes(job, security, level)
    if spec.manifest is not None:
        yield from check_manifest(job, spec.manifest, security, level)


def _of_restricted(job: ResolvedJob, wanted: PodSecurity | ContainerSecurity, here: Path) -> Iterator[Diagnostic]:
    """Values of a container that the API server refuses if the namespace's level is `restricted`."""
    project = job.project.model.metadata.name
    if wanted.run_as_user == 0:
        yield job.mistake("GPU3073", (*here, "runAsUser"), {"project": project})
    for position, capability in enumerate(wanted.capabilities.add if wanted.capabilities else ()):
        if capability != "NET_BIND_SERVICE":
            path = (*here, "capabilities", "add", position)
            yield job.mistake("GPU3074", path, {"project": project, "found": capability})


def _check_volumes(job: ResolvedJob, security: Security, level: Level) -> Iterator[Diagnostic]:
    project = job.project.model.metadata.name
    for position, volume in enumerate(job.spec.volumes):
        if volume.host_path is not None:
            here = ("spec", "volumes", position, "hostPath")
            if not any(is_within(volume.host_path, folder) for folder in security.host_paths):
                yield job.mistake("GPU3070", here, {"found": volume.host_path})
            if level != "privileged":
                yield job.mistake("GPU3071", here, {"project": project, "level": level})
        if volume.csi is not None and volume.csi.driver not in security.csi_drivers:
            path = ("spec", "volumes", position, "csi", "driver")
            yield job.mistake("GPU3079", path, {"found": volume.csi.driver})
        if volume.nfs is not None:
            here = ("spec", "volumes", position, "nfs")
            if not any(is_exported(volume.nfs.server, volume.nfs.path, export) for export in security.nfs):
                yield job.mistake("GPU3076", here, {"found": f"{volume.nfs.server}:{volume.nfs.path}"}, at_key=True)
            if level == "restricted":
                yield job.mistake("GPU3077", here, {"project": project}, at_key=True)
