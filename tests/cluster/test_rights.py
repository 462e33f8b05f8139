"""Least privilege, counted: in a project's life every right of the installed account is used, and none is missed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.error import HTTPError

import pytest
from controlplane.server import ControlPlane
from unattended import LEASE, Process, Site, at_last, provide

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
    refused = at_last(lambda: re.findall(r"Gpuctl-Confirm: (\w+)", process.log.read_text()), site.logs)
    site.copy.write("c/README", b"the project is over\n")
    site.copy.commit(f"it is over\n\nGpuctl-Confirm: {refused[-1]}", 1_800_000_000_000)

    def unused() -> set[Right]:
        return {right for right in granted() - asked.so_far() if right[0] not in OF_OTHERS}

    at_last(lambda: not unused(), lambda: (unused(), site.logs()))
    assert asked.refused == set()
    assert {right for right in asked.so_far() if right[1] != "selfsubjectaccessreviews"} <= granted()
