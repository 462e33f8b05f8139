"""Least privilege, counted: in a project's life every right of the installed account is used, and none is missed. And
fenced in: with all rights it would still write only where it has to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from controlplane.server import ControlPlane
from unattended import LEASE, Process, Site, at_last, provide

from gpuctl.adapters.kubernetes.paths import collection
from gpuctl.compile import compile_tree
from gpuctl.k8s import kinds, names
from gpuctl.k8s.kinds import group_of
from gpuctl.k8s.workload_table import BUILT_IN
from gpuctl.model.source import SourceFile, SourceTree
from gpuctl.wiring import blueprint

CLUSTER = """apiVersion: gpuctl.dev/v1
kind: Cluster
metadata: {name: rights}
spec:
  nodePools:
  - {name: p, selector: {matchLabels: {site: rights}}, nodes: [rights-1], gpusPerNode: 32, gpuMemory: 32Gi,
     gpuProduct: Tesla, sharing: device-plugin}
  - {name: d, selector: {matchLabels: {site: rights-d}}, nodes: [rights-d-1], gpusPerNode: 4, gpuMemory: 32Gi,
     gpuProduct: Tesla, sharing: dra}
  namespacePrefix: gpu-rights-
  ingress: {host: gpus.example.com, className: nginx}
  security: {reachableFrom: [ingress-nginx]}
"""
TEAM = """apiVersion: gpuctl.dev/v1
kind: Project
metadata: {name: r}
spec: {quota: 16, access: [{group: team-r, role: edit}]}
"""
JOBS = {
    "claims": "{image: x, gpus: 1, volumes: [{newClaim: {size: 1Gi}, mountPath: /data}]}",
    "notebook": "{image: x, type: interactive, gpus: 1, expose: [{port: 8888, via: ingress}]}",
    "answers": "{image: x, type: inference, gpus: 1, workers: 2, minWorkers: 1, scaling: {metric: m, target: 9}}",
    "gang": "{image: x, gpus: 1, workers: 2}",
    "half": "{image: x, gpus: 0.5, nodePools: [d]}",
}
Right = tuple[str, str, str]
CREATED, FORBIDDEN = 201, 403


def job(name: str, spec: str) -> str:
    return f"apiVersion: gpuctl.dev/v1\nkind: Job\nmetadata: {{name: {name}, project: r}}\nspec: {spec}\n"


FILES = {"c/cluster.yaml": CLUSTER, "c/r.yaml": TEAM, **{f"c/{name}.yaml": job(name, JOBS[name]) for name in JOBS}}


def granted() -> set[Right]:
    return {
        (kinds.group_of(kind), kinds.KINDS[kind].plural, verb)
        for kind, allowed in kinds.VERBS.items()
        for verb in allowed
    }


OF_OTHERS = {group_of(kind) for kind in BUILT_IN}
"""Kinds that this server has not: their rights are used in tests/jobset."""


@pytest.fixture
def site(plane_with_gpuctl: ControlPlane, tmp_path: Path) -> Iterator[Site]:
    made = Site(plane_with_gpuctl, tmp_path, "rights")
    made.files = {}
    tree = SourceTree(cluster_dir="c", files={path: SourceFile(content=text.encode()) for path, text in FILES.items()})
    compiled = compile_tree(tree)
    assert compiled.declared is not None, compiled.diagnostics
    for body in blueprint(compiled.declared.cluster.pools):
        if body["metadata"]["name"] != "rights-1":
            provide(made.plane, body)
    yield made
    made.leave()
    made.plane.call("DELETE", "/api/v1/nodes/rights-d-1")


@dataclass
class Asked:
    """What a process has asked for. Each look takes in what is new: there are thousands of requests at last."""

    process: Process
    rights: set[Right] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    _seen: int = 0

    def so_far(self) -> set[Right]:
        """The rights that were used; an apply that made its object needs the right to create too."""
        count = self.process.plane.audit.count()
        for request in self.process.audited(self._seen):
            right = (request["objectRef"].get("apiGroup", ""), request["objectRef"]["resource"])
            code = request["responseStatus"]["code"]
            self.rights |= {(*right, request["verb"]), *({(*right, "create")} if code == CREATED else ())}
            self.refused |= {request["requestURI"]} if code == FORBIDDEN else set()
        self._seen = count
        return self.rights


def test_every_right_is_used_and_none_is_missing(site: Site) -> None:
    for shared in (LEASE, f"/apis/scheduling.k8s.io/v1/priorityclasses/{names.PRIORITY_CLASS}"):
        with suppress(HTTPError):  # what other tests of this run may have made: it is to be made anew
            site.plane.call("DELETE", shared)
    site.commit(FILES)
    process = site.start()
    asked = Asked(process)
    site.await_pods("answers", "gang", "half", "notebook", project="r")
    at_last(lambda: ("", "events", "list") in asked.so_far(), site.logs)  # of "claims"
    site.commit({path: None for path in FILES if path != "c/cluster.yaml"})

    def refused() -> set[str]:
        """What confirms the removal, and the loss of the claim's data."""
        found = {*re.findall(r"Gpuctl-Confirm: (\w+)", str(process.lines()))}
        return found if len(found) > 1 else set()

    lines = "".join(f"Gpuctl-Confirm: {digest}\n" for digest in at_last(refused, site.logs))
    site.copy.write("c/README", b"the project is over\n")
    site.copy.commit(f"it is over\n\n{lines}", 1_800_000_000_000)

    def unused() -> set[Right]:
        return {right for right in granted() - asked.so_far() if right[0] not in OF_OTHERS}

    at_last(lambda: not unused(), lambda: (unused(), site.logs()))
    assert asked.refused == set()
    assert {right for right in asked.so_far() if right[1] != "selfsubjectaccessreviews"} <= granted()


FENCE = "gpuctl writes in namespaces that begin with gpu-"
ACCOUNT = "system:serviceaccount:gpuctl-system:gpuctl"
BINDING = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
HOME, INSIDE, OUTSIDE = names.SYSTEM_NAMESPACE, "gpu-fence", "fence"


def made(kind: kinds.Kind, namespace: str, name: str, **more: Any) -> tuple[str, str, Any]:
    """A request to create it."""
    return "POST", collection(kind, namespace), {"metadata": {"name": name}, **more}


def applied(path: str) -> tuple[str, str, Any]:
    return "PATCH", path, {"metadata": {"labels": {"mine": "x"}}}


def event(namespace: str) -> tuple[str, str, Any]:
    regarding = {"involvedObject": {"kind": "Pod", "namespace": namespace, "name": "x"}}
    return made(kinds.CORE_EVENT, namespace, "x", **regarding)


def slices(namespace: str, name: str) -> tuple[str, str, Any]:
    return made(kinds.ENDPOINT_SLICE, namespace, name, addressType="IPv4", endpoints=[])


def space(name: str) -> tuple[str, str, Any]:
    return made(kinds.NAMESPACE, "", name)


SPACES = "/api/v1/namespaces"
OWN: dict[str, tuple[str, str, Any]] = {
    "a ledger": made(kinds.CONFIG_MAP, HOME, "x"),
    "its Lease": made(kinds.LEASE, HOME, "x"),
    "a label of its own namespace": applied(f"{SPACES}/{HOME}"),
    "the pages' addresses": slices(HOME, names.DASHBOARD_SERVICE),
    "an event of its own": event(HOME),
    "an event of others": event(OUTSIDE),
    "a project's namespace": space("gpu-more"),
    "a label of a project's namespace": applied(f"{SPACES}/{INSIDE}"),
    "a project's namespace's end": ("DELETE", f"{SPACES}/{INSIDE}", None),
    "a project's Secret": made(kinds.SECRET, INSIDE, "x"),
    "a project's object's end": ("DELETE", f"{SPACES}/{INSIDE}/configmaps/there", None),
    "its PriorityClass": made(kinds.PRIORITY_CLASS, "", names.PRIORITY_CLASS, value=1),
}
OF_OTHER_PEOPLE: dict[str, tuple[str, str, Any]] = {
    "its credentials": made(kinds.SECRET, HOME, "x"),
    "a Secret by the name of its pages": made(kinds.SECRET, HOME, names.DASHBOARD_SERVICE),
    "a Service beside it": made(kinds.SERVICE, HOME, "x", spec={"ports": [{"port": 80}]}),
    "its own account": applied(f"{SPACES}/{HOME}/serviceaccounts/gpuctl"),
    "its own namespace's end": ("DELETE", f"{SPACES}/{HOME}", None),
    "addresses of others beside it": slices(HOME, "x"),
    "addresses in another namespace": slices(OUTSIDE, names.DASHBOARD_SERVICE),
    "a ConfigMap elsewhere": made(kinds.CONFIG_MAP, OUTSIDE, "x"),
    "a change of a ConfigMap elsewhere": applied(f"{SPACES}/{OUTSIDE}/configmaps/there"),
    "the end of a ConfigMap elsewhere": ("DELETE", f"{SPACES}/{OUTSIDE}/configmaps/there", None),
    "a Lease elsewhere": made(kinds.LEASE, OUTSIDE, "x"),
    "a namespace": space("more"),
    "a namespace with the prefix further on": space("x-gpu-more"),
    "a namespace with almost the prefix": space("gpu"),
    "a label of a namespace": applied(f"{SPACES}/{OUTSIDE}"),
    "a namespace's end": ("DELETE", f"{SPACES}/{OUTSIDE}", None),
    "a PriorityClass": made(kinds.PRIORITY_CLASS, "", "x", value=1),
    "a node": made(kinds.NODE, "", "x"),
    "rights": ("POST", BINDING, {"metadata": {"name": "x"}, "roleRef": {
        "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}}),
}  # fmt: skip


@pytest.fixture(scope="module")
def mighty(plane_with_gpuctl: ControlPlane) -> Iterator[ControlPlane]:
    """Where the account has all rights, so that the policy alone holds it."""
    plane = plane_with_gpuctl
    for name in (INSIDE, OUTSIDE):
        plane.call("POST", SPACES, {"metadata": {"name": name}})
        plane.call("POST", f"{SPACES}/{name}/configmaps", {"metadata": {"name": "there"}})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": ACCOUNT}
    plane.call("POST", BINDING, {"metadata": {"name": "mighty"}, "roleRef": role, "subjects": [subject]})
    at_last(lambda: plane.refused("GET", "/api/v1/secrets", user=ACCOUNT) is None)
    at_last(lambda: FENCE in refusal_of(plane, OF_OTHER_PEOPLE["a node"], ACCOUNT))
    yield plane
    plane.call("DELETE", f"{BINDING}/mighty")
    for name in (INSIDE, OUTSIDE):
        plane.call("DELETE", f"{SPACES}/{name}")


def refusal_of(plane: ControlPlane, request: tuple[str, str, Any], user: str) -> str:
    """The words with which the account is kept from it, "" where it is not; what else the server says is no matter."""
    method, path, body = request
    media = "application/merge-patch+json" if method == "PATCH" else ""
    code, said = plane.refused(method, f"{path}?dryRun=All", body, user=user, media=media) or (0, "")
    return said if code == FORBIDDEN else ""


@pytest.mark.parametrize("case", OWN)
def test_the_fence_lets_the_account_write(case: str, mighty: ControlPlane) -> None:
    assert refusal_of(mighty, OWN[case], ACCOUNT) == ""


@pytest.mark.parametrize("case", OF_OTHER_PEOPLE)
def test_the_fence_alone_keeps_the_account_from(case: str, mighty: ControlPlane) -> None:
    """Whatever rights it is given, and it alone."""
    assert FENCE in refusal_of(mighty, OF_OTHER_PEOPLE[case], ACCOUNT)
    assert FENCE not in refusal_of(mighty, OF_OTHER_PEOPLE[case], "")
