"""The run digest: eight hex digits over everything of a job whose change needs a new run."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from gpuctl.model.ids import RunDigest
from gpuctl.model.job import ClaimVolume, HostPathVolume, Job, NewClaimVolume, SecretKey, Volume

_ENCODE = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode


def run_digest(job: Job) -> RunDigest:
    """The digest of a job's values, so that another way to write the same changes nothing.

    Not part of it, because they change without a restart: priority, preemptible, maxDuration, nodePools, suspend,
    retries, expose.
    """
    container = job.container
    facts: dict[str, Any] = {
        "project": job.id.project,
        "name": job.id.name,
        "type": job.type.value,
        "image": container.image,
        "imagePullPolicy": container.image_pull_policy,
        "command": container.command,
        "args": container.args,
        "workingDir": container.working_dir,
        "env": {name: _env(value) for name, value in container.env.items()},
        "gpus": job.gpu_milli if job.gpu_mem_bytes is None else None,
        "gpuMemory": job.gpu_mem_bytes,
        "workers": job.workers,
        "minWorkers": job.min_workers,
        "cpu": job.cpu_milli,
        "memory": job.mem_bytes,
        "volumes": [_volume(volume) for volume in container.volumes],
        "largeShm": container.large_shm,
        "runIndex": job.run_index,
    }
    return RunDigest(hashlib.sha256(_ENCODE(facts).encode("ascii")).hexdigest()[:8])


def _env(value: str | SecretKey) -> Any:
    return value if isinstance(value, str) else [value.secret, value.key]


def _volume(volume: Volume) -> list[Any]:
    mount = [volume.mount_path, volume.read_only]
    match volume:
        case ClaimVolume():
            return ["claim", volume.claim, *mount]
        case NewClaimVolume():
            return ["newClaim", volume.size_bytes, volume.storage_class, *mount]
        case HostPathVolume():
            return ["hostPath", volume.host_path, *mount]
