"""Teams on one real API server, and what their people try there, as themselves.

Team `a` has ann, who may edit, and adam, who is admin of its namespace. `storage` is privileged by exception and has
sam, who may edit. Each has only the rights that the project's `access` gives. Team `b` is the one to be harmed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.error import HTTPError

from controlplane.known import await_policies, await_quotas
from controlplane.server import ControlPlane, node
from unattended import account_token, at_last, install

from gpuctl.adapters.clock import SystemClock
from gpuctl.adapters.kubernetes.cluster import KubernetesCluster
from gpuctl.adapters.kubernetes.connection import connect
from gpuctl.adapters.kubernetes.paths import collection
from gpuctl.app.cycle import CycleContext, CycleReport, converge, cycle
from gpuctl.app.kept import Keep
from gpuctl.app.object_cache import ObjectCache
from gpuctl.compile import compile_tree
from gpuctl.install import Installation, all_objects
from gpuctl.k8s import kinds, names
from gpuctl.model.change import Change
from gpuctl.model.declared import Declared
from gpuctl.model.source import SourceFile, SourceTree
from gpuctl.model.state import Body

FORBIDDEN = 403
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
FILES = {
    "cluster.yaml": "kind: Cluster\nmetadata: {name: one}\nspec:\n  nodePools:\n"
    "  - {name: p, selector: {matchLabels: {pool: p}}, nodes: [n1], gpusPerNode: 8, gpuMemory: 32Gi,\n"
    "     resourcesPerNode: {cpu: 80, memory: 512Gi}}\n"
    "  security: {exceptions: {storage: privileged}, hostPaths: [/mnt/data], priorityClasses: [night-shift]}\n",
    "a.yaml": "kind: Project\nmetadata: {name: a}\n"
    "spec: {quota: 2, access: [{user: ann, role: edit}, {user: adam, role: admin}]}\n",
    "b.yaml": "kind: Project\nmetadata: {name: b}\nspec: {quota: 4, access: [{user: bob, role: edit}]}\n",
    "storage.yaml": "kind: Project\nmetadata: {name: storage}\nspec: {access: [{user: sam, role: edit}]}\n",
    "a-train.yaml": "kind: Job\nmetadata: {name: train, project: a}\nspec: {image: x, gpus: 1}\n",
    "a-serve.yaml": "kind: Job\nmetadata: {name: serve, project: a}\nspec: {type: inference, image: x, gpus: 1}\n",
    "b-train.yaml": "kind: Job\nmetadata: {name: train, project: b}\n"
    "spec: {image: x, gpus: 4, resources: {cpu: 60, memory: 100Gi}}\n",
    "copy.yaml": "kind: Job\nmetadata: {name: copy, project: storage}\n"
    "spec: {image: x, volumes: [{hostPath: /mnt/data/in, mountPath: /in}]}\n",
}
RUNNING = 4
"""The number of pods of these jobs."""


def declared(more: Mapping[str, str] | None = None) -> Declared:
    files = {
        f"c/{path}": SourceFile(content=f"apiVersion: gpuctl.dev/v1\n{text}".encode())
        for path, text in {**FILES, **(more or {})}.items()
    }
    compiled = compile_tree(SourceTree(cluster_dir="c", files=files))
    assert compiled.declared is not None, compiled.diagnostics
    return compiled.declared


@dataclass
class Place:
    """A control plane where gpuctl has let the teams' jobs go, with the rights of its installation."""

    plane: ControlPlane
    guarded: bool
    token: str = field(init=False)

    def __post_init__(self) -> None:
        install(self.plane, guard=self.guarded)
        self.plane.call("POST", "/api/v1/nodes", node("n1", gpus=8, labels={"pool": "p"}))
        for name, value in (("night-shift", 5), ("high", 100_000)):
            body = {"metadata": {"name": name}, "value": value}
            self.plane.call("POST", collection(kinds.PRIORITY_CLASS, ""), body)
        self.token = account_token(self.plane)
        await_policies(self.plane)
        self.run(RUNNING)
        at_last(self._counts)
        await_quotas(self.plane, "gpu-a")

    def _counts(self) -> bool:
        """Whether the quotas are counted: until then none holds, and that may be after the pods run."""
        quotas = self.plane.call("GET", "/api/v1/resourcequotas")["items"]
        return all(each.get("status", {}).get("hard") == each["spec"]["hard"] for each in quotas)

    @contextmanager
    def context(self) -> Iterator[CycleContext]:
        """The context of cycles, with the rights of gpuctl's account."""
        kubeconfig = self.plane.write_kubeconfig(self.plane.folder / "gpuctl.kubeconfig", self.token)
        connection = connect(str(kubeconfig))
        with closing(connection), closing(KubernetesCluster(connection, keep=Keep())) as cluster:
            yield CycleContext(object_cache=ObjectCache(cluster), clock=SystemClock())

    def cycles(self, more: Mapping[str, str] | None = None) -> CycleReport:
        """The last report of the cycles of a gpuctl that has just begun. Whatever a damaged object raises, this
        raises."""
        with self.context() as context:
            return converge(declared(more), context)[-1]

    def run(self, pods: int, more: Mapping[str, str] | None = None) -> Sequence[Change]:
        """Run cycles until this many pods run. Returns the changes of one more cycle."""
        faults = list[str]()
        with self.context() as context:

            def runs() -> bool:
                report = converge(declared(more), context)[-1]
                faults[:] = [outcome.error for outcome in report.faults]
                listed = self.plane.call("GET", f"/api/v1/pods?labelSelector={names.JOB_LABEL}")["items"]
                return not faults and sum(each["status"].get("phase") == "Running" for each in listed) == pods

            at_last(runs, lambda: faults)
            return cycle(declared(more), context).plan.changes

    def attempt(
        self, method: str, path: str, body: object = None, *, user: str = "", media: str = "", code: int = FORBIDDEN
    ) -> str:
        """The server's refusal of a request; "" if it was accepted. A refusal with another code fails the test."""
        refused = self.plane.refused(method, path, body, user=user, media=media)
        if refused is None:
            return ""
        answered, said = refused
        assert answered == code, said
        return said

    def tries(self, user: str, project: str, body: Body) -> str:
        """The server's refusal of a person's pod, in a dry run."""
        return self.attempt("POST", f"{pods(project)}?dryRun=All", body, user=user)

    def one(self, path: str, job: str) -> Any:
        """The only object of a job at a path."""
        (found,) = self.plane.call("GET", f"{path}?labelSelector={names.JOB_LABEL}={job}")["items"]
        return found

    def clear(self) -> None:
        """Remove what people made in a."""
        bundles = (
            pods("a"),
            jobs("a"),
            *(apps("a", kind) for kind in ("deployments", "daemonsets", "statefulsets", "replicasets")),
        )
        listed = [(path, each) for path in bundles for each in self.plane.call("GET", path)["items"]]
        by_hand = [(path, each) for path, each in listed if is_by_hand(each["metadata"])]

        def remove(found: tuple[str, Any]) -> None:
            query = "?propagationPolicy=Background&gracePeriodSeconds=0"
            with suppress(HTTPError):  # it is gone together with its owner
                self.plane.call("DELETE", f"{found[0]}/{found[1]['metadata']['name']}{query}")

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(remove, by_hand))


def is_by_hand(meta: Mapping[str, Any]) -> bool:
    return names.JOB_LABEL not in meta.get("labels", {}) or meta["name"].startswith("by-hand-")


def guard_alone() -> list[str]:
    """The names of the policies that only `--guard` adds."""
    wanted: dict[str, Any] = {"image": "x", "repo": "https://git.example.com/x.git", "path": "c"}
    found = [
        {body["metadata"]["name"] for body in all_objects(Installation(guard=guard, **wanted)) if is_policy(body)}
        for guard in (True, False)
    ]
    return sorted(found[0] - found[1])


def is_policy(body: Body) -> bool:
    return bool(body["kind"] == "ValidatingAdmissionPolicy")


def pods(project: str) -> str:
    return f"/api/v1/namespaces/gpu-{project}/pods"


def jobs(project: str, kind: str = "jobs") -> str:
    return f"/apis/batch/v1/namespaces/gpu-{project}/{kind}"


def apps(project: str, kind: str) -> str:
    return f"/apis/apps/v1/namespaces/gpu-{project}/{kind}"


def pod(container: Mapping[str, Any] | None = None, meta: Mapping[str, Any] | None = None, **spec: Any) -> Any:
    """A pod as a person writes it, with more in its container, its metadata and its spec."""
    made: Mapping[str, Any] = {"name": "main", "image": "x", **(container or {})}
    return {
        "metadata": {"generateName": "by-hand-", **(meta or {})},
        "spec": {"restartPolicy": "Never", "containers": [made], **spec},
    }


def template(labels: Mapping[str, str] | None = None, **spec: Any) -> Any:
    body = pod(**spec)
    return {"metadata": {"labels": {"app": "x", **(labels or {})}}, "spec": {**body["spec"], "restartPolicy": "Always"}}


def workload(labels: Mapping[str, str] | None = None, **spec: Any) -> Any:
    """The body of a Deployment, ReplicaSet, StatefulSet or DaemonSet."""
    meta = {"generateName": "by-hand-"}
    return {"metadata": meta, "spec": {"selector": {"matchLabels": {"app": "x"}}, "template": template(labels, **spec)}}


def job(labels: Mapping[str, str] | None = None, more: Mapping[str, Any] | None = None, **spec: Any) -> Any:
    made = pod(**spec)
    body = {"template": {"metadata": {"labels": labels or {}}, "spec": made["spec"]}, "backoffLimit": 0, **(more or {})}
    return {"metadata": {"generateName": "by-hand-"}, "spec": body}
