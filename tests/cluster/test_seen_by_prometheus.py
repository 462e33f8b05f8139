"""A real Prometheus that scrapes a real `gpuctl reconcile` through the report's story and through faults after it.

The API server is real too, the pods are KWOK's, and the exporter is one on loopback that knows of them. The rules and
the dashboard are the files of deploy/monitoring. Of a rule nothing is changed but `for`, which is no part of its
expression: it is taken away, or each fault would have to stand for up to an hour. tests/reconcile/test_watched.py has
the rules with their `for`, in virtual time.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
import yaml
from controlplane.ports import free_port
from controlplane.server import ControlPlane
from exporters import Answers, answering, exposition
from town import MERGE
from unattended import Process, Site, provide, within

from gpuctl.adapters.files import read_tree
from gpuctl.adapters.kubernetes.paths import item
from gpuctl.compile import compile_tree
from gpuctl.k8s.overview import OVERVIEW_REF, decode_overview
from gpuctl.wiring import blueprint

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "clusters/tr4858"
MONITORING = ROOT / "deploy/monitoring"
TEAMS = ("team-a", "team-b", "team-c", "team-d")
ENDS = {"4.8": (4, 4, 4, 4), "4.9": (4, 2, 2, 8), "4.10-queue": (4, 2, 2, 8), "4.10": (8, 4, 4, 0)}
"""What each team holds at the end of each section of the report."""
SHORT = (
    "apiVersion: gpuctl.dev/v1\nkind: Job\nmetadata: {{name: {name}, project: team-d}}\nspec: {{image: x, {more}}}\n"
)
PATIENCE_S = 180


@dataclass(frozen=True)
class Prometheus:
    """One that has begun a moment ago."""

    port: int

    def asked(self, path: str, **query: str) -> Any:
        """The data of an answer; none while it is not up."""
        with suppress(OSError):
            address = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urlencode(query)}"
            with urlopen(address, timeout=60) as answer:
                return json.load(answer)["data"]
        return {"result": [], "alerts": []}

    def values(self, expr: str) -> dict[tuple[str, ...], float]:
        """The value of each series by the values of its labels, without those that are no number."""
        found = {
            tuple(each["metric"].values()): float(each["value"][1])
            for each in self.asked("query", query=expr)["result"]
        }
        return {labels: value for labels, value in found.items() if value == value}  # noqa: PLR0124 - NaN is not

    def firing(self) -> set[str]:
        return {each["labels"]["alertname"].removeprefix("Gpuctl") for each in self.asked("alerts")["alerts"]}


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[Prometheus]:
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is not installed: Debian has it in the package of that name")
    rules = yaml.safe_load((MONITORING / "rules.yaml").read_text())
    for rule in rules["groups"][0]["rules"]:
        rule["for"] = "0s"
    (folder / "rules.yaml").write_text(yaml.safe_dump(rules))
    (folder / "config.yaml").write_text(yaml.safe_dump({
        "global": {"evaluation_interval": "1s", "scrape_interval": "1s"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [{"job_name": "gpuctl", "static_configs": [{"targets": [target]}]}],
    }))  # fmt: skip
    port = free_port()
    line = [program, "--config.file=config.yaml", f"--web.listen-address=127.0.0.1:{port}"]
    with subprocess.Popen([*line, "--storage.tsdb.path=data", "--log.level=error"], cwd=folder) as process:
        try:
            yield Prometheus(port)
        finally:
            process.kill()


def example(path: str) -> str:
    """A file of the example cluster, in namespaces of this test's own."""
    return (EXAMPLE / path).read_text().replace("namespacePrefix: gpu-", "namespacePrefix: gpu-tr4858-")


def changes(section: Mapping[str, Any]) -> list[dict[str, str | None]]:
    """The commits of a section of the story; all that it takes over at once, or it would take a minute more."""
    taken: dict[str, str | None] = {}
    found = [taken]
    for commit in section["commits"]:
        taken.update({f"c/{path}": example(path) for path in commit.get("take", ())})
        rest = {f"c/{path}": text for path, text in commit.get("write", {}).items()}
        found.append({**rest, **{f"c/{path}": None for path in commit.get("remove", ())}})
    return [each for each in found if each]


@dataclass
class Scene:
    site: Site
    process: Process
    seen: Prometheus

    def holds(self, *gpus: int) -> None:
        """Wait until Prometheus has it that each team holds so many GPUs."""
        wanted = {(team,): float(held) for team, held in zip(TEAMS, gpus, strict=True)}
        panel = "sum by (project) (gpuctl_allocated_gpus)"
        within(PATIENCE_S, lambda: self.seen.values(panel) == wanted, lambda: (wanted, self.told()))

    def shows(self, holds: Callable[[], object]) -> None:
        """Wait until that is what Prometheus has."""
        within(PATIENCE_S, holds, self.told)

    def fires(self, *alerts: str) -> None:
        within(PATIENCE_S, lambda: self.seen.firing() == set(alerts), lambda: (alerts, self.told()))

    def forecasts_starts_of(self, team: str) -> bool:
        """Whether the leader has published a forecast start of one of its jobs."""
        plane, space = self.site.plane, self.site.namespace(team)
        overview = decode_overview(plane.call("GET", item(OVERVIEW_REF)))
        assert overview is not None
        jobs = plane.call("GET", f"/apis/batch/v1/namespaces/{space}/jobs")["items"]
        return any(overview.start_ms(job["metadata"]["uid"]) for job in jobs)

    def told(self) -> object:
        return self.seen.values("gpuctl_allocated_gpus"), self.seen.firing(), self.site.logs()


@pytest.fixture
def site(plane_with_gpuctl: ControlPlane, tmp_path: Path) -> Iterator[Site]:
    made = Site(plane_with_gpuctl, tmp_path, "tr4858")
    made.files = {}
    declared = compile_tree(read_tree(str(EXAMPLE))).declared
    assert declared is not None
    bodies = blueprint(declared.cluster.pools)
    for body in bodies:
        provide(plane_with_gpuctl, body)
    yield made
    made.leave()
    for body in bodies:
        where = {"Node": "/api/v1/nodes", "ResourceSlice": "/apis/resource.k8s.io/v1/resourceslices"}.get(body["kind"])
        if where is not None:
            with suppress(HTTPError):
                plane_with_gpuctl.call("DELETE", f"{where}/{body['metadata']['name']}")


def said(site: Site) -> bytes:
    """An exporter's output: every GPU of every pod is busy, by as many as its job's name has letters g."""
    gpus = []
    for team in TEAMS:
        space = site.namespace(team)
        for pod in site.plane.call("GET", f"/api/v1/namespaces/{space}/pods")["items"]:
            name, job = pod["metadata"]["name"], pod["metadata"]["labels"]["gpuctl.dev/job"]
            own = range(max(1, job.partition("-")[2].count("g")))
            gpus += [(space, name, f"GPU-{name}-{number}", 80.0, 1024, 31_744) for number in own]
    return exposition(*gpus)


def test_the_reports_story_fills_every_panel_and_faults_fire_alerts_until_they_are_mended(
    site: Site, tmp_path: Path
) -> None:
    with answering(Answers()) as exporter:
        process = site.start("--utilisation-exporter", f"{exporter.url}/metrics", "--jobs", "1000")
        with prometheus(tmp_path, process.metrics_address) as seen:
            scene = Scene(site, process, seen)
            through_the_story(scene)
            exporter.pieces = lambda: iter([said(site)])
            a_forecast_start(scene)
            every_panel_has_data(scene)
            faults(scene)


def through_the_story(scene: Scene) -> None:
    story = yaml.safe_load((ROOT / "gpuctl/app/story.yaml").read_text())
    for section in story["sections"]:
        for files in changes(section):
            scene.site.commit(files)
        if section["label"] in ENDS:
            scene.holds(*ENDS[section["label"]])
    queued = {("team-b",): 1.0, ("team-c",): 1.0}
    scene.shows(lambda: scene.seen.values("sum by (project) (gpuctl_queued_jobs)") == queued)
    paused = 'sum by (project, code) (increase(gpuctl_pauses_total{code="GPU5030"}[1h])) > 0'
    scene.shows(lambda: set(scene.seen.values(paused)) == {("GPU5030", "team-b"), ("GPU5030", "team-c")})


def a_forecast_start(scene: Scene) -> None:
    """Team d has a job with a limit: what is paused for it is forecast to go on after it, and goes on sooner.

    The leader forecasts starts as seldom as the forecast is dear to it, so a busy machine may make none in the life of
    a job of some seconds: the job ends once the forecast of a paused job is published. One of its own start may come
    before.
    """
    limited = "c/projects/team-d/jobs/limited.yaml"
    scene.site.commit({limited: SHORT.format(name="limited", more="gpus: 4, maxDuration: 10m")})
    scene.holds(4, 4, 4, 4)
    within(PATIENCE_S, lambda: scene.forecasts_starts_of("team-a"), scene.told)
    scene.site.commit({limited: None})
    scene.holds(8, 4, 4, 0)


def every_panel_has_data(scene: Scene) -> None:
    board = json.loads((MONITORING / "grafana.json").read_text())
    asked = [(panel["title"], target["expr"]) for panel in board["panels"] for target in panel["targets"]]
    asked = [each for each in asked if each[1] != "sum by (code) (gpuctl_problems)"]  # nothing is wrong

    def without() -> list[tuple[str, str]]:
        return [each for each in asked if not scene.seen.values(each[1])]

    within(PATIENCE_S, lambda: not without(), lambda: (without(), scene.told()))


def faults(scene: Scene) -> None:
    """Each is made from outside, and mended: in Git, in a pod, in a node, and to the process itself."""
    site, seen = scene.site, scene.seen
    scene.fires()

    team = {f"c/{path.relative_to(site.copy.folder / 'c')}": path.read_text() for path in files_of(site, "team-c")}
    site.commit(dict.fromkeys(team))
    scene.fires("Refusal", "NotApplied")
    scene.shows(lambda: seen.values("sum by (code) (gpuctl_problems)"))
    site.commit(team)
    scene.fires()

    stuck = SHORT.format(name="stuck", more="gpus: 1, env: {STUCK: ErrImagePull}")
    site.commit({"c/projects/team-d/jobs/stuck.yaml": stuck})
    scene.fires("RunsNotStarting")
    site.commit({"c/projects/team-d/jobs/stuck.yaml": None})
    scene.fires()

    lost = {"metadata": {"annotations": {"test/not-ready": "yes"}}}
    site.plane.call("PATCH", "/api/v1/nodes/dgx1-2", lost, media=MERGE)
    site.commit({"c/projects/team-d/jobs/large.yaml": SHORT.format(name="large", more="gpus: 8")})
    within(PATIENCE_S, lambda: "GuaranteeUnmet" in seen.firing(), scene.told)
    site.commit({"c/projects/team-d/jobs/large.yaml": None})
    site.plane.call(
        "PATCH", "/api/v1/nodes/dgx1-2", {"metadata": {"annotations": {"test/not-ready": None}}}, media=MERGE
    )
    scene.fires()

    scene.process.signal(signal.SIGSTOP)
    scene.fires("NoLeader")
    scene.process.signal(signal.SIGCONT)
    scene.fires()


def files_of(site: Site, team: str) -> list[Path]:
    return sorted((site.copy.folder / "c/projects" / team).rglob("*.yaml"))
