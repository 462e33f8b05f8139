"""The dashboard of a controller: a process of its own, fed with what has changed."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from http.client import HTTPException
from pathlib import Path
from time import monotonic, sleep
from urllib.request import urlopen

import pytest
import warm
from click.testing import CliRunner
from controlplane.ports import free_port
from serving import Scene

from gpuctl.adapters.clock import VirtualClock
from gpuctl.adapters.dashboard.fed import FedView
from gpuctl.adapters.dashboard.process import DashboardProcess, Site, lines_of
from gpuctl.adapters.git import WorkingCopy
from gpuctl.app.inspect import LiveCache, observed
from gpuctl.app.viewing import Sight
from gpuctl.cli.main import gpuctl
from gpuctl.model.ids import ObjectRef
from gpuctl.model.state import RawObjects

ROOT = Path(__file__).parents[2]
PATIENCE_S = 180


def until(holds: Callable[[], bool]) -> None:
    end = monotonic() + PATIENCE_S
    while not holds():
        assert monotonic() < end
        sleep(0.1)


def page(port: int, path: str = "/") -> str:
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE_S) as answer:
            return str(answer.read().decode())
    except (OSError, HTTPException):  # it does not listen yet, or ended meanwhile
        return ""


class Controller:
    """`gpuctl reconcile` on the example and an embedded cluster, with a dashboard."""

    def __init__(self, folder: Path) -> None:
        copy = WorkingCopy.create(folder / "repo")
        for file in (ROOT / "clusters/tr4858").rglob("*.yaml"):
            copy.write(f"c/{file.relative_to(ROOT / 'clusters/tr4858')}", file.read_bytes())
        copy.commit("first", 1_596_000_000_000)
        self.port = free_port()
        self.log = folder / "log"
        args = ["--repo", str(folder / "repo"), "--path", "c", "--embedded", str(folder / "cluster.db")]
        args += ["--workdir", str(folder / "work"), "--dashboard-address", f"127.0.0.1:{self.port}"]
        with self.log.open("wb") as log:
            self.process = warm.Begun(["reconcile", *args], log)

    def server(self) -> int:
        """The process that serves."""
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):  # a thread or a process that has just ended
                for pid in (task / "children").read_text().split():
                    if b"dashboard.fed" in Path(f"/proc/{pid}/cmdline").read_bytes():
                        return int(pid)
        return 0


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    running = Controller(tmp_path)
    yield running
    running.process.kill()
    running.process.wait()


def test_the_controller_serves_what_it_sees_and_its_pages_come_back_when_their_process_ends(
    controller: Controller,
) -> None:
    until(lambda: "<dt>Running jobs</dt><dd>13</dd>" in page(controller.port))
    until(lambda: "quota 4, fair share 4" in page(controller.port))
    assert "standby" not in page(controller.port)
    assert "What would happen" in page(controller.port, "/what-if?project=team-a&quota=3")
    first = controller.server()
    assert first
    os.kill(first, signal.SIGKILL)
    until(lambda: controller.server() not in {0, first})
    until(lambda: "<dt>Running jobs</dt><dd>13</dd>" in page(controller.port))
    until(lambda: "GPU7098" in controller.log.read_text())
    serving = controller.server()
    assert Path(f"/proc/{serving}/environ").read_bytes().count(b"\0") == 2
    controller.process.kill()
    controller.process.wait()
    until(lambda: not Path(f"/proc/{serving}/cmdline").exists() or not Path(f"/proc/{serving}/cmdline").read_bytes())


def test_it_ends_with_the_controller_and_gives_its_port_back(controller: Controller) -> None:
    until(lambda: "Total GPUs" in page(controller.port))
    serving = controller.server()
    assert serving
    controller.process.terminate()
    assert controller.process.wait(PATIENCE_S) == 0
    assert not Path(f"/proc/{serving}").exists()
    socket.create_server(("127.0.0.1", controller.port)).close()


def test_each_process_that_ends_is_told_and_none_after_the_close() -> None:
    ended: list[str] = []
    with closing(DashboardProcess(Site(title="t", address="127.0.0.1:0"), ended.append, tuple)) as process:
        until(process.is_wanted)  # it asks when it begins
        until(lambda: "not read the cluster yet" in page(process.port))
    assert ended == []


def test_what_is_handed_over_is_what_the_cluster_says(scenes: Mapping[str, Scene]) -> None:
    """Only what has changed is sent, cut down as the controller's copy is; the view is that of the whole cluster."""
    clock = VirtualClock(1_596_000_000_000)
    fed, sent = FedView(clock, lambda: None), dict[ObjectRef, str]()
    assert "not read the cluster yet" in fed.view().note
    for leader, label, unread in ((None, "4.8", ()), ("other", "4.9", ("no JobSets",)), ("", "4.10", ())):
        scene = scenes[label]
        clock.advance_to(scene.view.at_ms)
        sight = Sight(at_ms=scene.view.at_ms, objects=scene.objects, leader=leader, unread=unread)
        lines = list(lines_of(sight, sent))
        for line in lines:
            fed.take(line)
        view = fed.view()
        assert replace(view, note="", unread=()) == scene.view
        assert view.unread == unread
        assert ("in standby" in view.note, ": other leads" in view.note) == (leader is not None, leader == "other")
        assert len(list(lines_of(sight, sent))) == 1  # nothing has changed since
        assert fed.view().jobs == view.jobs
    clock.advance_to(clock.now_ms() + 120_000)
    assert "could not read the cluster for 2m" in fed.view().note


@pytest.mark.parametrize(
    "options",
    [
        "dashboard --address :8090",
        "dashboard --address :8090 --user-header X-Forwarded-User",
        "dashboard --proxy-from 10.0.0.7",
        "dashboard --user-header X-Forwarded-User --proxy-from 10.0.0.7/8",
        "reconcile --repo . --path c --dashboard-address 0.0.0.0:8090",
        "reconcile --repo . --path c --dashboard-secret file",
    ],
)
def test_pages_are_served_to_no_machine_that_could_name_any_user(options: str) -> None:
    refused = CliRunner().invoke(gpuctl, options.split())
    assert (refused.exit_code, "GPU9002" in refused.stderr) == (2, True)


def stuck(scene: Scene, reason: str) -> RawObjects:
    """The same, where the kubelet can't start one of the pods."""
    ref, body = next((ref, body) for ref, body in scene.objects.objects.items() if ref.kind == "Pod")
    waits = {"name": "main", "state": {"waiting": {"reason": reason}}}
    pod = {**body, "status": {**body["status"], "phase": "Pending", "containerStatuses": [waits]}}
    return RawObjects(objects={**scene.objects.objects, ref: pod})


def test_what_is_known_of_earlier_views_changes_none(scenes: Mapping[str, Scene]) -> None:
    """Forth and back through the story, and a pod that is stuck by one reason, by another, and is mended."""
    story = [scene.objects for scene in scenes.values()]
    last, known = scenes["4.10"], LiveCache()
    reasons = ("ErrImagePull", "InvalidImageName")
    for raw in (*story, *(stuck(last, reason) for reason in reasons), last.objects, *reversed(story)):
        jobs, anew = observed(raw, known).jobs, observed(raw).jobs
        assert jobs == anew
        assert [job.run.problem for job in jobs] == [job.run.problem for job in anew]
    assert any(job.run.problem for job in observed(stuck(last, reasons[0])).jobs)
