"""Hundreds of jobs, and nothing happens: gpuctl writes nothing, lists nothing, and costs nearly nothing."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from controlplane.server import ControlPlane
from unattended import Site, all_writes_of, at_last, install, job, project

IDLE_S = 20
PROJECTS, JOBS = 10, 40


def test_hundreds_of_jobs_at_rest(
    new_control_plane: Callable[[], ControlPlane],
    tmp_path_factory: pytest.TempPathFactory,
    figure: Callable[[str], None],
) -> None:
    """Most wait for one of 20 GPUs. The interval is a third of the usual one, so that whole passes are among it.

    The control plane ends with the test: to take hundreds of jobs away would cost it more than to start.
    """
    plane = new_control_plane()
    install(plane)
    site = Site(plane, tmp_path_factory.mktemp("idle"), "idle", gpus=20)
    try:
        names = [f"team-{number:02}" for number in range(PROJECTS)]
        jobs = [job(f"job-{number:02}", project=name) for name in names for number in range(JOBS)]
        began = time.monotonic()
        site.commit(*(project(name, 2) for name in names), *jobs)
        process = site.start(interval="10s")
        at_last(lambda: all(len(site.pods(name)) == 2 for name in names), site.logs)

        def told() -> int:
            """How often anything was asked but for the Lease: events of jobs that wait are recorded seldom."""
            asked = (r for r in process.audited() if r["objectRef"]["resource"] != "leases")
            return sum(r["verb"] not in {"watch", "list"} for r in asked)

        def is_quiet() -> bool:
            before = told()
            time.sleep(3)
            return told() == before

        at_last(is_quiet, site.logs)
        figure(f"{PROJECTS * JOBS} jobs declared, {site.gpus} run: at rest after {time.monotonic() - began:.0f} s")
        requests, cpu_s = site.plane.audit.count(), process.cpu_s()
        time.sleep(IDLE_S)
        used_s, since = process.cpu_s() - cpu_s, process.audited(requests)
        figure(f"idle for {IDLE_S} s: {used_s:.2f} s of CPU, {process.memory_mib()} MiB")
        assert all_writes_of(since) == []
        # A watch that ends, as it does by silence where the server is busy, asks for one object, for the version.
        since = [r for r in since if not (r["verb"] == "list" and r["requestURI"].endswith("limit=1"))]
        assert [r["requestURI"] for r in since if r["verb"] == "list"] == []
        assert {r["objectRef"]["resource"] for r in since if r["verb"] != "watch"} <= {"leases"}
        assert used_s < IDLE_S / 20
    finally:
        site.end()
