"""What `gpuctl install` prints, on a real API server: it is taken, gpuctl works with it, and people can't pass it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from controlplane.known import await_policies
from controlplane.server import ADMIN, ControlPlane
from unattended import account_token, at_last

from gpuctl.adapters.clock import SystemClock, VirtualClock
from gpuctl.adapters.embedded import EmbeddedCluster
from gpuctl.adapters.kubernetes.cluster import KubernetesCluster
from gpuctl.adapters.kubernetes.connection import connect
from gpuctl.adapters.kubernetes.machines import played
from gpuctl.adapters.kubernetes.paths import collection
from gpuctl.app.cycle import CycleContext, converge
from gpuctl.app.object_cache import ObjectCache
from gpuctl.compile import compile_tree
from gpuctl.install import Installation, all_objects
from gpuctl.install.guard import MAKERS
from gpuctl.k8s import kinds
from gpuctl.k8s.objects import ref_of
from gpuctl.model.declared import Declared
from gpuctl.model.source import SourceFile, SourceTree
from gpuctl.model.state import Body

WANTED = Installation(
    image="registry.example.com/gpuctl:1",
    repo="ssh://git@git.example.com/gpus.git",
    path="c",
    guard=True,
    controllers=("controllers.example",),
)
FILES = {
    "cluster.yaml": "kind: Cluster\nmetadata: {name: one}\nspec:\n  nodePools:\n"
    "  - {name: p, nodes: [n1], gpusPerNode: 4, gpuMemory: 32Gi, gpuProduct: Tesla, sharing: device-plugin}\n",
    "a.yaml": "kind: Project\nmetadata: {name: a}\nspec:\n  quota: 4\n  access: [{group: people, role: edit}]\n",
    "train.yaml": "kind: Job\nmetadata: {name: train, project: a}\nspec: {image: x, gpus: 1}\n",
    "serve.yaml": "kind: Job\nmetadata: {name: serve, project: a}\nspec: {type: inference, image: x, gpus: 1}\n",
}
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
PODS = "/api/v1/namespaces/gpu-a/pods"
JOBS = "/apis/batch/v1/namespaces/gpu-a/jobs"
APPS = "/apis/apps/v1/namespaces/gpu-a"
MERGE = "application/merge-patch+json"
MARKS = {"gpuctl.dev/project": "a", "gpuctl.dev/job": "train"}


def declared() -> Declared:
    tree = {
        f"c/{path}": SourceFile(content=f"apiVersion: gpuctl.dev/v1\n{text}".encode()) for path, text in FILES.items()
    }
    compiled = compile_tree(SourceTree(cluster_dir="c", files=tree))
    assert compiled.declared is not None, compiled.diagnostics
    return compiled.declared


def path_of(body: Body) -> str:
    ref = ref_of(body)
    more = {"PodDisruptionBudget": "poddisruptionbudgets", "NetworkPolicy": "networkpolicies"}
    if ref.kind in more:
        return f"/apis/{ref.api_version}/namespaces/{ref.namespace}/{more[ref.kind]}/{ref.name}"
    return f"{collection((ref.api_version, ref.kind), ref.namespace)}/{ref.name}"


@dataclass
class Installed:
    """A control plane with gpuctl's manifests, one node, and gpuctl's account, with which its jobs were started."""

    plane: ControlPlane
    token: str = ""
    dry: dict[str, Body] = field(default_factory=dict)

    def refusal(self, method: str, path: str, body: object = None, *, token: str = ADMIN, media: str = "") -> str:
        """The server's words, which must be a 403."""
        refused = self.plane.refused(method, path, body, token=token, media=media)
        if refused is None:
            return "it was taken"
        code, said = refused
        assert code == 403, said
        return said

    def only(self, path: str, label: str) -> Any:
        (one,) = self.plane.call("GET", f"{path}?labelSelector=gpuctl.dev/job={label}")["items"]
        return one


@pytest.fixture(scope="module")
def installed(new_control_plane: Callable[[], ControlPlane], tmp_path_factory: pytest.TempPathFactory) -> Installed:
    made = Installed(new_control_plane())
    apply(made)
    give_a_node(made.plane)
    made.token = account_token(made.plane)
    await_policies(made.plane)
    run_gpuctl(made, tmp_path_factory.mktemp("gpuctl"))
    return made


def apply(made: Installed) -> None:
    """All of it for the record, first as a dry run; then all but the Deployment, whose pods could not do anything."""
    bodies = all_objects(WANTED)
    call = made.plane.call
    call("PATCH", f"{path_of(bodies[0])}?fieldManager=kubectl", bodies[0])
    for body in bodies:
        made.dry[f"{ref_of(body).kind} {ref_of(body).name}"] = call(
            "PATCH", f"{path_of(body)}?fieldManager=kubectl&dryRun=All&fieldValidation=Strict", body
        )
    for body in bodies:
        if body["kind"] != "Deployment":
            call("PATCH", f"{path_of(body)}?fieldManager=kubectl", body)


def give_a_node(plane: ControlPlane) -> None:
    machines = EmbeddedCluster(VirtualClock(0))
    machines.provide(declared().cluster.pools)
    (node,) = machines.list(kinds.NODE).items
    machines.close()
    plane.call("POST", "/api/v1/nodes", played(node))


def run_gpuctl(made: Installed, folder: Path) -> None:
    """Gpuctl's cycles with its account's token, until its jobs run."""
    kubeconfig = made.plane.write_kubeconfig(folder / "kubeconfig", made.token)
    connection = connect(str(kubeconfig))
    with closing(connection), closing(KubernetesCluster(connection)) as cluster:
        context = CycleContext(object_cache=ObjectCache(cluster), clock=SystemClock())
        faults: list[str] = []

        def runs() -> bool:
            reports = converge(declared(), context)
            faults[:] = [outcome.error for outcome in reports[-1].faults]
            pods = [] if faults else made.plane.call("GET", PODS)["items"]
            return len([each for each in pods if each["status"].get("phase") == "Running"]) == 2

        at_last(runs, lambda: faults)


def pod(*, gpus: int = 0, marks: Mapping[str, str] | None = None, **more: Any) -> dict[str, Any]:
    """A pod as a person writes it; `container` and `spec` and `annotations` add to it."""
    container: dict[str, Any] = {"name": "main", "image": "x", **more.get("container", {})}
    if gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
    return {
        "metadata": {"generateName": "by-hand-", "labels": marks or {}, "annotations": more.get("annotations", {})},
        "spec": {"restartPolicy": "Never", "containers": [container], **more.get("spec", {})},
    }


def template(marks: Mapping[str, str] | None = None, gpus: int = 0, restart: str = "Always") -> dict[str, Any]:
    made = pod(gpus=gpus)
    return {
        "metadata": {"labels": {"app": "x", **(marks or {})}},
        "spec": {**made["spec"], "restartPolicy": restart},
    }


def workload(name: str, marks: Mapping[str, str] | None = None, gpus: int = 0, **more: Any) -> dict[str, Any]:
    selector = {"selector": {"matchLabels": {"app": "x"}}}
    return {"metadata": {"name": name}, "spec": {**selector, "template": template(marks, gpus), **more}}


def job(
    name: str, *, on_job: Mapping[str, str] | None = None, marks: Mapping[str, str] | None = None, gpus: int = 0
) -> Any:
    spec = {"template": template(marks, gpus, "Never"), "backoffLimit": 0}
    return {"metadata": {"name": name, "labels": on_job or {}}, "spec": spec}


def env(value: str) -> dict[str, Any]:
    return {"container": {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": value}]}}


def limits(resource: str) -> dict[str, Any]:
    return {"container": {"resources": {"limits": {resource: "1"}}}}


def test_the_server_takes_all_of_it_as_it_is(installed: Installed) -> None:
    assert set(installed.dry) >= {"Deployment gpuctl", "NetworkPolicy gpuctl", "PodDisruptionBudget gpuctl"}
    assert len(installed.dry) == len(all_objects(WANTED))


def test_the_server_finds_no_mistake_in_the_policies(installed: Installed) -> None:
    policies = sum(body["kind"] == "ValidatingAdmissionPolicy" for body in all_objects(WANTED))

    def looked_at() -> bool:
        items = installed.plane.call("GET", POLICIES)["items"]
        return len(items) == policies and all("typeChecking" in item.get("status", {}) for item in items)

    at_last(looked_at)
    for item in installed.plane.call("GET", POLICIES)["items"]:
        assert item["status"]["typeChecking"] == {}, item["metadata"]["name"]


def test_pods_of_the_deployment_are_within_the_namespaces_security_level(installed: Installed) -> None:
    spec = installed.dry["Deployment gpuctl"]["spec"]["template"]
    made = {"metadata": {"name": "gpuctl-0", "labels": spec["metadata"]["labels"]}, "spec": spec["spec"]}
    taken = installed.plane.call("POST", "/api/v1/namespaces/gpuctl-system/pods?dryRun=All", made)
    assert taken["spec"]["containers"][0]["securityContext"]["readOnlyRootFilesystem"]
    loose = {**made, "spec": {**spec["spec"], "securityContext": {}}}
    assert "restricted" in installed.refusal("POST", "/api/v1/namespaces/gpuctl-system/pods?dryRun=All", loose)


def test_credentials_that_were_filled_in_stay_when_it_is_applied_again(installed: Installed) -> None:
    path = "/api/v1/namespaces/gpuctl-system/secrets/gpuctl-git"
    secret = next(body for body in all_objects(WANTED) if body["kind"] == "Secret")
    filled = {
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "gpuctl-git"}, "type": "Opaque",
        "data": {"known_hosts": "eA=="},
    }  # fmt: skip
    installed.plane.call("PATCH", f"{path}?fieldManager=git-credentials", filled)
    installed.plane.call("PATCH", f"{path}?fieldManager=kubectl", secret)
    assert installed.plane.call("GET", path)["data"] == {"known_hosts": "eA=="}


REFUSED_PODS = {
    "with a GPU": (pod(gpus=1), "GPUs are asked for in Git"),
    "with a GPU and gpuctl's labels": (pod(gpus=1, marks=MARKS), "gpuctl"),
    "with gpuctl's labels": (pod(marks=MARKS), "written by gpuctl only"),
    "with a MIG profile": (pod(**limits("nvidia.com/mig-1g.5gb")), "GPUs are asked for in Git"),
    "with a device class as a resource": (
        pod(**limits("deviceclass.resource.kubernetes.io/gpu.nvidia.com")), "GPUs are asked for in Git",
    ),
    "with a claim": (
        pod(spec={"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]}), "claimed in Git",
    ),
    "with all devices visible": (pod(**env("all")), "NVIDIA_VISIBLE_DEVICES"),
    "with HAMi's annotation": (pod(annotations={"hami.io/vgpu-devices-allocated": "x"}), "annotations that give"),
    "privileged": (pod(container={"securityContext": {"privileged": True}}), "privileged"),
    "with a GPU runtime": (pod(spec={"runtimeClassName": "nvidia"}), "runtime class"),
    "past the scheduler": (pod(spec={"nodeName": "n1"}), "past the scheduler"),
    "with a GPU in an init container": (
        pod(spec={"initContainers": [{"name": "i", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}),
        "GPUs are asked for in Git",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED_PODS)
def test_a_person_starts_no_pod(case: str, installed: Installed) -> None:
    body, words = REFUSED_PODS[case]
    if "runtimeClassName" in body["spec"]:
        runtime = {"metadata": {"name": "nvidia"}, "handler": "nvidia"}
        installed.plane.call("POST", "/apis/node.k8s.io/v1/runtimeclasses", runtime)
    assert words in installed.refusal("POST", PODS, body)


def jobs_of(marks: Mapping[str, str]) -> dict[str, Any]:
    return {"schedule": "0 0 * * *", "jobTemplate": {"spec": {"template": template(marks, 1, "Never")}}}


REFUSED_WORKLOADS = {
    "a Job with gpuctl's labels": (JOBS, job("x", on_job=MARKS, gpus=1)),
    "a Job of pods with gpuctl's labels": (JOBS, job("x", marks=MARKS, gpus=1)),
    "a CronJob of such Jobs": (
        "/apis/batch/v1/namespaces/gpu-a/cronjobs", {"metadata": {"name": "x"}, "spec": jobs_of(MARKS)},
    ),
    "a Deployment": (f"{APPS}/deployments", workload("x", MARKS, 1)),
    "a ReplicaSet": (f"{APPS}/replicasets", workload("x", MARKS, 1)),
    "a StatefulSet": (f"{APPS}/statefulsets", workload("x", MARKS, 1, serviceName="x")),
    "a DaemonSet": (f"{APPS}/daemonsets", workload("x", MARKS, 1)),
    "a ReplicationController": (
        "/api/v1/namespaces/gpu-a/replicationcontrollers",
        {"metadata": {"name": "x"}, "spec": {"selector": {"app": "x"}, "template": template(MARKS, 1)}},
    ),
    "a claim template with gpuctl's labels": (
        "/apis/resource.k8s.io/v1/namespaces/gpu-a/resourceclaimtemplates",
        {"metadata": {"name": "x", "labels": MARKS}, "spec": {"spec": {"devices": {"requests": [
            {"name": "gpu", "exactly": {"deviceClassName": "x", "allocationMode": "ExactCount", "count": 1}}]}}}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED_WORKLOADS)
def test_a_person_makes_nothing_with_gpuctls_labels(case: str, installed: Installed) -> None:
    path, body = REFUSED_WORKLOADS[case]
    assert "declare the job in Git" in installed.refusal("POST", path, body)


def test_a_persons_job_has_pods_without_gpus_only(installed: Installed) -> None:
    def pods(name: str) -> list[Any]:
        found: list[Any] = installed.plane.call("GET", f"{PODS}?labelSelector=job-name={name}")["items"]
        return found

    def events() -> str:
        return json.dumps(installed.plane.call("GET", "/api/v1/namespaces/gpu-a/events"))

    installed.plane.call("POST", JOBS, job("greedy", gpus=1))
    installed.plane.call("POST", JOBS, job("modest"))
    at_last(lambda: pods("modest"))
    at_last(lambda: "GPUs are asked for in Git" in events())
    assert pods("greedy") == []
    for deployment in (workload("greedy", gpus=1), workload("modest")):
        installed.plane.call("POST", f"{APPS}/deployments", deployment)


def test_what_needs_no_gpu_is_nobodys_business(installed: Installed) -> None:
    for body in (pod(), pod(**env("void")), pod(container={"resources": {"limits": {"cpu": "1"}}})):
        installed.plane.call("POST", f"{PODS}?dryRun=All", body)
    installed.plane.call("POST", "/api/v1/namespaces/default/pods?dryRun=All", pod(gpus=1))


def test_gpuctls_own_objects_are_changed_in_git_only(installed: Installed) -> None:
    def patch(path: str, change: object) -> str:
        return installed.refusal("PATCH", path, change, media=MERGE)

    train, serve = installed.only(JOBS, "train"), installed.only(f"{APPS}/deployments", "serve")
    path, name = f"{JOBS}/{train['metadata']['name']}", serve["metadata"]["name"]
    assert "change its declaration" in patch(path, {"spec": {"suspend": True}})
    assert "written by gpuctl only" in patch(path, {"metadata": {"labels": {"gpuctl.dev/job": None}}})
    assert "written by gpuctl only" in patch(path, {"metadata": {"annotations": {"gpuctl.dev/queued-at": "2000"}}})
    assert "change its replicas" in patch(f"{APPS}/deployments/{name}/scale", {"spec": {"replicas": 3}})
    assert "change its declaration" in patch(f"{APPS}/deployments/{name}", {"spec": {"replicas": 3}})
    noted = installed.plane.call("PATCH", path, {"metadata": {"annotations": {"mine": "x"}}}, media=MERGE)
    assert noted["metadata"]["annotations"]["mine"] == "x"
    running = f"{PODS}/{installed.only(PODS, 'train')['metadata']['name']}"
    debug = {"name": "look", "image": "x", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
    body = {"spec": {"ephemeralContainers": [debug]}}
    strategic = "application/strategic-merge-patch+json"
    path = f"{running}/ephemeralcontainers"
    assert "NVIDIA_VISIBLE_DEVICES" in installed.refusal("PATCH", path, body, media=strategic)
    installed.plane.call(
        "PATCH", path, {"spec": {"ephemeralContainers": [{"name": "look", "image": "x"}]}}, media=strategic
    )


OWN = "system:serviceaccount:kube-system:{}".format


def admitted(installed: Installed, user: str, method: str, path: str, body: object = None) -> str:
    """The server's refusal of what a user does who has all rights, as a dry run; "" where it is taken."""
    name = f"all-rights-of-{user.replace(':', '-')}"
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }
    with suppress(HTTPError):  # bound before
        installed.plane.call("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
    media = MERGE if method == "PATCH" else ""

    def said() -> str:
        refused = installed.plane.refused(method, f"{path}?dryRun=All", body, user=user, media=media)
        return refused[1] if refused else ""

    at_last(lambda: f'User "{user}" cannot' not in said())  # until the rights are known
    return said()


@pytest.mark.parametrize("user", [*MAKERS[1:], "controllers.example"])
def test_the_controllers_of_the_control_plane_make_the_pods_of_gpuctls_jobs(user: str, installed: Installed) -> None:
    assert admitted(installed, user, "POST", PODS, pod(gpus=1, marks=MARKS)) == ""
    assert "GPUs are asked for in Git" in admitted(installed, user, "POST", PODS, pod(gpus=1))


def test_a_user_with_all_rights_is_no_controller(installed: Installed) -> None:
    assert "gpuctl" in admitted(installed, "ann", "POST", PODS, pod(gpus=1, marks=MARKS))


@pytest.mark.parametrize("user", [OWN("generic-garbage-collector"), "system:kube-controller-manager"])
def test_what_clears_up_may_take_owners_and_finalizers_away(user: str, installed: Installed) -> None:
    job, running = installed.only(JOBS, "train"), installed.only(PODS, "train")
    for path, body in ((JOBS, job), (PODS, running)):
        away = {"metadata": {"ownerReferences": None, "finalizers": None}}
        assert admitted(installed, user, "PATCH", f"{path}/{body['metadata']['name']}", away) == ""


@pytest.mark.parametrize(
    "user", [OWN("namespace-controller"), OWN("pod-garbage-collector"), OWN("ttl-after-finished-controller")]
)
def test_what_clears_up_may_delete(user: str, installed: Installed) -> None:
    for path in (JOBS, PODS):
        assert admitted(installed, user, "DELETE", f"{path}/{installed.only(path, 'train')['metadata']['name']}") == ""


def test_a_pod_is_not_given_gpuctls_labels_afterwards(installed: Installed) -> None:
    made = installed.plane.call("POST", PODS, pod())
    path = f"{PODS}/{made['metadata']['name']}"
    assert "written by gpuctl only" in installed.refusal("PATCH", path, {"metadata": {"labels": MARKS}}, media=MERGE)


def stuff(kind: kinds.Kind, name: str, **more: Any) -> dict[str, Any]:
    return {"apiVersion": kind[0], "kind": kind[1], "metadata": {"name": name}, **more}


A_JOB = stuff(kinds.JOB, "x", spec={"template": template(restart="Never")})
SECRETIVE = {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}}
OUT_OF_BOUNDS = {
    "a Job in a namespace of others": ("PATCH", "/apis/batch/v1/namespaces/default/jobs/x", A_JOB),
    "a Job beside gpuctl's secrets": ("PATCH", "/apis/batch/v1/namespaces/gpuctl-system/jobs/x", A_JOB),
    "a namespace of another name": ("PATCH", "/api/v1/namespaces/other", stuff(kinds.NAMESPACE, "other")),
    "its own namespace's end": ("DELETE", "/api/v1/namespaces/gpuctl-system", None),
    "the cluster's own priorities": (
        "PATCH", "/apis/scheduling.k8s.io/v1/priorityclasses/x", stuff(kinds.PRIORITY_CLASS, "x", value=1),
    ),
    "a role that was not given to it": (
        "PATCH", "/apis/rbac.authorization.k8s.io/v1/namespaces/gpu-a/rolebindings/x",
        stuff(kinds.ROLE_BINDING, "x", **SECRETIVE),
    ),
    "a project's secrets": ("GET", "/api/v1/namespaces/gpu-a/secrets", None),
    "its own credentials": ("GET", "/api/v1/namespaces/gpuctl-system/secrets/gpuctl-git", None),
    "config of a project": ("GET", "/api/v1/namespaces/gpu-a/configmaps", None),
    "its own rights": ("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles/gpuctl", None),
    "its own policies": ("DELETE", f"{POLICIES}/gpuctl-stays-home", None),
    "a node": ("DELETE", "/api/v1/nodes/n1", None),
    "a pod": ("DELETE", f"{PODS}/x", None),
}  # fmt: skip


@pytest.mark.parametrize("case", OUT_OF_BOUNDS)
def test_gpuctls_account_may_not_touch(case: str, installed: Installed) -> None:
    method, path, body = OUT_OF_BOUNDS[case]
    query = "?fieldManager=gpuctl&force=true" if method == "PATCH" else ""
    assert installed.refusal(method, path + query, body, token=installed.token) != "it was taken"


@pytest.fixture(autouse=True)
def nothing_left(installed: Installed) -> Iterator[None]:
    """Each test begins with gpuctl's jobs alone."""
    yield
    for path in (JOBS, f"{APPS}/deployments", PODS):
        for item in installed.plane.call("GET", f"{path}?labelSelector=!gpuctl.dev/job")["items"]:
            query = "?propagationPolicy=Background&gracePeriodSeconds=0"
            with suppress(HTTPError):  # its owner was deleted before, and it with it
                installed.plane.call("DELETE", f"{path}/{item['metadata']['name']}{query}")
