"""Checks a job's manifest against what the Cluster allows, and what its controller and Pod Security would refuse."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gpuctl.compile.amounts import WrongValue, absolute_path
from gpuctl.compile.choices_v1 import Level, Security
from gpuctl.compile.document import Path
from gpuctl.compile.folders import is_exported, is_within
from gpuctl.compile.resolve import ResolvedJob
from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.k8s import names
from gpuctl.k8s.objects import items, mapping, number, text
from gpuctl.k8s.workload_kinds import pod_sets

_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LONGEST = 63
_DIGEST = "0" * 8
_SUFFIX = "-abcde"
"""The form of the suffix that the server adds to the name of a pod."""


def check_manifest(
    job: ResolvedJob, manifest: Mapping[str, Any], security: Security, level: Level
) -> Iterator[Diagnostic]:
    """All mistakes in a manifest whose fields have already been checked."""
    row = job.kinds.rows[manifest["apiVersion"], manifest["kind"]]
    run = names.run_name(job.declaration.model.metadata.name, _DIGEST)
    if len(run) > row.longest_name:
        problem = f"has {len(run)} characters, at most {row.longest_name} are allowed"
        yield job.mistake("GPU3105", ("metadata", "name"), {"name": run, "what": "the object", "problem": problem})
    for each in pod_sets(row, mapping(manifest, "spec")):
        here: Path = ("spec", "manifest", "spec", *each.at)
        most = [max(number(each.entry, *path, default=1) for path in paths) for paths in each.sets.numbers]
        yield from _wrong_name(job, "-".join((run, each.name, *(str(count - 1) for count in most))) + _SUFFIX,
                               (*here, *each.sets.name), is_named=bool(each.name))  # fmt: skip
        pod, at = mapping(each.template, "spec"), (*here, *each.sets.template, "spec")
        yield from _wrong_volumes(job, pod, at, security, level)
        if level == "restricted":
            yield from _refused(job, pod, at)


def _wrong_name(job: ResolvedJob, longest: str, at: Path, *, is_named: bool) -> Iterator[Diagnostic]:
    """A pod's longest name, `<run>-<name>-<number>-<number>-abcde`, must be a DNS label that begins with a letter."""
    problem = ""
    if not is_named or not _LABEL.fullmatch(longest):
        problem = "is no DNS label that begins with a letter: a-z, 0-9 and -"
    elif len(longest) > _LONGEST:
        problem = f"has {len(longest)} characters, at most {_LONGEST} are allowed"
    if problem:
        yield job.mistake("GPU3105", at, {"name": longest, "what": "a pod", "problem": problem})


def _wrong_volumes(
    job: ResolvedJob, pod: Mapping[str, Any], at: Path, security: Security, level: Level
) -> Iterator[Diagnostic]:
    project = job.project.model.metadata.name
    for position, volume in enumerate(items(pod, "volumes")):
        here = (*at, "volumes", position)
        if volume.get("hostPath") is not None:
            path = text(volume, "hostPath", "path")
            if not _is_absolute(path) or not any(is_within(path, folder) for folder in security.host_paths):
                yield job.mistake("GPU3070", (*here, "hostPath"), {"found": path})
            if level != "privileged":
                yield job.mistake("GPU3071", (*here, "hostPath"), {"project": project, "level": level})
        driver = text(volume, "csi", "driver")
        if volume.get("csi") is not None and driver not in security.csi_drivers:
            yield job.mistake("GPU3079", (*here, "csi"), {"found": driver}, at_key=True)
        if volume.get("nfs") is not None:
            server, path = text(volume, "nfs", "server"), text(volume, "nfs", "path")
            if not _is_absolute(path) or not any(is_exported(server, path, export) for export in security.nfs):
                yield job.mistake("GPU3076", (*here, "nfs"), {"found": f"{server}:{path}"}, at_key=True)
            if level == "restricted":
                yield job.mistake("GPU3077", (*here, "nfs"), {"project": project}, at_key=True)


def _is_absolute(path: str) -> bool:
    try:
        return absolute_path(path) == path
    except WrongValue:
        return False


def _refused(job: ResolvedJob, pod: Mapping[str, Any], at: Path) -> Iterator[Diagnostic]:
    """Values that Pod Security level `restricted` forbids. gpuctl adds those that it requires."""
    project = job.project.model.metadata.name
    places = [(pod, at), *(
        (container, (*at, kind, position))
        for kind in ("initContainers", "containers")
        for position, container in enumerate(items(pod, kind))
    )]  # fmt: skip
    for owner, here in places:
        wanted, where = mapping(owner, "securityContext"), (*here, "securityContext")
        for field, forbidden in (("runAsUser", 0), ("runAsNonRoot", False), ("allowPrivilegeEscalation", True)):
            if field in wanted and wanted[field] == forbidden and type(wanted[field]) is type(forbidden):
                found = f"{field}: {str(wanted[field]).lower()}"
                yield job.mistake("GPU3107", (*where, field), {"project": project, "found": found})
        added = mapping(wanted, "capabilities").get("add")
        for position, capability in enumerate(added if isinstance(added, list) else ()):
            if capability != "NET_BIND_SERVICE":
                path = (*where, "capabilities", "add", position)
                yield job.mistake("GPU3107", path, {"project": project, "found": str(capability)})
