"""Two replicas on one API server: whatever happens to the one that leads, the other goes on, and never do both write.

Who wrote when is read from the server's audit log, where each has a token of its own.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest
from controlplane.server import ControlPlane
from faultproxy import Fault, FaultProxy, What
from unattended import Process, Site, at_last, job, project, within, writes_of

LEASE_S = 15.0
LATEST_S = 2 * LEASE_S - 1
"""The lease, and how often a replica that waits looks, and what a busy machine takes: before a second lease is over."""
SOON_S = LEASE_S - 3
"""Sooner than a lease runs out that is not given back: it was renewed some two seconds ago at most."""
Figure = Callable[[str], None]


@dataclass
class Pair:
    """Two processes, each with its own way to the server."""

    site: Site
    ways: list[FaultProxy]
    processes: list[Process]
    running: list[str]

    def leader(self) -> int:
        """Which one leads; when neither does, waits."""
        leads = at_last(lambda: [n for n in (0, 1) if self.processes[n].leads()], self.site.logs)
        assert len(leads) == 1
        return leads[0]

    def one_more(self) -> None:
        """Commit a job; it runs, and what ran goes on."""
        before = self.site.pods()
        self.declare()
        after = self.site.await_pods(*self.running)
        assert {name: after[name] for name in before} == before
        self.site.await_pods_ever(dict.fromkeys(self.running, 1))

    def declare(self) -> None:
        """Commit a job."""
        self.running.append(f"job-{len(self.running)}")
        self.site.commit(job(self.running[-1]))


@pytest.fixture
def pair(plane_with_gpuctl: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("pair")
    site = Site(plane_with_gpuctl, folder, f"pair{folder.name[-1]}")
    ways = [FaultProxy(plane_with_gpuctl) for _ in range(2)]
    try:
        site.commit(project("a", 32), job("job-0"))
        yield Pair(site, ways, [site.start(url=way.url) for way in ways], ["job-0"])
    finally:
        site.leave()
        for way in ways:
            way.close()


def test_the_leader_is_killed_then_stopped_and_woken_then_cut_off(pair: Pair, figure: Figure) -> None:
    site, processes = pair.site, pair.processes
    site.await_pods("job-0")

    first = pair.leader()
    took_s = takeover(pair, first, processes[first].kill)
    figure(f"leader killed: the other leads after {took_s:.1f} s")
    pair.one_more()
    processes[first] = site.start(url=pair.ways[first].url)

    second = pair.leader()
    took_s = takeover(pair, second, lambda: processes[second].signal(signal.SIGSTOP))
    figure(f"leader stopped: the other leads after {took_s:.1f} s")
    pair.ways[1 - second].play(Fault(What.SAY, "PATCH", code=503))
    pair.declare()
    written, told = len(writes_of(processes[second].audited())), len(processes[second].lines())
    processes[second].signal(signal.SIGCONT)
    at_last(lambda: "standby" in [line["event"] for line in processes[second].lines()[told:]], site.logs)
    time.sleep(3)
    assert not processes[second].leads()
    assert len(writes_of(processes[second].audited())) == written, "woken, with a job to start that nobody started"
    pair.ways[1 - second].play()
    site.await_pods(*pair.running)

    third = pair.leader()
    took_s = takeover(pair, third, pair.ways[third].leave)
    figure(f"leader cut off: the other leads after {took_s:.1f} s")
    at_last(lambda: "GPU7001" in processes[third].codes(), site.logs)
    pair.one_more()
    pair.ways[third].come_back()
    at_last(lambda: processes[third].total("gpuctl_problems") == 0, site.logs)
    pair.one_more()
    assert pair.leader() == 1 - third

    terms = never_two_writers(site)
    assert terms >= 4
    assert set(site.starts().values()) == {"1"}


def takeover(pair: Pair, leader: int, stop: Callable[[], None]) -> float:
    """Seconds from a leader's end to the moment at which the other may write."""
    began = time.monotonic()
    stop()
    within(LATEST_S, pair.processes[1 - leader].leads, pair.site.logs)
    return time.monotonic() - began


def test_who_is_told_to_end_hands_over_at_once(pair: Pair, figure: Figure) -> None:
    pair.site.await_pods("job-0")
    leader = pair.leader()
    took_s = takeover(pair, leader, pair.processes[leader].end)
    figure(f"leader told to end: the other leads after {took_s:.1f} s")
    assert took_s < SOON_S
    never_two_writers(pair.site)


def never_two_writers(site: Site) -> int:
    """Check the audit log; how many terms there were.

    A write of the Lease that is done makes its writer the holder. Every other write must be the holder's: begun when
    the Lease was its own for less than its duration, and done before the next holder began to take it.
    """
    log = sorted((r for r in site.plane.audit.requests() if begun(r) >= site.since), key=begun)
    taken = [r for r in log if r["objectRef"]["resource"] == "leases" and is_done(r) and whose(r)]
    terms = [r for n, r in enumerate(taken) if n == 0 or whose(r) != whose(taken[n - 1])]
    for write in (r for r in writes_of(log) if whose(r)):
        held = [r for r in taken if ended(r) <= begun(write)]
        assert held, write
        assert whose(held[-1]) == whose(write), (held[-1], write)
        assert begun(write) - begun(held[-1]) < LEASE_S, (held[-1], write)
        later = [begun(r) for r in terms if begun(r) > begun(held[-1])]
        assert not later or ended(write) < later[0], write
    return len(terms)


def is_done(request: Mapping[str, Any]) -> bool:
    return request["verb"] in {"create", "update"} and request["responseStatus"]["code"] < 300


def whose(request: Mapping[str, Any]) -> str:
    """The token it came with, if it is of a replica."""
    return str(request["user"].get("extra", {}).get("authentication.kubernetes.io/credential-id", [""])[0])


def begun(request: Mapping[str, Any]) -> float:
    return datetime.fromisoformat(request["requestReceivedTimestamp"]).timestamp()


def ended(request: Mapping[str, Any]) -> float:
    return datetime.fromisoformat(request["stageTimestamp"]).timestamp()
