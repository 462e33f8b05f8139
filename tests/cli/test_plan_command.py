"""plan: what a pull request changes, between two revisions or up to the working tree."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from commands import A_1_G, AT_MS, Run, folder_in
from planstories import CLUSTER, D_JOBS, QUOTA, claim_of_team_d, moved_base, removed_project, rewrite, switched

from gpuctl.adapters.clock import SystemClock
from gpuctl.adapters.embedded import EmbeddedCluster
from gpuctl.adapters.git import WorkingCopy
from gpuctl.k8s.kinds import OBSERVED
from gpuctl.wiring import access


def test_no_change_exits_0(run: Run, repository: WorkingCopy) -> None:
    result = run("plan", folder_in(repository), "--base", "main")
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
    asked = ("plan", folder_in(repository), "--base", "main", "-o", "json")
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
    rewrite(repository, A_1_G, "kind: Job", "# a comment\nkind: Job")
    assert run("plan", folder_in(repository), "--base", "main").exit_code == 0


def test_quotas_and_objects_of_the_working_tree(run: Run, repository: WorkingCopy) -> None:
    rewrite(repository, QUOTA, "quota: 4", "quota: 3\n  limit: 8")
    rewrite(repository, A_1_G, "gpus: 1", "gpus: 2")
    repository.remove("clusters/tr4858/projects/team-d/jobs/d-1-gggg.yaml")
    result = run("plan", folder_in(repository), "--base", "main")
    assert result.exit_code == 2
    assert result.stdout.startswith("Plan: 1 to create, 2 to change, 2 to delete; quotas of 1 project change")
    assert "  team-a  quota 4 -> 3  limit none -> 8  weight 4 -> 3  holds 4 -> 5  of 16\n" in result.stdout
    assert "a new run: gpus changed" in result.stdout
    assert "no longer declared" in result.stdout


def test_two_revisions_as_json(run: Run, repository: WorkingCopy) -> None:
    rewrite(repository, QUOTA, "quota: 4", "quota: 2\n  access: [{group: team-a, role: edit}]")
    repository.commit("less for a", AT_MS + 1000)
    result = run("plan", folder_in(repository), "--base", "main~1", "--head", "main", "-o", "json")
    assert result.exit_code == 2
    report = json.loads(result.stdout)
    assert {"kind", "base", "head", "objects", "quotas", "effect", "refusals", "digest"} <= report.keys()
    assert (report["kind"], report["base"], report["head"]) == ("PlanReport", "main~1", "main")
    assert [change["ref"]["kind"] for change in report["objects"]] == ["RoleBinding"]
    (quota,) = report["quotas"]
    assert (quota["project"], quota["quotaGpuMilli"]) == ("team-a", {"before": 4000, "after": 2000})


def test_the_digest_names_the_changes_not_the_revisions(run: Run, repository: WorkingCopy) -> None:
    rewrite(repository, QUOTA, "quota: 4", "quota: 2")
    digests = [json.loads(run("plan", folder_in(repository), "--base", "main", "-o", "json").stdout)["digest"]]
    repository.commit("less for a", AT_MS + 1000)
    compared = ("--base", "main~1", "--head", "main", "-o", "json")
    digests.append(json.loads(run("plan", folder_in(repository), *compared).stdout)["digest"])
    assert digests[0] == digests[1]


def test_markdown_for_a_pull_request(run: Run, repository: WorkingCopy) -> None:
    rewrite(repository, QUOTA, "quota: 4", "quota: 2\n  access: [{group: team-a, role: edit}]")
    text = run("plan", folder_in(repository), "--base", "main", "-o", "markdown").stdout
    assert "| team-a | 4 -> 2 | 4 -> 2 | 4 |" in text
    assert "```diff\n+ RoleBinding" in text


def test_a_new_cluster_and_a_removed_one(run: Run, repository: WorkingCopy) -> None:
    revision = repository.commit("nothing", AT_MS + 500)
    for file in sorted(folder_in(repository).rglob("*.yaml")):
        repository.remove(file.relative_to(repository.folder).as_posix())
    repository.commit("gone", AT_MS + 1000)
    gone = json.loads(run("plan", folder_in(repository), "--base", revision, "--head", "main", "-o", "json").stdout)
    assert {change["action"] for change in gone["objects"]} == {"delete"}
    back = ("--base", "main", "--head", revision, "--direct")
    new = json.loads(run("plan", folder_in(repository), *back, "-o", "json").stdout)
    assert {change["action"] for change in new["objects"]} == {"create"}
    assert run("plan", folder_in(repository), "--base", "main", "--head", "main").exit_code == 1


def test_errors_exit_1(run: Run, repository: WorkingCopy, tmp_path: Path) -> None:
    unknown = run("plan", folder_in(repository), "--base", "no-such-branch")
    assert (unknown.exit_code, unknown.stderr.split(":")[0]) == (1, "error GPU8006")
    outside = run("plan", tmp_path, "--base", "main")
    assert (outside.exit_code, outside.stderr.split(":")[0]) == (1, "error GPU8004")
    rewrite(repository, A_1_G, "gpus: 1", "gpus: none")
    broken = run("plan", folder_in(repository), "--base", "main")
    assert broken.exit_code == 1
    assert "error GPU2011" in broken.stderr


def test_a_sum_that_is_too_large_is_marked_at_what_the_change_touched(run: Run, repository: WorkingCopy) -> None:
    rewrite(repository, QUOTA, "quota: 4", "quota: 6")
    result = run("plan", folder_in(repository), "--base", "main")
    assert result.exit_code == 1
    assert f"{QUOTA}:6:10: error GPU3009: the quotas add up to 18 GPUs" in result.stderr


def test_the_effect_as_data(run: Run, repository: WorkingCopy) -> None:
    claim_of_team_d(repository)
    effect = json.loads(run("plan", folder_in(repository), "--base", "main", "-o", "json").stdout)["effect"]
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
    effect = json.loads(run("plan", folder_in(repository), "--base", "main", "-o", "json").stdout)["effect"]
    (eta,) = effect["eta"]
    assert (eta["startsInMs"], eta["after"], eta["before"]["startsInMs"]) == (7_200_000, ["team-d/d-2-gg"], None)
    text = run("plan", folder_in(repository), "--base", "main").stdout
    assert "starts within 2h when team-d/d-2-gg ends (before: no start is forecast)" in text


def test_the_effect_begins_with_what_a_cluster_runs(run: Run, repository: WorkingCopy, embedded: Path) -> None:
    claim_of_team_d(repository)
    command = ("plan", folder_in(repository), "--base", "main", "-o", "json")
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
    aged = re.sub(r'"(\d{4})(?=-\d\d-\d\dT)', lambda year: f'"{int(year[1]) - 4}', json.dumps({"items": items}))
    state = tmp_path / "state.json"
    state.write_text(aged)
    claim_of_team_d(repository)
    rewrite(repository, CLUSTER, "  namespacePrefix: gpu-", "  namespacePrefix: gpu-\n  scheduling: {stopGuard: 10}")
    repository.commit("a claim", AT_MS + 1000)
    rewrite(repository, QUOTA, "quota: 4", "quota: 3")
    command = ("plan", folder_in(repository), "--base", "main", "--state", state)
    ground = json.loads(run(*command, "-o", "json").stdout)["effect"]["ground"]
    assert ground["unlikeBase"] == {"cluster": True, "projects": ["team-d"]}
    text = run(*command).stdout
    assert re.search(r"\(16 GPUs on 2 nodes, as the cluster was 14\d\dd[\dhms]* ago\)", text)
    assert re.search(r"\nThe cluster is as observed at 20[\d:TZ-]+, 14\d\dd[\dhms]* ago; its files outside", text)
    assert "It differs from what main declares for the cluster itself and team-d.\n" in text
    assert "for the cluster itself and team-d.</sub>" in run(*command, "-o", "markdown").stdout


def test_a_state_that_is_none_and_two_clusters_are_refused(run: Run, repository: WorkingCopy, embedded: Path) -> None:
    state = repository.folder / "state.json"
    for text, why in (("{", "it is not JSON"), ("[]", "it has no list of objects"), ('{"items": [1]}', "it has no")):
        state.write_text(text)
        result = run("plan", folder_in(repository), "--base", "main", "--state", state)
        assert (result.exit_code, why in result.stderr) == (1, True), result.stderr
    result = run("plan", folder_in(repository), "--base", "main", "--state", state, "--embedded", embedded)
    assert (result.exit_code, "name one cluster" in result.stderr) == (1, True)
    away = run("plan", folder_in(repository), "--base", "main", "--context", "nowhere")
    assert (away.exit_code, away.stderr.split(":")[0]) == (1, "error GPU7010")


def test_a_cluster_whose_folder_is_gone_has_no_effect(run: Run, repository: WorkingCopy) -> None:
    for file in sorted(folder_in(repository).rglob("*.yaml")):
        repository.remove(file.relative_to(repository.folder).as_posix())
    repository.commit("gone", AT_MS + 1000)
    report = json.loads(run("plan", folder_in(repository), "--base", "main~1", "--head", "main", "-o", "json").stdout)
    assert report["effect"] is None


def test_a_job_that_waits_as_before_is_named(run: Run, repository: WorkingCopy) -> None:
    claim_of_team_d(repository)
    repository.commit("a claim", AT_MS + 1000)
    rewrite(repository, QUOTA, "quota: 4", "quota: 3")
    text = run("plan", folder_in(repository), "--base", "main").stdout
    assert "\nEffect: no job starts, stops or moves  (" in text
    assert "2 wait as before (team-b/b-4-gg, team-c/c-4-gg).\n" in text


def jobs_of(report: dict[str, Any]) -> dict[str, str]:
    names = ((change["ref"]["name"].rpartition("-")[0], change["action"]) for change in report["objects"])
    return {name: action for name, action in names if name}


def test_what_main_has_gained_meanwhile_is_not_this_change(run: Run, repository: WorkingCopy) -> None:
    moved_base(repository)
    command = ("plan", folder_in(repository), "--base", "main", "--head", "feature")
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
    rewrite(repository, A_1_G, "gpus: 1", "gpus: 2")
    command = ("plan", folder_in(repository), "--base", "main", "-o", "json")
    uncommitted = json.loads(run(*command).stdout)
    repository.commit("two for a", AT_MS + 4000)
    committed = json.loads(run(*command, "--head", "feature").stdout)
    for report in (uncommitted, committed):
        assert jobs_of(report).keys() == {"a-1-g", "d-2-gg", "d-3-gg"}
        del report["head"], report["merge"]["headCommit"], report["comment"]["head"], report["comment"]["identity"]
    assert uncommitted == committed


def test_a_change_that_is_merged_already_is_none(run: Run, repository: WorkingCopy) -> None:
    moved_base(repository)
    result = run("plan", folder_in(repository), "--base", "main", "--head", "main~1")
    said = "No changes: main~1, merged into main, declares the same as main.\n  main~1 is merged into main already.\n"
    assert (result.exit_code, result.stdout.startswith(said)) == (0, True)


def test_a_merge_with_conflicts_is_told(run: Run, repository: WorkingCopy) -> None:
    switched(repository, "-qb", "feature")
    rewrite(repository, QUOTA, "quota: 4", "quota: 3")
    repository.write("clusters/tr4858/[x](http://y)\x1b[31m.md", b"# theirs\n")
    repository.commit("less", AT_MS + 1000)
    switched(repository, "-q", "main")
    rewrite(repository, QUOTA, "quota: 4", "quota: 5")
    rewrite(repository, A_1_G, "gpus: 1", "gpus: 2")
    repository.write("clusters/tr4858/[x](http://y)\x1b[31m.md", b"# ours\n")
    repository.commit("more", AT_MS + 2000)
    command = ("plan", folder_in(repository), "--base", "main", "--head", "feature")
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


def test_the_plan_of_going_back(run: Run, repository: WorkingCopy) -> None:
    claim_of_team_d(repository)
    repository.commit("a claim", AT_MS + 1000)
    repository.write("README.md", b"hello\n")
    repository.commit("a word", AT_MS + 2000)
    command = ("plan", folder_in(repository), "--rollback", "main~2")
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
    done = json.loads(run("plan", folder_in(repository), "--base", "main", "-o", "json").stdout)
    assert (done["digest"], done["effect"]) == (report["digest"], report["effect"])
    for wrong in (("--head", "main"), ("--direct",)):
        result = run(*command, *wrong)
        assert (result.exit_code, "--rollback goes without" in result.stderr) == (1, True)
    assert run("plan", folder_in(repository)).exit_code == 1


def test_the_plan_of_a_merge_is_that_of_what_the_merge_gives(run: Run, repository: WorkingCopy) -> None:
    moved_base(repository)
    command = ("plan", folder_in(repository), "--base")
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
    command = ("plan", folder_in(repository), "--base", "main", "--head", name)
    for form in ("text", "markdown", "json"):
        result = run(*command, "-o", form)
        assert (result.exit_code, "\u202e" in result.stdout) == (2, False)
    markdown = run(*command, "-o", "markdown").stdout
    outside = re.sub(r"`[^`\n]*`", "", markdown)
    assert "<img" not in outside.replace("\\<img", "")
    assert "@all" not in outside
    assert re.search(r"(?<!\\)\|@", outside) is None
