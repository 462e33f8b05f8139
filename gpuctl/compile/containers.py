"""Checks the containers of a job besides its own against the job: the volumes that they mount."""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.compile.resolve import ResolvedJob
from gpuctl.compile.shape import nearest
from gpuctl.compile.worker import started
from gpuctl.diag.diagnostic import Diagnostic


def check_containers(job: ResolvedJob) -> Iterator[Diagnostic]:
    """Mounts of volumes that the job does not have, and two mounts at one path."""
    spec = job.spec
    known = {volume.mount_path for volume in spec.volumes} | ({spec.git.path} if spec.git is not None else set())
    for each in started(spec):
        taken: set[str] = set()
        for position, mount in enumerate(each.container.mounts):
            here = (*each.path, "mounts", position)
            if mount.volume not in known:
                fix = nearest(mount.volume, known) or "declare it in the job's volumes"
                yield job.mistake("GPU3110", (*here, "volume"), {"found": mount.volume}, fix)
            path = mount.mount_path or mount.volume
            if path in taken and mount.mount_path is None:
                yield job.mistake("GPU2021", (*here, "volume"), {"found": path}, "write a mountPath of its own")
            elif path in taken:
                yield job.mistake("GPU2021", (*here, "mountPath"), {"found": path})
            taken.add(path)
