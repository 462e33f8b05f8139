"""Processes of gpuctl that SIGKILL ends after their first write, one after the other, on a real API server.

The write has taken effect, and its answer is never read.
"""

from __future__ import annotations

import gc
import os
import signal
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import kubernetes.config  # noqa: F401 - else each process would import it anew, half of its work
from sources import NumberedCommits

from gpuctl.adapters.clock import SystemClock
from gpuctl.adapters.kubernetes.cluster import KubernetesCluster
from gpuctl.adapters.kubernetes.connection import connect
from gpuctl.adapters.kubernetes.machines import StandingMachines
from gpuctl.app.outside import Outside
from gpuctl.app.play import MOVING
from gpuctl.app.ports import ObjectList, R, SourceUnavailable, T, WatchEvent
from gpuctl.app.reconciler import Reconciler
from gpuctl.app.report import Journal
from gpuctl.k8s.kinds import Kind
from gpuctl.model.ids import ObjectRef, Revision
from gpuctl.model.source import SourceFile, SourceTree
from gpuctl.model.state import Body, RunPhase
from gpuctl.observe import observe

WITHIN_S = 120
STEP_WITHIN_S = 600
"""The longest life of a process, and the longest time of a story's step in which dozens of them are killed: more than
they take on a machine that is busy with other tests."""
Files = Mapping[str, str]
Story = Sequence[tuple[str, Files]]
"""The steps, each with its name and all declarations but the Cluster."""


@dataclass(frozen=True)
class Declarations(NumberedCommits):
    """A source with one commit for each step of a story. `head_text`: the file of the Cluster, without its name."""

    head_text: str
    story: Story
    cluster: str
    number: int
    branch: str = "main"

    def head(self) -> Revision:
        return Revision(f"{self.number:040x}")

    def tree(self, revision: Revision) -> SourceTree:
        number = int(revision, 16)
        if number > self.number:
            raise SourceUnavailable("GPU8006", "not yet")
        files = {"cluster.yaml": self.head_text.format(name=self.cluster), **self.story[number][1]}
        told = {f"c/{path}": SourceFile(content=text.encode(), revision=revision) for path, text in files.items()}
        return SourceTree(cluster_dir="c", revision=revision, files=told)


class Doomed:
    """A cluster whose user is killed once its first write has taken effect."""

    def __init__(self, cluster: KubernetesCluster) -> None:
        self._cluster = cluster

    def list(self, kind: Kind) -> ObjectList:
        return self._cluster.list(kind)

    def watch(self, kind: Kind, resource_version: str, timeout_ms: int) -> Sequence[WatchEvent]:
        return self._cluster.watch(kind, resource_version, timeout_ms)

    def apply(self, body: Body, *, is_new: bool = False) -> Body:
        self._cluster.apply(body, is_new=is_new)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    def check(self, body: Body) -> None:
        self._cluster.check(body)

    def delete(self, ref: ObjectRef, uid: str, resource_version: str) -> Body | None:
        self._cluster.delete(ref, uid, resource_version)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    def each(self, work: Callable[[T], R], items: Sequence[T]) -> Sequence[R]:
        return [work(one) for one in items]


class Awake:
    """A control of the loop: nobody ends it, and it waits a moment."""

    def requested(self) -> bool:
        return False

    def wait(self, duration_ms: int) -> bool:
        time.sleep(min(duration_ms, 30) / 1000)
        return False


def reconcile(kubeconfig: str, source: Declarations, *, doomed: bool) -> None:
    """Live one process's life: until everything is at rest."""
    connection = connect(kubeconfig)
    cluster = KubernetesCluster(connection)
    outside = Outside(
        source=source,
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
    """Run work in another process. Returns whether it lived to its end; a death other than by SIGKILL fails the
    test."""
    child = os.fork()
    if child == 0:  # pragma: no cover - another process
        gc.freeze()  # the collector would copy its parent's memory by looking through it
        code = 1
        try:
            work()
            code = 0
        except BaseException:  # noqa: BLE001 - whatever it is, it is told where it happened
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return False
    assert os.waitstatus_to_exitcode(status) == 0
    return True
