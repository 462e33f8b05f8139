"""What commands say of a sweep: one row in list, all of its jobs in get, and its jobs by their own names."""

from __future__ import annotations

import json
import re
from contextlib import closing
from pathlib import Path

import pytest
from commands import AT_MS, Run

from gpuctl.adapters.clock import SystemClock
from gpuctl.adapters.embedded import EmbeddedCluster
from gpuctl.adapters.git import WorkingCopy
from gpuctl.app.inspect import live
from gpuctl.views.clusters import cluster_view
from gpuctl.views.screen import screen

CLUSTER = """apiVersion: gpuctl.dev/v1
kind: Cluster
metadata: {name: lab}
spec: {nodePools: [{name: dgx, nodes: [n1], gpusPerNode: 4}]}
---
apiVersion: gpuctl.dev/v1
kind: Project
metadata: {name: a}
spec: {quota: 4}
---
apiVersion: gpuctl.dev/v1
kind: Job
metadata: {name: tune, project: a}
spec: {image: x, gpus: 1, sweep: {matrix: {lr: [0.1], depth: [16, 2, 4]}, parallelism: 2}}
---
apiVersion: gpuctl.dev/v1
kind: Job
metadata: {name: other, project: a}
spec: {image: x, gpus: 1}
"""


@pytest.fixture(scope="module")
def lab(run: Run, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A repository with a sweep of three, and the embedded cluster in which two of them were let go."""
    folder = tmp_path_factory.mktemp("lab")
    copy = WorkingCopy.create(folder / "repository")
    copy.write("clusters/lab/all.yaml", CLUSTER.encode())
    copy.commit("a sweep", AT_MS)
    where = ("--repo", copy.folder, "--path", "clusters/lab", "--workdir", folder / "clones")
    assert run("reconcile", *where, "--embedded", folder / "cluster.db", "--once").exit_code == 0
    return copy.folder / "clusters" / "lab", folder / "cluster.db"


def rows(text: str) -> list[list[str]]:
    return [re.split(r" {2,}", line) for line in text.splitlines()]


def test_a_list_has_one_row_for_a_sweep_and_programs_get_each_job(run: Run, lab: tuple[Path, Path]) -> None:
    _, header, *found = rows(run("list", "-A", "--embedded", lab[1]).stdout)
    assert sorted(row[0] for row in found) == ["other", "tune"]
    (tune,) = [row for row in found if row[0] == "tune"]
    assert tune[1] in {"Starting 2/3", "Running 2/3", "Running 1/3"}
    assert tune[header.index("GPUs")] == "3"
    wide = run("list", "-A", "-o", "wide", "--embedded", lab[1]).stdout
    assert "1 Pending" in wide
    assert len(run("list", "-A", "-o", "name", "--embedded", lab[1]).stdout.splitlines()) == 4
    jobs = json.loads(run("list", "-A", "-o", "json", "--embedded", lab[1]).stdout)["jobs"]
    assert sorted(job["sweep"]["values"]["DEPTH"] for job in jobs if job["sweep"]) == ["16", "2", "4"]
    assert [job["name"] for job in jobs if not job["sweep"]] == ["other"]


def test_the_live_screen_has_a_row_for_a_sweep_in_each_of_its_tables(lab: tuple[Path, Path]) -> None:
    with closing(EmbeddedCluster.copy_of(str(lab[1]), SystemClock())) as cluster:
        current = live(cluster)
        now_ms = SystemClock().now_ms()
        lines = [line.text for line in screen(cluster_view(current.state, current.jobs, now_ms), now_ms, 160)]
    running, waiting = [row for row in rows("\n".join(lines)) if row[0].startswith("tune")]
    assert running[:2] == ["tune", "a"]
    assert running[2] in {"2 Starting", "2 Running"}  # by how long ago they were let go
    assert waiting[:3] == ["tune (1)", "a", "1"]


def test_top_has_a_row_for_the_jobs_of_a_sweep_that_hold_gpus(run: Run, lab: tuple[Path, Path]) -> None:
    _, *found = rows(run("top", "job", "-A", "--embedded", lab[1]).stdout)
    assert sorted((row[0], row[4]) for row in found) == [("other", "1"), ("tune (2)", "2")]
    jobs = json.loads(run("top", "job", "-A", "-o", "json", "--embedded", lab[1]).stdout)["jobs"]
    assert len(jobs) == 3


def test_get_shows_all_jobs_of_a_sweep_with_their_values(run: Run, lab: tuple[Path, Path]) -> None:
    facts, table = run("get", "a/tune", "--embedded", lab[1]).stdout.split("\nJobs:\n")
    assert "1 Pending" in facts
    header, *found = rows(table)
    assert [row[header.index("VALUES")] for row in found] == ["DEPTH=2 LR=0.1", "DEPTH=4 LR=0.1", "DEPTH=16 LR=0.1"]
    assert [row[-1] for row in found if row[1] == "Pending"] == [
        "not queued yet: sweep a/tune has 2 jobs queued or running, as many as its parallelism"
    ]
    form = json.loads(run("get", "tune", "-o", "json", "--embedded", lab[1]).stdout)
    assert (form["name"], form["counts"]["Pending"], len(form["jobs"])) == ("tune", 1, 3)
    name = found[0][0]
    one = run("get", name, "--embedded", lab[1]).stdout
    assert re.search(r"SWEEP: +tune\nVALUES: +DEPTH=2 LR=0.1\n", one)


def test_what_is_about_one_job_asks_for_its_name(run: Run, lab: tuple[Path, Path]) -> None:
    for command in (("explain", "a/tune"), ("explain", "a/tune", lab[0])):
        said = run(*command, "--embedded", lab[1])
        assert said.exit_code == 2
        assert "a/tune is a sweep of 3 jobs\nhelp: name one of them: a/tune-" in said.stderr
    names = run("get", "tune", "-o", "name", "--embedded", lab[1]).stdout.split()
    assert names[0] in run("explain", names[0], lab[0], "--embedded", lab[1]).stdout


def test_a_plan_has_a_row_for_what_starts_and_waits_alike_and_one_for_each_loss(
    run: Run, lab: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = lab[0] / "all.yaml"
    monkeypatch.chdir(lab[0].parents[1])
    seeds = "---\n" + CLUSTER.split("---\n")[2].replace("tune", "seeds").replace(
        "matrix: {lr: [0.1], depth: [16, 2, 4]}", "completions: 9"
    )
    try:
        file.write_text(CLUSTER.replace("parallelism: 2", "parallelism: 1") + seeds)
        said = run("plan", "clusters/lab", "--base", "HEAD").stdout
        page = run("plan", "clusters/lab", "--base", "HEAD", "-o", "markdown").stdout
        file.write_text(CLUSTER.replace("image: x", "image: y"))
        lost = run("plan", "clusters/lab", "--base", "HEAD").stdout
    finally:
        file.write_text(CLUSTER)
    effect = said.partition("Of the other jobs")[0]
    assert re.findall(r"^  [+.-] (a/seeds\S*) +(1|7) GPU", effect, flags=re.MULTILINE) == [
        ("a/seeds-0", "1"),
        ("a/seeds-1", "1"),
        ("a/seeds", "7"),
    ]
    assert "7 of its jobs; the first, seeds-2: not queued yet" in effect
    assert re.search(r"\+ Job gpu-a/seeds-0-[0-9a-f]{8} and 8 more of sweep seeds  declared", said)
    assert "of its jobs; the first, seeds-" in page
    assert len(re.findall(r"  \+ a/tune-[0-9a-f]{8} +1 GPU +is restarted", lost)) == 2
