"""What a cycle's report is in numbers, on the embedded cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from threading import Event

import pytest

from gpuctl.adapters.background import ThreadBackground
from gpuctl.adapters.clock import VirtualClock
from gpuctl.adapters.embedded import EmbeddedCluster
from gpuctl.app.cycle import CycleContext, CycleReport, cycle
from gpuctl.app.metrics import Sort, measure
from gpuctl.app.object_cache import ObjectCache
from gpuctl.app.outside import AT_ONCE
from gpuctl.app.overview import OverviewBoard
from gpuctl.app.ports import ClusterUnavailable, Forbidden
from gpuctl.app.report import Journal, of_fault
from gpuctl.compile import compile_tree
from gpuctl.k8s import kinds
from gpuctl.k8s.objects import ref_of, resource_version, uid
from gpuctl.model.declared import Declared
from gpuctl.model.ids import NodeName, PoolName, ProjectName
from gpuctl.model.source import SourceFile, SourceTree
from gpuctl.model.state import Body

ZERO_MS = 1_596_000_000_000
FILES = {
    "cluster.yaml": "kind: Cluster\nmetadata: {name: one}\nspec:\n  nodePools:\n"
    "  - {name: p, nodes: [n1], gpusPerNode: 2, gpuMemory: 32Gi, gpuProduct: Tesla, sharing: device-plugin}\n",
    "a.yaml": "kind: Project\nmetadata: {name: a}\nspec: {quota: 2}\n",
    **{
        f"j{n}.yaml": f"kind: Job\nmetadata: {{name: j{n}, project: a}}\nspec: {{image: x, gpus: 1}}\n"
        for n in range(3)
    },
}

PATIENCE_S = 180.0


def declared(files: Mapping[str, str]) -> Declared:
    tree = {
        f"c/{path}": SourceFile(content=f"apiVersion: gpuctl.dev/v1\n{text}".encode()) for path, text in files.items()
    }
    compiled = compile_tree(SourceTree(cluster_dir="c", files=tree))
    assert compiled.declared is not None, compiled.diagnostics
    return compiled.declared


class Lab:
    def __init__(self) -> None:
        self.clock = VirtualClock(ZERO_MS)
        self.cluster = EmbeddedCluster(self.clock)
        self.declared = declared(FILES)
        self.cluster.provide(self.declared.cluster.pools)
        self.context = CycleContext(object_cache=ObjectCache(self.cluster), clock=self.clock)
        self.reports: list[CycleReport] = []

    def cycle(self) -> CycleReport:
        self.reports.append(cycle(self.declared, self.context))
        return self.reports[-1]

    def settle(self) -> None:
        while not self.cycle().settled:
            self.cluster.settle()

    def live(self, kind: kinds.Kind, name: str) -> Body:
        return next(body for body in self.cluster.list(kind).items if ref_of(body).name.startswith(name))

    def last(self) -> tuple[CycleReport, CycleReport | None]:
        return self.reports[-1], self.reports[-2] if len(self.reports) > 1 else None


@pytest.fixture
def lab() -> Iterator[Lab]:
    made = Lab()
    yield made
    made.cluster.close()


def test_a_settled_cluster(lab: Lab) -> None:
    lab.settle()
    told = measure(*lab.last(), duration_ms=12)
    assert told.duration_ms == 12
    assert {kind: count for (kind, _), count in told.decisions.items()} == {"keep": 2, "pending": 1}
    assert told.queued == {("a", "training", "p"): (1, 1000)}
    assert told.running == {("a", "training", "p"): (2, 2000)}
    assert [(row.project, row.quota_milli, row.allocated_milli) for row in told.shares] == [("a", 2000, 2000)]
    assert (told.writes, told.starts, told.waits, told.pauses, told.drift) == ({}, 0, (), {}, 0)


def test_a_job_that_comes_after_others_is_not_queued(lab: Lab) -> None:
    later = "kind: Job\nmetadata: {name: later, project: a}\nspec: {image: x, gpus: 2, after: [j0]}\n"
    lab.declared = declared({**FILES, "later.yaml": later})
    lab.settle()
    told = measure(*lab.last(), duration_ms=12)
    assert told.decisions["pending", "GPU5025"] == 1
    assert told.queued == {("a", "training", "p"): (1, 1000)}


def test_a_waiting_job_that_its_quota_would_hold_is_unmet_and_no_other(lab: Lab) -> None:
    """Three jobs of a GPU each under a quota of 2, on 2 GPUs: a stranger's pod takes one."""
    lab.cluster.set_strangers(NodeName("n1"), 1)
    lab.settle()
    told = measure(*lab.last(), duration_ms=1)
    assert told.decisions == {("keep", "GPU5001"): 1, ("pending", "GPU5011"): 2}
    assert told.unmet == {("a", "*"): 1_000}


def test_of_overcommitted_quotas_what_they_guarantee_can_be_unmet(lab: Lab) -> None:
    """Two quotas of 2 on 2 GPUs guarantee 1 each, which both have."""
    overcommitted = FILES["cluster.yaml"] + "  scheduling: {overcommitQuota: true}\n"
    other = {path.replace("j", "k"): text.replace("project: a", "project: b") for path, text in FILES.items()}
    project = FILES["a.yaml"].replace("name: a", "name: b")
    lab.declared = declared({**other, **FILES, "cluster.yaml": overcommitted, "b.yaml": project})
    lab.settle()
    told = measure(*lab.last(), duration_ms=1)
    assert [row.guarantee_milli for row in told.shares] == [1_000, 1_000]
    assert told.queued[Sort(ProjectName("a"), "training", PoolName("p"))] == (2, 2_000)
    assert told.unmet == {("a", "*"): 0, ("b", "*"): 0}


def test_what_was_written_on_the_way_there(lab: Lab) -> None:
    lab.settle()
    previous, told = None, []
    for report in lab.reports:
        told.append(measure(report, previous, duration_ms=1))
        previous = report
    assert sum(each.starts for each in told) == 2
    assert [wait[:2] for each in told for wait in each.waits] == [("a", "training")] * 2
    assert sum(each.drift for each in told) == 0
    assert {code for each in told for _, code in each.writes} == {"ok"}


def test_what_others_changed_or_removed_is_drift_and_what_git_changed_is_not(lab: Lab) -> None:
    lab.settle()
    quota = lab.live(kinds.RESOURCE_QUOTA, "")
    lab.cluster.apply({**quota, "spec": {"hard": {"pods": "1"}}})
    report = lab.cycle()
    assert measure(*lab.last(), duration_ms=1).drift == len(report.plan.changes) == 1
    lab.settle()
    again = lab.live(kinds.RESOURCE_QUOTA, "")
    lab.cluster.delete(ref_of(again), uid(again), resource_version(again))
    lab.cycle()
    assert measure(*lab.last(), duration_ms=1).drift == 1
    lab.settle()
    lab.declared = declared({**FILES, "a.yaml": FILES["a.yaml"].replace("quota: 2", "quota: 1")})
    lab.cycle()
    told = measure(*lab.last(), duration_ms=1)
    assert told.drift == 0


def test_a_write_that_fails_is_counted_by_its_code(lab: Lab) -> None:
    class Full(EmbeddedCluster):
        """Takes no Job."""

        def apply(self, body: Body, *, is_new: bool = False) -> Body:
            if body["kind"] == "Job":
                raise Forbidden("GPU7002", "exceeded quota")
            return super().apply(body, is_new=is_new)

    lab.cluster.close()
    lab.cluster = Full(lab.clock)
    lab.context = CycleContext(object_cache=ObjectCache(lab.cluster), clock=lab.clock)
    lab.cycle()
    told = measure(*lab.last(), duration_ms=1)
    assert told.writes["create", "GPU7002"] == 3
    assert told.writes["create", "ok"] > 0


def test_the_journal_counts_what_stands_by_code() -> None:
    lines: list[str] = []
    journal = Journal(lines.append)
    away = of_fault("unreachable", ClusterUnavailable("GPU7001", "away"))
    journal.stand(0, "cluster", [away])
    journal.stand(0, "git", [of_fault("source", ClusterUnavailable("GPU7001", "far"))])
    assert journal.codes == {"GPU7001": 2}
    journal.stand(1, "cluster", [])
    journal.stand(1, "git", [])
    assert journal.codes == {}


def test_a_start_in_the_cycle_after_its_first_forecast_is_compared_with_it(lab: Lab) -> None:
    limited = {path: text.replace("gpus: 1}", "gpus: 1, maxDuration: 10m}") for path, text in FILES.items()}
    lab.declared = declared(limited)
    lab.settle()
    made, published = Event(), list[Body]()
    board = OverviewBoard(published.append, ThreadBackground(made.set), lab.clock)
    board.offer(lab.reports[-1])
    assert made.wait(PATIENCE_S)
    assert published
    lab.declared = declared({path: text for path, text in limited.items() if path != "j0.yaml"})
    report = lab.cycle()
    board.take_over()
    errors = board.errors(report)
    lab.clock.advance_to(ZERO_MS + 60_000)  # its pod has stopped by then
    lab.cluster.settle()
    errors += board.errors(lab.cycle())
    assert errors == (60_000 - 600_000,)


def test_an_overview_that_has_not_changed_is_written_again_after_a_while(lab: Lab) -> None:
    """The leader does not watch it: one that a person deleted would be gone until a job starts or ends."""
    lab.settle()
    published, begun_ms = list[Body](), lab.clock.now_ms()
    board = OverviewBoard(published.append, AT_ONCE, lab.clock)
    for minutes, written in ((0, 1), (1, 1), (4, 1), (6, 2), (7, 2), (12, 3)):
        lab.clock.advance_to(begun_ms + minutes * 60_000)
        board.offer(lab.reports[-1])
        assert len(published) == written, minutes


def test_a_start_while_an_overview_is_made_is_compared_with_its_forecast_once(lab: Lab) -> None:
    limited = {path: text.replace("gpus: 1}", "gpus: 1, maxDuration: 10m}") for path, text in FILES.items()}
    lab.declared = declared(limited)
    lab.settle()
    made, may_end = Event(), Event()

    board = OverviewBoard(lambda _: may_end.wait(PATIENCE_S), ThreadBackground(made.set), lab.clock)
    board.offer(lab.reports[-1])
    lab.declared = declared({path: text for path, text in limited.items() if path != "j0.yaml"})
    errors = board.errors(lab.cycle())
    lab.clock.advance_to(ZERO_MS + 60_000)  # its pod has stopped by then
    lab.cluster.settle()
    errors += board.errors(lab.cycle())
    assert errors == ()
    may_end.set()
    assert made.wait(PATIENCE_S)
    board.take_over()
    errors = board.errors(lab.cycle())
    errors += board.errors(lab.cycle())
    assert errors == (60_000 - 600_000,)
