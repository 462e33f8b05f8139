"""The queue with positions and forecast starts, and the tree of departments, as a controller publishes them."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import replace

import pytest
from click.testing import CliRunner
from serving import serving
from test_pages import rows, text

from gpuctl.adapters.clock import SystemClock
from gpuctl.adapters.embedded import EmbeddedCluster
from gpuctl.adapters.git import WorkingCopy
from gpuctl.app.inspect import Live, live
from gpuctl.cli.main import gpuctl
from gpuctl.model.declared import WHOLE_CLUSTER, Allowance
from gpuctl.model.ids import ProjectName
from gpuctl.model.overview import DepartmentOverview
from gpuctl.views.clusters import ClusterView, cluster_view
from gpuctl.views.departments import DepartmentView, department_tree
from gpuctl.views.projects import ProjectView

HEAD = "apiVersion: gpuctl.dev/v1\n"
CLUSTER = """kind: Cluster
metadata: {name: c}
spec:
  nodePools:
  - {name: p, nodes: [n1, n2], gpusPerNode: 4, gpuMemory: 16Gi, resourcesPerNode: {cpu: 8, memory: 8Gi}}
  ingress: {host: h}
"""
UNITS = """kind: Department
metadata: {name: science}
spec: {quota: 6}
---
apiVersion: gpuctl.dev/v1
kind: Department
metadata: {name: physics}
spec: {quota: 4, department: science}
---
apiVersion: gpuctl.dev/v1
kind: Department
metadata: {name: law}
spec: {quota: 2}
"""


def project(name: str, quota: int, department: str) -> str:
    return f"kind: Project\nmetadata: {{name: {name}}}\nspec: {{quota: {quota}, department: {department}}}\n"


def job(name: str, of: str, gpus: int, more: str = "") -> str:
    spec = f"type: training, image: i, gpus: {gpus}{more}"
    return f"kind: Job\nmetadata: {{name: {name}, project: {of}}}\nspec: {{{spec}}}\n"


FILES = {
    "cluster.yaml": CLUSTER,
    "departments.yaml": UNITS,
    "projects/quark/project.yaml": project("quark", 4, "physics"),
    "projects/quark/jobs/long.yaml": job("long", "quark", 4),
    "projects/quark/jobs/more.yaml": job("more", "quark", 4, ", priority: 10"),
    "projects/cell/project.yaml": project("cell", 2, "science"),
    "projects/cell/jobs/short.yaml": job("short", "cell", 4, ", maxDuration: 2h"),
    "projects/court/project.yaml": project("court", 2, "law"),
    "projects/court/jobs/huge.yaml": job("huge", "court", 4, ", maxDuration: 1h"),
}  # fmt: skip


@pytest.fixture(scope="module")
def current(tmp_path_factory: pytest.TempPathFactory) -> tuple[Live, ClusterView]:
    """A cluster of two nodes after `gpuctl reconcile --once`: one job runs on each, two wait."""
    folder = tmp_path_factory.mktemp("queue")
    copy = WorkingCopy.create(folder / "repo")
    for name, declared in FILES.items():
        copy.write(f"c/{name}", (HEAD + declared).encode())
    copy.commit("first", 1_596_000_000_000)
    file = str(folder / "cluster.db")
    line = ["reconcile", "--repo", str(folder / "repo"), "--path", "c", "--embedded", file, "--once"]
    result = CliRunner().invoke(gpuctl, line)
    assert result.exit_code == 0, result.output
    with closing(EmbeddedCluster(SystemClock(), file)) as cluster:
        found = live(cluster)
        return found, cluster_view(found.state, found.jobs, SystemClock().now_ms(), overview=found.overview)


def test_the_queue_stands_in_its_order_with_the_start_of_each_job(current: tuple[Live, ClusterView]) -> None:
    _, view = current
    with serving(view) as site:
        header, *lines = rows(site.get("/queue")[1], "Pending jobs in the order of the queue")
    assert header == ["Position", "Job", "Project", "GPUs", "Wait Time", "Starts in", "Reserved", "Reason"]
    assert [line[:4] for line in lines] == [["1", "huge", "court", "4.00"], ["2", "long", "quark", "4.00"]]
    # `huge` is above what its project may have for as long as the other department asks; `short` ends after 2 hours.
    assert lines[0][5] == "-"
    assert lines[1][5] in {"119m", "120m"}


def test_a_waiting_job_has_its_position_and_start_on_its_own_page(current: tuple[Live, ClusterView]) -> None:
    _, view = current
    with serving(view) as site:
        waits, runs = site.get("/jobs/quark/long")[1], site.get("/jobs/quark/more")[1]
    facts = {text(name): text(value) for name, value in re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", waits)}
    assert facts["Position in the queue"] == "2"
    assert facts["Forecast to start in"] in {"119m", "120m"}
    assert "Position in the queue" not in runs


def test_without_what_is_published_the_longest_wait_comes_first(current: tuple[Live, ClusterView]) -> None:
    found, view = current
    alone = cluster_view(found.state, found.jobs, view.at_ms)
    assert [job.id for job in alone.queue] == [job.id for job in alone.pending]
    with serving(alone) as site:
        lines = rows(site.get("/queue")[1], "Pending jobs in the order of the queue")[1:]
    assert [(line[0], line[5]) for line in lines] == [("-", "-"), ("-", "-")]


def test_a_job_that_came_after_the_overview_is_last(current: tuple[Live, ClusterView]) -> None:
    _, view = current
    later = replace(view, turns={job: turn for job, turn in view.turns.items() if turn.position == 2})
    assert [job.id.name for job in later.queue] == ["long", "huge"]


def test_departments_stand_as_a_tree_with_all_that_is_below_them(current: tuple[Live, ClusterView]) -> None:
    _, view = current
    with serving(view) as site:
        html = site.get("/projects")[1]
    header, *lines = rows(html, "Departments")
    assert header == ["Department", "Projects", "Quota", "Fair share", "Allocated", "Running", "Pending"]
    assert lines == [
        ["law", "1", "2", "2", "0", "0", "1"],
        ["science", "2", "6", "6", "8", "2", "1"],
        ["physics", "1", "4", "4", "4", "1", "1"],
    ]
    assert re.findall(r'class="(depth\d)"', html) == ["depth0", "depth0", "depth1"]


def test_departments_that_only_namespaces_name_stand_without_quota(current: tuple[Live, ClusterView]) -> None:
    found, view = current
    alone = cluster_view(found.state, found.jobs, view.at_ms)
    with serving(alone) as site:
        lines = rows(site.get("/projects")[1], "Departments")[1:]
    assert [line[:4] for line in lines] == [
        ["law", "1", "-", "-"],
        ["physics", "1", "-", "-"],
        ["science", "1", "-", "-"],
    ]


def test_a_circle_of_departments_ends() -> None:
    ring = [DepartmentOverview(name=name, parent=above) for name, above in (("a", "b"), ("b", "a"), ("c", "nosuch"))]
    mine = ProjectView(
        name=ProjectName("p"), namespace="p", department="a", allocated_milli=500, running=1, pending=0,
        allowances={WHOLE_CLUSTER: Allowance(quota_milli=1000)},
    )  # fmt: skip
    tree = {view.name: view for view in department_tree([mine], ring)}
    assert set(tree) == {"a", "b", "c"}
    assert tree["b"].allocated_milli == tree["a"].allocated_milli == 500
    assert tree["c"] == DepartmentView(name="c", depth=0, projects=0, allocated_milli=0, running=0, pending=0)
