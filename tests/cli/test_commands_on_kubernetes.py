"""The commands that look at a cluster, on a real API server: tables, drift, and what is said when it can't be read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
import yaml
from commands import Run
from controlplane.known import await_rights
from controlplane.server import ControlPlane
from seen import CLUSTER, NAMESPACE, WITHIN_S, Stage, stage_on

from gpuctl.adapters.git import WorkingCopy
from gpuctl.k8s import kinds


@pytest.fixture(scope="module")
def stage(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage_on(control_plane, tmp_path_factory.mktemp("seen")) as made:
        yield made


def rows(text: str) -> dict[str, list[str]]:
    """The lines of a table by their first word."""
    return {line.split()[0]: line.split() for line in text.splitlines() if line.strip()}


def test_list_shows_what_runs_where(run: Run, stage: Stage) -> None:
    result = run("list", "-p", "team-s", *stage.where)
    assert result.exit_code == 0, result.output
    table = rows(result.stdout)
    assert (table["train"][1], table["train"][4:8]) == ("Running", ["train", "Train", "team-s", "-"])
    assert table["notebook"][5] == "Interactive-Preemptible"
    assert (table["large"][1], table["large"][3]) == ("Pending", "-")
    assert table["gang"][8] == "2"


def test_the_forms_agree(run: Run, stage: Stage) -> None:
    forms = json.loads(run("list", "-A", "-o", "json", *stage.where).stdout)
    mine = {job["name"]: job for job in forms["jobs"] if job["project"] == "team-s"}
    assert {worker["node"] for worker in mine["gang"]["placement"]} <= {"seen-1", "seen-2"}
    assert [pod["worker"] for pod in mine["gang"]["pods"]] == [0, 1]
    assert yaml.safe_load(run("get", "team-s/gang", "-o", "yaml", *stage.where).stdout)["workers"] == 2
    assert "REASON" in run("list", "-o", "wide", *stage.where).stdout
    assert "team-s/train\n" in run("list", "-o", "name", *stage.where).stdout


def test_get_tells_what_was_noted(run: Run, stage: Stage) -> None:
    def events() -> list[str]:
        said = run("get", "train", "-p", "team-s", *stage.where)
        assert said.exit_code == 0
        return said.stdout.partition("\nEvents:\n")[2].splitlines()

    def is_told(source: str, words: str) -> bool:
        return any(line.startswith(source) and words in line for line in events())

    until = monotonic() + WITHIN_S
    told = (("pod/train-", "[Scheduled] Successfully assigned"), ("job/train-", "[Resumed]"))
    while not all(is_told(*each) for each in told):  # events come after what they tell
        assert monotonic() < until, events()
        sleep(0.1)
    assert events()[0].split() == ["SOURCE", "TYPE", "AGE", "MESSAGE"]


def test_explain_says_why_it_waits(run: Run, stage: Stage) -> None:
    said = run("explain", "large", "-p", "team-s", *stage.where).stdout
    assert said.startswith("team-s/large requests 4 GPUs and is Pending.\n")
    assert "limit" in said


@pytest.mark.parametrize("line", [("explain", "team-s/large"), ("diff",)])
def test_ledgers_are_read_once(line: tuple[str, ...], run: Run, stage: Stage) -> None:
    before = stage.plane.audit.count()
    assert run(*line, stage.folder, *stage.where).exit_code == 0
    seen = stage.plane.audit.requests(before, told="gpuctl/")
    assert [r["verb"] for r in seen if r.get("objectRef", {}).get("resource") == "configmaps"] == ["list"]


def test_plan_foresees_what_a_change_does_to_what_runs(run: Run, stage: Stage, tmp_path: Path) -> None:
    copy = WorkingCopy.create(tmp_path / "repository")
    copy.write("clusters/seen/cluster.yaml", CLUSTER.encode())
    copy.commit("as it is", 1_596_000_000_000)
    less = CLUSTER.replace("workers: 2}", "workers: 2, suspend: true}")
    copy.write("clusters/seen/cluster.yaml", less.encode())
    before = stage.plane.audit.count()
    command = ("plan", copy.folder / "clusters" / "seen", "--base", "main", "-o", "json", *stage.where)
    effect = json.loads(run(*command).stdout)["effect"]
    assert effect["ground"].items() >= {"from": "cluster", "nodes": 2, "gpuMilli": 8000}.items()
    assert effect["stopped"] == [{"job": "team-s/gang", "gpuMilli": 2000, "why": "suspended"}]
    started = [start["job"] for start in effect["started"]]
    waiting = [wait["job"] for wait in (*effect["starved"], *effect["eta"])]
    assert started + waiting == ["team-s/large"]
    seen = stage.plane.audit.requests(before)
    assert [r for r in seen if "gpuctl/" in r.get("userAgent", "") and r["verb"] in WRITES] == []


def test_project_list_shows_quota_and_use(run: Run, stage: Stage) -> None:
    table = rows(run("project", "list", *stage.where).stdout)
    assert table["team-s"] == ["team-s", "research", "4", "6", "4", "3", "1", NAMESPACE]
    forms = json.loads(run("project", "list", "-o", "json", *stage.where).stdout)["projects"]
    (mine,) = [form for form in forms if form["name"] == "team-s"]
    quota = {"domain": "*", "quotaGpuMilli": 4000, "limitGpuMilli": 6000, "overQuotaWeight": 4000}
    assert mine["quotas"] == [{**quota, "fairShareGpuMilli": None}]  # no leader publishes an overview here


def test_top_node_shows_what_is_taken_by_whom(run: Run, stage: Stage) -> None:
    forms = json.loads(run("top", "node", "seen-1", "seen-2", "-o", "json", *stage.where).stdout)["nodes"]
    assert sum(form["allocatedGpuMilli"] for form in forms) == 5000
    assert [form["foreignGpuMilli"] for form in forms] == [0, 1000]
    assert sum(form["requestedCpuMilli"] for form in forms) == 10_000
    holders = {share["job"] for form in forms for device in form["devices"] for share in device["jobs"]}
    assert holders == {"team-s/train", "team-s/gang", "team-s/notebook"}
    text = run("top", "node", "seen-1", "seen-2", *stage.where).stdout
    assert text.endswith("Allocated/Total GPUs In Cluster:\n5/8 (62%)\n")
    assert "<others> (1)" in run("top", "node", "-d", "seen-2", *stage.where).stdout
    unknown = run("top", "node", "seen-9", *stage.where)
    assert (unknown.exit_code, unknown.stderr.split(":")[0]) == (2, "error GPU9003")


def test_diff_finds_nothing_and_then_what_somebody_did(run: Run, stage: Stage) -> None:
    still = run("diff", stage.folder, *stage.where)
    assert (still.exit_code, still.stdout, still.stderr) == (0, "", "")
    name = stage.job("train")["metadata"]["name"]
    path = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/{name}"
    before = stage.plane.audit.count()
    change = {"metadata": {"labels": {"gpuctl.dev/type": "interactive"}, "annotations": {"theirs": "kept"}}}
    stage.plane.call("PATCH", path, change, media="application/merge-patch+json")
    stage.plane.call("DELETE", f"/api/v1/namespaces/{NAMESPACE}/resourcequotas/gpuctl")
    drifted = run("diff", stage.folder, *stage.where)
    assert drifted.exit_code == 1
    assert "@@ metadata.labels.gpuctl.dev/type @@\n-interactive\n+training\n" in drifted.stdout
    assert f"--- nothing\n+++ ResourceQuota {NAMESPACE}/gpuctl  {stage.folder}/cluster.yaml:" in drifted.stdout
    assert "theirs" not in drifted.stdout
    assert drifted.stdout.splitlines()[-1].startswith("2 objects differ: 1 missing, 1 changed; ")
    report = json.loads(run("diff", stage.folder, "-o", "json", *stage.where).stdout)
    (changed,) = [entry for entry in report["objects"] if entry["action"] == "update"]
    assert changed["fields"] == [
        {"path": "metadata.labels.gpuctl.dev/type", "live": "interactive", "wanted": "training"}
    ]
    seen = stage.plane.audit.requests(before, told="gpuctl/")
    assert [r for r in seen if "gpuctl/" in r.get("userAgent", "") and r["verb"] in WRITES] == []
    stage.enforce()
    assert run("diff", stage.folder, *stage.where).exit_code == 0


WRITES = {"create", "update", "patch", "delete"}


def test_diff_of_wrong_declarations_is_an_error(run: Run, stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(CLUSTER.replace("gpus: 4}", "gpus: many}"))
    result = run("diff", tmp_path, *stage.where)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "error GPU2" in result.stderr


ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"


@pytest.fixture
def account(stage: Stage) -> Iterator[Any]:
    """`account(*rules)`: a kubeconfig of a ServiceAccount with these rules and no others."""
    made: list[str] = []

    def make(folder: Path, *rules: dict[str, Any]) -> Path:
        name = f"reader-{len(made)}"
        made.append(name)
        plane, core, rbac = stage.plane, ACCOUNTS, "/apis/rbac.authorization.k8s.io/v1"
        plane.call("POST", core, {"metadata": {"name": name}})
        plane.call("POST", f"{rbac}/clusterroles", {"metadata": {"name": name}, "rules": rules})
        subject = {"kind": "ServiceAccount", "name": name, "namespace": "default"}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
        plane.call(
            "POST", f"{rbac}/clusterrolebindings", {"metadata": {"name": name}, "subjects": [subject], "roleRef": role}
        )
        token: str = plane.call("POST", f"{core}/{name}/token", {"spec": {}})["status"]["token"]
        if rules:
            await_rights(plane, token, "default", *(each for rule in rules for each in rule["resources"]))
        path: Path = plane.write_kubeconfig(folder / f"{name}.kubeconfig", token)
        return path

    yield make
    for name in made:
        stage.plane.call("DELETE", f"{ACCOUNTS}/{name}")
        for kind in ("clusterroles", "clusterrolebindings"):
            stage.plane.call("DELETE", f"/apis/rbac.authorization.k8s.io/v1/{kind}/{name}")


JOBS_ONLY = (
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["list"]},
    {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["list"]},
)


def test_a_missing_right_is_named_with_its_rule(run: Run, account: Any, tmp_path: Path) -> None:
    result = run("list", "--kubeconfig", account(tmp_path, *JOBS_ONLY[:1]))
    assert result.exit_code == 2
    assert result.stderr.startswith("error GPU7015: system:serviceaccount:default:reader-0 may not list ")
    assert "verbs: [list]}" in result.stderr


def test_who_may_see_jobs_alone_sees_them_and_is_told_what_is_missing(run: Run, account: Any, tmp_path: Path) -> None:
    where = ("--kubeconfig", account(tmp_path, *JOBS_ONLY))
    result = run("list", "-p", "team-s", *where)
    assert result.exit_code == 0
    assert rows(result.stdout)["train"][1] == "Running"
    assert result.stderr.count("note: GPU7015: ") == 1, "one for all kinds"
    assert re.search("may not list .*nodes.* what these say is left out", result.stderr)
    assert "may not list events in namespace seen-team-s" in run("get", "train", "-p", "team-s", *where).stderr
    refused = run("logs", "train", "-p", "team-s", *where)
    assert "may not get pods/log in namespace seen-team-s" in refused.stderr
    refused = run("exec", "train", "-p", "team-s", *where, "--", "true")
    assert "error GPU7015: " in refused.stderr
    assert "pods/exec in namespace seen-team-s" in refused.stderr


def test_who_may_see_one_namespace_looks_at_it_by_name(run: Run, stage: Stage, account: Any, tmp_path: Path) -> None:
    where = ("--kubeconfig", account(tmp_path))
    grant = {
        "metadata": {"name": "dana"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"kind": "ServiceAccount", "name": "reader-0", "namespace": "default"}],
    }
    stage.plane.call("POST", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/rolebindings", grant)
    token = stage.plane.call("POST", f"{ACCOUNTS}/reader-0/token", {"spec": {}})["status"]["token"]
    await_rights(stage.plane, token, NAMESPACE)
    assert run("list", *where).stderr.splitlines()[-1].startswith("help: -n NAMESPACE ")
    result = run("list", "-n", NAMESPACE, *where)
    assert result.exit_code == 0
    assert result.stdout.startswith(f"Showing jobs in namespace {NAMESPACE}\n")
    assert result.stderr.count("note: ") == 1
    assert set(rows(result.stdout)) >= {"train", "gang", "notebook", "large"}
    assert run("explain", "large", "-n", NAMESPACE, *where).exit_code == 0
    stage.plane.pod_log.write_text("2026-11-21T10:00:00.000000000Z stdout F step\n")
    assert run("logs", "train", "-n", NAMESPACE, *where).exit_code == 0
    assert run("exec", "train", "-n", NAMESPACE, *where, "--", "true").exit_code == 0


def test_diff_names_the_right_it_lacks(run: Run, stage: Stage, account: Any, tmp_path: Path) -> None:
    result = run("diff", stage.folder, "--kubeconfig", account(tmp_path, *JOBS_ONLY))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "may not list " in result.stderr


def test_diff_compares_what_it_may_read_and_finds_no_agreement_of_the_rest(
    run: Run, stage: Stage, account: Any, tmp_path: Path
) -> None:
    read = {kind: info for kind, info in kinds.KINDS.items() if info.observed and kind != kinds.RESOURCE_QUOTA}
    rules = [
        {"apiGroups": [kinds.group_of(kind)], "resources": [info.plural], "verbs": ["list"]}
        for kind, info in read.items()
    ]
    result = run("diff", stage.folder, "--kubeconfig", account(tmp_path, *rules))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("note: not compared: GPU7015: ")
    assert "may not list resourcequotas in the cluster" in result.stderr


def test_who_is_not_known_is_told_so(run: Run, stage: Stage, tmp_path: Path) -> None:
    stranger = stage.plane.write_kubeconfig(tmp_path / "config", "no-such-token")
    for line in (("list",), ("diff", stage.folder), ("top", "node")):
        result = run(*line, "--kubeconfig", stranger)
        assert (result.exit_code, result.stdout) == (2, "")
        assert "error GPU7014: " in result.stderr


def test_a_context_is_chosen_by_name(run: Run, stage: Stage) -> None:
    assert run("list", *stage.where, "--context", "test").exit_code == 0
    wrong = run("list", *stage.where, "--context", "prod")
    assert wrong.exit_code == 2
    assert "has no context named prod; it has test" in wrong.stderr


def test_a_server_that_is_away_is_told_once(run: Run, stage: Stage, tmp_path: Path) -> None:
    away = stage.plane.write_kubeconfig(tmp_path / "config", "token", url="https://127.0.0.1:1")
    result = run("list", "--kubeconfig", away)
    assert result.exit_code == 2
    assert [line.split(":")[0] for line in result.stderr.splitlines()] == ["error GPU7001", "help"]


def test_init_reads_pools_of_the_live_cluster(run: Run, stage: Stage, tmp_path: Path) -> None:
    result = run("init", tmp_path, "--cluster", "live", "--kubeconfig", stage.plane.kubeconfig)
    assert result.exit_code == 0, result.output
    declared = yaml.safe_load((tmp_path / "clusters" / "live" / "cluster.yaml").read_text())
    pools = {pool["name"]: pool for pool in declared["spec"]["nodePools"]}
    assert (pools["seen"]["nodes"], pools["seen"]["gpusPerNode"]) == (["seen-1", "seen-2"], 4)
    assert run("validate", tmp_path / "clusters" / "live").exit_code == 0
