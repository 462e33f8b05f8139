"""What a project and the cluster itself have."""

from dataclasses import replace
from typing import Any

import pytest
from sample import TEAM, admit, bodies, declared, job, pending, pool, rendered

from gpuctl.k8s import kinds, names
from gpuctl.model.decision import Decision
from gpuctl.model.declared import WHOLE_CLUSTER, Allowance, Declared, PodSecurity, RoleGrant, Security, Sharing
from gpuctl.model.job import Container, Job, JobType
from gpuctl.model.volumes import (
    NewClaimVolume,
)
from gpuctl.render.bounds import AFFINITY_NAME, CLASSES_NAME
from gpuctl.render.quota import ROOM

PLUGIN = (pool(sharing=Sharing.DEVICE_PLUGIN),)
DEVICES = f"{names.DRA_DEVICE_CLASS}.deviceclass.resource.k8s.io/devices"
GPUS = "requests.nvidia.com/gpu"


def ceilings(cluster: Declared, *decisions: Decision) -> Any:
    return bodies(rendered(cluster, *decisions))["ResourceQuota gpuctl"]["spec"]["hard"]


def hard(cluster: Declared, *decisions: Decision) -> Any:
    """The ceilings of devices."""
    found = ceilings(cluster, *decisions)
    return {name: most for name, most in found.items() if name != "pods" and not name.startswith("count/")}


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


@pytest.mark.parametrize("level", PodSecurity)
def test_a_namespace_enforces_the_level_of_the_cluster_or_of_its_project(level: PodSecurity) -> None:
    for security in (Security(pod_security=level), Security(exceptions={TEAM: level})):
        labels = bodies(rendered(declared(security=security)))["Namespace gpu-team-a"]["metadata"]["labels"]
        assert {key: value for key, value in labels.items() if key.startswith("pod-security")} == {
            "pod-security.kubernetes.io/enforce": level,
            "pod-security.kubernetes.io/enforce-version": "latest",
            "pod-security.kubernetes.io/warn": level,
        }


def test_pods_of_other_classes_and_with_affinity_across_namespaces_are_none() -> None:
    security = Security(priority_classes=("night-shift", "an-afterthought"))
    made = bodies(rendered(declared(security=security)))
    classes = made[f"ResourceQuota {CLASSES_NAME}"]["spec"]
    assert classes["hard"] == {"pods": "0"}
    assert classes["scopeSelector"]["matchExpressions"] == [
        {"scopeName": "PriorityClass", "operator": "Exists"},
        {
            "scopeName": "PriorityClass",
            "operator": "NotIn",
            "values": ["an-afterthought", "gpuctl-no-preempt", "night-shift"],
        },
    ]
    affinity = made[f"ResourceQuota {AFFINITY_NAME}"]["spec"]
    assert affinity["hard"] == {"pods": "0"}
    assert affinity["scopeSelector"]["matchExpressions"] == [
        {"scopeName": "CrossNamespacePodAffinity", "operator": "Exists"}
    ]


@pytest.mark.parametrize("listed", [None, (), ("ingress-nginx", "monitoring")])
def test_pods_are_reached_from_their_own_namespace_and_those_that_the_cluster_lists(
    listed: tuple[str, ...] | None,
) -> None:
    cluster = declared()
    security = replace(cluster.cluster.security, reachable_from=listed)
    made = bodies(rendered(replace(cluster, cluster=replace(cluster.cluster, security=security))))
    found = made.get("NetworkPolicy gpuctl-reachable-from")
    if listed is None:
        assert found is None
        return
    assert found is not None
    others = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [*listed]}
    peers = [{"podSelector": {}}, *([{"namespaceSelector": {"matchExpressions": [others]}}] if listed else [])]
    assert found["spec"] == {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{"from": peers}]}
    assert found["metadata"]["namespace"] == "gpu-team-a"


def own_objects(jobs: list[Job]) -> dict[str, int]:
    """What two runs of each job may have at a time, by the names of the ceilings."""
    workers, served = sum(one.workers for one in jobs), sum(one.type is JobType.INFERENCE for one in jobs)
    return {
        "pods": 2 * workers,
        "count/jobs.batch": 2 * (len(jobs) - served),
        "count/deployments.apps": 2 * served,
        "count/replicasets.apps": 22 * served,
        "count/horizontalpodautoscalers.autoscaling": 2 * served,
        "count/services": 4 * len(jobs),
        "count/ingresses.networking.k8s.io": 2 * len(jobs),
        "count/persistentvolumeclaims": 2 * len(jobs),
        "count/resourceclaims.resource.k8s.io": 2 * workers,
        "count/resourceclaimtemplates.resource.k8s.io": 2 * len(jobs),
    }


@pytest.mark.parametrize("count", [0, 1, ROOM // 2, ROOM // 2 + 1, 3 * ROOM, 2000])
@pytest.mark.parametrize("kind", [JobType.TRAINING, JobType.INFERENCE])
def test_ceilings_of_objects_leave_room_for_every_run_twice_and_for_people(count: int, kind: JobType) -> None:
    claim = Container(image="i", volumes=(NewClaimVolume(size_bytes=1, storage_class=None, mount_path="/m"),))
    jobs = [job(f"j{number}", type=kind, workers=1 + number % 3, container=claim) for number in range(count)]
    found = ceilings(declared(*jobs), *(pending(one) for one in jobs))
    for name, own in own_objects(jobs).items():
        assert own + ROOM <= int(found[name]) <= own + 2 * ROOM


def test_all_that_a_cycle_reads_and_a_tenant_can_make_has_a_ceiling() -> None:
    found = ceilings(declared())
    not_theirs = {kinds.CONFIG_MAP, kinds.RESOURCE_QUOTA}  # the one is read in gpuctl-system alone
    for api_version, kind in {*kinds.OBSERVED} - kinds.CLUSTER_SCOPED - not_theirs:
        group, plural = api_version.rpartition("/")[0], kinds.KINDS[api_version, kind].plural
        counted = "pods" if kind == "Pod" else f"count/{plural}.{group}" if group else f"count/{plural}"
        assert int(found[counted]) >= ROOM


def test_ceilings_of_objects_stay_while_jobs_come_one_by_one() -> None:
    seen = set()
    for count in range(200):
        jobs = [job(f"j{number}") for number in range(count)]
        found = ceilings(declared(*jobs), *(pending(one) for one in jobs))
        seen.add(tuple(most for name, most in found.items() if name == "pods" or name.startswith("count/")))
    assert len(seen) == 2  # Services are counted twice a job


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
