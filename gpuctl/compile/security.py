"""Folders of the nodes that jobs mount, and users they run as, checked against what the Cluster allows.

Only the Cluster, the administrators' declaration, has fields that allow anything: a project can't grant itself more.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.compile.choices_v1 import Level, Security
from gpuctl.compile.resolve import Resolved, ResolvedJob
from gpuctl.diag.diagnostic import Diagnostic


def level_of(security: Security, project: str) -> Level:
    """The Pod Security level that the project's namespace enforces."""
    return security.exceptions.get(project, security.pod_security)


def check_security(resolved: Resolved, job: ResolvedJob) -> Iterator[Diagnostic]:
    """Each folder of the node, and a user, that is not allowed, or that the API server would refuse to the pods."""
    spec = job.spec
    if resolved.cluster is None:
        return
    security, project = resolved.cluster.model.spec.security, job.project.model.metadata.name
    level = level_of(security, project)
    if level == "restricted" and spec.security.run_as_user == 0:
        yield job.mistake("GPU3073", ("spec", "security", "runAsUser"), {"project": project})
    for position, capability in enumerate(spec.security.capabilities.add):
        if level == "restricted" and capability != "NET_BIND_SERVICE":
            path = ("spec", "security", "capabilities", "add", position)
            yield job.mistake("GPU3074", path, {"project": project, "found": capability})
    for position, volume in enumerate(spec.volumes):
        if volume.host_path is None:
            continue
        folder_path = ("spec", "volumes", position, "hostPath")
        if not any(_is_within(volume.host_path, folder) for folder in security.host_paths):
            yield job.mistake("GPU3070", folder_path, {"found": volume.host_path})
        if level != "privileged":
            yield job.mistake("GPU3071", folder_path, {"project": project, "level": level})


def _is_within(path: str, folder: str) -> bool:
    """Whether a path is the folder or below it, compared part by part: /mnt/data2 is not below /mnt/data.

    Neither has a `..` (GPU2020). Links on the node are not known here: they may lead out of the folder.
    """
    inner, outer = _parts(path), _parts(folder)
    return inner[: len(outer)] == outer


def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part not in {"", "."})
