"""SIGKILL after every single write of a story, on the real API server: each process does one write and is no more.

The write has taken effect and its answer is never read. The story has admission, pause, resume, finish, change and
prune; the same story without a crash, on another node, says what the end has to be. Every process is the installed
account, under the guard.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from controlplane.server import ControlPlane
from unattended import account_kubeconfig, provide

from gpuctl.adapters.clock import SystemClock
from gpuctl.adapters.kubernetes.cluster import KubernetesCluster
from gpuctl.adapters.kubernetes.connection import connect
from gpuctl.adapters.kubernetes.machines import StandingMachines
from gpuctl.adapters.kubernetes.paths import collection, item
from gpuctl.app.outside import Outside
from gpuctl.app.play import MOVING
from gpuctl.app.ports import ObjectList, R, SourceUnavailable, T, WatchEvent
from gpuctl.app.reconciler import Reconciler
from gpuctl.app.report import Journal
from gpuctl.compile import compile_tree
from gpuctl.k8s import kinds, names
from gpuctl.k8s.kinds import Kind
from gpuctl.k8s.objects import annotations_of, condition, labels_of, ref_of, text
from gpuctl.model.declared import NodePool
from gpuctl.model.history import Commit
from gpuctl.model.ids import ObjectRef, Revision
from gpuctl.model.source import SourceFile, SourceTree
from gpuctl.model.state import Body, RunPhase
from gpuctl.observe import observe
from gpuctl.wiring import blueprint

WITHIN_S = 60
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


Files = Mapping[str, str]
BASE = {"projects/a/project.yaml": project("a"), "projects/b/project.yaml": project("b")}
FILL = {
    "projects/a/j1.yaml": job("j1", "a", 4),
    "projects/a/j2.yaml": job("j2", "a", 3),
    "projects/a/h.yaml": job("h", "a", 0.5),
}
CLAIM = {"projects/b/k1.yaml": job("k1", "b", 4)}
CHANGE = {"projects/a/j1.yaml": job("j1", "a", 4, "y")}
STORY: Sequence[tuple[str, Files]] = (
    ("admission", BASE | FILL),
    ("pause", BASE | FILL | CLAIM),
    ("finish and resume", BASE | FILL | CLAIM),
    ("change", BASE | FILL | CLAIM | CHANGE),
    ("prune", {"projects/a/project.yaml": project("a"), "projects/a/j1.yaml": CHANGE["projects/a/j1.yaml"]}),
)


@dataclass(frozen=True)
class Declarations:
    """A source with one commit for each step of the story."""

    cluster: str
    number: int
    branch: str = "main"

    def head(self) -> Revision:
        return Revision(f"{self.number:040x}")

    def tree(self, revision: Revision) -> SourceTree:
        number = int(revision, 16)
        if number > self.number:
            raise SourceUnavailable("GPU8006", "not yet")
        files = {"cluster.yaml": CLUSTER.format(name=self.cluster), **STORY[number][1]}
        told = {f"c/{path}": SourceFile(content=text.encode(), revision=revision) for path, text in files.items()}
        return SourceTree(cluster_dir="c", revision=revision, files=told)

    def follows(self, older: Revision, newer: Revision) -> bool:
        return older <= newer

    def commits(self, revisions: Collection[Revision]) -> tuple[Commit, ...]:
        del revisions
        return ()

    def verify(self, since: Collection[Revision], head: Revision) -> None:
        """It has no signatures, and asks for none."""

    def confirmations(self, since: Revision, until: Revision, within: str | None = None) -> frozenset[str]:
        del since, until, within
        return frozenset()


class Doomed:
    """A cluster whose user is killed when its first write has taken effect."""

    def __init__(self, cluster: KubernetesCluster) -> None:
        self._cluster = cluster

    def list(self, kind: Kind) -> ObjectList:
        return self._cluster.list(kind)

    def watch(self, kind: Kind, resource_version: str, timeout_ms: int) -> Sequence[WatchEvent]:
        return self._cluster.watch(kind, resource_version, timeout_ms)

    def apply(self, body: Body) -> Body:
        self._cluster.apply(body)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    def delete(self, ref: ObjectRef, uid: str, resource_version: str) -> Body | None:
        self._cluster.delete(ref, uid, resource_version)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    def each(self, work: Callable[[T], R], items: Sequence[T]) -> Sequence[R]:
        return [work(one) for one in items]


class Awake:
    """Nobody ends it, and it waits a moment."""

    def requested(self) -> bool:
        return False

    def wait(self, duration_ms: int) -> bool:
        time.sleep(min(duration_ms, 30) / 1000)
        return False


def reconcile(kubeconfig: str, cluster_name: str, number: int, *, doomed: bool) -> None:
    """One process's life: until everything is at rest."""
    connection = connect(kubeconfig)
    cluster = KubernetesCluster(connection)
    outside = Outside(
        source=Declarations(cluster_name, number),
        cluster=Doomed(cluster) if doomed else cluster,
        machines=StandingMachines(),
        clock=SystemClock(),
    )
    lines: list[str] = []
    reconciler = Reconciler(outside, Journal(lines.append), Awake())
    assert reconciler.follow(), lines
    until = time.monotonic() + WITHIN_S
    while True:
        assert reconciler.enforce(), lines
        if reconciler.settled and at_rest(reconciler):
            break
        assert time.monotonic() < until, lines
        Awake().wait(30)
    assert not [line for line in lines if " error " in line], lines
    cluster.close()
    connection.close()


def at_rest(reconciler: Reconciler) -> bool:
    state = observe(reconciler._object_cache.objects(), reconciler._desired.declared.tenancy)  # type: ignore[union-attr]
    reserved = [run for run in state.runs if run.phase is RunPhase.QUEUED and run.placement is not None]
    return not reserved and not any(run.phase in MOVING for run in state.runs)


def in_a_process(work: Callable[[], None]) -> bool:
    """Whether it lived to its end; dying otherwise than by SIGKILL fails the test."""
    child = os.fork()
    if child == 0:  # pragma: no cover - another process
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return False
    assert os.waitstatus_to_exitcode(status) == 0
    return True


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
        for body in blueprint(self._pools()):
            provide(self.plane, body)
        for number, (step, _) in enumerate(STORY):
            if step.startswith("finish"):
                self._finish("k1")
            until = time.monotonic() + 2 * WITHIN_S
            while not in_a_process(lambda: reconcile(kubeconfig, self.name, number, doomed=doomed)):  # noqa: B023
                self.kills += 1
                self._look()
                assert time.monotonic() < until, step
            self._look()
            self.ends.append(self._end())

    def _pools(self) -> Sequence[NodePool]:
        compiled = compile_tree(Declarations(self.name, 0).tree(Revision("0" * 40)))
        assert compiled.declared is not None
        return compiled.declared.cluster.pools

    def _objects(self) -> Iterator[Body]:
        for kind in (each for each in kinds.OBSERVED if each not in kinds.OF_OTHERS):
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
        for body in self._objects():
            if body["kind"] == "Pod":
                self.pods.setdefault(labels_of(body)[names.JOB_LABEL], set()).add(body["metadata"]["uid"])

    def _finish(self, name: str) -> None:
        (pod,) = [b for b in self._objects() if b["kind"] == "Pod" and labels_of(b)[names.JOB_LABEL] == name]
        note = {"metadata": {"annotations": {"test/run-for": "0s"}}}
        self.plane.call("PATCH", item(ref_of(pod)), note, media="application/merge-patch+json")
        until = time.monotonic() + WITHIN_S
        while not any(condition(b, "Complete") for b in self._objects() if labels_of(b).get(names.JOB_LABEL) == name):
            assert time.monotonic() < until
            time.sleep(0.05)

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
