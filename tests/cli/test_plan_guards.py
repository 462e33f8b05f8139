"""What `gpuctl plan` says would be refused, the line that confirms it, and gates for CI."""

from __future__ import annotations

import json
import re
from pathlib import Path

from commands import A_1_G, AT_MS, Run, folder_in
from planstories import CLUSTER, D_JOBS, QUOTA, claim_of_team_d, rewrite

from gpuctl.adapters.git import WorkingCopy


def test_what_a_commit_must_confirm_is_told_before_it_is_merged(run: Run, repository: WorkingCopy) -> None:
    rewrite(repository, CLUSTER, "  namespacePrefix: gpu-", "  namespacePrefix: gpu-\n  scheduling: {stopGuard: 10}")
    repository.commit("a guard", AT_MS + 1000)
    follow = ("--repo", repository.folder, "--path", "clusters/tr4858", "--workdir", repository.folder / "clones")
    file = repository.folder / "cluster.db"
    assert run("reconcile", *follow, "--embedded", file, "--once").exit_code == 0

    rewrite(repository, A_1_G, "gpus: 1", "gpus: 2")
    rewrite(repository, f"{D_JOBS}/d-1-gggg.yaml", "gpus: 4", "gpus: 3")
    command = ("plan", folder_in(repository), "--base", "main~1", "-o", "json")
    (refusal,) = json.loads(run(*command).stdout)["refusals"]
    assert refusal["code"] == "GPU6007"
    uncommitted = refusal["help"]
    repository.commit("other jobs", AT_MS + 2000)
    result = run(*command, "--head", "main")
    (refusal,) = json.loads(result.stdout)["refusals"]
    assert (result.exit_code, json.loads(result.stdout)["result"]) == (3, "refused")
    assert uncommitted == refusal["help"]
    line = refusal["help"].partition("`")[2].rstrip("`")
    told = run("reconcile", *follow, "--embedded", file, "--once")
    assert line in told.stderr
    assert line in run(*command[:-2], "--head", "main").stdout
    assert line in run(*command[:-2], "--head", "main", "-o", "markdown").stdout

    repository.commit(f"it is meant\n\n{line}\n", AT_MS + 3000)
    command = ("plan", folder_in(repository), "--base", "main~2", "-o", "json")
    for live in ((), ("--embedded", file)):
        result = run(*command, "--head", "main", *live)
        assert (result.exit_code, json.loads(result.stdout)["refusals"]) == (2, [])
        assert [each["code"] for each in json.loads(result.stdout)["confirmed"]] == ["GPU6007"]
    assert "confirmed by a commit, GPU6007" in run(*command[:-2], "--head", "main").stdout
    assert "> **confirmed by a commit** GPU6007" in run(*command[:-2], "--head", "main", "-o", "markdown").stdout
    assert "GPU6007" not in run("reconcile", *follow, "--embedded", file, "--once").stderr


def test_a_project_that_is_removed_while_it_runs_waits_for_a_word(run: Run, repository: WorkingCopy) -> None:
    for file in sorted((folder_in(repository) / "projects" / "team-d").rglob("*.yaml")):
        repository.remove(file.relative_to(repository.folder).as_posix())
    result = run("plan", folder_in(repository), "--base", "main", "-o", "json")
    assert result.exit_code == 3
    report = json.loads(result.stdout)
    assert [(refusal["code"], "d-1-gggg" in refusal["message"]) for refusal in report["refusals"]] == [
        ("GPU6002", True)
    ]
    assert [(stop["job"], stop["why"]) for stop in report["effect"]["stopped"]] == [("team-d/d-1-gggg", "removed")]


def test_a_removal_is_confirmed_by_the_line_that_its_plan_shows_and_only_once(
    run: Run, repository: WorkingCopy, embedded: Path
) -> None:
    files = {
        file: file.read_bytes() for file in sorted((folder_in(repository) / "projects" / "team-d").rglob("*.yaml"))
    }
    paths = [file.relative_to(repository.folder).as_posix() for file in files]

    def told(*options: object) -> tuple[list[str], list[str]]:
        report = json.loads(run("plan", folder_in(repository), "--base", *options, "-o", "json").stdout)
        return [each["help"] for each in report["refusals"]], [each["help"] for each in report["confirmed"]]

    for path in paths:
        repository.remove(path)
    ((line,), _) = told("main")
    assert "Gpuctl-Confirm: " in line
    repository.commit("no d", AT_MS + 1000)
    assert told("main~1", "--head", "main") == told("main~1", "--embedded", embedded) == ([line], [])
    repository.commit(f"it is meant\n\n{line.split('`')[1]}\n", AT_MS + 2000)
    assert told("main~2", "--head", "main") == ([], [line])
    for path, content in zip(paths, files.values(), strict=True):
        repository.write(path, content)
    repository.commit("d again", AT_MS + 3000)
    for path in paths:
        repository.remove(path)
    assert told("main") == ([line], [])


def test_what_is_refused_is_foreseen_as_if_it_were_confirmed(run: Run, repository: WorkingCopy) -> None:
    for name in ("a-1-g", "a-2-gg", "a-1-1-jupyter"):
        rewrite(repository, f"clusters/tr4858/projects/team-a/jobs/{name}.yaml", "image: ", "image: other/")
    rewrite(repository, CLUSTER, "  namespacePrefix: gpu-", "  namespacePrefix: gpu-\n  scheduling: {stopGuard: 10}")
    text = run("plan", folder_in(repository), "--base", "main").stdout
    assert "\nrefused GPU6007: 4 of 16 running GPUs, more than 10 %, would be stopped at once." in text
    assert "\nEffect: 3 jobs are restarted  (16 GPUs on 2 nodes, as declared)\n" in text
    assert "  The effect assumes that refused changes are confirmed.\n" in text


def test_what_is_refused_without_the_change_does_not_refuse_it(
    run: Run, repository: WorkingCopy, embedded: Path
) -> None:
    """main has removed a running project, which waits for a word: other changes go on."""
    for file in sorted((folder_in(repository) / "projects" / "team-d").rglob("*.yaml")):
        repository.remove(file.relative_to(repository.folder).as_posix())
    repository.commit("no d", AT_MS + 1000)
    rewrite(repository, QUOTA, "quota: 4", "quota: 3")
    command = ("plan", folder_in(repository), "--base", "main", "--embedded", embedded)
    result = run(*command, "-o", "json")
    report = json.loads(result.stdout)
    assert (result.exit_code, report["refusals"], report["result"]) == (2, [], "changes")
    assert [each["code"] for each in report["refusedAlready"]] == ["GPU6002"]
    text, line = run(*command).stdout, report["refusedAlready"][0]["help"]
    assert re.search("Gpuctl-Confirm: [0-9a-f]{12}", line)
    assert re.search(rf"\nrefused already GPU6002: .*\nhelp: {re.escape(line)}\n", text)
    assert "> **refused already** GPU6002: " in run(*command, "-o", "markdown").stdout
    both = run("plan", folder_in(repository), "--base", "main~1", "--embedded", embedded, "-o", "json")
    assert (both.exit_code, [each["code"] for each in json.loads(both.stdout)["refusals"]]) == (3, ["GPU6002"])


def test_gates_for_ci(run: Run, repository: WorkingCopy) -> None:
    claim_of_team_d(repository)
    rewrite(repository, "clusters/tr4858/projects/team-a/jobs/a-2-gg.yaml", "image: ", "image: other/")
    command = ("plan", folder_in(repository), "--base", "main")
    assert run(*command).exit_code == 2
    assert run(*command, "--fail-on", "moved,deleted").exit_code == 2
    result = run(*command, "--fail-on", "paused, stopped,moved,starved,deleted", "-o", "json")
    report = json.loads(result.stdout)
    assert (result.exit_code, report["result"]) == (3, "refused")
    paused = sorted(each["job"] for each in report["effect"]["paused"])
    assert report["failedOn"] == [
        {"gate": "paused", "names": paused},
        {"gate": "stopped", "names": ["team-a/a-2-gg"]},
        {"gate": "starved", "names": paused},
    ]
    text = run(*command, "--fail-on", "paused").stdout
    assert f"\nfailed --fail-on paused: {', '.join(paused)}\n" in text
    assert "> **failed** `--fail-on paused`: team-b" in run(*command, "--fail-on", "paused", "-o", "markdown").stdout
    repository.remove(f"{D_JOBS}/d-1-gggg.yaml")
    result = run(*command, "--fail-on", "deleted", "-o", "json")
    (gone,) = json.loads(result.stdout)["failedOn"]
    assert (result.exit_code, gone["gate"], len(gone["names"])) == (3, "deleted", 1)
    assert gone["names"][0].startswith("Job gpu-team-d/d-1-gggg-")
    wrong = run(*command, "--fail-on", "paused,\x1b[31mlate")
    assert (wrong.exit_code, "is none of paused, stopped" in wrong.stderr, "\x1b" in wrong.stderr) == (1, True, False)


def test_a_cluster_with_another_name_or_folder_is_told(run: Run, repository: WorkingCopy) -> None:
    """Of neither the controller deletes or starts anything: the plan of the declared nodes has to say so, too."""
    rewrite(repository, CLUSTER, "name: tr4858", "name: other")
    folder = folder_in(repository)
    result = run("plan", folder, "--base", "main", "-o", "json")
    codes = [each["code"] for each in json.loads(result.stdout)["refusals"]]
    assert (result.exit_code, codes) == (3, ["GPU6006"] * 4)
    rewrite(repository, CLUSTER, "  namespacePrefix: gpu-", "  namespacePrefix: other-")
    assert run("plan", folder, "--base", "main").exit_code == 2
    folder.rename(folder.with_name("moved"))
    result = run("plan", folder, "--base", "main", "-o", "json")
    codes = [each["code"] for each in json.loads(result.stdout)["refusals"]]
    assert (result.exit_code, codes) == (3, ["GPU8003"])


def test_many_jobs_that_would_be_deleted_are_told(run: Run, repository: WorkingCopy) -> None:
    rewrite(repository, CLUSTER, "  namespacePrefix: gpu-", "  namespacePrefix: gpu-\n  scheduling: {deleteGuard: 2}")
    repository.commit("a guard", AT_MS + 1000)
    follow = ("--repo", repository.folder, "--path", "clusters/tr4858", "--workdir", repository.folder / "clones")
    file = repository.folder / "cluster.db"
    assert run("reconcile", *follow, "--embedded", file, "--once").exit_code == 0
    for job in ("b-1-g06", "b-2-g04", "b-3-g"):
        repository.remove(f"clusters/tr4858/projects/team-b/jobs/{job}.yaml")
    repository.commit("fewer", AT_MS + 2000)
    command = ("plan", folder_in(repository), "--base", "main~1", "--head", "main", "-o", "json")
    lines = set()
    for live in ((), ("--embedded", file)):
        result = run(*command, *live)
        (refusal,) = json.loads(result.stdout)["refusals"]
        assert (result.exit_code, refusal["code"]) == (3, "GPU6010")
        lines.add(refusal["help"].partition("`")[2].rstrip("`"))
    (line,) = lines
    assert line in run("reconcile", *follow, "--embedded", file, "--once").stderr


def test_a_project_that_is_removed_with_many_waiting_jobs_is_told(run: Run, repository: WorkingCopy) -> None:
    """The cluster is full, so none of its jobs runs."""
    rewrite(repository, CLUSTER, "  namespacePrefix: gpu-", "  namespacePrefix: gpu-\n  scheduling: {deleteGuard: 2}")
    project = (repository.folder / QUOTA).read_text().replace("team-a", "team-z").replace("quota: 4", "quota: 0")
    job = (repository.folder / D_JOBS / "d-1-gggg.yaml").read_text().replace("team-d", "team-z")
    files = {"project.yaml": project, **{f"{name}.yaml": job.replace("d-1-gggg", name) for name in ("x", "y", "z")}}
    for name, text in files.items():
        repository.write(f"clusters/tr4858/projects/team-z/{name}", text.encode())
    repository.commit("one more team", AT_MS + 1000)
    for name in files:
        repository.remove(f"clusters/tr4858/projects/team-z/{name}")
    result = run("plan", folder_in(repository), "--base", "main", "-o", "json")
    (refusal,) = json.loads(result.stdout)["refusals"]
    assert (result.exit_code, refusal["code"], "Gpuctl-Confirm: " in refusal["help"]) == (3, "GPU6010", True)
    assert "3 jobs that have not ended, more than 2," in refusal["message"]


def test_a_quota_below_what_can_not_be_preempted_is_told(run: Run, repository: WorkingCopy) -> None:
    """a-1-1-jupyter has one GPU, and two others, which have three, may not be preempted either."""
    for name in ("a-1-g", "a-2-gg"):
        path = f"clusters/tr4858/projects/team-a/jobs/{name}.yaml"
        rewrite(repository, path, "  gpus:", "  preemptible: false\n  gpus:")
    repository.commit("not to be preempted", AT_MS + 1000)
    rewrite(repository, QUOTA, "quota: 4", "quota: 2")
    repository.commit("less for a", AT_MS + 2000)
    result = run("plan", folder_in(repository), "--base", "main~1", "--head", "main", "-o", "json")
    (refusal,) = json.loads(result.stdout)["refusals"]
    assert (result.exit_code, refusal["code"]) == (3, "GPU6011")
    assert "is cut from 4 to 2, below the 4 GPUs of its running jobs that can't be preempted" in refusal["message"]
    line = refusal["help"].partition("`")[2].rstrip("`")
    repository.commit(f"it is meant\n\n{line}\n", AT_MS + 3000)
    result = run("plan", folder_in(repository), "--base", "main~2", "--head", "main", "-o", "json")
    assert (result.exit_code, [each["code"] for each in json.loads(result.stdout)["confirmed"]]) == (2, ["GPU6011"])
    rewrite(repository, QUOTA, "quota: 2", "quota: 3")
    assert run("plan", folder_in(repository), "--base", "main").exit_code == 2
    rewrite(repository, QUOTA, "quota: 3", "quota: 4")
    repository.commit("as it was", AT_MS + 4000)
    rewrite(repository, QUOTA, "quota: 4", "quota: 2")
    assert run("plan", folder_in(repository), "--base", "main").exit_code == 3  # the line was of the cut before
