"""A tenant fills the API server with large objects: the controller's memory hardly grows."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from controlplane.server import ControlPlane
from unattended import Process, Site, at_last, job, project

JOBS, NOTE_BYTES = 100, 250_000
"""24 MiB in all: as much as it is, and more as JSON that is decoded."""
MOST_MIB = 10


def of_a_tenant(number: int) -> dict[str, object]:
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}
    meta = {"name": f"large-{number}", "annotations": {"note": chr(65 + number % 26) * NOTE_BYTES}}
    spec = {"suspend": True, "template": {"spec": pod}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}


def peak_mib(process: Process) -> int:
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) >> 10


def is_at_rest(process: Process) -> bool:
    """Whether its peak does not grow: imports and first overviews come after the first pods."""
    before = peak_mib(process)
    time.sleep(5)
    return peak_mib(process) == before


def test_suspended_jobs_with_large_annotations_are_hardly_noticed(
    plane_with_gpuctl: ControlPlane, tmp_path_factory: pytest.TempPathFactory, figure: Callable[[str], None]
) -> None:
    plane = plane_with_gpuctl
    site = Site(plane, tmp_path_factory.mktemp("large"), "large", gpus=3)
    path = "/apis/batch/v1/namespaces/tenant/jobs"
    plane.call("POST", "/api/v1/namespaces", {"metadata": {"name": "tenant"}})
    try:
        site.commit(project("a", 3), job("j"))
        process = site.start()
        site.await_pods("j")
        at_last(lambda: is_at_rest(process), site.logs)
        before = peak_mib(process)
        for number in range(JOBS):
            plane.call("POST", path, of_a_tenant(number))

        site.commit(job("k"))
        site.await_pods("j", "k")
        time.sleep(3)
        heard = peak_mib(process) - before
        process.end()
        again = site.start()
        site.commit(job("l"))
        site.await_pods("j", "k", "l")  # so it has listed all that is there
        time.sleep(3)
        found = peak_mib(again) - before
        figure(f"{JOBS} foreign Jobs of {NOTE_BYTES // 1000} KB: {heard} MiB more when heard of, {found} when listed")
        assert heard < MOST_MIB
        assert found < MOST_MIB
    finally:
        site.leave()
        plane.call("DELETE", "/api/v1/namespaces/tenant")
