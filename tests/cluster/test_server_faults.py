"""Faults between gpuctl and the API server. Each time a commit starts one job more: it must come to run, once; no other
run may notice; and the journal and the measurements must show the fault while it lasts.

One process goes through all of them, as it would in a year.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace

import pytest
from controlplane.server import ControlPlane
from faultproxy import Fault, FaultProxy, What
from unattended import Process, Site, at_last, job, project

from gpuctl.adapters.kubernetes import KubernetesCluster, Timings, connect
from gpuctl.k8s import kinds

Figure = Callable[[str], None]
ALL, WATCH, LIST = "", "GET .*watch=1", "GET .*limit="
WRITE, JOBS, LEDGERS = "PATCH", "PATCH .*/jobs/", "PATCH .*/configmaps/ledger"


@dataclass
class Scene:
    """The process, its cluster and its way to the server; which jobs run."""

    site: Site
    proxy: FaultProxy
    process: Process
    running: list[str]


@pytest.fixture(scope="module")
def scene(plane_with_gpuctl: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    site = Site(plane_with_gpuctl, tmp_path_factory.mktemp("faults"), "faults", gpus=64)
    proxy = FaultProxy(plane_with_gpuctl)
    try:
        site.commit(project("a", 64), job("one"), job("two"))
        process = site.start(url=proxy.url)
        site.await_pods("one", "two")
        yield Scene(site, proxy, process, ["one", "two"])
    finally:
        site.leave()
        proxy.close()


@dataclass(frozen=True)
class Case:
    """`code`: what the journal tells; `http`: what the measurements count, 0 for no whole answer.

    `anew`: what is open ends first, so that watches begin again.
    """

    fault: Fault
    code: str
    http: int = 0
    anew: bool = False


SOON, LATE = {"Retry-After": "1"}, {"Retry-After": "60"}
CASES = {
    "connections that end at once": Case(Fault(What.CLOSE, ALL), "GPU7001", anew=True),
    "409 for a job": Case(Fault(What.SAY, JOBS, code=409), "GPU7004", 409),
    "409 for a ledger": Case(Fault(What.SAY, LEDGERS, code=409), "GPU7004", 409),
    "429 for writes": Case(Fault(What.SAY, WRITE, code=429, headers=SOON), "GPU7001", 429),
    "429 for a long time": Case(Fault(What.SAY, WRITE, code=429, headers=LATE), "GPU7001", 429),
    "500 for writes": Case(Fault(What.SAY, WRITE, code=500), "GPU7001", 500),
    "503 for all": Case(Fault(What.SAY, ALL, code=503), "GPU7001", 503, anew=True),
    "half an answer to a write": Case(Fault(What.HALF, WRITE), "GPU7001"),
    "a write that is done, and its answer lost": Case(Fault(What.LOSE, WRITE), "GPU7001"),
    "500 for a watch": Case(Fault(What.SAY, WATCH, code=500), "GPU7001", 500, anew=True),
    "half an event": Case(Fault(What.HALF, WATCH), "GPU7001", anew=True),
    "410 for a watch": Case(Fault(What.SAY, WATCH, code=410), "GPU7017", 410, anew=True),
    "410 within a watch": Case(Fault(What.EXPIRE, WATCH), "GPU7017", 410, anew=True),
}


@pytest.mark.parametrize("name", CASES)
def test_a_fault_delays_what_is_new_and_nothing_else(name: str, scene: Scene, figure: Figure) -> None:
    case = CASES[name]

    def meanwhile() -> None:
        told, counted = len(scene.process.lines()), requests(scene.process, case.http)
        scene.proxy.play(case.fault)
        if case.anew:
            scene.proxy.cut()

        def is_seen() -> bool:
            codes = {line.get("code") for line in scene.process.lines()[told:] if line["event"] != "resolved"}
            return case.code in codes and requests(scene.process, case.http) > counted

        at_last(is_seen, lambda: (scene.proxy.played[-5:], scene.site.logs()))

    took_s = with_one_more(scene, meanwhile)
    figure(f"{name}: right again after {took_s:.1f} s")


def test_thirty_seconds_without_the_server(scene: Scene, figure: Figure) -> None:
    """Long enough to lose the Lease, which it must then have again before it writes."""

    def meanwhile() -> None:
        told = len(scene.process.lines())
        scene.proxy.leave()
        time.sleep(30)
        lines = scene.process.lines()[told:]
        assert {line["event"] for line in lines} >= {"unreachable", "standby"}
        assert scene.process.metrics()['gpuctl_problems{code="GPU7001"}'] >= 1
        assert not scene.process.leads()
        scene.proxy.come_back()

    took_s = with_one_more(scene, meanwhile)
    figure(f"30 s without the server: right again after {took_s:.1f} s")


@pytest.mark.parametrize("what", [What.HALF, What.CLOSE])
def test_it_begins_while_lists_fail(what: What, scene: Scene) -> None:
    """Half of what is there must not look like all of it: a job that is not seen would be made again."""

    def meanwhile() -> None:
        scene.process.end()
        scene.proxy.play(Fault(what, LIST))
        scene.process = scene.site.start(url=scene.proxy.url)
        at_last(lambda: "GPU7001" in scene.process.codes(), scene.site.logs)

    with_one_more(scene, meanwhile)


def with_one_more(scene: Scene, meanwhile: Callable[[], object]) -> float:
    """Commit a job, let something happen, and see that all comes right. How many seconds that took afterwards."""
    site, new = scene.site, f"job-{len(scene.running)}"
    before = site.pods()
    assert sorted(before) == sorted(scene.running)
    site.commit(job(new))
    meanwhile()
    scene.proxy.play()
    began = time.monotonic()
    scene.running.append(new)
    after = site.await_pods(*scene.running)
    took_s = time.monotonic() - began
    assert {name: after[name] for name in before} == before
    assert set(site.starts().values()) == {"1"}
    site.await_pods_ever(dict.fromkeys(scene.running, 1))
    at_last(lambda: scene.process.total("gpuctl_problems") == 0, site.logs)
    return took_s


def requests(process: Process, code: int) -> float:
    return process.total("gpuctl_api_requests_total", f'code="{code}"')


def test_a_watch_that_falls_silent_is_begun_again(scene: Scene) -> None:
    """Nothing closes the connection: only that no bookmark comes either tells. Here after 3 s instead of 72."""
    site, codes = scene.site, list[int]()
    kubeconfig = site.plane.write_kubeconfig(site.folder / "silent", scene.process.token, url=scene.proxy.url)

    def on_request(verb: str, kind: str, code: int, duration_ms: int) -> None:
        del verb, kind, duration_ms
        codes.append(code)

    with closing(connect(str(kubeconfig))) as connection:
        timings = replace(Timings(), silence_ms=3_000)
        cluster = KubernetesCluster(connection, timings=timings, on_request=on_request)
        with closing(cluster):
            version = cluster.list(kinds.NODE).resource_version
            scene.proxy.play(Fault(What.STALL, "GET .*/nodes.*watch=1", times=2))
            (bookmark,) = cluster.watch(kinds.NODE, version, 0)
            note = {"metadata": {"annotations": {"note": "made while nothing came"}}}
            path = f"/api/v1/nodes/{site.name}-1"
            site.plane.call("PATCH", path, note, media="application/merge-patch+json")
            event, _ = cluster.watch(kinds.NODE, bookmark.body["metadata"]["resourceVersion"], 10_000)
    assert event.body["metadata"]["annotations"]["note"] == "made while nothing came"
    assert sum(told.startswith("STALL") for told in scene.proxy.played) == 2
    assert codes.count(0) >= 2, "a busy server may be silent for as long"
