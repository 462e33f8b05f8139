"""The unattended loop in virtual time: a real repository, an embedded cluster, and what happens to both by a script."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from sources import NumberedCommits

from gpuctl.adapters.clock import VirtualClock
from gpuctl.adapters.embedded import EmbeddedCluster
from gpuctl.adapters.embedded.timings import EmbeddedTimings
from gpuctl.adapters.git import GitSource, WorkingCopy
from gpuctl.app.history import UNKEPT, HistoryKeeper
from gpuctl.app.loop import LoopSettings, run
from gpuctl.app.metrics import Meters
from gpuctl.app.outside import ALONE, AT_ONCE, UNMEASURED, UNREAD, Outside
from gpuctl.app.ports import (
    Background,
    Clock,
    Cluster,
    ClusterUnavailable,
    Forbidden,
    Leadership,
    Machines,
    Note,
    ObjectList,
    R,
    Recorder,
    Reference,
    Source,
    T,
    WatchEvent,
    WorldFault,
)
from gpuctl.app.report import Journal, LogForm
from gpuctl.app.status import UNPUBLISHED, Publisher
from gpuctl.app.timekeeping import NO_REFERENCE
from gpuctl.app.viewing import UNVIEWED, Viewer
from gpuctl.k8s.kinds import OBSERVED, Kind
from gpuctl.k8s.objects import ref_of
from gpuctl.model.ids import NO_REVISION, ObjectRef, Revision
from gpuctl.model.source import SourceFile, SourceTree
from gpuctl.model.state import Body, ClusterState, RawObjects
from gpuctl.model.workload_kind import WorkloadKind
from gpuctl.observe import observe
from gpuctl.targets import Engine

ZERO_MS = 1_596_000_000_000
CLUSTER = """apiVersion: gpuctl.dev/v1
kind: Cluster
metadata: {name: one}
spec:
  nodePools:
  - {name: p, nodes: [n1], gpusPerNode: 4, gpuMemory: 32Gi, gpuProduct: Tesla, sharing: device-plugin}
"""


def project(name: str, quota: int = 2, more: str = "") -> str:
    return f"apiVersion: gpuctl.dev/v1\nkind: Project\nmetadata: {{name: {name}}}\nspec: {{quota: {quota}{more}}}\n"


def job(name: str, owner: str, gpus: int = 1, more: str = "") -> str:
    meta = f"metadata: {{name: {name}, project: {owner}}}"
    return f"apiVersion: gpuctl.dev/v1\nkind: Job\n{meta}\nspec: {{image: x, gpus: {gpus}{more}}}\n"


BASE = {
    "c/cluster.yaml": CLUSTER,
    "c/projects/a/project.yaml": project("a"),
    "c/projects/a/j1.yaml": job("j1", "a"),
    "c/projects/b/project.yaml": project("b"),
    "c/projects/b/j2.yaml": job("j2", "b"),
}


class Stage:
    """Holds everything of one test. `at` says what happens when; `play` lets the loop run until a time."""

    def __init__(self, folder: Path, timings: EmbeddedTimings | None = None) -> None:
        self.folder = folder
        self.clock = VirtualClock(ZERO_MS)
        self.cluster = EmbeddedCluster(self.clock, timings=timings)
        self.through: Cluster = self.cluster
        self.machines: Machines = self.cluster
        self.leadership: Leadership = ALONE
        self.background: Background = AT_ONCE
        self.reference: Reference = NO_REFERENCE
        self.machine_clock: Clock = self.clock
        self.meters: Meters = UNMEASURED
        self.recorder: Recorder = self
        self.publisher: Publisher = UNPUBLISHED
        self.viewer: Viewer = UNVIEWED
        self.utilisation = UNREAD
        self.publish: Callable[[Body], object] | None = None
        self.history: HistoryKeeper = UNKEPT
        self.engine: Engine | None = None
        self.most_jobs: int | None = None
        self.kinds: tuple[WorkloadKind, ...] = ()
        self.rhythm = LoopSettings(interval_ms=10_000, react_ms=2_000)
        self.lines: list[dict[str, Any]] = []
        self.fetches: list[int] = []
        self.notes: list[Note] = []
        self._script: list[tuple[int, Callable[[], object]]] = []
        self._end_ms = ZERO_MS

    @cached_property
    def copy(self) -> WorkingCopy:
        """The repository that is followed, to be changed."""
        return WorkingCopy.create(self.folder / "repo")

    # what a script does

    def commit(self, files: Mapping[str, str | None], text: str = "change") -> str:
        """Commit files; None removes one."""
        for path, content in files.items():
            if content is None:
                self.copy.remove(path)
            else:
                self.copy.write(path, content.encode())
        return self.copy.commit(text, self.clock.now_ms())

    def git(self, *args: str) -> str:
        done = subprocess.run(["git", "-C", str(self.copy.folder), *args], check=True, capture_output=True, text=True)
        self.copy = WorkingCopy(self.copy.folder)
        return done.stdout.strip()

    def at(self, second: int, action: Callable[[], object]) -> None:
        self._script.append((ZERO_MS + second * 1000, action))

    # Stop

    def requested(self) -> bool:
        return self.clock.now_ms() >= self._end_ms

    def wait(self, duration_ms: int) -> bool:
        self.clock.advance_to(min(self.clock.now_ms() + duration_ms, self._end_ms))
        due = [action for at_ms, action in self._script if at_ms <= self.clock.now_ms()]
        self._script = [(at_ms, action) for at_ms, action in self._script if at_ms > self.clock.now_ms()]
        for action in due:
            action()
        return self.requested()

    # Recorder

    def record(self, notes: Sequence[Note]) -> None:
        self.notes += notes

    # the loop

    def play(self, second: int, *, path: str = "c", source: Source | None = None, once: bool = False) -> int:
        """A process that runs until then. Another call is another process on the same clone and cluster."""
        self._end_ms = ZERO_MS + second * 1000
        followed = source or GitSource(str(self.copy.folder), path, "main", self.folder / "work")
        outside = Outside(
            source=Counted(followed, self, asks_always=source is not None),
            cluster=self.through,
            machines=self.machines,
            clock=self.machine_clock,
            leadership=self.leadership,
            meters=self.meters,
            recorder=self.recorder,
            background=self.background,
            reference=self.reference,
            publisher=self.publisher,
            viewer=self.viewer,
            utilisation=self.utilisation,
            publish=self.publish,
            history=self.history,
            engine=self.engine,
            most_jobs=self.most_jobs,
        )
        journal = Journal(lambda line: self.lines.append(json.loads(line)), LogForm.JSON)
        return run(replace(self.rhythm, once=once), outside, journal, self)

    # what came of it

    def state(self) -> ClusterState:
        more = [row.kind for row in self.kinds]
        bodies = [body for kind in (*OBSERVED, *more) for body in self.cluster.list(kind).items]
        return observe(RawObjects(objects={ref_of(body): body for body in bodies}), declared_kinds=self.kinds)

    def phases(self) -> dict[str, str]:
        return {str(r.job): str(r.phase) for r in self.state().runs}

    def live(self, kind: str, name: str) -> tuple[ObjectRef, Body]:
        """The one object of a kind whose name starts so."""
        (found,) = [(r, b) for r, b in self.state().live.items() if r.kind == kind and r.name.startswith(name)]
        return found

    def codes(self, *events: str) -> list[str]:
        return [line["code"] for line in self.lines if "code" in line and (not events or line["event"] in events)]

    def events(self) -> list[str]:
        return [line["event"] for line in self.lines]

    def version(self) -> str:
        """Changes with every write to the cluster."""
        return self.cluster.list(("v1", "ConfigMap")).resource_version


IN_GIT = pytest.mark.parametrize("sort", [Stage], ids=["git"])
"""Of tests that need a repository in a module whose fixture `sort` is `WithoutGit`."""


class WithoutGit(Stage):
    """For what has nothing to do with where declarations come from: what is committed stays in memory, with no message.
    In a test of a job's life, Git took two fifths of the processor time."""

    def __init__(self, folder: Path, timings: EmbeddedTimings | None = None) -> None:
        super().__init__(folder, timings)
        self.written = Written()

    def commit(self, files: Mapping[str, str | None], text: str = "change") -> str:
        """Commit files; None removes one."""
        assert text == "change", "its commits have no messages"
        return self.written.commit(files)

    def play(self, second: int, *, path: str = "c", source: Source | None = None, once: bool = False) -> int:
        """As on any stage."""
        return super().play(second, path=path, source=source or self.written, once=once)


class Written(NumberedCommits):
    """All files after each commit to a branch."""

    branch = "main"

    def __init__(self) -> None:
        self._commits: list[Mapping[str, SourceFile]] = [{}]

    def commit(self, files: Mapping[str, str | None]) -> Revision:
        """One more commit. A file says in which of them it was written."""
        number = Revision(f"{len(self._commits):040x}")
        new = {
            path: SourceFile(content=text.encode(), revision=number) for path, text in files.items() if text is not None
        }
        kept = {path: file for path, file in self._commits[-1].items() if path not in files}
        self._commits.append({**kept, **new})
        return number

    def head(self) -> Revision:
        return Revision(f"{len(self._commits) - 1:040x}")

    def tree(self, revision: Revision) -> SourceTree:
        files = {path: file for path, file in self._commits[int(revision, 16)].items() if path.startswith("c/")}
        return SourceTree(cluster_dir="c", revision=revision, files=files)


class Counted:
    """A source, and when its head was asked for."""

    def __init__(self, source: Source, stage: Stage, *, asks_always: bool) -> None:
        self._source = source
        self._stage = stage
        self._asks_always = asks_always
        self._known: tuple[bytes, ...] = ()
        self._head = NO_REVISION
        self.tree = source.tree
        self.follows = source.follows
        self.confirmations = source.confirmations
        self.verify, self.branch, self.commits = source.verify, source.branch, source.commits

    def head(self) -> Revision:
        self._stage.fetches.append((self._stage.clock.now_ms() - ZERO_MS) // 1000)
        refs = self._refs()
        if self._asks_always or not refs or refs != self._known:
            self._known = ()
            self._head = self._source.head()
            self._known = refs
        return self._head

    def _refs(self) -> tuple[bytes, ...]:
        """What decides the answer of Git, in files: while they are the same, it is not asked. An hour of virtual time
        asks hundreds of times, with four commands of Git each. Empty where it can't be read."""
        repository = self._stage.copy.folder / ".git"
        try:
            (clone,) = self._stage.folder.glob("work/*.git/HEAD")
            files = clone, repository / "HEAD", repository / "refs" / "heads" / "main"
            return tuple(file.read_bytes() for file in files)
        except (OSError, ValueError):
            return ()


@dataclass
class Turns:
    """A Lease that a script hands out."""

    leads: bool = True
    number: int = 1
    trouble: WorldFault | None = None

    def held(self) -> bool:
        return self.leads

    def holder(self) -> str:
        return "" if self.leads else "other"

    def term(self) -> int:
        return self.number

    def fault(self) -> WorldFault | None:
        return self.trouble

    def pass_on(self) -> None:
        self.leads, self.number = not self.leads, self.number + 1


class Flaky:
    """A cluster that is away between two times."""

    def __init__(self, stage: Stage, first: int, last: int) -> None:
        self._stage = stage
        self._away = range(first, last)
        self.tries: list[int] = []

    def _reach(self) -> None:
        second = (self._stage.clock.now_ms() - ZERO_MS) // 1000
        if second in self._away:
            self.tries.append(second)
            raise ClusterUnavailable("GPU7001", "connection refused")

    def list(self, kind: Kind) -> ObjectList:
        self._reach()
        return self._stage.cluster.list(kind)

    def watch(self, kind: Kind, resource_version: str, timeout_ms: int) -> Sequence[WatchEvent]:
        self._reach()
        return self._stage.cluster.watch(kind, resource_version, timeout_ms)

    def apply(self, body: Body, *, is_new: bool = False) -> Body:
        self._reach()
        return self._stage.cluster.apply(body, is_new=is_new)

    def check(self, body: Body) -> None:
        self._reach()
        self._stage.cluster.check(body)

    def delete(self, ref: ObjectRef, uid: str, resource_version: str) -> Body | None:
        self._reach()
        return self._stage.cluster.delete(ref, uid, resource_version)

    def each(self, work: Callable[[T], R], items: Sequence[T]) -> Sequence[R]:
        return self._stage.cluster.each(work, items)


class Withdrawn:
    """A cluster that forbids all that is asked of a kind, while `is_on`."""

    def __init__(self, cluster: Cluster, kind: Kind) -> None:
        self._cluster = cluster
        self._kind = kind
        self.is_on = False
        self.each = cluster.each
        self.check = cluster.check

    def _check(self, kind: Kind) -> None:
        if self.is_on and kind == self._kind:
            raise Forbidden("GPU7015", "gpuctl may not do that")

    def list(self, kind: Kind) -> ObjectList:
        self._check(kind)
        return self._cluster.list(kind)

    def watch(self, kind: Kind, resource_version: str, timeout_ms: int) -> Sequence[WatchEvent]:
        self._check(kind)
        return self._cluster.watch(kind, resource_version, timeout_ms)

    def apply(self, body: Body, *, is_new: bool = False) -> Body:
        self._check((body["apiVersion"], body["kind"]))
        return self._cluster.apply(body, is_new=is_new)

    def delete(self, ref: ObjectRef, uid: str, resource_version: str) -> Body | None:
        self._check((ref.api_version, ref.kind))
        return self._cluster.delete(ref, uid, resource_version)

    def turn(self) -> None:
        self.is_on = not self.is_on
