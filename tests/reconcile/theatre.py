"""The demo's story played by the unattended loop's own parts, on an embedded cluster kept in a file."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from sources import NumberedCommits

from gpuctl.adapters.clock import VirtualClock
from gpuctl.adapters.embedded import EmbeddedCluster
from gpuctl.app.outside import Outside
from gpuctl.app.ports import ObjectList, R, SourceUnavailable, T, WatchEvent
from gpuctl.app.reconciler import Reconciler
from gpuctl.app.report import Journal
from gpuctl.k8s import names
from gpuctl.k8s.kinds import Kind
from gpuctl.k8s.objects import labels_of, text, uid
from gpuctl.model.ids import ObjectRef, Revision
from gpuctl.model.source import SourceFile, SourceTree
from gpuctl.model.state import Body, ClusterState, RawObjects
from gpuctl.model.workload_kind import WorkloadKind
from gpuctl.observe import observe

if TYPE_CHECKING:
    from gpuctl.app.ports import Cluster

ZERO_MS = 1_596_000_000_000
STEP_MS = 60_000
ROOT = Path(__file__).parents[2]
FOLDER = "clusters/tr4858"

Files = Mapping[str, bytes]


def story() -> list[Files]:
    """The declarations after each commit of the demo's story."""
    document = yaml.safe_load((ROOT / "gpuctl/app/story.yaml").read_bytes())
    files: dict[str, bytes] = {}
    told: list[Files] = []
    for commit in (commit for section in document["sections"] for commit in section["commits"]):
        files |= {path: (ROOT / FOLDER / path).read_bytes() for path in commit.get("take", ())}
        files |= {path: text.encode() for path, text in commit.get("write", {}).items()}
        for path in commit.get("remove", ()):
            del files[path]
        told.append(dict(files))
    return told


class OneCommit(NumberedCommits):
    """A source that has one commit: the n-th of the story. Those before it can be read as well."""

    def __init__(self, told: Sequence[Files], number: int) -> None:
        self._told = told
        self._number = number
        self.branch = "main"

    def head(self) -> Revision:
        return Revision(f"{self._number:040x}")

    def tree(self, revision: Revision) -> SourceTree:
        number = int(revision, 16)
        if number > self._number:
            raise SourceUnavailable("GPU8006", "not yet")
        files = {f"{FOLDER}/{path}": SourceFile(content=c, revision=revision) for path, c in self._told[number].items()}
        return SourceTree(cluster_dir=FOLDER, revision=revision, files=files)


class Never:
    """Nobody ends it, and it does not wait."""

    def requested(self) -> bool:
        return False

    def wait(self, duration_ms: int) -> bool:
        del duration_ms
        return False


Place = tuple[int, bool]
"""Where a process may die: at a write by its number, from 1; before it is sent, or when it is done and not answered."""
Tell = Callable[[Place], object]


class Heard:
    """A cluster that tells of each write before it is sent, and after it was done and before it is answered."""

    def __init__(self, cluster: Cluster, tell: Tell = bool) -> None:
        self._cluster = cluster
        self._tell = tell
        self.writes = 0

    def list(self, kind: Kind) -> ObjectList:
        return self._cluster.list(kind)

    def watch(self, kind: Kind, resource_version: str, timeout_ms: int) -> Sequence[WatchEvent]:
        return self._cluster.watch(kind, resource_version, timeout_ms)

    def apply(self, body: Body, *, is_new: bool = False) -> Body:
        return self._told(lambda: self._cluster.apply(body, is_new=is_new))

    def check(self, body: Body) -> None:
        self._cluster.check(body)

    def delete(self, ref: ObjectRef, uid: str, resource_version: str) -> Body | None:
        return self._told(lambda: self._cluster.delete(ref, uid, resource_version))

    def each(self, work: Callable[[T], R], items: Sequence[T]) -> Sequence[R]:
        return self._cluster.each(work, items)

    def _told(self, write: Callable[[], R]) -> R:
        self.writes += 1
        self._tell((self.writes, False))
        done = write()
        self._tell((self.writes, True))
        return done


def kill_at(doom: Place) -> Tell:
    """kill -9 of this process at a write."""

    def tell(place: Place) -> None:
        if place == doom:
            os.kill(os.getpid(), signal.SIGKILL)

    return tell


def keep_in(folder: Path, database: Path) -> Tell:
    """Keep the cluster's file as a kill at each write would leave it, by `left_at`; after a write, the newest."""

    def tell(place: Place) -> None:
        for suffix in ("", "-wal"):  # what is committed is in these two; SQLite makes the third anew
            shutil.copy(f"{database}{suffix}", f"{left_at(folder, place)}{suffix}")

    return tell


def left_at(folder: Path, doom: Place) -> Path:
    """Where `keep_in` has the file that a kill at a write would leave."""
    write, is_done = doom
    return folder / ("after.db" if is_done else f"before-{write}.db")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a step came to, but for times: runs, what the ledgers say, the pods with their places, what stands wrong."""

    runs: Mapping[str, tuple[Any, ...]]
    finished: frozenset[str]
    inventories: Mapping[str, frozenset[str]]
    lines: tuple[str, ...]
    pods: Mapping[str, tuple[str, ...]]

    def but_for_places(self) -> tuple[object, ...]:
        """All that must be the same whenever the process was killed; which free GPU a new start takes may differ."""
        return (self.runs, self.finished, self.inventories, self.lines, len(self.pods))


def play(  # noqa: PLR0917 - a step, and what hears of its writes
    database: Path,
    told: Sequence[Files],
    number: int,
    at_ms: int,
    tell: Tell = bool,
    declared: Sequence[WorkloadKind] = (),
) -> tuple[Outcome, int]:
    """Reconcile the n-th commit until its minute is over; the outcome, and how many writes it took.

    `declared`: the kinds of other controllers that its Cluster declares, which the server has.
    """
    clock = VirtualClock(at_ms)
    embedded = EmbeddedCluster(clock, str(database))
    embedded.define(declared)
    cluster = Heard(embedded, tell)
    lines: list[str] = []
    outside = Outside(source=OneCommit(told, number), cluster=cluster, machines=embedded, clock=clock)
    reconciler = Reconciler(outside, Journal(lines.append), Never())
    assert reconciler.follow(), lines
    end_ms = ZERO_MS + (number + 1) * STEP_MS - 1
    while True:
        assert reconciler.enforce(), lines
        due = embedded.next_event_ms()
        if due is None or due > end_ms:
            break
        clock.advance_to(max(due, clock.now_ms()))
    outcome = _outcome(embedded, tuple(line for line in lines if " error " in line or " warning " in line), declared)
    embedded.close()
    return outcome, cluster.writes


def _outcome(cluster: EmbeddedCluster, lines: tuple[str, ...], declared: Sequence[WorkloadKind]) -> Outcome:
    kinds = [("v1", "ConfigMap"), ("v1", "Pod"), ("batch/v1", "Job"), ("apps/v1", "Deployment"), ("v1", "Node")]
    kinds += [row.kind for row in declared]
    objects = {_ref(body): body for kind in kinds for body in cluster.list(kind).items}
    state: ClusterState = observe(RawObjects(objects=objects), declared_kinds=declared)
    places = {run.job.name: run.placement.workers if run.placement else () for run in state.runs}
    return Outcome(
        runs={str(run.job): (run.digest, run.phase, run.starts, str(run.paused_for)) for run in state.runs},
        finished=frozenset(str(job) for ledger in state.ledgers.values() for job, _ in ledger.finished),
        inventories={p: frozenset(map(str, ledger.inventory)) for p, ledger in state.ledgers.items()},
        pods={
            ref.name: (uid(body), text(body, "spec", "nodeName"), *map(str, places[labels_of(body)[names.JOB_LABEL]]))
            for ref, body in objects.items()
            if ref.kind == "Pod"
        },
        lines=lines,
    )


def objects_made(database: Path) -> int:
    """How many objects the cluster ever gave a uid to."""
    with closing(sqlite3.connect(database)) as connection:
        (made,) = connection.execute("SELECT value FROM counters WHERE name = 'uids'").fetchone()
    return int(made)


def _ref(body: Body) -> ObjectRef:
    meta = body["metadata"]
    return ObjectRef(body["apiVersion"], body["kind"], meta.get("namespace", ""), meta["name"])
