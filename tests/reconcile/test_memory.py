"""What one process holds on to: of cycles that are over and jobs that have gone, nothing."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from sources import NumberedCommits

from gpuctl.adapters.clock import VirtualClock
from gpuctl.adapters.embedded import EmbeddedCluster
from gpuctl.app.cycle import CycleReport
from gpuctl.app.fights import WINDOW_MS
from gpuctl.app.loop import LoopSettings, run
from gpuctl.app.outside import Outside
from gpuctl.app.ports import Note, R, T
from gpuctl.app.report import Journal
from gpuctl.k8s import kinds
from gpuctl.k8s.workloads import job_of
from gpuctl.model.ids import Revision
from gpuctl.model.source import SourceFile, SourceTree
from gpuctl.model.state import Body

ZERO_MS = 1_596_000_000_000
PROJECTS = 50
WAVE = 500
WAVES = 6
SETTLED_WAVES = 3
"""By then all that a process keeps once, however many jobs it sees, is there. What is held differs by 350 bytes a job
between a wave and the next, in turns: those compared are two waves apart."""
GROWTH_BYTES = 100
"""The most that may be left of a job that is gone. Nothing is; but what is remembered so as to be shared, a bounded
number of texts, is of longer ones once and of shorter ones another time. One entry for each job would be twice that."""
HISTORY = 500
"""So few events the embedded cluster remembers, which is in the same process."""


def bytes_held() -> int:
    """What all objects of this process take, with the texts and numbers in them. Cost: two seconds a million."""
    gc.collect()
    seen: set[int] = set()
    total, open_ = 0, gc.get_objects()
    while open_:
        below = []
        for each in open_:
            if id(each) not in seen:
                seen.add(id(each))
                total += sys.getsizeof(each)
                below += gc.get_referents(each)
        open_ = below
    return total


@dataclass
class Slow:
    """The cluster, each write of which takes its time."""

    cluster: EmbeddedCluster
    clock: VirtualClock
    write_ms: int

    def __post_init__(self) -> None:
        self.list, self.watch, self.delete = self.cluster.list, self.cluster.watch, self.cluster.delete

    def apply(self, body: Body, *, is_new: bool = False) -> Body:
        if self.write_ms:
            self.clock.advance_to(self.clock.now_ms() + self.write_ms)
        return self.cluster.apply(body, is_new=is_new)

    def check(self, body: Body) -> None:
        self.cluster.check(body)

    def each(self, work: Callable[[T], R], items: Sequence[T]) -> Sequence[R]:
        return [work(one) for one in items]


@dataclass
class Process(NumberedCommits):
    """A controller in virtual time: one wave of short jobs after another is declared, and those before it no more."""

    waves: int
    clock: VirtualClock = field(default_factory=lambda: VirtualClock(ZERO_MS))
    wave: int = 0
    held: list[int] = field(default_factory=list)
    ended: int = 0
    reports: list[int] = field(default_factory=list)
    write_ms: int = 0
    branch: str = "main"

    def __post_init__(self) -> None:
        self.cluster = EmbeddedCluster(self.clock, history=HISTORY)

    def run(self) -> None:
        slow = Slow(self.cluster, self.clock, self.write_ms)
        outside = Outside(source=self, cluster=slow, machines=self.cluster, clock=self.clock, recorder=self)
        run(LoopSettings(interval_ms=1_000), outside, Journal(lambda _: None), self)

    # Source

    def head(self) -> Revision:
        return Revision(f"{self.wave:040x}")

    def tree(self, revision: Revision) -> SourceTree:
        nodes = ", ".join(f"n{n}" for n in range(WAVE // 8 + 1))
        pool = f"{{name: p, nodes: [{nodes}], gpusPerNode: 8, gpuMemory: 32Gi, gpuProduct: T, sharing: device-plugin}}"
        head = "apiVersion: gpuctl.dev/v1\nkind: "
        jobs = "---\n".join(
            f"{head}Job\nmetadata: {{name: j{self.wave}-{n}, project: p{n % PROJECTS}}}\nspec: {{image: x, gpus: 1}}\n"
            for n in range(WAVE)
        )
        projects = "---\n".join(
            f"{head}Project\nmetadata: {{name: p{n}}}\nspec: {{quota: {WAVE // PROJECTS}}}\n" for n in range(PROJECTS)
        )
        files = {
            "cluster.yaml": f"{head}Cluster\nmetadata: {{name: one}}\nspec:\n  nodePools: [{pool}]\n",
            "projects.yaml": projects,
            "jobs.yaml": jobs,
        }
        read = {f"c/{path}": SourceFile(content=text.encode(), revision=revision) for path, text in files.items()}
        return SourceTree(cluster_dir="c", revision=revision, files=read)

    # Recorder

    def record(self, notes: Sequence[Note]) -> None:
        del notes
        if self.write_ms:
            gc.collect()
            self.reports.append(sum(type(each) is CycleReport for each in gc.get_objects()))

    # Stop

    def requested(self) -> bool:
        return self.wave >= self.waves

    def wait(self, duration_ms: int) -> bool:
        self.clock.advance_to(self.clock.now_ms() + duration_ms)
        jobs = self.cluster.list(kinds.JOB).items
        mine = [job.name for body in jobs if (job := job_of(body)) is not None]
        going = [body for body in jobs if not body.get("status", {}).get("succeeded")]
        if not going and len(mine) == WAVE and all(name.startswith(f"j{self.wave}-") for name in mine):
            self.ended += len(jobs)
            self.held += [bytes_held()] if self.wave in {SETTLED_WAVES, self.waves - 1} else []
            self.wave += 1
            self.clock.advance_to(self.clock.now_ms() + 2 * WINDOW_MS)
        for body in going:
            self.finish(body)
        return self.requested()

    def finish(self, body: Body) -> None:
        job = job_of(body)
        if job is not None and not body["spec"]["suspend"]:
            self.cluster.finish(job, 0)


@pytest.fixture(autouse=True)
def _what_was_there_is_left_alone() -> None:
    """The garbage collector looks tens of times, at what a test makes and not at what tests before it left: 6 s, not
    11 s. As after collection in tests/conftest.py, what is there then stays to the end."""
    gc.collect()
    gc.freeze()


def test_a_long_row_of_cycles_holds_no_more_reports_than_a_short_one() -> None:
    """A server so slow that a cycle makes a few jobs, and leaves the rest to the next."""
    process = Process(waves=1, write_ms=100)
    process.run()
    assert process.ended == WAVE
    assert len(process.reports) > 8
    assert max(process.reports) <= 3


def test_thousands_of_short_jobs_through_one_process_leave_nothing_behind() -> None:
    process = Process(WAVES)
    process.run()
    assert process.ended == WAVES * WAVE
    before, after = process.held
    assert (after - before) / (WAVE * (WAVES - 1 - SETTLED_WAVES)) < GROWTH_BYTES
