"""plan: what a pull request changes, between two revisions or up to the working tree."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from commands import AT_MS, Run
from planstories import CLUSTER, D_JOBS, QUOTA, claim_of_team_d, moved_base, removed_project, rewrite, switched

from gpuctl.adapters.clock import SystemClock
from gpuctl.adapters.embedded import EmbeddedCluster
from gpuctl.adapters.git import WorkingCopy
from gpuctl.k8s.kinds import OBSERVED
from gpuctl.k8s.timestamps import format_seconds
from gpuctl.render.bounds import CLASSES_NAME
from gpuctl.wiring import access

JOB = "clusters/tr4858/projects/team-a/jobs/a-1-g.yaml"


def folder(repository: WorkingCopy) -> Path:
    return repository.folder / "clusters" / "tr4858"


def test_no_change_exits_0(run: Run, repository: WorkingCopy) -> None:
    result = run("plan", folder(repository), "--base", "main")
    assert result.exit_code == 0
    first, identity = result.stdout.splitlines()
    assert first == "No changes: the working tree declares the same as main."
    assert re.fullmatch(r"  main (\w{10}), working tree, merge base \1; gpuctl [\d.]+; changes \w{16}", identity)


def test_what_earlier_plans_compiled_changes_no_plan(
    run: Run, repository: WorkingCopy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "LEAST_CACHED_FILES", 2)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    asked = ("plan", folder(repository), "--base", "main", "-o", "json")
    monkeypatch.delenv("GPUCTL_NO_CACHE", raising=False)
    entry, sizes = tmp_path, list[int]()
    for old, new in (("quota: 4", "quota: 3"), ("quota: 3", "quota: 2"), ("quota: 2", "quota: 1"), ("1", "1")):
        rewrite(repository, QUOTA, old, new)
        known = run(*asked)
        assert known.stdout == run(*asked, "--no-cache").stdout
        (entry,) = (tmp_path / "cache" / "gpuctl" / "compiled").iterdir()
        sizes.append(entry.stat().st_size)
        if len(sizes) == 3:
            repository.commit("less", AT_MS + 1000)  # base is another commit now
    assert sizes[0] < 100 < sizes[1] == sizes[2] == sizes[3]
    entry.write_bytes(entry.read_bytes()[:-9])
    assert run(*asked).stdout == run(*asked, "--no-cache").stdout


def test_a_moved_line_is_no_change(run: Run, repository: WorkingCopy) -> None:
    rewrite(repository, JOB, "kind: Job", "# a comment\nkind: Job")
    assert run("plan", folder(repository), "--base", "main").exit_code == 0


def test_quotas_and_objects_of_the_working_tree(run: Run, repository: WorkingCopy) -> None:
    rewrite(repository, QUOTA, "quota: 4", "quota: 3\n  limit: 8")
    rewrite(repository, JOB, "gpus: 1", "gpus: 2")
    repository.remove("clusters/tr4858/projects/team-d/jobs/d-1-gggg.yaml")
    result = run("plan", folder(repository), "--base", "main")
    assert result.exit_code == 2
    assert result.stdout.startswith("Plan: 1 to create, 2 to change, 2 to delete; quotas of 1 project change")
    assert "  team-a  quota 4 -> 3  limit none -> 8  weight 4 -> 3  holds 4 -> 5  of 16\n" in result.stdout
    assert "a new run: gpus changed" in result.stdout
    assert "no longer declared" in result.stdout


def test_two_revisions_as_json(run: Run, repository: WorkingCopy) -> None:
    rewrite(repository, QUOTA, "quota: 4", "quota: 2\n  access: [{group: team-a, role: edit}]")
    repository.commit("less for a", AT_MS + 1000)
    result = run("plan", folder(repository), "--base", "main~1", "--head", "main", "-o", "json")
    assert result.exit_code == 2
    report = json.loads(result.stdout)
    assert {"kind", "base", "head", "objects", "quotas", "effect", "refusals", "digest"} <= report.keys()
    assert (report["kind"], report["base"], report["head"]) == ("PlanReport", "main~1", "main")
    assert [change["ref"]["kind"] for change in report["objects"]] == ["RoleBinding"]
    (quota,) = report["quotas"]
    assert (quota["project"], quota["quotaGpuMilli"]) == ("team-a", {"before": 4000, "after": 2000})


def test_the_digest_names_the_changes_not_the_revisions(run: Run, repository: WorkingCopy) -> None:
    rewrite(repository, QUOTA, "quota: 4", "quota: 2")
    digests = [json.loads(run("plan", folder(repository), "--base", "main", "-o", "json").stdout)["digest"]]
    repository.commit("less for a", AT_MS + 1000)
    compared = ("--base", "main~1", "--head", "main", "-o", "json")
    digests.append(json.loads(run("plan", folder(repository), *compared).stdout)["digest"])
    assert digests[0] == digests[1]


def test_markdown_for_a_pull_request(run: Run, repository: WorkingCopy) -> None:
    rewrite(repository, QUOTA, "quota: 4", "quota: 2\n  access: [{group: team-a, role: edit}]")
    text = run("plan", folder(repository), "--base", "main", "-o", "markdown").stdout
    assert "| team-a | 4 -> 2 | 4 -> 2 | 4 |" in text
    assert "```diff\n+ RoleBinding" in text


def test_a_new_cluster_and_a_removed_one(run: Run, repository: WorkingCopy) -> None:
    revision = repository.commit("nothing", AT_MS + 500)
    for file in sorted(folder(repository).rglob("*.yaml")):
        repository.remove(file.relative_to(repository.folder).as_posix())
    repository.commit("gone", AT_MS + 1000)
    gone = json.loads(run("plan", folder(repository), "--base", revision, "--head", "main", "-o", "json").stdout)
    assert {change["action"] for change in gone["objects"]} == {"delete"}
    back = ("--base", "main", "--head", revision, "--direct")
    new = json.loads(run("plan", folder(repository), *back, "-o", "json").stdout)
    assert {change["action"] for change in new["objects"]} == {"create"}
    assert run("plan", folder(repository), "--base", "main", "--head", "main").exit_code == 1


def test_errors_exit_1(run: Run, repository: WorkingCopy, tmp_path: Path) -> None:
    unknown = run("plan", folder(repository), "--base", "no-such-branch")
    assert (unknown.exit_code, unknown.stderr.split(":")[0]) == (1, "error GPU8006")
    outside = run("plan", tmp_path, "--base", "main")
    assert (outside.exit_code, outside.stderr.split(":")[0]) == (1, "error GPU8004")
    rewrite(repository, JOB, "gpus: 1", "gpus: none")
    broken = run("plan", folder(repository), "--base", "main")
    assert broken.exit_code == 1
    assert "error GPU2011" in broken.stderr


def test_a_sum_that_is_too_large_is_marked_at_what_the_change_touched(run: Run, repository: WorkingCopy) -> None:
    rewrite(repository, QUOTA, "quota: 4", "quota: 6")
    result = run("plan", folder(repository), "--base", "main")
    assert result.exit_code == 1
    assert f"{QUOTA}:6:10: error GPU3009: the quotas add up to 18 GPUs" in result.stderr


def test_what_no_object_shows_is_a_change_too(run: Run, repository: WorkingCopy) -> None:
    rewrite(repository, JOB, "  gpus: 1", "  gpus: 1\n  priority: 5\n  maxDuration: 2h")
    rewrite(repository, QUOTA, "  quota: 4", "  quota: 4\n  priority: 1")
    cluster = "clusters/tr4858/cluster.yaml"
    rewrite(repository, cluster, "nodes: [dgx1-1, dgx1-2]", "nodes: [dgx1-1, dgx1-2, dgx1-3]")
    rewrite(repository, cluster, "  namespacePrefix: gpu-", "  namespacePrefix: gpu-\n  scheduling: {minRuntime: 10m}")
    result = run("plan", folder(repository), "--base", "main")
    assert result.exit_code == 2
    assert "5 settings change" in result.stdout
    for line in (
        "scheduling: minRuntime {guarantee: 0s, fairness: 1m, moves: 1m} -> 10m",
        "pool dgx1: nodes 2 with 16 GPUs -> 3 with 24 GPUs",
        "team-a: priority 0 -> 1",
        "team-a/a-1-g: priority 0 -> 5",
        "team-a/a-1-g: maxDuration none -> 2h",
    ):
        assert f"  {line}\n" in result.stdout
    report = json.loads(run("plan", folder(repository), "--base", "main", "-o", "json").stdout)
    assert {"of": "team-a", "setting": "priority", "before": "0", "after": "1"} in report["settings"]
    assert "- team-a: priority 0 -> 1\n" in run("plan", folder(repository), "--base", "main", "-o", "markdown").stdout


def test_a_department_s_limit_is_a_setting(run: Run, repository: WorkingCopy) -> None:
    path = "clusters/tr4858/research.yaml"
    text = "apiVersion: gpuctl.dev/v1\nkind: Department\nmetadata: {name: research}\nspec: {quota: 4}\n"
    repository.write(path, text.encode())
    rewrite(repository, QUOTA, "  quota: 4", "  quota: 4\n  department: research")
    repository.commit("a department", AT_MS + 1000)
    rewrite(repository, path, "quota: 4", "quota: 4, limit: 8")
    result = run("plan", folder(repository), "--base", "main")
    assert "  department research: limit none -> 8\n" in result.stdout
    assert (
        "  team-a: department none -> research\n"
        in run("plan", folder(repository), "--base", "main~1", "--head", "main").stdout
    )


def test_the_effect_as_data(run: Run, repository: WorkingCopy) -> None:
    claim_of_team_d(repository)
    effect = json.loads(run("plan", folder(repository), "--base", "main", "-o", "json").stdout)["effect"]
    assert {"started", "paused", "moved", "resized", "stopped", "starved", "eta"} <= effect.keys()
    assert [start["job"] for start in effect["started"]] == ["team-d/d-2-gg", "team-d/d-3-gg"]
    assert {pause["for"] for pause in effect["paused"]} == {"team-d/d-2-gg", "team-d/d-3-gg"}
    assert {pause["job"].split("/")[0] for pause in effect["paused"]} == {"team-b", "team-c"}
    assert {wait["job"] for wait in effect["starved"]} == {pause["job"] for pause in effect["paused"]}
    assert effect["eta"] == []
    assert {"project": "team-d", "domain": "*"}.items() <= effect["projects"][-1].items()
    assert effect["projects"][-1]["allocatedGpuMilli"] == {"before": 4000, "after": 8000}


def test_a_start_that_can_be_foreseen_is_an_eta(run: Run, repository: WorkingCopy) -> None:
    claim_of_team_d(repository)
    repository.commit("a claim", AT_MS + 1000)
    rewrite(repository, f"{D_JOBS}/d-2-gg.yaml", "gpus: 2", "gpus: 2\n  maxDuration: 2h")
    effect = json.loads(run("plan", folder(repository), "--base", "main", "-o", "json").stdout)["effect"]
    (eta,) = effect["eta"]
    assert (eta["startsInMs"], eta["after"], eta["before"]["startsInMs"]) == (7_200_000, ["team-d/d-2-gg"], None)
    text = run("plan", folder(repository), "--base", "main").stdout
    assert "starts within 2h when team-d/d-2-gg ends (before: no start is forecast)" in text


def test_the_effect_begins_with_what_a_cluster_runs(run: Run, repository: WorkingCopy, embedded: Path) -> None:
    claim_of_team_d(repository)
    command = ("plan", folder(repository), "--base", "main", "-o", "json")
    effect = json.loads(run(*command, "--embedded", embedded).stdout)["effect"]
    assert effect["ground"].items() >= {"from": "cluster", "nodes": 2, "gpuMilli": 16000}.items()
    assert [start["job"] for start in effect["started"]] == ["team-d/d-2-gg", "team-d/d-3-gg"]
    assert effect["unaffected"] == 11

    cluster = EmbeddedCluster.copy_of(str(embedded), SystemClock())
    items = [body for kind in OBSERVED for body in cluster.list(kind).items]
    cluster.close()
    state = repository.folder / "state.json"
    state.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": items}))
    told = json.loads(run(*command, "--state", state).stdout)["effect"]
    assert told["ground"]["unlikeBase"] == {"cluster": False, "projects": []}
    assert told["ground"].pop("at") <= effect["ground"].pop("at")
    assert told["ground"].pop("ageMs") > 0 == effect["ground"].pop("ageMs")
    assert told == effect
    assert told["ground"]["revision"] == told_commit(repository)


def told_commit(repository: WorkingCopy) -> str:
    git = ["git", "-C", str(repository.folder), "rev-parse", "main"]
    return subprocess.run(git, check=True, capture_output=True, text=True).stdout.strip()


def test_what_is_known_of_the_cluster_is_told(run: Run, repository: WorkingCopy, tmp_path: Path) -> None:
    """A state of some minutes ago, which does not have the last commit of main yet."""
    follow = ("--repo", repository.folder, "--path", "clusters/tr4858", "--workdir", tmp_path / "clones")
    file = tmp_path / "cluster.db"
    assert run("reconcile", *follow, "--embedded", file, "--once").exit_code == 0
    cluster = EmbeddedCluster.copy_of(str(file), SystemClock())
    items = [body for kind in OBSERVED for body in cluster.list(kind).items]
    cluster.close()
    year = int(format_seconds(SystemClock().now_ms())[:4])
    aged = json.dumps({"items": items}).replace(f'"{year}-', f'"{year - 4}-')
    state = tmp_path / "state.json"
    state.write_text(aged)
    claim_of_team_d(repository)
    rewrite(repository, CLUSTER, "  namespacePrefix: gpu-", "  namespacePrefix: gpu-\n  scheduling: {stopGuard: 10}")
    repository.commit("a claim", AT_MS + 1000)
    rewrite(repository, QUOTA, "quota: 4", "quota: 3")
    command = ("plan", folder(repository), "--base", "main", "--state", state)
    ground = json.loads(run(*command, "-o", "json").stdout)["effect"]["ground"]
    assert ground["unlikeBase"] == {"cluster": True, "projects": ["team-d"]}
    text = run(*command).stdout
    assert re.search(r"\(16 GPUs on 2 nodes, as the cluster was 14\d\dd[\dhms]* ago\)", text)
    assert re.search(
        rf"\nThe cluster is as observed at {year - 4}-[\d:TZ-]+, 14\d\dd[\dhms]* ago; its files outside", text
    )
    assert "It differs from what main declares for the cluster itself and team-d.\n" in text
    assert "for the cluster itself and team-d.</sub>" in run(*command, "-o", "markdown").stdout


def test_a_state_that_is_none_and_two_clusters_are_refused(run: Run, repository: WorkingCopy, embedded: Path) -> None:
    state = repository.folder / "state.json"
    for text, why in (("{", "it is not JSON"), ("[]", "it has no list of objects"), ('{"items": [1]}', "it has no")):
        state.write_text(text)
        result = run("plan", folder(repository), "--base", "main", "--state", state)
        assert (result.exit_code, why in result.stderr) == (1, True), result.stderr
    result = run("plan", folder(repository), "--base", "main", "--state", state, "--embedded", embedded)
    assert (result.exit_code, "name one cluster" in result.stderr) == (1, True)
    away = run("plan", folder(repository), "--base", "main", "--context", "nowhere")
    assert (away.exit_code, away.stderr.split(":")[0]) == (1, "error GPU7010")


def test_what_a_commit_must_confirm_is_told_before_it_is_merged(run: Run, repository: WorkingCopy) -> None:
    rewrite(repository, CLUSTER, "  namespacePrefix: gpu-", "  namespacePrefix: gpu-\n  scheduling: {stopGuard: 10}")
    repository.commit("a guard", AT_MS + 1000)
    follow = ("--repo", repository.folder, "--path", "clusters/tr4858", "--workdir", repository.folder / "clones")
    file = repository.folder / "cluster.db"
    assert run("reconcile", *follow, "--embedded", file, "--once").exit_code == 0

    rewrite(repository, JOB, "gpus: 1", "gpus: 2")
    rewrite(repository, f"{D_JOBS}/d-1-gggg.yaml", "gpus: 4", "gpus: 3")
    command = ("plan", folder(repository), "--base", "main~1", "-o", "json")
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
    command = ("plan", folder(repository), "--base", "main~2", "-o", "json")
    for live in ((), ("--embedded", file)):
        result = run(*command, "--head", "main", *live)
        assert (result.exit_code, json.loads(result.stdout)["refusals"]) == (2, [])
        assert [each["code"] for each in json.loads(result.stdout)["confirmed"]] == ["GPU6007"]
    assert "confirmed by a commit, GPU6007" in run(*command[:-2], "--head", "main").stdout
    assert "> **confirmed by a commit** GPU6007" in run(*command[:-2], "--head", "main", "-o", "markdown").stdout
    assert "GPU6007" not in run("reconcile", *follow, "--embedded", file, "--once").stderr


def test_a_project_that_is_removed_while_it_runs_waits_for_a_word(run: Run, repository: WorkingCopy) -> None:
    for file in sorted((folder(repository) / "projects" / "team-d").rglob("*.yaml")):
        repository.remove(file.relative_to(repository.folder).as_posix())
    result = run("plan", folder(repository), "--base", "main", "-o", "json")
    assert result.exit_code == 3
    report = json.loads(result.stdout)
    assert [(refusal["code"], "d-1-gggg" in refusal["message"]) for refusal in report["refusals"]] == [
        ("GPU6002", True)
    ]
    assert [(stop["job"], stop["why"]) for stop in report["effect"]["stopped"]] == [("team-d/d-1-gggg", "removed")]


def test_a_removal_is_confirmed_by_the_line_that_its_plan_shows_and_only_once(
    run: Run, repository: WorkingCopy, embedded: Path
) -> None:
    files = {file: file.read_bytes() for file in sorted((folder(repository) / "projects" / "team-d").rglob("*.yaml"))}
    paths = [file.relative_to(repository.folder).as_posix() for file in files]

    def told(*options: object) -> tuple[list[str], list[str]]:
        report = json.loads(run("plan", folder(repository), "--base", *options, "-o", "json").stdout)
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


def test_a_cluster_whose_folder_is_gone_has_no_effect(run: Run, repository: WorkingCopy) -> None:
    for file in sorted(folder(repository).rglob("*.yaml")):
        repository.remove(file.relative_to(repository.folder).as_posix())
    repository.commit("gone", AT_MS + 1000)
    report = json.loads(run("plan", folder(repository), "--base", "main~1", "--head", "main", "-o", "json").stdout)
    assert report["effect"] is None


def test_what_is_refused_is_foreseen_as_if_it_were_confirmed(run: Run, repository: WorkingCopy) -> None:
    for name in ("a-1-g", "a-2-gg", "a-1-1-jupyter"):
        rewrite(repository, f"clusters/tr4858/projects/team-a/jobs/{name}.yaml", "image: ", "image: other/")
    rewrite(repository, CLUSTER, "  namespacePrefix: gpu-", "  namespacePrefix: gpu-\n  scheduling: {stopGuard: 10}")
    text = run("plan", folder(repository), "--base", "main").stdout
    assert "\nrefused GPU6007: 4 of 16 running GPUs, more than 10 %, would be stopped at once." in text
    assert "\nEffect: 3 jobs are restarted  (16 GPUs on 2 nodes, as declared)\n" in text
    assert "  The effect assumes that refused changes are confirmed.\n" in text


def test_who_waits_as_before_is_named(run: Run, repository: WorkingCopy) -> None:
    claim_of_team_d(repository)
    repository.commit("a claim", AT_MS + 1000)
    rewrite(repository, QUOTA, "quota: 4", "quota: 3")
    text = run("plan", folder(repository), "--base", "main").stdout
    assert "\nEffect: no job starts, stops or moves  (" in text
    assert "2 wait as before (team-b/b-4-gg, team-c/c-4-gg).\n" in text


def test_what_a_cluster_allows_from_now_on_is_in_the_plan(run: Run, repository: WorkingCopy) -> None:
    more = "\n  security: {hostPaths: [/mnt/data], exceptions: {team-a: privileged}, priorityClasses: [night-shift]}"
    rewrite(repository, CLUSTER, "  namespacePrefix: gpu-", "  namespacePrefix: gpu-" + more)
    report = json.loads(run("plan", folder(repository), "--base", "main", "-o", "json").stdout)
    changed = {"of": "security", "setting": "hostPaths", "before": "none", "after": "/mnt/data"}
    assert report["settings"] == [changed]
    told = {(change["ref"]["kind"], change["ref"]["name"]): change["reason"] for change in report["objects"]}
    assert "pod-security.kubernetes.io/enforce" in told.pop(("Namespace", "gpu-team-a"))
    assert told == {("ResourceQuota", CLASSES_NAME): "other priority classes are allowed"}
    assert all(report["effect"][field] == [] for field in ("started", "paused", "moved"))


def jobs_of(report: dict[str, Any]) -> dict[str, str]:
    names = ((change["ref"]["name"].rpartition("-")[0], change["action"]) for change in report["objects"])
    return {name: action for name, action in names if name}


def test_what_main_has_gained_meanwhile_is_not_this_change(run: Run, repository: WorkingCopy) -> None:
    moved_base(repository)
    command = ("plan", folder(repository), "--base", "main", "--head", "feature")
    report = json.loads(run(*command, "-o", "json").stdout)
    assert jobs_of(report) == {"d-2-gg": "create", "d-3-gg": "create"}
    assert (report["merge"]["state"], report["merge"]["baseMovedBy"], report["merge"]["conflicts"]) == ("clean", 2, [])
    assert {len(report["merge"][name]) for name in ("baseCommit", "headCommit", "mergeBase")} == {40}
    text = run(*command).stdout
    parted = report["merge"]["mergeBase"][:10]
    assert f"  main has gained 2 commits since {parted}, where the two part. The merge is clean; the plan" in text
    assert f"main has gained 2 commits since {parted}" in run(*command, "-o", "markdown").stdout
    direct = json.loads(run(*command, "--direct", "-o", "json").stdout)
    assert jobs_of(direct) == {"d-2-gg": "create", "d-3-gg": "create", "d-9-g": "delete", "b-3-g": "create"}
    assert (direct["merge"]["state"], direct["merge"]["mergeBase"]) == ("direct", None)


def test_the_plan_of_the_working_tree_is_that_of_its_commit(run: Run, repository: WorkingCopy) -> None:
    moved_base(repository)
    switched(repository, "-q", "feature")
    rewrite(repository, JOB, "gpus: 1", "gpus: 2")
    command = ("plan", folder(repository), "--base", "main", "-o", "json")
    uncommitted = json.loads(run(*command).stdout)
    repository.commit("two for a", AT_MS + 4000)
    committed = json.loads(run(*command, "--head", "feature").stdout)
    for report in (uncommitted, committed):
        assert jobs_of(report).keys() == {"a-1-g", "d-2-gg", "d-3-gg"}
        del report["head"], report["merge"]["headCommit"], report["comment"]["head"], report["comment"]["identity"]
    assert uncommitted == committed


def test_a_change_that_is_merged_already_is_none(run: Run, repository: WorkingCopy) -> None:
    moved_base(repository)
    result = run("plan", folder(repository), "--base", "main", "--head", "main~1")
    said = "No changes: main~1, merged into main, declares the same as main.\n  main~1 is merged into main already.\n"
    assert (result.exit_code, result.stdout.startswith(said)) == (0, True)


def test_a_merge_with_conflicts_is_told(run: Run, repository: WorkingCopy) -> None:
    switched(repository, "-qb", "feature")
    rewrite(repository, QUOTA, "quota: 4", "quota: 3")
    repository.write("clusters/tr4858/[x](http://y)\x1b[31m.md", b"# theirs\n")
    repository.commit("less", AT_MS + 1000)
    switched(repository, "-q", "main")
    rewrite(repository, QUOTA, "quota: 4", "quota: 5")
    rewrite(repository, JOB, "gpus: 1", "gpus: 2")
    repository.write("clusters/tr4858/[x](http://y)\x1b[31m.md", b"# ours\n")
    repository.commit("more", AT_MS + 2000)
    command = ("plan", folder(repository), "--base", "main", "--head", "feature")
    result = run(*command)
    assert result.exit_code == 2
    named = "clusters/tr4858/[x](http:/y)\\x1b[31m.md and clusters/tr4858/projects/team-a/project.yaml"
    assert f"\n  The merge is not clean. Conflicts: {named}.\n" in result.stdout
    assert " with feature, not with what a merge will give.\n" in result.stdout
    assert "team-a  quota 4 -> 3" in result.stdout
    markdown = run(*command, "-o", "markdown").stdout
    assert "\x1b" not in markdown + result.stdout
    assert "[x](" not in markdown
    report = json.loads(run(*command, "-o", "json").stdout)
    assert (report["merge"]["state"], len(report["merge"]["conflicts"])) == ("conflicts", 2)
    assert "a-1-g" not in jobs_of(report)
    assert report["refusals"] == []
    switched(repository, "-q", "feature")
    removed_project(repository)
    repository.commit("without d", AT_MS + 3000)
    (refusal,) = json.loads(run(*command, "-o", "json").stdout)["refusals"]
    assert (refusal["code"], "which is not known: resolve the conflicts" in refusal["help"]) == ("GPU6002", True)


def test_what_is_refused_without_the_change_does_not_refuse_it(
    run: Run, repository: WorkingCopy, embedded: Path
) -> None:
    """main has removed a running project, which waits for a word: other changes go on."""
    for file in sorted((folder(repository) / "projects" / "team-d").rglob("*.yaml")):
        repository.remove(file.relative_to(repository.folder).as_posix())
    repository.commit("no d", AT_MS + 1000)
    rewrite(repository, QUOTA, "quota: 4", "quota: 3")
    command = ("plan", folder(repository), "--base", "main", "--embedded", embedded)
    result = run(*command, "-o", "json")
    report = json.loads(result.stdout)
    assert (result.exit_code, report["refusals"], report["result"]) == (2, [], "changes")
    assert [each["code"] for each in report["refusedAlready"]] == ["GPU6002"]
    assert "\nrefused already GPU6002: " in run(*command).stdout
    both = run("plan", folder(repository), "--base", "main~1", "--embedded", embedded, "-o", "json")
    assert (both.exit_code, [each["code"] for each in json.loads(both.stdout)["refusals"]]) == (3, ["GPU6002"])


def test_gates_for_ci(run: Run, repository: WorkingCopy) -> None:
    claim_of_team_d(repository)
    rewrite(repository, "clusters/tr4858/projects/team-a/jobs/a-2-gg.yaml", "image: ", "image: other/")
    command = ("plan", folder(repository), "--base", "main")
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


POLICY = """apiVersion: gpuctl.dev/v1
kind: Policy
metadata: {name: owned}
spec:
  match: {kind: Project, except: [team-c, team-d]}
  severity: warning
  schema: {properties: {spec: {required: [owners]}}}
  message: Say who owns it.
"""


def test_another_severity_of_a_policy_is_told_apart_from_what_starts_and_ceases_to_break_it(
    run: Run, repository: WorkingCopy
) -> None:
    projects = {name: QUOTA.replace("team-a", f"team-{name}") for name in "ad"}
    policy = POLICY.replace("  severity: warning\n", "  severity: audit\n").replace(
        "except: [team-c, team-d]", "projects: [team-*]"
    )
    repository.write("policies/owned.yaml", policy.encode())
    rewrite(repository, projects["a"], "  quota:", "  owners: [a@example.com]\n  quota:")
    repository.commit("a policy", AT_MS + 1000)
    rewrite(repository, "policies/owned.yaml", "severity: audit", "severity: warning")
    rewrite(repository, projects["a"], "  owners: [a@example.com]\n", "")
    rewrite(repository, projects["d"], "  quota:", "  owners: [d@example.com]\n  quota:")
    result = run("plan", folder(repository), "--base", "main")
    assert "; 1 declaration starts to break a policy; 2 declarations break a policy at another severity; 1" in (
        result.stdout
    )
    told = result.stdout.partition("\nPolicies\n")[2].splitlines()[:3]
    assert [projects["a"] in told[0], projects["d"] in told[2]] == [True, True]
    assert told[1].strip().startswith('2 declarations break policy "owned" as a warning now, as an audit before: ')


def test_policies_and_what_breaks_them(run: Run, repository: WorkingCopy) -> None:
    repository.write("policies/owned.yaml", POLICY.encode())
    rewrite(repository, QUOTA, "quota: 4", "quota: 4\n  owners: [a@example.com]")
    project_b = QUOTA.replace("team-a", "team-b")
    rewrite(repository, project_b, "quota: 2", "quota: 2\n  owners: [b@example.com]")
    repository.commit("a policy", AT_MS + 1000)
    rewrite(repository, "policies/owned.yaml", "  severity: warning\n", "")
    rewrite(repository, "policies/owned.yaml", "except: [team-c, team-d]", 'projects: ["team-*"], except: [team-c]')
    strict = run("plan", folder(repository), "--base", "main")
    assert (strict.exit_code, "error GPU4001" in strict.stderr) == (1, True)
    repository.commit("strict", AT_MS + 2000)

    command = ("plan", folder(repository), "--base", "main~1")
    rewrite(repository, "policies/owned.yaml", "spec:\n", "spec:\n  severity: warning\n")
    rewrite(repository, QUOTA, "  owners: [a@example.com]", "# nobody's")
    result = run(*command, "-o", "json")
    report = json.loads(result.stdout)
    assert (result.exit_code, report["settings"]) == (
        2,
        [
            {"of": "policy owned", "setting": "match.except", "before": '["team-c", "team-d"]', "after": '["team-c"]'},
            {"of": "policy owned", "setting": "match.projects", "before": "default", "after": '["team-*"]'},
            {"of": "team-a", "setting": "owners", "before": '["a@example.com"]', "after": "default"},
        ],
    )
    starts = sorted((each["starts"], each["file"].split("/")[-2], each["severity"]) for each in report["breaches"])
    assert starts == [(True, "team-a", "warning"), (True, "team-d", "warning")]
    text = run(*command).stdout
    assert "3 settings change; 2 declarations start to break a policy" in text
    assert 'starts to break (warning): Say who owns it. (owners is missing; policy "owned")\n' in text
    assert "starts to break (warning): Say who owns it." in run(*command, "-o", "markdown").stdout

    repository.commit("lax", AT_MS + 3000)
    repository.remove("policies/owned.yaml")
    report = json.loads(run("plan", folder(repository), "--base", "main", "-o", "json").stdout)
    assert report["settings"] == [{"of": "policy owned", "setting": "declared", "before": "yes", "after": "no"}]
    assert [each["starts"] for each in report["breaches"]] == [False, False]


def test_a_relaxed_policy_is_a_change(run: Run, repository: WorkingCopy) -> None:
    lax = POLICY.replace("severity: warning\n", "severity: error\n").replace("[team-c, team-d]", '["*"]')
    repository.write("policies/owned.yaml", lax.encode())
    repository.commit("a policy", AT_MS + 1000)
    rewrite(repository, "policies/owned.yaml", "severity: error", "severity: warning")
    result = run("plan", folder(repository), "--base", "main")
    assert (result.exit_code, "  policy owned: severity error -> warning\n" in result.stdout) == (2, True)


def test_a_rule_about_a_change_is_told_by_the_plan_of_it_alone(run: Run, repository: WorkingCopy) -> None:
    rule = POLICY.replace("  schema: {properties: {spec: {required: [owners]}}}", "  cel: |\n    RULE").replace(
        "RULE", "oldTotal == null || total.quota - oldTotal.quota <= 1.0"
    )
    repository.write("policies/raises.yaml", rule.encode())
    repository.commit("a policy", AT_MS + 1000)
    rewrite(repository, QUOTA, "quota: 4", "quota: 6")
    rewrite(repository, QUOTA.replace("team-a", "team-d"), "quota: 8", "quota: 6")
    command = ("plan", folder(repository), "--base", "main")
    report = json.loads(run(*command, "-o", "json").stdout)
    assert [(each["starts"], each["file"].split("/")[-2]) for each in report["breaches"]] == [(True, "team-a")]
    assert "spec.quota is 6, spec.quota was 4" in report["breaches"][0]["message"]
    valid = run("validate", folder(repository))
    assert (valid.exit_code, "GPU4001" in valid.stdout) == (0, False)

    rewrite(repository, "policies/raises.yaml", "severity: warning", "severity: error")
    refused = run(*command)
    assert (refused.exit_code, "error GPU4001: Say who owns it. (spec.quota is 6" in refused.stderr) == (1, True)
    repository.commit("merged all the same", AT_MS + 2000)
    assert run("validate", folder(repository)).exit_code == 0


def test_audits_are_told_where_a_change_starts_or_ceases_one(run: Run, repository: WorkingCopy) -> None:
    repository.write("policies/owned.yaml", POLICY.replace("severity: warning", "severity: audit").encode())
    result = run("validate", folder(repository))
    assert (result.exit_code, "owned" in result.stdout + result.stderr) == (0, False)
    text = run("plan", folder(repository), "--base", "main").stdout
    assert "starts to break (audit): Say who owns it. (owners is missing" in text

    repository.commit("an audit", AT_MS + 1000)
    rewrite(repository, QUOTA, "quota: 4", "quota: 4\n  owners: [a@example.com]")
    report = json.loads(run("plan", folder(repository), "--base", "main", "-o", "json").stdout)
    assert [each["severity"] for each in report["breaches"] if not each["starts"]] == ["audit"]


def test_a_pool_that_selects_other_nodes_or_describes_the_same_otherwise(run: Run, repository: WorkingCopy) -> None:
    rewrite(repository, CLUSTER, "gpuctl.dev/pool: dgx1", "gpuctl.dev/pool: dgx2")
    rewrite(repository, CLUSTER, "cpu: 80", "cpu: 70")
    text = run("plan", folder(repository), "--base", "main").stdout
    for line in (
        "pool dgx1: nodes 2 with 16 GPUs -> the same, with other resources or labels",
        "pool dgx1: selector gpuctl.dev/pool=dgx1 -> gpuctl.dev/pool=dgx2",
        "cluster tr4858: nodePools[dgx1].resourcesPerNode.cpu 80 -> 70",
    ):
        assert f"\n  {line}\n" in text


def test_settings_that_no_object_shows(run: Run, repository: WorkingCopy) -> None:
    department = "apiVersion: gpuctl.dev/v1\nkind: Department\nmetadata: {{name: {}}}\nspec: {{quota: {}{}}}\n"
    for name in ("old", "kept"):
        repository.write(f"clusters/tr4858/{name}.yaml", department.format(name, 1, "").encode())
    over = "  namespacePrefix: gpu-\n  scheduling: {overcommitQuota: true}"
    rewrite(repository, CLUSTER, "  namespacePrefix: gpu-", over)
    repository.commit("departments", AT_MS + 1000)
    repository.remove("clusters/tr4858/old.yaml")
    repository.write("clusters/tr4858/new.yaml", department.format("new", 2, ", limit: 9").encode())
    changed = department.format("kept", 2, ", overQuotaWeight: 3, department: new")
    repository.write("clusters/tr4858/kept.yaml", changed.encode())
    rewrite(repository, QUOTA, "quota: 4", "quota: 4\n  interactive: {maxDuration: 8h}\n  adopt: true")
    rewrite(repository, CLUSTER, "nodes: [dgx1-1, dgx1-2]", "nodes: [dgx1-1, dgx1-7]\n    topology: [rack]")
    result = run("plan", folder(repository), "--base", "main")
    assert result.exit_code == 2, result.stderr
    text = result.stdout
    for line in (
        "pool dgx1: nodes 2 with 16 GPUs -> 2 with 16 GPUs, others",
        "department kept: quota 1 -> 2",
        "department kept: overQuotaWeight 1 -> 3",
        "department new: quota 0 -> 2",
        "department new: limit none -> 9",
        "department old: quota 1 -> 0",
        'cluster tr4858: nodePools[dgx1].topology default -> ["rack"]',
        "department kept: department default -> new",
        "department new: declared no -> yes",
        "department old: declared yes -> no",
        "team-a: adopt default -> true",
        "team-a: interactive.maxDuration default -> 8h",
    ):
        assert f"  {line}\n" in text, (line, text)


def test_a_limit_below_what_is_held_is_told(run: Run, repository: WorkingCopy) -> None:
    rewrite(repository, QUOTA, "quota: 4", "quota: 2\n  limit: 3")
    command = ("plan", folder(repository), "--base", "main")
    assert "  The limit of team-a, 3, is below the 4 GPUs that it holds now.\n" in run(*command).stdout
    assert (
        "\n- The limit of team-a, 3, is below the 4 GPUs that it holds now.\n" in run(*command, "-o", "markdown").stdout
    )
    (quota,) = json.loads(run(*command, "-o", "json").stdout)["quotas"]
    assert (quota["limitBelowAllocated"], quota["capacityGpuMilli"]) == (True, 16000)
    assert quota["allocatedGpuMilli"]["before"] == 4000


def test_many_jobs_that_would_be_deleted_are_told(run: Run, repository: WorkingCopy) -> None:
    rewrite(repository, CLUSTER, "  namespacePrefix: gpu-", "  namespacePrefix: gpu-\n  scheduling: {deleteGuard: 2}")
    repository.commit("a guard", AT_MS + 1000)
    follow = ("--repo", repository.folder, "--path", "clusters/tr4858", "--workdir", repository.folder / "clones")
    file = repository.folder / "cluster.db"
    assert run("reconcile", *follow, "--embedded", file, "--once").exit_code == 0
    for job in ("b-1-g06", "b-2-g04", "b-3-g"):
        repository.remove(f"clusters/tr4858/projects/team-b/jobs/{job}.yaml")
    repository.commit("fewer", AT_MS + 2000)
    command = ("plan", folder(repository), "--base", "main~1", "--head", "main", "-o", "json")
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
    result = run("plan", folder(repository), "--base", "main", "-o", "json")
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
    result = run("plan", folder(repository), "--base", "main~1", "--head", "main", "-o", "json")
    (refusal,) = json.loads(result.stdout)["refusals"]
    assert (result.exit_code, refusal["code"]) == (3, "GPU6011")
    assert "is cut from 4 to 2, below the 4 GPUs of its running jobs that can't be preempted" in refusal["message"]
    line = refusal["help"].partition("`")[2].rstrip("`")
    repository.commit(f"it is meant\n\n{line}\n", AT_MS + 3000)
    result = run("plan", folder(repository), "--base", "main~2", "--head", "main", "-o", "json")
    assert (result.exit_code, [each["code"] for each in json.loads(result.stdout)["confirmed"]]) == (2, ["GPU6011"])
    rewrite(repository, QUOTA, "quota: 2", "quota: 3")
    assert run("plan", folder(repository), "--base", "main").exit_code == 2
    rewrite(repository, QUOTA, "quota: 3", "quota: 4")
    repository.commit("as it was", AT_MS + 4000)
    rewrite(repository, QUOTA, "quota: 4", "quota: 2")
    assert run("plan", folder(repository), "--base", "main").exit_code == 3  # the line was of the cut before


def test_the_plan_of_going_back(run: Run, repository: WorkingCopy) -> None:
    claim_of_team_d(repository)
    repository.commit("a claim", AT_MS + 1000)
    repository.write("README.md", b"hello\n")
    repository.commit("a word", AT_MS + 2000)
    command = ("plan", folder(repository), "--rollback", "main~2")
    result = run(*command, "-o", "json")
    report = json.loads(result.stdout)
    assert (result.exit_code, jobs_of(report)) == (2, {"d-2-gg": "delete", "d-3-gg": "delete"})
    assert (report["base"], report["head"]) == ("HEAD", "main~2")
    assert (report["merge"]["state"], report["merge"]["baseMovedBy"]) == ("rollback", 1)
    assert sorted(each["job"] for each in report["effect"]["started"]) == ["team-b/b-4-gg", "team-c/c-4-gg"]
    then = report["merge"]["headCommit"]
    line = f"git restore --source={then[:10]} --staged --worktree -- clusters/tr4858"
    text = run(*command).stdout
    assert f"\n  A rollback of clusters/tr4858 to {then[:10]}; 1 commit since then changed it. Other folders" in text
    assert f"\n  The option --commit does it; by hand: {line}\n" in text
    subprocess.run(["git", "-C", str(repository.folder), *line.split()[1:]], check=True)
    done = json.loads(run("plan", folder(repository), "--base", "main", "-o", "json").stdout)
    assert (done["digest"], done["effect"]) == (report["digest"], report["effect"])
    for wrong in (("--head", "main"), ("--direct",)):
        result = run(*command, *wrong)
        assert (result.exit_code, "--rollback goes without" in result.stderr) == (1, True)
    assert run("plan", folder(repository)).exit_code == 1


def test_the_plan_of_a_merge_is_that_of_what_the_merge_gives(run: Run, repository: WorkingCopy) -> None:
    moved_base(repository)
    command = ("plan", folder(repository), "--base")
    planned = json.loads(run(*command, "main", "--head", "feature", "-o", "json").stdout)
    who = ["-c", "user.name=x", "-c", "user.email=x@example.com"]
    subprocess.run(["git", "-C", str(repository.folder), *who, "merge", "-q", "-m", "merged", "feature"], check=True)
    done = json.loads(run(*command, "main^1", "--head", "main", "--direct", "-o", "json").stdout)
    assert (planned["digest"], planned["effect"]) == (done["digest"], done["effect"])


def test_names_of_branches_are_shown_not_obeyed(run: Run, repository: WorkingCopy) -> None:
    """Whoever opens a pull request names its branch."""
    moved_base(repository)
    name = "x`<img/src=y>|@all-#1-www.evil.example-\u202egnp"
    subprocess.run(["git", "-C", str(repository.folder), "branch", "-m", "feature", name], check=True)
    command = ("plan", folder(repository), "--base", "main", "--head", name)
    for form in ("text", "markdown", "json"):
        result = run(*command, "-o", form)
        assert (result.exit_code, "\u202e" in result.stdout) == (2, False)
    markdown = run(*command, "-o", "markdown").stdout
    outside = re.sub(r"`[^`\n]*`", "", markdown)
    assert "<img" not in outside.replace("\\<img", "")
    assert "@all" not in outside
    assert re.search(r"(?<!\\)\|@", outside) is None


RESEARCH = """apiVersion: gpuctl.dev/v1
kind: Department
metadata: {name: research}
spec: {quota: 4, limit: 9}
"""


def test_a_departments_limit_below_what_its_projects_hold(run: Run, repository: WorkingCopy) -> None:
    """Teams b and c hold four GPUs each."""
    department = "clusters/tr4858/research.yaml"
    repository.write(department, RESEARCH.encode())
    for name in "bc":
        rewrite(repository, QUOTA.replace("team-a", f"team-{name}"), "quota: 2", "quota: 2\n  department: research")
    repository.commit("a department", AT_MS + 1000)
    repository.write(department, RESEARCH.replace("limit: 9", "limit: 7").encode())
    command = ("plan", folder(repository), "--base", "main")
    text = run(*command).stdout
    assert "\nLimits\n  The limit of department research, 7, is below the 8 GPUs that it holds now.\n" in text
    assert "The limit of department research, 7, is below" in run(*command, "-o", "markdown").stdout
    (told,) = json.loads(run(*command, "-o", "json").stdout)["departmentLimits"]
    assert told == {"department": "research", "domain": "*", "limitGpuMilli": 7000, "allocatedGpuMilli": 8000}
    repository.commit("lower", AT_MS + 2000)
    rewrite(repository, QUOTA, "quota: 4", "quota: 3")
    assert "limit of department" not in run(*command).stdout, "it was so before"
    rewrite(repository, QUOTA, "quota: 3", "quota: 1\n  department: research")
    rewrite(repository, QUOTA.replace("team-a", "team-b"), "quota: 2", "quota: 1")
    assert "7, is below the 11 GPUs that it holds now" in run(*command).stdout, "four of team-a, seven of b and c"
