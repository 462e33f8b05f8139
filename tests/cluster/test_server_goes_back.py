"""What becomes of runs while the API server is killed between two writes of a cycle, goes back to a snapshot of etcd,
or loses a kind of which there is a run. On a control plane of its own."""

from __future__ import annotations

import gc
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from urllib.error import HTTPError

import pytest
from controlplane.known import define
from controlplane.server import ControlPlane
from town import WITHIN_S, Town, town_on
from unattended import Site, at_last, install, job, project
from workloads.declarations import manifest
from workloads.definitions import a_like_of

from gpuctl.app.ports import WorldFault
from gpuctl.k8s import kinds
from gpuctl.k8s.objects import uid
from gpuctl.model.state import Body

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning")
"""Python 3.11 does not close the socket of a connection that is reset just before the TLS handshake."""

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture(scope="module")
def plane(new_control_plane: Callable[..., ControlPlane]) -> ControlPlane:
    """gpuctl remembers for minutes that a kind is not there: so this one is, before gpuctl looks."""
    made = new_control_plane()
    install(made)
    define(made, job_sets())
    return made


@pytest.fixture
def town(plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[Town]:
    with town_on(plane, request.node.name) as made:
        yield made
    gc.collect()  # sockets left by Python are closed here, and not in the test that happens to be next


def job_sets() -> Body:
    """The definition of a kind, without the controller that makes its pods."""
    group, version = kinds.JOB_SET[0].split("/")
    body: Body = a_like_of(group, kinds.JOB_SET[1], version)
    body["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved, for a test"}
    return body


def pods_made(town: Town) -> Counter[str]:
    """How many pods were made for each job, by the Job controller's events."""
    told = town.plane.call("GET", f"/api/v1/namespaces/{town.namespace}/events")["items"]
    made = [each for each in told if each["reason"] == "SuccessfulCreate"]
    return Counter({each["involvedObject"]["name"].rpartition("-")[0]: int(each.get("count") or 1) for each in made})


@pytest.mark.parametrize("away", [False, True], ids=["back at once", "away to the end of the cycle"])
def test_killed_between_two_writes_it_takes_the_rest_once_it_is_back(town: Town, *, away: bool) -> None:
    """Two jobs start, one is paused, and one is removed."""
    town.jobs |= {"stays": ", gpus: 1", "goes": ", gpus: 1", "waits": ", gpus: 2"}
    town.comes_to(stays="Running", goes="Running", waits="Running")
    before = town.one("Pod", "stays")
    del town.jobs["goes"]
    town.jobs |= {"waits": ", gpus: 2, suspend: true", "one": ", gpus: 1", "two": ", gpus: 1"}
    asked = 0

    def killed() -> bool:
        """Asked before each write."""
        nonlocal asked
        asked += 1
        if asked in {2, 4, 7}:
            town.plane.kill_server()
            if not away:
                town.plane.bring_back()
        return False

    town.context = replace(town.context, stop=killed)
    wanted = {"stays": "Running", "waits": "Queued", "one": "Running", "two": "Running"}
    until, phases, faults = time.monotonic() + WITHIN_S, dict[str, str](), list[str]()
    while phases != wanted:
        assert time.monotonic() < until, (asked, phases)
        try:
            faults += [outcome.error for outcome in town.cycle().faults]
            phases = town.phases()
        except WorldFault as fault:
            faults.append(str(fault))
        town.plane.bring_back()
        time.sleep(0.1)
    assert asked >= 7
    assert not [fault for fault in faults if "immutable" in fault], "of a Job whose pods could not be deleted yet"
    assert uid(town.one("Pod", "stays")) == uid(before)
    once = dict.fromkeys(("stays", "goes", "waits", "one", "two"), 1)
    at_last(lambda: pods_made(town) == once, lambda: pods_made(town))


def test_where_etcd_is_restored_gpuctl_goes_on_from_what_is_there(plane: ControlPlane, tmp_path: Path) -> None:
    """The process runs all the time. A run that goes on is not touched; a removed one is there again, and goes; one
    that was made since is gone, and what was recorded of it too: it starts anew. One that had ended stays so."""
    site = Site(plane, tmp_path, "back", gpus=8)
    try:
        ended = job("ended", more=", env: {RUN_FOR: 1s}")
        site.commit(project("a", 8), job("old"), job("gone"), ended)
        process = site.start()
        at_last(lambda: sorted(site.pods()) == ["gone", "old"] and len(site.jobs()) == 3, site.logs)
        before = site.pods()
        plane.snapshot(tmp_path / "snapshot")
        site.commit({"c/a-gone.yaml": None}, job("new"))
        site.await_pods("old", "new")
        since = site.pods()
        plane.restore(tmp_path / "snapshot")
        at_last(lambda: sorted(site.pods()) == ["new", "old"] and site.pods()["new"] != since["new"], site.logs)
        assert before["old"] == since["old"], site.all_told()
        assert site.pods()["old"] == before["old"], site.all_told()
        at_last(lambda: site.starts() == {"old": "1", "new": "1", "ended": "1"}, site.logs)
        at_last(lambda: process.total("gpuctl_problems") == 0, site.logs)
    finally:
        site.leave()


def is_started(town: Town) -> bool:
    """Whether the run of the kind is let go. The server counts a kind in a quota that is older only minutes later."""
    if "status unknown for quota" in str(town.context.rejected):
        with suppress(HTTPError):
            town.plane.call("DELETE", f"/api/v1/namespaces/{town.namespace}/resourcequotas/gpuctl")
        time.sleep(5)
    return town.phases() == {"train": "Starting"}


def test_a_run_whose_kind_is_removed_has_ended_and_holds_up_nothing(town: Town) -> None:
    """The server deletes all objects of the kind with its definition. What it was is not started again by itself."""
    town.more_of_pool = ", resourcesPerNode: {cpu: 16, memory: 64Gi}"
    town.jobs["train"] = f"\n  manifest: {json.dumps(manifest(kinds.JOB_SET))}"
    town.until(lambda: is_started(town))
    body = job_sets()
    town.plane.call("DELETE", f"{DEFINITIONS}/{body['metadata']['name']}")
    town.jobs["j"] = ", gpus: 2, workers: 2"
    town.until(lambda: (town.phases(), town.ended()) == ({"j": "Running"}, {"train": "Deleted"}))
    define(town.plane, body)
    until = time.monotonic() + 5
    while time.monotonic() < until:
        town.cycle()
        assert (town.phases(), town.ended()) == ({"j": "Running"}, {"train": "Deleted"})
        time.sleep(0.2)
