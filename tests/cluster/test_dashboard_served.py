"""The controller's dashboard on a real API server: its numbers are the server's, and a crowd holds nothing up."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from controlplane.ports import free_port
from controlplane.server import ControlPlane
from unattended import Process, Site, at_last, job, project

from gpuctl.adapters.kubernetes.paths import item
from gpuctl.install import Installation
from gpuctl.install.rights import account_and_rights
from gpuctl.k8s.objects import ref_of
from gpuctl.model.state import Body

CROWD = 200


@dataclass
class Served:
    """A site with the process that leads, and the port of its dashboard."""

    site: Site
    leader: Process
    port: int

    def page(self, path: str = "/", port: int = 0) -> str:
        with suppress(OSError, HTTPException), urlopen(f"http://127.0.0.1:{port or self.port}{path}") as answer:
            return str(answer.read().decode())
        return ""

    def shows(self, words: str, path: str = "/") -> None:
        at_last(lambda: words in self.page(path), self.site.logs)


@pytest.fixture(scope="module")
def served(plane_with_gpuctl: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    site, port = Site(plane_with_gpuctl, tmp_path_factory.mktemp("site"), "seen", gpus=8), free_port()
    site.commit(
        project("a", 4), project("b", 4), job("one", 4), job("two", 4, more=", maxDuration: 1h"), job("late", 8),
        job("other", 2, project="b"),
    )  # fmt: skip
    for body in rights():
        site.plane.call("PATCH", f"{item(ref_of(body))}?fieldManager=test", body)
    leads = site.start("--dashboard-address", f"127.0.0.1:{port}", "--dashboard-pod-ip", "10.9.8.1")
    yield Served(site, leads, port)
    site.leave()


def rights() -> Iterator[Body]:
    """Those that `install --dashboard` gives the account besides, under a name of their own."""
    name = "with-a-dashboard"
    for body in account_and_rights(Installation(repo="https://x/y.git", path="c", image="x", dashboard=True)):
        renamed = {**body, "metadata": {**body["metadata"], "name": name}}
        if body["kind"] == "Role":
            yield renamed
        elif body["kind"] == "RoleBinding":
            yield {**renamed, "roleRef": {**body["roleRef"], "name": name}}


def leads_to(site: Site) -> tuple[str, int]:
    """Where Service gpuctl-dashboard leads."""
    home = "/apis/discovery.k8s.io/v1/namespaces/gpuctl-system/endpointslices/gpuctl-dashboard"
    with suppress(HTTPError):
        found = site.plane.call("GET", home)
        assert found["metadata"]["labels"]["kubernetes.io/service-name"] == "gpuctl-dashboard"
        return found["endpoints"][0]["addresses"][0], found["ports"][0]["port"]
    return "", 0


def tiles(html: str) -> dict[str, str]:
    return dict(re.findall(r"<div><dt>([^<]+)</dt><dd>([^<]+)</dd></div>", html))


def test_its_numbers_are_the_servers(served: Served) -> None:
    served.site.await_pods("other", project="b")
    served.shows("<dt>Running jobs</dt><dd>2</dd>")
    running = served.site.pods("a") | served.site.pods("b")
    waiting = [each for space in "ab" for each in served.site.jobs(space) if each["spec"]["suspend"]]
    shown = tiles(at_last(served.page))
    assert shown["Running jobs"] == str(len(running))
    assert shown["Pending jobs"] == str(len(waiting))
    assert shown["Total GPUs"] == "8"
    assert shown["Allocated GPUs"] == "6"
    served.shows('<td class="amount">2</td>', "/queue")  # a position: the overview is published
    assert set(re.findall(r'<a href="/jobs/[ab]/(\w+)">', served.page("/queue"))) == {"two", "late"}
    assert "quota 4, fair share" in served.page()


def test_a_replica_in_standby_shows_the_same_and_says_so(served: Served) -> None:
    port = free_port()
    standby = served.site.start("--dashboard-address", f"127.0.0.1:{port}")
    try:
        at_last(lambda: "in standby" in served.page(port=port), served.site.logs)
        at_last(lambda: "quota 4, fair share" in served.page(port=port), served.site.logs)
        at_last(lambda: tiles(served.page(port=port)) == tiles(served.page()) != {}, served.site.logs)
    finally:
        standby.end()


def test_a_crowd_holds_nothing_up(served: Served) -> None:
    """A crowd that reads nothing of what it asked for; then a job is committed, runs, and is shown."""
    served.site.await_pods("other", project="b")
    with ExitStack() as crowd:
        for number in range(CROWD):
            client = crowd.enter_context(socket.create_connection(("127.0.0.1", served.port)))
            path = "/events" if number % 2 else "/jobs"
            client.sendall(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        served.site.commit(job("new", 2, project="b"))
        served.site.await_pods("other", "new", project="b")
        served.shows("<dt>Running jobs</dt><dd>3</dd>")
    assert not [line for line in served.leader.lines() if line.get("level") == "error"]


def test_its_service_leads_to_the_replica_that_leads(served: Served) -> None:
    """The last test here: the leader is killed, and the one in standby says where it is once it leads."""
    at_last(lambda: leads_to(served.site) == ("10.9.8.1", served.port), served.site.logs)
    port = free_port()
    served.site.start("--dashboard-address", f"127.0.0.1:{port}", "--dashboard-pod-ip", "10.9.8.2")
    at_last(lambda: "in standby" in served.page(port=port), served.site.logs)
    assert leads_to(served.site) == ("10.9.8.1", served.port)
    served.leader.kill()
    at_last(lambda: leads_to(served.site) == ("10.9.8.2", port), served.site.logs)
    at_last(lambda: "in standby" not in served.page(port=port), served.site.logs)
