"""`gpuctl install` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import Run

from gpuctl.cli.reconcile import reconcile
from gpuctl.install import UNGUARDED
from gpuctl.install.workload import BASE_MIB, JOB_KIB, NODE_KIB

HTTPS = ("--repo", "https://git.example.com/gpus.git", "--path", "clusters/tr4858")


def test_both_forms_are_the_same_objects(run: Run) -> None:
    told = run("install", *HTTPS, "--guard")
    assert told.exit_code == 0
    listed = json.loads(run("install", *HTTPS, "--guard", "-o", "json").stdout)
    assert listed["items"] == list(yaml.safe_load_all(told.stdout))
    assert listed["items"][0]["kind"] == "Namespace"


def test_what_only_the_guard_stops_is_said_where_it_is_left_out(run: Run) -> None:
    for more, said in (((), True), (("--guard",), False)):
        told = run("install", *HTTPS, "--image", "registry.example.com/gpuctl:1", *more)
        bodies = list(yaml.safe_load_all(told.stdout))
        (deployment,) = (body for body in bodies if body["kind"] == "Deployment")
        description = deployment["metadata"].get("annotations", {}).get("kubernetes.io/description", "")
        assert (UNGUARDED in description, told.stderr) == ((True, f"note: {UNGUARDED}\n") if said else (False, ""))


def test_without_an_image_the_name_that_no_registry_has_is_told(run: Run) -> None:
    told = run("install", *HTTPS, "--guard")
    assert told.stderr == (
        "note: without --image the Deployment runs gpuctl:0.1.0, which no registry has: build it with the Dockerfile, "
        "push it, and name it with --image\n"
    )


def test_the_pod_is_called_as_reconcile_is(run: Run) -> None:
    """The command line is parsed, not run."""
    given = ("--branch", "main", "--write-qps", "50", "--write-burst", "80")
    items = json.loads(run("install", *HTTPS, *given, "-o", "json").stdout)["items"]
    (deployment,) = (item for item in items if item["kind"] == "Deployment")
    name, *arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    assert name == "reconcile"
    parsed = reconcile.make_context(name, arguments).params
    assert (parsed["branch"], parsed["metrics_address"]) == ("main", "0.0.0.0:8080")
    assert (parsed["write_qps"], parsed["write_burst"]) == (50, 80)


def test_keys_of_those_who_may_sign_are_mounted_where_reconcile_reads_them(run: Run, tmp_path: Path) -> None:
    keys = tmp_path / "signers"
    keys.write_text("ann@x ssh-ed25519 AAAA\n")
    given = ("--verify-signatures", "head", "--allowed-signers", str(keys))
    items = json.loads(run("install", *HTTPS, *given, "-o", "json").stdout)["items"]
    (signers,) = (item for item in items if item["metadata"]["name"] == "gpuctl-signers")
    (pod,) = (item["spec"]["template"]["spec"] for item in items if item["kind"] == "Deployment")
    (container,) = pod["containers"]
    (mount,) = (mount for mount in container["volumeMounts"] if mount["name"] == "signers")
    parsed = reconcile.make_context("reconcile", container["args"][1:]).params
    assert parsed["verify_signatures"] == "head"
    folder, _, name = parsed["allowed_signers"].rpartition("/")
    assert (folder, signers["data"][name]) == (mount["mountPath"], keys.read_text())
    assert parsed["openpgp_keys"] is None


def test_the_network_policy_has_the_api_servers_port_and_the_namespace_that_reads_metrics(run: Run) -> None:
    def policy(*more: str) -> dict[str, Any]:
        items = json.loads(run("install", *HTTPS, *more, "-o", "json").stdout)["items"]
        (found,) = (item["spec"] for item in items if item["kind"] == "NetworkPolicy")
        return dict(found)

    def ports(spec: dict[str, Any]) -> list[int]:
        return [port["port"] for rule in spec["egress"][1:] for port in rule["ports"]]

    assert (ports(policy()), ports(policy("--api-port", "16443"))) == ([443, 6443, 443], [443, 16443, 443])
    (rule,) = policy("--monitoring-namespace", "prometheus")["ingress"]
    by_name = {"matchLabels": {"kubernetes.io/metadata.name": "prometheus"}}
    assert rule["from"] == [{"namespaceSelector": by_name}]
    assert "from" not in policy("--monitoring-namespace", "")["ingress"][0]


def test_the_dashboard_has_a_service_a_policy_and_a_secret_and_none_of_them_without_it(run: Run) -> None:
    def items(*more: str) -> list[dict[str, Any]]:
        return list(json.loads(run("install", *HTTPS, *more, "-o", "json").stdout)["items"])

    named = [item for item in items("--dashboard", "--proxy-namespace", "sso") if _is_named(item, "gpuctl-dashboard")]
    kinds = {item["kind"]: item for item in named}
    assert set(kinds) == {"Service", "NetworkPolicy", "Secret"}
    (rule,) = kinds["NetworkPolicy"]["spec"]["ingress"]
    assert rule["from"] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "sso"}}}]
    assert rule["ports"] == [{"port": 8083, "protocol": "TCP"}]
    assert "data" not in kinds["Secret"]
    (pod,) = (item["spec"]["template"]["spec"] for item in items("--dashboard") if item["kind"] == "Deployment")
    (container,) = pod["containers"]
    (own,) = (each["name"] for each in container["env"] if "fieldRef" in each.get("valueFrom", {}))
    words = [word.replace(f"$({own})", "10.1.2.3") for word in container["args"][1:]]
    parsed = reconcile.make_context("reconcile", words).params
    assert parsed["dashboard_pod_ip"] == "10.1.2.3"
    assert "selector" not in kinds["Service"]["spec"], "the leader says where it leads"
    (mount,) = (mount for mount in container["volumeMounts"] if mount["name"] == "dashboard")
    assert (parsed["dashboard_address"], parsed["dashboard_secret"].rpartition("/")[0]) == (
        "0.0.0.0:8083", mount["mountPath"],
    )  # fmt: skip
    assert not [item for item in items() if _is_named(item, "gpuctl-dashboard")]


def _is_named(item: dict[str, Any], name: str) -> bool:
    return bool(item["metadata"]["name"] == name)


@pytest.mark.parametrize(
    ("jobs", "nodes", "limit_mib"), [(10_000, 1_000, 1216), (1, 1, 320), (500, 20, 320), (100_000, 5_000, 7296)]
)
def test_the_memory_limit_is_that_of_the_declared_size_and_says_so(
    run: Run, jobs: int, nodes: int, limit_mib: int
) -> None:
    items = json.loads(run("install", *HTTPS, "--jobs", str(jobs), "--nodes", str(nodes), "-o", "json").stdout)["items"]
    (deployment,) = (item for item in items if item["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"memory": f"{limit_mib}Mi"}
    assert container["resources"]["requests"]["memory"] == f"{limit_mib // 2}Mi"
    told = deployment["metadata"]["annotations"]["kubernetes.io/description"]
    assert told.startswith(f"The memory limit of {limit_mib}Mi is for {jobs} declared jobs on {nodes} nodes: ")
    assert f"{BASE_MIB}Mi, {JOB_KIB}Ki a job and {NODE_KIB}Ki a node" in told
    helped = " ".join(run("install", "--help").stdout.split())
    assert f"{BASE_MIB}Mi, {JOB_KIB}Ki a job and {NODE_KIB}Ki a node" in helped


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--repo", "/srv/gpus.git", "--path", "c"), "--repo"),
        (("--repo", "https://user:secret@git.example.com/gpus.git", "--path", "c"), "--repo"),
        (("--repo", "https://git.example.com:99999/gpus.git", "--path", "c"), "--repo"),
        (("--repo", "http://git.example.com/gpus.git", "--path", "c"), "--repo"),
        (("--repo", "git@git.example.com:-x", "--path", "c"), "--repo"),
        (("--repo", "git@git.example.com:x", "--path", "../c"), "--path"),
        (("--repo", "git@git.example.com:x", "--path", "/c"), "--path"),
        ((*HTTPS, "--cluster-prefix", "GPU'"), "--cluster-prefix"),
        ((*HTTPS, "--access-role", "a b"), "--access-role"),
        ((*HTTPS, "--image", "-x"), "--image"),
        ((*HTTPS, "--replicas", "0"), "--replicas"),
        ((*HTTPS, "--api-port", "0"), "--api-port"),
        ((*HTTPS, "--monitoring-namespace", "a b"), "--monitoring-namespace"),
        ((*HTTPS, "--proxy-namespace", "a b"), "--proxy-namespace"),
        ((*HTTPS, "--controller", "a'b"), "--controller"),
        ((*HTTPS, "--write-qps", "0"), "--write-qps"),
        ((*HTTPS, "--jobs", "0"), "--jobs"),
        ((*HTTPS, "--nodes", "many"), "--nodes"),
        (("--path", "c"), "--repo"),
        ((*HTTPS, "--verify-signatures"), "needs the keys that may sign"),
        ((*HTTPS, "--allowed-signers", "keys"), "--verify-signatures"),
        ((*HTTPS, "--verify-signatures", "each", "--openpgp-keys", "nothing"), "No such file"),
    ],
)
def test_what_could_not_work_is_refused(run: Run, options: tuple[str, ...], words: str) -> None:
    refused = run("install", *options)
    assert refused.exit_code == 2
    assert "GPU9002" in refused.stderr
    assert words in refused.stderr


RULE = """\
apiVersion: gpuctl.dev/v1
kind: Policy
metadata: {name: NAME}
spec:
  match: {kind: KIND}
  severity: warning
  message: |
    On two
    lines.
  RULE
"""


def rule(name: str, text: str, kind: str = "Job") -> str:
    return RULE.replace("NAME", name).replace("KIND", kind).replace("RULE", text)


def test_a_mistake_in_an_option_is_told_before_a_cluster_is_asked(run: Run, tmp_path: Path) -> None:
    found = run("install", "--repo", "/srv/gpus.git", "--path", "c", "--kubeconfig", str(tmp_path / "none"))
    assert (found.exit_code, found.stderr.splitlines()[0]) == (
        2, "error GPU9002: --repo '/srv/gpus.git' is not an https or ssh URL"
    )  # fmt: skip


def test_policies_become_admission_policies_and_the_others_are_named_with_the_reason(run: Run, tmp_path: Path) -> None:
    rules = {
        "image": ("cel: object.spec.image != 'x'", "Job"),
        "total": ("cel: total.gpus <= 8", "Job"),
        "change": ("cel: old == null || object.spec.image == old.spec.image", "Job"),
        "whole": ("cel: object.spec != null", "Job"),
        "project": ("cel: project.held <= 8", "Job"),
        "owners": ("cel: size(object.spec.owners) > 0", "Project"),
        "shape": ("schema: {properties: {spec: {additionalProperties: false}}}", "Job"),
        "either": ("schema: {properties: {spec: {properties: {args: {minItems: 1}}}}}", "Job"),
        "mixed": ("cel: \"object.spec.image in [1, 'x']\"", "Job"),
    }
    (tmp_path / "rules.yaml").write_text("---\n".join(rule(name, text, kind) for name, (text, kind) in rules.items()))
    (tmp_path / "projects" / "a").mkdir(parents=True)
    (tmp_path / "projects" / "a" / "own.yaml").write_text(rule("own", "cel: object.spec.image != 'x'"))
    told = run("install", *HTTPS, "--image", "x", "--guard", "--policies", tmp_path, "-o", "json")
    assert told.exit_code == 0
    hidden = "which no pod or workload shows as it is declared"
    assert [line.removeprefix("note: policy ") for line in told.stderr.splitlines()] == [
        "change is checked in Git alone: it reads old: it is about a change in Git",
        "either is checked in Git alone: no pod shows whether object.spec.args is left out or []",
        "mixed is checked in Git alone: it has a list or mapping of several types, which the API server refuses",
        'own is checked in Git alone: it is project "a"\'s own',
        f"owners is checked in Git alone: it is about a Project, {hidden}",
        f"project is checked in Git alone: it reads project.held, {hidden}",
        'shape is checked in Git alone: its schema has "additionalProperties", which is not translated to CEL',
        f"total is checked in Git alone: it reads total.gpus, {hidden}",
        f"whole is checked in Git alone: it reads object.spec, {hidden}",
    ]
    items = json.loads(told.stdout)["items"]
    made = {
        (item["kind"], item["metadata"]["name"]): item["spec"] for item in items if "rule" in item["metadata"]["name"]
    }
    assert [name for _, name in made] == ["gpuctl-rule-image"] * 2
    policy, binding = made.values()
    assert binding == {"policyName": "gpuctl-rule-image", "validationActions": ["Warn"]}
    assert policy["validations"][0]["message"] == 'On two lines. (policy "image")'


def test_what_declarations_break_is_no_matter_of_the_installation(run: Run, cluster: Path) -> None:
    (cluster / "rules.yaml").write_text(rule("image", "cel: object.spec.image == 'nobody/has:it'"))
    told = run("install", *HTTPS, "--image", "x", "--guard", "--policies", cluster, "-o", "json")
    assert (told.exit_code, told.stderr, "gpuctl-rule-image" in told.stdout) == (0, "", True)


def test_policies_need_the_guard_and_no_mistakes(run: Run, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(rule("image", "cel: object.spec.imag != 'x'"))
    without = run("install", *HTTPS, "--policies", tmp_path)
    assert (without.exit_code, "--guard" in without.stderr) == (2, True)
    wrong = run("install", *HTTPS, "--guard", "--policies", tmp_path)
    assert (wrong.exit_code, wrong.stdout, "GPU4007" in wrong.stderr) == (1, "", True)
