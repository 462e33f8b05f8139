"""reconcile --embedded, and what list, get and explain say of it."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from commands import AT_MS, EXAMPLE, Run, folder_in

from gpuctl.adapters.clock import SystemClock, VirtualClock
from gpuctl.adapters.embedded import EmbeddedCluster
from gpuctl.adapters.files import read_tree
from gpuctl.adapters.git import WorkingCopy
from gpuctl.app.inspect import live, live_of
from gpuctl.app.play import Play, Sandbox
from gpuctl.compile import compile_tree
from gpuctl.k8s import kinds, names
from gpuctl.k8s.utilisation import encode_utilisation
from gpuctl.model.ids import ObjectRef
from gpuctl.model.source import SourceFile
from gpuctl.model.utilisation import RunUse, Utilisation
from gpuctl.views.listing import job_form, job_text

HEADER = "NAME STATUS AGE NODE IMAGE TYPE PROJECT USER GPUs"
RUN_AI = "NAME STATUS AGE NODE IMAGE TYPE PROJECT USER GPUs CREATED BY CLI SERVICE URL(S)"


def test_list_has_the_columns_of_run_ai(run: Run, embedded: Path) -> None:
    result = run("list", "-p", "team-b", "--embedded", embedded)
    first, header, *rows = result.stdout.splitlines()
    assert first == "Showing jobs for project team-b"
    assert " ".join(header.split()) == HEADER
    assert sorted(row.split()[0] for row in rows) == ["b-1-g06", "b-2-g04", "b-3-g", "b-4-gg"]
    assert all(row.split()[1] == "Running" for row in rows)
    assert next(row for row in rows if row.startswith("b-1-g06")).split()[5:] == ["Interactive", "team-b", "-", "0.6"]
    wide = run("list", "-p", "team-b", "-o", "wide", "--embedded", embedded).stdout.splitlines()[1]
    assert " ".join(wide.split()).startswith(f"{RUN_AI} SINCE")


def test_list_all_in_every_form(run: Run, embedded: Path) -> None:
    names = run("list", "-A", "-o", "name", "--embedded", embedded).stdout.splitlines()
    assert len(names) == 13
    assert "team-d/d-1-gggg" in names
    as_json = json.loads(run("list", "-o", "json", "--embedded", embedded).stdout)
    assert as_json == yaml.safe_load(run("list", "-o", "yaml", "--embedded", embedded).stdout)
    assert sum(job["gpuMilli"] for job in as_json["jobs"]) == 16_000
    assert "DEVICES" in run("list", "-o", "wide", "--embedded", embedded).stdout


@pytest.mark.usefixtures("in_no_repository")
def test_list_of_an_unknown_project_is_empty(run: Run, embedded: Path) -> None:
    result = run("list", "-p", "nobody", "--embedded", embedded)
    told, hint = result.stderr.splitlines()
    assert (result.exit_code, result.stdout, told) == (0, "", "No jobs found in project nobody.")
    assert hint == "help: the project is unknown in this cluster; gpuctl project list shows all"
    near = run("list", "-p", "team-aa", "--embedded", embedded).stderr
    assert near.endswith("; did you mean team-a?\n")
    assert run("get", "a-1-gg", "--embedded", embedded).stderr.endswith("did you mean team-a/a-1-g?\n")
    assert "did you mean" not in run("get", "nothing", "-p", "team-a", "--embedded", embedded).stderr
    assert run("get", "a-1-g", "-p", "tema-a", "--embedded", embedded).stderr.endswith("did you mean team-a/a-1-g?\n")
    assert json.loads(run("list", "-p", "nobody", "-o", "json", "--embedded", embedded).stdout) == {"jobs": []}


def test_get_shows_the_pod_and_the_address(run: Run, embedded: Path) -> None:
    text = run("get", "a-1-1-jupyter", "--embedded", embedded).stdout
    assert "STATUS:" in text
    assert "https://10.61.218.134/team-a/a-1-1-jupyter" in text
    assert "Pods:\nPOD" in text
    form = json.loads(run("get", "team-a/a-2-gg", "-o", "json", "--embedded", embedded).stdout)
    assert (form["state"], form["starts"], len(form["placement"][0]["gpus"])) == ("Running", 1, 2)
    assert run("get", "a-2-gg", "-p", "team-a", "-o", "name", "--embedded", embedded).stdout == "team-a/a-2-gg\n"
    assert "a-2-gg" in run("get", "a-2-gg", "-o", "wide", "--embedded", embedded).stdout


@pytest.mark.parametrize("command", ["get", "explain"])
@pytest.mark.usefixtures("in_no_repository")
def test_a_job_that_is_not_there(run: Run, embedded: Path, command: str) -> None:
    result = run(command, "nobody", "--embedded", embedded)
    assert result.exit_code == 2
    assert result.stderr.startswith("error GPU9003: there is no job nobody")
    assert "removed: gpuctl history PROJECT/nobody --since 30d, or this command in the repository\n" in result.stderr
    result = run(command, "team-z/nobody", "--embedded", embedded)
    assert "removed: gpuctl history team-z/nobody --since 30d, or" in result.stderr


def test_explain_a_job(run: Run, embedded: Path) -> None:
    said = run("explain", "team-b/b-4-gg", "--embedded", embedded).stdout
    assert said.startswith("team-b/b-4-gg requests 2 GPUs and is Running.\n")
    assert "GPU5005: runs over the quota of team-b" in said


def test_explain_asks_the_engine_over_declarations(run: Run, embedded: Path, cluster: Path) -> None:
    job = cluster / "projects" / "team-b" / "jobs" / "b-4-gg.yaml"
    job.with_name("b-9-gggg.yaml").write_text(
        job.read_text().replace("b-4-gg", "b-9-gggg").replace("gpus: 2", "gpus: 4")
    )
    said = run("explain", "b-9-gggg", cluster, "--embedded", embedded).stdout.splitlines()
    assert said[0].startswith("team-b/b-9-gggg waits. GPU5011: ")
    assert "team-b holds 4 GPUs; its fair share is 4, its quota 2 and its demand 8." in said
    assert "Its position in the queue is 1 of 1 in team-b, and 1 of 1 overall." in said
    assert "It would start if team-d/d-1-gggg ended." in said
    form = json.loads(run("explain", "b-9-gggg", cluster, "-o", "json", "--embedded", embedded).stdout)
    assert (form["decision"], form["text"]) == ("wait", said[1:])
    runs = run("explain", "team-b/b-4-gg", cluster, "--embedded", embedded).stdout
    assert runs.startswith("team-b/b-4-gg stays as it is. GPU5002: ")


def test_explain_with_another_clusters_folder_says_whose_the_namespace_is(
    run: Run, embedded: Path, cluster: Path
) -> None:
    file = cluster / "cluster.yaml"
    file.write_text(file.read_text().replace("name: tr4858", "name: another"))
    headline, why, fix, *_ = run("explain", "team-b/b-4-gg", cluster, "--embedded", embedded).stdout.splitlines()
    assert headline == "team-b/b-4-gg can't start. GPU5021: left unchanged: project team-b is on hold."
    assert why.startswith("GPU6006: namespace gpu-team-b of project team-b belongs to cluster tr4858")
    assert fix.startswith("Fix: give one of the two clusters another `namespacePrefix`")
    form = json.loads(run("explain", "team-b/b-4-gg", cluster, "-o", "json", "--embedded", embedded).stdout)
    assert (form["refusal"]["code"], form["text"][0]) == ("GPU6006", why)


@pytest.mark.parametrize("line", [("explain", "team-b/b-4-gg"), ("diff",), ("plan", "--base", "HEAD")])
def test_the_folder_of_another_cluster_is_noted(
    run: Run, embedded: Path, repository: WorkingCopy, line: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository.folder)
    folder = folder_in(repository)
    own = run(*line, folder, "--embedded", embedded)
    file = folder / "cluster.yaml"
    file.write_text(file.read_text().replace("name: tr4858", "name: another"))
    other = run(*line, folder, "--embedded", embedded)
    note = "note: gpuctl keeps tr4858 there; these are the declarations of another\n"
    assert (note in own.stderr, note in other.stderr) == (False, True), (own.output, other.output)


def test_explain_of_a_run_whose_namespace_is_being_deleted(run: Run, embedded: Path, tmp_path: Path) -> None:
    file = tmp_path / "cluster.db"
    shutil.copy(embedded, file)
    with closing(EmbeddedCluster(SystemClock(), str(file))) as cluster:
        objects = live(cluster).state.live
        (job,) = [ref for ref in objects if ref.kind == "Job" and ref.name.startswith("b-4-gg-")]
        held = {**objects[job]["metadata"], "finalizers": ["example.com/hold"]}
        cluster.update({**objects[job], "metadata": held})
        space = ObjectRef(*kinds.NAMESPACE, "", job.namespace)
        metadata = objects[space]["metadata"]
        cluster.delete(space, metadata["uid"], metadata["resourceVersion"])
    said = run("explain", "team-b/b-4-gg", "--embedded", file).stdout
    assert f"Namespace {space.name} is being deleted, and the run with it.\n" in said
    assert "a higher spec.runIndex runs it again. More: gpuctl explain GPU7023" in said
    assert "Nothing to do" not in said
    assert "is being deleted" not in run("explain", "team-a/a-2-gg", "--embedded", file).stdout


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (("explain", "b-4-g", "CLUSTER"), "GPU9003: no job b-4-g is declared in "),
        (("explain", "b-4-gg", "-o", "json"), "GPU9002: -o json needs the declarations"),
    ],
)
def test_explain_of_what_is_not_there(
    run: Run, embedded: Path, cluster: Path, line: tuple[str, ...], told: str
) -> None:
    words = [str(cluster) if word == "CLUSTER" else word for word in line]
    result = run(*words, "--embedded", embedded)
    assert result.exit_code == 2
    assert told in result.stderr


def test_no_drift_right_after_reconciling_and_what_a_folder_changes(run: Run, embedded: Path, cluster: Path) -> None:
    assert run("diff", cluster, "--embedded", embedded).exit_code == 0
    quota = cluster / "projects" / "team-d" / "project.yaml"
    quota.write_text(quota.read_text().replace("quota: 8", "quota: 7"))
    (cluster / "projects" / "team-c" / "jobs" / "c-5-g.yaml").unlink()
    result = run("diff", cluster, "--embedded", embedded)
    assert result.exit_code == 1
    assert "@@ metadata.annotations.gpuctl.dev/quota @@\n-" in result.stdout
    assert "+++ nothing\n@@ no longer declared @@\n" in result.stdout
    assert "4 objects differ: 2 changed, 2 not declared; " in result.stdout


def test_projects_and_nodes_of_the_embedded_cluster(run: Run, embedded: Path) -> None:
    lines = run("project", "list", "--embedded", embedded).stdout.splitlines()
    assert lines[1].split() == ["team-a", "-", "4", "none", "4", "3", "0", "gpu-team-a"]
    assert run("top", "node", "--embedded", embedded).stdout.endswith("16/16 (100%)\n")
    assert run("top", "nodes", "-o", "name", "--embedded", embedded).stdout == "dgx1-1\ndgx1-2\n"


def test_what_gpus_do_where_nothing_and_where_something_measures_it(run: Run, embedded: Path) -> None:
    unmeasured = run("top", "job", "-p", "team-a", "--embedded", embedded)
    assert "note: what GPUs do is not measured" in unmeasured.stderr
    assert unmeasured.stdout.splitlines()[1].split()[-4:] == ["-", "-", "-", "-"]
    with closing(EmbeddedCluster(SystemClock(), str(embedded))) as cluster:
        state = live(cluster).state
        key = next(run for run in state.pods.values() if run[0].name == "a-2-gg")
        use = RunUse(held_milli=2000, busy_milli=1500, used_bytes=20 << 30, total_bytes=64 << 30)
        cluster.apply(encode_utilisation(Utilisation(at_ms=SystemClock().now_ms(), runs={key: use}), state))
    (line,) = [each for each in run("top", "jobs", "--embedded", embedded).stdout.splitlines() if "a-2-gg" in each]
    assert line.split()[-5:] == ["########..", "75%", "20/64Gi", "-", "-"]
    lines = run("top", "project", "--embedded", embedded).stdout.splitlines()
    assert lines[1].split() == ["team-a", "4", "2", "########..", "75%", "20/64Gi", "0"]
    (team,) = json.loads(run("top", "project", "-o", "json", "--embedded", embedded).stdout)["projects"][:1]
    assert team["use"]["busyGpuMilli"] == 1500
    jobs = json.loads(run("top", "job", "-p", "team-a", "-o", "json", "--embedded", embedded).stdout)["jobs"]
    assert [job["name"] for job in jobs if job["use"]] == ["a-2-gg"]


def test_a_pod_tells_its_progress(embedded: Path) -> None:
    with closing(EmbeddedCluster(SystemClock(), str(embedded))) as cluster:
        objects = dict(live(cluster).state.live)
    (pod,) = [ref for ref in objects if ref.kind == "Pod" and ref.name.startswith("a-2-gg-")]
    notes = {"annotations": {names.PROGRESS_ANNOTATION: "0.5"}}
    objects[pod] = {**objects[pod], "metadata": {**objects[pod]["metadata"], **notes}}
    (job,) = live_of(objects.values()).find("a-2-gg")
    shown = job_text(job, SystemClock().now_ms())
    assert next(line for line in shown.splitlines() if line.startswith("PROGRESS:")).split()[1] == "50%,"
    assert job_form(job)["progressPpm"] == 500_000


@pytest.mark.parametrize("line", [("logs", "a-1-g"), ("bash", "a-1-g"), ("exec", "a-1-g", "ls")])
def test_the_embedded_cluster_has_no_containers(run: Run, embedded: Path, line: tuple[str, ...]) -> None:
    result = run(*line, "--embedded", embedded)
    assert (result.exit_code, result.stdout, result.stderr.split(":")[0]) == (2, "", "error GPU7041")


def test_the_environment_names_the_embedded_cluster_and_options_another(
    run: Run, embedded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUCTL_EMBEDDED", str(embedded))
    assert len(run("list", "-o", "name").stdout.splitlines()) == 13
    assert run("list", "--kubeconfig", "no-such-file").stderr.startswith("error GPU7010: ")
    assert run("list", "--embedded", embedded, "--context", "x").stderr.startswith(
        "error GPU9002: --embedded and --kubeconfig or --context each name a cluster"
    )


def test_explain_a_code(run: Run) -> None:
    result = run("explain", "gpu5011")
    assert result.exit_code == 0
    assert result.stdout.startswith("GPU5011: over the fair share\n")
    assert "Fix: " in result.stdout


def test_a_second_reconcile_finds_all_as_wanted(run: Run, embedded: Path) -> None:
    before = run("list", "-o", "json", "--embedded", embedded).stdout
    follow = ("--repo", embedded.parent / "repository", "--path", "clusters/tr4858", "--branch", "main")
    again = ("--workdir", embedded.parent / "clones", "--embedded", embedded, "--once", "--log-format", "json")
    result = run("reconcile", *follow, *again)
    assert result.exit_code == 0
    assert all(json.loads(line)["event"] == "following" for line in result.stderr.splitlines())
    assert run("list", "-o", "json", "--embedded", embedded).stdout == before


def test_reconcile_says_what_it_can_not_read(run: Run, tmp_path: Path) -> None:
    follow = ("--repo", tmp_path / "nothing", "--path", "x", "--workdir", tmp_path / "clones")
    result = run("reconcile", *follow, "--embedded", "--once")
    assert result.exit_code == 1
    assert "code=GPU8004" in result.stderr


D_2 = """\
apiVersion: gpuctl.dev/v1
kind: Job
metadata: {name: d-2-gg, project: team-d}
spec: {image: train, gpus: 2}
"""


@pytest.fixture(scope="module")
def an_hour_on(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a cluster in which d-2-gg came an hour ago and one job was paused for it."""
    file = tmp_path_factory.mktemp("past") / "cluster.db"
    now_ms = SystemClock().now_ms()
    tree = read_tree(str(EXAMPLE))
    more = replace(tree, files={**tree.files, f"{tree.cluster_dir}/d-2.yaml": SourceFile(content=D_2.encode())})
    before, after = compile_tree(tree).declared, compile_tree(more).declared
    assert before is not None
    assert after is not None
    clock = VirtualClock(now_ms - 7_200_000)
    with closing(EmbeddedCluster(clock, str(file))) as cluster:
        play = Play(Sandbox(cluster=cluster, machines=cluster, world=cluster, time=clock), before, clock.now_ms())
        play.pass_until(now_ms - 3_600_000, "")
        play.move_to(now_ms - 3_600_000)
        play.declare(after)
        play.pass_until(now_ms - 3_500_000, "")
    return file


def test_a_paused_job_says_for_whom_and_how_long_it_waits(run: Run, an_hour_on: Path) -> None:
    forms = json.loads(run("list", "-o", "json", "--embedded", an_hour_on).stdout)["jobs"]
    (paused,) = [job for job in forms if job["state"] == "Preempted"]
    assert (paused["pausedFor"], paused["starts"], paused["placement"]) == ("team-d/d-2-gg", 1, [])
    said = run("explain", f"{paused['project']}/{paused['name']}", "--embedded", an_hour_on).stdout
    assert "requests 2 GPUs and is Preempted.\nWaiting for 1h" in said
    assert "; started once so far.\nIt was paused for team-d/d-2-gg.\nGPU50" in said


def test_the_newest_start_comes_first(run: Run, an_hour_on: Path) -> None:
    rows = run("list", "--embedded", an_hour_on).stdout.splitlines()[2:]
    running = [row for row in rows if " Running " in row]
    assert running[0].split()[0] == "d-2-gg"
    assert {row.split()[2] for row in running[1:]} <= {"119m", "120m"}


def test_a_removed_job_is_told_with_its_commit_outside_of_the_repository(
    run: Run, repository: WorkingCopy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "cluster.db"
    follow = ("--repo", repository.folder, "--path", "clusters/tr4858", "--workdir", tmp_path / "clones")
    sync = ("reconcile", *follow, "--embedded", file, "--once")
    assert run(*sync).exit_code == 0
    path = "clusters/tr4858/projects/team-a/jobs/a-1-g.yaml"
    content = (repository.folder / path).read_bytes()
    repository.remove(path)
    commit = repository.commit("one less", AT_MS + 1000)
    assert run(*sync).exit_code == 0
    repository.write("README.md", b"another")
    repository.commit("no matter", AT_MS + 2000)
    assert run(*sync).exit_code == 0
    for name in ("a-1-g", "team-a/a-1-g"):
        said = run("get", name, "--embedded", file).stderr
        assert (
            f"team-a/a-1-g is not in this cluster: it is no longer declared since commit {commit[:10]}, taken" in said
        )
    repository.write(path, content)
    repository.commit("it is back", AT_MS + 3000)
    assert run(*sync).exit_code == 0
    assert "no longer declared" not in run("get", "a-1-g", "--embedded", file).stderr


def test_a_job_that_a_commit_removed_is_told_with_the_commit(
    run: Run, embedded: Path, repository: WorkingCopy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository.folder)
    assert run("submit", "gone", "-p", "team-a", "-i", "x", "--commit").exit_code == 0
    for name in ("gone", "team-a/gone"):
        assert run("get", name, "--embedded", embedded).stderr.splitlines()[0].endswith("gone in this cluster")
    deleted = run("delete", "team-a/gone", "--commit", "-m", "Enough\x1b[0m").stdout.splitlines()[1].split()[1]
    for name in ("gone", "team-a/gone"):
        said, hint = run("get", name, "--embedded", embedded).stderr.splitlines()
        assert said.startswith(f"error GPU9003: team-a/gone is not in this cluster: commit {deleted} removed it (Ana, ")
        assert said.endswith(": Enough\\x1b[0m")
        assert hint == f"help: git show {deleted}"
