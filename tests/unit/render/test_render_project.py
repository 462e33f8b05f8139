"""What a project and the cluster itself have."""

from typing import Any

from sample import admit, bodies, declared, job, pending, pool, rendered

from gpuctl.k8s import names
from gpuctl.model.decision import Decision
from gpuctl.model.declared import WHOLE_CLUSTER, Allowance, Declared, RoleGrant, Sharing

PLUGIN = (pool(sharing=Sharing.DEVICE_PLUGIN),)
DEVICES = f"{names.DRA_DEVICE_CLASS}.deviceclass.resource.k8s.io/devices"
GPUS = "requests.nvidia.com/gpu"


def hard(cluster: Declared, *decisions: Decision) -> Any:
    return bodies(rendered(cluster, *decisions))["ResourceQuota gpuctl"]["spec"]["hard"]


def limited(limit_milli: int | None) -> dict[str, Any]:
    return {"allowances": {WHOLE_CLUSTER: Allowance(quota_milli=2000, limit_milli=limit_milli)}}


def test_the_clusters_own_objects() -> None:
    manifests = rendered(declared())
    own = [manifest for manifest in manifests.items if manifest.project is None]
    assert [str(manifest.ref) for manifest in own] == [
        "PriorityClass gpuctl-no-preempt",
        "Namespace gpuctl-system",
    ]
    priority = own[0].body
    assert priority["preemptionPolicy"] == "Never"
    assert "globalDefault" not in priority  # the server leaves a false one out


def test_a_projects_namespace() -> None:
    body = bodies(rendered(declared()))["Namespace gpu-team-a"]
    labels = body["metadata"]["labels"]
    assert labels[names.PROJECT_LABEL] == "team-a"
    assert labels[names.CLUSTER_LABEL] == "tr4858"
    assert labels[names.MANAGED_LABEL] == "true"


def test_a_projects_namespace_says_what_the_project_may_have() -> None:
    notes = bodies(rendered(declared(department="research", **limited(6000))))["Namespace gpu-team-a"]["metadata"]
    assert notes["annotations"][names.QUOTA_ANNOTATION] == '{"*":{"limitMilli":6000,"quotaMilli":2000,"weight":0}}'
    assert notes["annotations"][names.DEPARTMENT_ANNOTATION] == "research"


def test_access_is_a_binding_a_role() -> None:
    access = (
        RoleGrant(subject_kind="user", subject="dana", role="edit"),
        RoleGrant(subject_kind="group", subject="team-a", role="edit"),
        RoleGrant(subject_kind="group", subject="all", role="view"),
    )
    manifests = bodies(rendered(declared(access=access)))
    edit = manifests["RoleBinding gpuctl-edit"]
    assert edit["roleRef"] == {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
    assert [(s["kind"], s["name"]) for s in edit["subjects"]] == [("Group", "team-a"), ("User", "dana")]
    assert "RoleBinding gpuctl-view" in manifests


def test_with_the_device_plugin_the_ceiling_is_the_limit_or_all_there_is() -> None:
    assert hard(declared(pools=PLUGIN, **limited(None))) == {GPUS: "16"}
    assert hard(declared(pools=PLUGIN, **limited(2500))) == {GPUS: "3"}
    assert hard(declared(pools=PLUGIN, **limited(0))) == {GPUS: "0"}
    assert hard(declared(pools=PLUGIN, **limited(99_000))) == {GPUS: "16"}


def test_the_ceiling_is_never_below_what_runs() -> None:
    one = job(gpu_milli=2000, workers=2)
    cluster = declared(one, pools=PLUGIN, **limited(1000))
    assert hard(cluster, pending(one)) == {GPUS: "1"}
    assert hard(cluster, admit(one, ("dgx1-1", (0, 1)), ("dgx1-2", (0, 1)))) == {GPUS: "4"}


def test_with_dra_claims_are_bounded_twice_over_and_cpu_jobs_are_not_counted() -> None:
    jobs = [job("a", gpu_milli=500), job("b", gpu_milli=2000, workers=2), job("c", gpu_milli=0, workers=9)]
    assert hard(declared(*jobs), *(pending(one) for one in jobs)) == {GPUS: "0", DEVICES: "10"}


def test_a_cluster_of_both_kinds_bounds_both() -> None:
    pools = (pool(), pool("h100", Sharing.DEVICE_PLUGIN, nodes=1))
    assert hard(declared(pools=pools, **limited(None))) == {GPUS: "8", DEVICES: "0"}


def test_a_project_without_a_claim_on_a_domain_has_no_ceiling_to_speak_of() -> None:
    assert hard(declared(pools=PLUGIN, allowances={})) == {GPUS: "0"}
