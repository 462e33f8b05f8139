"""What `gpuctl plan` tells of settings, limits and policies, which no object shows."""

from __future__ import annotations

import json

from commands import A_1_G, AT_MS, Run, folder_in
from planstories import CLUSTER, QUOTA, rewrite

from gpuctl.adapters.git import WorkingCopy
from gpuctl.render.bounds import CLASSES_NAME


def test_what_no_object_shows_is_a_change_too(run: Run, repository: WorkingCopy) -> None:
    rewrite(repository, A_1_G, "  gpus: 1", "  gpus: 1\n  priority: 5\n  maxDuration: 2h")
    rewrite(repository, QUOTA, "  quota: 4", "  quota: 4\n  priority: 1")
    cluster = "clusters/tr4858/cluster.yaml"
    rewrite(repository, cluster, "nodes: [dgx1-1, dgx1-2]", "nodes: [dgx1-1, dgx1-2, dgx1-3]")
    rewrite(repository, cluster, "  namespacePrefix: gpu-", "  namespacePrefix: gpu-\n  scheduling: {minRuntime: 10m}")
    result = run("plan", folder_in(repository), "--base", "main")
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
    report = json.loads(run("plan", folder_in(repository), "--base", "main", "-o", "json").stdout)
    assert {"of": "team-a", "setting": "priority", "before": "0", "after": "1"} in report["settings"]
    assert (
        "- team-a: priority 0 -> 1\n" in run("plan", folder_in(repository), "--base", "main", "-o", "markdown").stdout
    )


def test_a_department_s_limit_is_a_setting(run: Run, repository: WorkingCopy) -> None:
    path = "clusters/tr4858/research.yaml"
    text = "apiVersion: gpuctl.dev/v1\nkind: Department\nmetadata: {name: research}\nspec: {quota: 4}\n"
    repository.write(path, text.encode())
    rewrite(repository, QUOTA, "  quota: 4", "  quota: 4\n  department: research")
    repository.commit("a department", AT_MS + 1000)
    rewrite(repository, path, "quota: 4", "quota: 4, limit: 8")
    result = run("plan", folder_in(repository), "--base", "main")
    assert "  department research: limit none -> 8\n" in result.stdout
    assert (
        "  team-a: department none -> research\n"
        in run("plan", folder_in(repository), "--base", "main~1", "--head", "main").stdout
    )


def test_what_a_cluster_allows_from_now_on_is_in_the_plan(run: Run, repository: WorkingCopy) -> None:
    more = "\n  security: {hostPaths: [/mnt/data], exceptions: {team-a: privileged}, priorityClasses: [night-shift]}"
    rewrite(repository, CLUSTER, "  namespacePrefix: gpu-", "  namespacePrefix: gpu-" + more)
    report = json.loads(run("plan", folder_in(repository), "--base", "main", "-o", "json").stdout)
    changed = {"of": "security", "setting": "hostPaths", "before": "none", "after": "/mnt/data"}
    assert report["settings"] == [changed]
    told = {(change["ref"]["kind"], change["ref"]["name"]): change["reason"] for change in report["objects"]}
    assert "pod-security.kubernetes.io/enforce" in told.pop(("Namespace", "gpu-team-a"))
    assert told == {("ResourceQuota", CLASSES_NAME): "other priority classes are allowed"}
    assert all(report["effect"][field] == [] for field in ("started", "paused", "moved"))


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
    result = run("plan", folder_in(repository), "--base", "main")
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
    strict = run("plan", folder_in(repository), "--base", "main")
    assert (strict.exit_code, "error GPU4001" in strict.stderr) == (1, True)
    repository.commit("strict", AT_MS + 2000)

    command = ("plan", folder_in(repository), "--base", "main~1")
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
    report = json.loads(run("plan", folder_in(repository), "--base", "main", "-o", "json").stdout)
    assert report["settings"] == [{"of": "policy owned", "setting": "declared", "before": "yes", "after": "no"}]
    assert [each["starts"] for each in report["breaches"]] == [False, False]


def test_a_relaxed_policy_is_a_change(run: Run, repository: WorkingCopy) -> None:
    lax = POLICY.replace("severity: warning\n", "severity: error\n").replace("[team-c, team-d]", '["*"]')
    repository.write("policies/owned.yaml", lax.encode())
    repository.commit("a policy", AT_MS + 1000)
    rewrite(repository, "policies/owned.yaml", "severity: error", "severity: warning")
    result = run("plan", folder_in(repository), "--base", "main")
    assert (result.exit_code, "  policy owned: severity error -> warning\n" in result.stdout) == (2, True)


def test_a_rule_about_a_change_is_told_by_the_plan_of_it_alone(run: Run, repository: WorkingCopy) -> None:
    rule = POLICY.replace("  schema: {properties: {spec: {required: [owners]}}}", "  cel: |\n    RULE").replace(
        "RULE", "oldTotal == null || total.quota - oldTotal.quota <= 1.0"
    )
    repository.write("policies/raises.yaml", rule.encode())
    repository.commit("a policy", AT_MS + 1000)
    rewrite(repository, QUOTA, "quota: 4", "quota: 6")
    rewrite(repository, QUOTA.replace("team-a", "team-d"), "quota: 8", "quota: 6")
    command = ("plan", folder_in(repository), "--base", "main")
    report = json.loads(run(*command, "-o", "json").stdout)
    assert [(each["starts"], each["file"].split("/")[-2]) for each in report["breaches"]] == [(True, "team-a")]
    assert "spec.quota is 6, spec.quota was 4" in report["breaches"][0]["message"]
    valid = run("validate", folder_in(repository))
    assert (valid.exit_code, "GPU4001" in valid.stdout) == (0, False)

    rewrite(repository, "policies/raises.yaml", "severity: warning", "severity: error")
    refused = run(*command)
    assert (refused.exit_code, "error GPU4001: Say who owns it. (spec.quota is 6" in refused.stderr) == (1, True)
    repository.commit("merged all the same", AT_MS + 2000)
    assert run("validate", folder_in(repository)).exit_code == 0


def test_audits_are_told_where_a_change_starts_or_ceases_one(run: Run, repository: WorkingCopy) -> None:
    repository.write("policies/owned.yaml", POLICY.replace("severity: warning", "severity: audit").encode())
    result = run("validate", folder_in(repository))
    assert (result.exit_code, "owned" in result.stdout + result.stderr) == (0, False)
    text = run("plan", folder_in(repository), "--base", "main").stdout
    assert "starts to break (audit): Say who owns it. (owners is missing" in text

    repository.commit("an audit", AT_MS + 1000)
    rewrite(repository, QUOTA, "quota: 4", "quota: 4\n  owners: [a@example.com]")
    report = json.loads(run("plan", folder_in(repository), "--base", "main", "-o", "json").stdout)
    assert [each["severity"] for each in report["breaches"] if not each["starts"]] == ["audit"]


def test_a_pool_that_selects_other_nodes_or_describes_the_same_otherwise(run: Run, repository: WorkingCopy) -> None:
    rewrite(repository, CLUSTER, "gpuctl.dev/pool: dgx1", "gpuctl.dev/pool: dgx2")
    rewrite(repository, CLUSTER, "cpu: 80", "cpu: 70")
    text = run("plan", folder_in(repository), "--base", "main").stdout
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
    result = run("plan", folder_in(repository), "--base", "main")
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
    command = ("plan", folder_in(repository), "--base", "main")
    assert "  The limit of team-a, 3, is below the 4 GPUs that it holds now.\n" in run(*command).stdout
    assert (
        "\n- The limit of team-a, 3, is below the 4 GPUs that it holds now.\n" in run(*command, "-o", "markdown").stdout
    )
    (quota,) = json.loads(run(*command, "-o", "json").stdout)["quotas"]
    assert (quota["limitBelowAllocated"], quota["capacityGpuMilli"]) == (True, 16000)
    assert quota["allocatedGpuMilli"]["before"] == 4000


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
    command = ("plan", folder_in(repository), "--base", "main")
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
