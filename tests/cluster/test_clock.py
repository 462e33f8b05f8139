"""A leader whose clock is 30 days ahead, on the real API server: no job is ended by it, and it is told."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from threading import Event, Thread

import pytest
from controlplane.server import ControlPlane
from unattended import PATIENCE_S, Site, account_kubeconfig, at_last, job, project, writes_of

from gpuctl.adapters.background import ThreadBackground
from gpuctl.adapters.clock import SystemClock
from gpuctl.adapters.git import GitSource
from gpuctl.adapters.kubernetes.cluster import KubernetesCluster
from gpuctl.adapters.kubernetes.connection import connect
from gpuctl.adapters.kubernetes.lease import LeaseLeadership
from gpuctl.adapters.kubernetes.machines import StandingMachines
from gpuctl.app.loop import LoopSettings, run
from gpuctl.app.outside import Outside
from gpuctl.app.report import Journal, LogForm

DAYS_MS = 30 * 86_400_000
ACCOUNT = "system:serviceaccount:gpuctl-system:gpuctl"


class Ahead(SystemClock):
    """The machine's clock, and how far it is ahead of the right one."""

    def __init__(self) -> None:
        self.by_ms = DAYS_MS

    def now_ms(self) -> int:
        return super().now_ms() + self.by_ms


class Awake:
    """Implements the port Stop, until `ended`."""

    def __init__(self) -> None:
        self.ended = False
        self._rung = Event()

    def requested(self) -> bool:
        return self.ended

    def wake(self) -> None:
        self._rung.set()

    def wait(self, duration_ms: int) -> bool:
        self._rung.wait(duration_ms / 1000)
        self._rung.clear()
        return self.ended


@pytest.fixture
def site(plane_with_gpuctl: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(plane_with_gpuctl, tmp_path_factory.mktemp("clock"), "clock")
    try:
        yield made
    finally:
        made.leave()


def test_a_clock_that_is_days_ahead_ends_no_job(site: Site) -> None:
    site.commit(project("a", 8), job("limited", more=", maxDuration: 1h"))
    first = site.start()
    before = site.await_pods("limited")
    first.end()
    site.commit(job("next"))
    audited = site.plane.audit.count()
    clock, stop, lines = Ahead(), Awake(), list[dict[str, str]]()
    journal = Journal(lambda line: lines.append(json.loads(line)), LogForm.JSON)
    with (
        closing(connect(account_kubeconfig(site.plane))) as connection,
        closing(GitSource(str(site.copy.folder), "c", "main", site.folder / "work")) as source,
        closing(LeaseLeadership(connection, on_change=stop.wake)) as leadership,
        closing(KubernetesCluster(connection, permit=leadership.held, on_news=stop.wake)) as cluster,
        closing(ThreadBackground(stop.wake)) as background,
    ):
        outside = Outside(
            source=source, cluster=cluster, machines=StandingMachines(), clock=clock, leadership=leadership,
            background=background, reference=connection.time,
        )  # fmt: skip
        loop = Thread(target=run, args=(LoopSettings(interval_ms=500, react_ms=100), outside, journal, stop))
        loop.start()
        try:
            at_last(lambda: [line for line in lines if line.get("code") == "GPU7032"], lambda: lines)
            time.sleep(3)
            assert site.pods() == before
            assert {line["event"] for line in lines} <= {"standby", "resolved", "following", "clock"}
            requests = [r for r in site.plane.audit.requests(audited) if r["user"]["username"] == ACCOUNT]
            assert requests
            assert writes_of(requests) == []
            clock.by_ms = 0
            after = site.await_pods("limited", "next")
            assert {"limited": after["limited"]} == before
            assert lines[-1]["event"] != "clock"
        finally:
            stop.ended = True
            stop.wake()
            loop.join(PATIENCE_S)
    assert not loop.is_alive()
