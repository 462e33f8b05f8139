"""SIGKILL after every single write of a story, on the real API server: each process does one write and is no more.

The write has taken effect and its answer is never read. The story has admission, pause, resume, finish, change and
prune; the same story without a crash, on another node, says what the end has to be. Every process is the installed
account, under the guard.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from controlplane.server import ControlPlane
from killing import STEP_WITHIN_S, WITHIN_S, Declarations, Story, in_a_process, reconcile
from unattended import account_kubeconfig, provide_all, within

from gpuctl.adapters.kubernetes.paths import collection, item
from gpuctl.compile import compile_tree
from gpuctl.k8s import kinds, names
from gpuctl.k8s.kinds import Kind
from gpuctl.k8s.objects import annotations_of, condition, labels_of, ref_of, text, uid
from gpuctl.model.declared import NodePool
from gpuctl.model.ids import Revision
from gpuctl.model.state import Body

CLUSTER = """apiVersion: gpuctl.dev/v1
kind: Cluster
metadata: {{name: {name}}}
spec:
  nodePools:
  - {{name: p, selector: {{matchLabels: {{gpuctl.dev/pool: {name}}}}}, nodes: [{name}-1], gpusPerNode: 8,
      gpuMemory: 32Gi, gpuProduct: Tesla, sharing: dra}}
  namespacePrefix: gpu-{name}-
"""


def project(name: str) -> str:
    return f"apiVersion: gpuctl.dev/v1\nkind: Project\nmetadata: {{name: {name}}}\nspec: {{quota: 4}}\n"


def job(name: str, owner: str, gpus: float, image: str = "x") -> str:
    meta = f"metadata: {{name: {name}, project: {owner}}}"
    return f"apiVersion: gpuctl.dev/v1\nkind: Job\n{meta}\nspec: {{image: {image}, gpus: {gpus}}}\n"


BASE = {"projects/a/project.yaml": project("a"), "projects/b/project.yaml": project("b")}
FILL = {
    "projects/a/j1.yaml": job("j1", "a", 4),
    "projects/a/j2.yaml": job("j2", "a", 3),
    "projects/a/h.yaml": job("h", "a", 0.5),
}
CLAIM = {"projects/b/k1.yaml": job("k1", "b", 4)}
CHANGE = {"projects/a/j1.yaml": job("j1", "a", 4, "y")}
STORY: Story = (
    ("admission", BASE | FILL),
    ("pause", BASE | FILL | CLAIM),
    ("finish and resume", BASE | FILL | CLAIM),
    ("change", BASE | FILL | CLAIM | CHANGE),
    ("prune", {"projects/a/project.yaml": project("a"), "projects/a/j1.yaml": CHANGE["projects/a/j1.yaml"]}),
)


@dataclass
class Theatre:
    """One telling of the story: its own node, its own namespaces."""

    plane: ControlPlane
    name: str
    pods: dict[str, set[str]] = field(default_factory=dict)
    kills: int = 0
    ends: list[Mapping[str, object]] = field(default_factory=list)

    def play(self, *, doomed: bool) -> None:
        kubeconfig = account_kubeconfig(self.plane)
        provide_all(self.plane, self._pools())
        for number, (step, _) in enumerate(STORY):
            if step.startswith("finish"):
                self._finish("k1")
            until = time.monotonic() + STEP_WITHIN_S
            while not in_a_process(lambda: reconcile(kubeconfig, self._source(number), doomed=doomed)):  # noqa: B023
                self.kills += 1
                self._look()
                assert time.monotonic() < until, step
            self._look()
            within(WITHIN_S, self._is_collected)
            self.ends.append(self._end())

    def _source(self, number: int) -> Declarations:
        return Declarations(CLUSTER, STORY, self.name, number)

    def _pools(self) -> Sequence[NodePool]:
        compiled = compile_tree(self._source(0).tree(Revision("0" * 40)))
        assert compiled.declared is not None
        return compiled.declared.cluster.pools

    def _objects(self, *only: Kind) -> Iterator[Body]:
        for kind in only or (each for each in kinds.OBSERVED if each not in kinds.OF_OTHERS):
            for body in self.plane.call("GET", collection(kind, ""))["items"]:
                whole = {**body, "apiVersion": kind[0], "kind": kind[1]}
                ref = ref_of(whole)
                if (
                    ref.namespace.startswith(f"gpu-{self.name}-")
                    or labels_of(whole).get(names.CLUSTER_LABEL) == self.name
                ):
                    yield whole

    def _look(self) -> None:
        """Remember every pod of a job that was ever seen."""
        for body in self._objects(kinds.POD):
            self.pods.setdefault(labels_of(body)[names.JOB_LABEL], set()).add(body["metadata"]["uid"])

    def _finish(self, name: str) -> None:
        (pod,) = [b for b in self._objects(kinds.POD) if labels_of(b)[names.JOB_LABEL] == name]
        note = {"metadata": {"annotations": {"test/run-for": "0s"}}}
        self.plane.call("PATCH", item(ref_of(pod)), note, media="application/merge-patch+json")
        until = time.monotonic() + WITHIN_S
        while not any(
            condition(b, "Complete") for b in self._objects(kinds.JOB) if labels_of(b).get(names.JOB_LABEL) == name
        ):
            assert time.monotonic() < until
            time.sleep(0.05)

    def _is_collected(self) -> bool:
        """Whether nothing is left of what is gone: pods of a Job, claims of a pod. Kubernetes takes them away
        afterwards, and a pod that has ended may be there for a while beside the next one of its job."""
        of_kind = {kind: [*self._objects(kind)] for kind in (kinds.JOB, kinds.POD, kinds.RESOURCE_CLAIM)}
        bodies = [body for each in of_kind.values() for body in each]
        there = {uid(body) for body in bodies}
        owners = [owner for body in bodies for owner in body["metadata"].get("ownerReferences", ())]
        leaving = any("deletionTimestamp" in body["metadata"] for body in bodies)
        return not leaving and all(owner["uid"] in there for owner in owners)

    def _end(self) -> Mapping[str, object]:
        """Every object by name, but for what is random in it; runs with their starts; what the ledgers hold."""
        told: dict[str, object] = {}
        for body in self._objects():
            ref = ref_of(body)
            if ref.kind in {"Pod", "ResourceClaim"}:
                key = f"{ref.kind} of {labels_of(body).get(names.JOB_LABEL, '')}"
                told[key] = text(body, "status", "phase")
            elif not ref.name.startswith("kube-root-ca"):
                notes = annotations_of(body)
                fact: Any = (notes.get(names.STARTS_ANNOTATION), body.get("spec", {}).get("suspend"))
                if names.LEDGER_LABEL in labels_of(body):
                    fact = sorted(body["data"].get("seen", "").split(","))
                told[f"{ref.kind} {ref.namespace}/{ref.name}".replace(self.name, "cluster")] = fact
        return told


@pytest.fixture(scope="module")
def undisturbed(plane_with_gpuctl: ControlPlane) -> Theatre:
    told = Theatre(plane_with_gpuctl, "calm")
    told.play(doomed=False)
    return told


def test_killed_after_every_write_it_comes_to_the_same_end(
    plane_with_gpuctl: ControlPlane, undisturbed: Theatre, record_property: Callable[[str, object], None]
) -> None:
    killed = Theatre(plane_with_gpuctl, "killed")
    killed.play(doomed=True)
    record_property("kill_points", killed.kills)
    print(f"{killed.kills} processes were killed, each after its write")  # noqa: T201 - a figure of the test
    assert killed.kills >= 40
    for (step, _), found, wanted in zip(STORY, killed.ends, undisturbed.ends, strict=True):
        assert found == wanted, step
    assert {name: len(pods) for name, pods in killed.pods.items()} == {
        name: len(pods) for name, pods in undisturbed.pods.items()
    }


def test_undisturbed_only_what_was_paused_or_changed_has_a_second_pod(undisturbed: Theatre) -> None:
    assert {name: len(pods) for name, pods in undisturbed.pods.items()} == {"j1": 2, "j2": 2, "h": 2, "k1": 1}
