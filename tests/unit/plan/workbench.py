"""Plans made of real declarations and real manifests, with decisions chosen by the test, on the embedded cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from gpuctl.adapters.clock import VirtualClock
from gpuctl.adapters.embedded import EmbeddedCluster
from gpuctl.adapters.files import read_tree
from gpuctl.app.apply import apply_plan
from gpuctl.app.object_cache import ObjectCache
from gpuctl.compile import compile_tree
from gpuctl.model.change import ApplyResult, Plan
from gpuctl.model.decision import Admit, Decision, Pending, Placement, Reason, RunRecord, Schedule, WorkerPlacement
from gpuctl.model.declared import Declared
from gpuctl.model.ids import JobId, NodeName, ObjectRef
from gpuctl.model.manifest import Manifests
from gpuctl.model.source import SourceFile, SourceTree
from gpuctl.model.state import Body, ClusterState, RunPhase
from gpuctl.observe import observe
from gpuctl.plan import make_plan
from gpuctl.render import render

ZERO_MS = 1_596_000_000_000
EXAMPLE = Path(__file__).parents[3] / "clusters" / "tr4858"
WAITS = Reason(code="GPU5001")


def example(added: Mapping[str, str] | None = None) -> Declared:
    """The report's cluster, with files added to its folder."""
    return _compiled(tuple((added or {}).items()))


@cache
def _compiled(added: tuple[tuple[str, str], ...]) -> Declared:
    tree = read_tree(str(EXAMPLE))
    more = {f"{tree.cluster_dir}/{path}": SourceFile(content=text.encode()) for path, text in added}
    compiled = compile_tree(SourceTree(cluster_dir=tree.cluster_dir, files={**tree.files, **more}))
    assert compiled.declared is not None, compiled.diagnostics[:3]
    return compiled.declared


def only(declared: Declared, *jobs: str) -> Declared:
    """The declarations with these jobs alone."""
    return replace(declared, jobs=tuple(job for job in declared.jobs if str(job.id) in jobs))


def without_project(declared: Declared, *names: str) -> Declared:
    """The declarations without a project and its jobs."""
    return replace(
        declared,
        projects=tuple(p for p in declared.projects if p.name not in names),
        jobs=tuple(job for job in declared.jobs if job.id.project not in names),
    )


def on(node: str, *gpus: int) -> Placement:
    return Placement(workers=(WorkerPlacement(node=NodeName(node), gpus=gpus),))


def waiting(job: JobId) -> Pending:
    return Pending(job=job, reason=WAITS, record=RunRecord(queued_at_ms=ZERO_MS))


def admitted(job: JobId, place: Placement, starts: int = 1) -> Admit:
    return Admit(job=job, reason=WAITS, record=RunRecord(queued_at_ms=ZERO_MS, starts=starts), placement=place)


class Workbench:
    """One embedded cluster, and plans for it."""

    def __init__(self, declared: Declared) -> None:
        self.declared = declared
        self.clock = VirtualClock(ZERO_MS)
        self.cluster = EmbeddedCluster(self.clock)
        self.cluster.provide(declared.cluster.pools)
        self.object_cache = ObjectCache(self.cluster)
        self.decisions: Mapping[str, Decision] = {}
        self.confirmed: frozenset[str] = frozenset()

    def state(self) -> ClusterState:
        self.object_cache.refresh()
        return observe(self.object_cache.objects(), self.declared.tenancy)

    def schedule(self) -> Schedule:
        chosen = [self.decisions.get(str(job.id)) or waiting(job.id) for job in self.declared.jobs]
        return Schedule(at_ms=self.clock.now_ms(), decisions=tuple(chosen))

    def manifests(self) -> Manifests:
        return render(self.declared, self.schedule())

    def plan(self) -> Plan:
        return make_plan(self.declared, self.schedule(), self.manifests(), self.state(), self.confirmed)

    def apply(self) -> ApplyResult:
        return apply_plan(self.plan(), self.cluster)

    def converge(self) -> Plan:
        """Apply plans until one is empty; the last plan that was not."""
        plan = last = Plan()
        for _ in range(20):
            plan = self.plan()
            if not plan.changes:
                return last
            apply_plan(plan, self.cluster)
            last = plan
        raise AssertionError(plan.changes)

    def run(self, job: str, place: Placement) -> None:
        """Have the job admitted and its pods running."""
        self.decisions = {**self.decisions, job: admitted(JobId.parse(job), place)}
        self.converge()
        self.pass_ms(60_000)
        assert {str(r.job): r.phase for r in self.state().runs}[job] is RunPhase.RUNNING

    def pass_ms(self, duration_ms: int) -> None:
        self.clock.advance_to(self.clock.now_ms() + duration_ms)
        self.cluster.settle()

    def live(self, kind: str, name: str = "") -> list[tuple[ObjectRef, Body]]:
        """Live objects of a kind whose name starts so."""
        return [(r, b) for r, b in sorted(self.state().live.items()) if r.kind == kind and r.name.startswith(name)]
