"""A sweep on the dashboard: a row in each table, which leads to the list of its jobs."""

from __future__ import annotations

import re
from contextlib import closing

import pytest
from click.testing import CliRunner
from serving import serving
from test_pages import rows, text

from gpuctl.adapters.clock import SystemClock
from gpuctl.adapters.embedded import EmbeddedCluster
from gpuctl.adapters.git import WorkingCopy
from gpuctl.app.inspect import live
from gpuctl.cli.main import gpuctl
from gpuctl.views.clusters import ClusterView, cluster_view

CLUSTER = """apiVersion: gpuctl.dev/v1
kind: Cluster
metadata: {name: c}
spec:
  nodePools: [{name: p, nodes: [n1], gpusPerNode: 4, gpuMemory: 16Gi, resourcesPerNode: {cpu: 8, memory: 8Gi}}]
---
apiVersion: gpuctl.dev/v1
kind: Project
metadata: {name: a}
spec: {quota: 4}
---
apiVersion: gpuctl.dev/v1
kind: Job
metadata: {name: tune, project: a}
spec: {image: x, gpus: 1, sweep: {completions: 9}}
---
apiVersion: gpuctl.dev/v1
kind: Job
metadata: {name: last, project: a}
spec: {image: x, gpus: 1, priority: -10}
"""


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> ClusterView:
    """A cluster on whose node four of nine indices run; the others and one more job wait."""
    folder = tmp_path_factory.mktemp("sweeps")
    copy = WorkingCopy.create(folder / "repo")
    copy.write("c/all.yaml", CLUSTER.encode())
    copy.commit("first", 1_596_000_000_000)
    file = str(folder / "cluster.db")
    line = ["reconcile", "--repo", str(folder / "repo"), "--path", "c", "--embedded", file, "--once"]
    result = CliRunner().invoke(gpuctl, line)
    assert result.exit_code == 0, result.output
    with closing(EmbeddedCluster(SystemClock(), file)) as cluster:
        found = live(cluster)
        return cluster_view(found.state, found.jobs, SystemClock().now_ms(), overview=found.overview)


def test_each_table_has_a_row_for_it_with_how_many_jobs_are_how(view: ClusterView) -> None:
    with serving(view) as site:
        overview, jobs, queue = (site.get(path)[1] for path in ("/", "/jobs?order=name", "/queue"))
    (running,) = rows(overview, "Running Jobs")[1:]
    assert (running[0], running[4], running[-1]) == ("tune (4)", "4.00", "4 Starting")
    assert [row[0] for row in rows(overview, "Pending Jobs")[1:]] == ["last", "tune (5)"]
    assert "All 4 running jobs" in overview
    assert [(row[0], row[2]) for row in rows(jobs, "Jobs")[1:]] == [
        ("last", "Pending"),
        ("tune (9)", "4 Starting 5 Pending"),
    ]
    assert [row[:2] for row in rows(queue, "Pending jobs in the order of the queue")[1:]] == [
        ["1", "tune (5)"],
        ["6", "last"],
    ]


def test_its_row_leads_to_its_jobs_each_by_itself(view: ClusterView) -> None:
    with serving(view) as site:
        (link,) = set(re.findall(r'href="(/jobs\?sweep=[^"]*)"', site.get("/jobs")[1]))
        html = site.get(link)[1]
        found = rows(site.get(link + "&state=Starting&order=name")[1], "Jobs")[1:]
        none = rows(site.get("/jobs?sweep=a/nosuch")[1], "Jobs")[1:]
    assert len(rows(html, "Jobs")) == 10
    assert [row[0] for row in found] == ["tune-0", "tune-1", "tune-2", "tune-3"]
    assert "/jobs?sweep=a%2Ftune&amp;order=name" in html
    assert [text(cell) for row in none for cell in row] == ["No job is like this."]
