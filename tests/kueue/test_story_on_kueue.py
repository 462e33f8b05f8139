"""The report's sections 4.8 to 4.10 with whole GPUs, declared for gpuctl and decided by Kueue itself.

Kueue orders by creation times in whole seconds: jobs are added one after the other. It counts quota, so what is
compared is what it has admitted; where pods fit is kube-scheduler's matter.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import warm
from controlplane.build import go
from controlplane.server import ControlPlane, node
from release.tools import TOOLS

from gpuctl import api
from gpuctl.adapters.clock import SystemClock
from gpuctl.adapters.git import WorkingCopy
from gpuctl.app.other_engine import target_objects
from gpuctl.k8s import kinds, names
from gpuctl.targets import Engine
from kueue import manager
from kueue.tools import HERE, HOW, KUEUE, MODULE

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("kueue")]
_PLURALS = {
    "Cohort": "cohorts", "ClusterQueue": "clusterqueues", "LocalQueue": "localqueues",
    "ResourceFlavor": "resourceflavors", "WorkloadPriorityClass": "workloadpriorityclasses",
}  # fmt: skip
_APART_S = 1.1
_WITHIN_S = 180.0
CLUSTER = """
apiVersion: gpuctl.dev/v1
kind: Cluster
metadata: {name: NAME}
spec:
  namespacePrefix: NAME-
  nodePools: [{name: dgx1, nodes: [dgx1-1, dgx1-2], gpusPerNode: 8}]
"""
PROJECTS = {"team-a": 4, "team-b": 2, "team-c": 2, "team-d": 8}
FIRST = ("a-1-g interactive", "a-2-g", "a-3-gg", "b-1-g interactive", "b-3-g", "b-4-gg", "c-1-g interactive", "c-4-gg",
         "c-5-g", "d-1-gggg")  # fmt: skip


@pytest.fixture(scope="module")
def kueue(new_control_plane: Callable[..., ControlPlane]) -> Iterator[ControlPlane]:
    built, tools = KUEUE.find(), TOOLS.find()
    if built is None or tools is None:
        pytest.skip(f"no Kueue for the tests: {HOW}")
    listed = [*go(built.parent), "list", "-m", "-f", "{{.Dir}}", MODULE]
    found = subprocess.run(listed, cwd=HERE, capture_output=True, text=True, check=True, env=os.environ)
    plane = new_control_plane()
    for name in ("dgx1-1", "dgx1-2"):
        plane.call("POST", "/api/v1/nodes", node(name, labels={"gpuctl.dev/pool": "dgx1"}))
    with manager.running(built / "kueue", tools / "kustomize", Path(found.stdout.strip()), plane):
        yield plane


class Story:
    """What is declared, and the cluster that it is applied to as `kubectl apply --server-side` does."""

    def __init__(self, plane: ControlPlane, name: str) -> None:
        self.plane = plane
        self.name = name
        self.files: dict[str, str] = {"cluster.yaml": CLUSTER.replace("NAME", name)}
        self._written: dict[str, object] = {}

    def declare(self, name: str, text: str) -> None:
        self.files[f"{name}.yaml"] = text

    def add(self, told: str) -> None:
        name, _, kind = told.partition(" ")
        gpus = name.rpartition("-")[2].count("g")
        self.declare(
            name,
            f"""
apiVersion: gpuctl.dev/v1
kind: Job
metadata: {{name: {name}, project: team-{name[0]}}}
spec: {{type: {kind or "training"}, image: registry.example/quickstart:1, gpus: {gpus}}}
""",
        )
        self.apply()
        time.sleep(_APART_S)

    def apply(self) -> None:
        compiled = api.compile(self.files)
        assert compiled.declared is not None, compiled.diagnostics
        found = target_objects(compiled.declared, Engine.KUEUE)
        wanted = {_path(each.body): each.body for each in found.manifests.items}
        for path in sorted(wanted, key=lambda path: "/namespaces/" in path and path.count("/") > 4):
            if self._written.get(path) != wanted[path]:
                self.plane.call("PATCH", f"{path}?fieldManager=test&force=true&fieldValidation=Strict", wanted[path])
        for path in self._written.keys() - wanted.keys():
            self.plane.call("DELETE", f"{path}?propagationPolicy=Background")
        self._written = dict(wanted)

    def admitted(self) -> Counter[str]:
        """GPUs that Kueue has admitted, by project."""
        gpus: Counter[str] = Counter(dict.fromkeys(PROJECTS, 0))
        for body in self.plane.call("GET", "/apis/batch/v1/jobs")["items"]:
            mine = body["metadata"]["labels"].get(names.CLUSTER_LABEL) == self.name
            if mine and not body["spec"].get("suspend"):
                amounts = body["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]
                gpus[body["metadata"]["labels"][names.PROJECT_LABEL]] += int(amounts[names.GPU_RESOURCE])
        return gpus

    def ends_with(self, **wanted: int) -> None:
        """It comes to that, and stays."""
        state = {f"team-{name}": gpus for name, gpus in wanted.items()}
        until = time.monotonic() + _WITHIN_S
        while self.admitted() != state and time.monotonic() < until:
            time.sleep(0.2)
        time.sleep(2)
        assert self.admitted() == state


def _path(body: Mapping[str, Any]) -> str:
    version, meta = body["apiVersion"], body["metadata"]
    plural = _PLURALS.get(body["kind"]) or kinds.KINDS[version, body["kind"]].plural
    space = f"/namespaces/{meta['namespace']}" if "namespace" in meta else ""
    return f"/{'apis' if '/' in version else 'api'}/{version}{space}/{plural}/{meta['name'].replace(':', '%3A')}"


class Reconciled(Story):
    """The same, applied by `gpuctl reconcile --target kueue` from a repository."""

    def __init__(self, plane: ControlPlane, name: str, folder: Path) -> None:
        super().__init__(plane, name)
        self._repo = WorkingCopy.create(folder / "repo")
        self._folder = folder
        self.lines: list[Any] = []

    @property
    def declared_in(self) -> Path:
        """The folder of the declarations."""
        return self._repo.folder / "c"

    def apply(self) -> None:
        known = {path.name for path in (self._repo.folder / "c").glob("*.yaml")}
        for gone in known - self.files.keys():
            self._repo.remove(f"c/{gone}")
        for path, text in self.files.items():
            self._repo.write(f"c/{path}", text.encode())
        self._repo.commit("change", SystemClock().now_ms())
        self.run()

    def run(self) -> None:
        done = warm.run(
            "reconcile", "--repo", self._repo.folder, "--path", "c", "--once", "--target", "kueue",
            "--kubeconfig", self.plane.kubeconfig, "--workdir", self._folder / "work", "--log-format", "json",
        )  # fmt: skip
        self.lines = [json.loads(line) for line in done.stderr.splitlines()]
        assert done.returncode == 0, done.stderr


def test_the_report_with_whole_gpus(kueue: ControlPlane) -> None:
    tell(Story(kueue, "tr4858"))


def test_the_report_through_reconcile(kueue: ControlPlane, tmp_path: Path) -> None:
    """On the server of the other story: two clusters share its flavors, priorities and queues in nothing."""
    story = Reconciled(kueue, "second", tmp_path)
    tell(story)
    for _ in range(2):
        story.run()
    assert [line for line in story.lines if line["event"] == "applied"] == [], "at rest it costs no write"


def tell(story: Story) -> None:
    """Sections 4.8 to 4.10."""
    for project, quota in PROJECTS.items():
        story.declare(
            project,
            f"""
apiVersion: gpuctl.dev/v1
kind: Project
metadata: {{name: {project}}}
spec: {{quota: {quota}}}
""",
        )
    for job in FIRST:
        story.add(job)
    story.ends_with(a=4, b=4, c=4, d=4)
    for job in ("d-2-gg", "d-3-gg"):
        story.add(job)
    story.ends_with(a=4, b=2, c=2, d=8)
    for job in ("a-4-gg", "a-5-gg", "b-5-gg", "c-6-gg"):
        story.add(job)
    story.ends_with(a=4, b=2, c=2, d=8)
    for job in ("d-1-gggg", "d-2-gg", "d-3-gg"):
        del story.files[f"{job}.yaml"]
    story.apply()
    story.ends_with(a=8, b=4, c=4, d=0)
