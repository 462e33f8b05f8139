"""Declarations and decisions in, manifests out, byte by byte. Each folder here is a case:

`repo/` is compiled as a cluster's folder of commit RELEASE, `decisions.yaml` says what the engine decided of each job,
`expected.yaml` is the stream that must come out, whatever the order of decisions; `there.yaml` is what its jobs use of
others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuctl.adapters.clock import VirtualClock
from gpuctl.adapters.embedded import EmbeddedCluster
from gpuctl.compile import compile_tree
from gpuctl.k8s.kinds import OBSERVED
from gpuctl.k8s.objects import ref_of
from gpuctl.model.decision import (
    Admit,
    Decision,
    Displace,
    Finished,
    JobState,
    Keep,
    Pending,
    Placement,
    Reason,
    Reclaim,
    RunRecord,
    Schedule,
    Suspended,
    TimeOut,
    WorkerPlacement,
)
from gpuctl.model.declared import Declared
from gpuctl.model.ids import JobId, NodeName, Revision
from gpuctl.model.source import SourceFile, SourceTree
from gpuctl.model.state import RawObjects, RunPhase
from gpuctl.observe import observe
from gpuctl.render import render
from gpuctl.views.yamltext import yaml_stream

HERE = Path(__file__).parent
CASES = sorted(path.parent.name for path in HERE.glob("*/decisions.yaml"))
RELEASE = Revision("5eed" * 10)
NOON_MS = 1_596_024_000_000


def declared_in(folder: Path) -> Declared:
    files = {
        path.relative_to(folder.parent).as_posix(): SourceFile(content=path.read_bytes(), revision=RELEASE)
        for path in folder.rglob("*.yaml")
    }
    compiled = compile_tree(SourceTree(cluster_dir=folder.name, revision=RELEASE, files=files))
    assert compiled.declared is not None, compiled.diagnostics
    return compiled.declared


def placement(workers: list[Mapping[str, Any]] | None) -> Placement | None:
    if workers is None:
        return None
    return Placement(
        workers=tuple(
            WorkerPlacement(node=NodeName(w["node"]), gpus=tuple(w.get("gpus", ())), uuids=tuple(w.get("uuids", ())))
            for w in workers
        )
    )


def decision(name: str, told: Mapping[str, Any]) -> Decision:
    """`{admit: [place…]}`, `{reclaim: beneficiary}`, …, with `ranMs` and `starts` where they are not 0."""
    job, beneficiary = JobId.parse(name), told.get("reclaim")
    whole: dict[str, Any] = {
        "job": job,
        "reason": Reason(code=told["code"], params=tuple(sorted(told.get("params", {}).items()))),
        "record": RunRecord(
            queued_at_ms=NOON_MS,
            starts=told.get("starts", 0),
            ran_ms=told.get("ranMs", 0),
            paused_for=JobId.parse(beneficiary) if beneficiary else None,
        ),
    }
    if "admit" in told:
        return Admit(placement=placement(told["admit"]) or Placement(workers=()), **whole)
    if "keep" in told:
        return Keep(placement=placement(told["keep"]) or Placement(workers=()), **whole)
    if "pending" in told:
        return Pending(reserved=placement(told["pending"]), **whole)
    if "finished" in told:
        return Finished(state=JobState(told["finished"]), **whole)
    if beneficiary:
        return Reclaim(beneficiary=JobId.parse(beneficiary), **whole)
    kinds: Mapping[str, type[Displace | Suspended | TimeOut]] = {
        "displace": Displace, "suspended": Suspended, "timeOut": TimeOut,
    }  # fmt: skip
    (kind,) = kinds.keys() & told.keys()
    return kinds[kind](**whole)


def read_case(case: str) -> tuple[Declared, Schedule]:
    declared = declared_in(HERE / case / "repo")
    told = yaml.safe_load((HERE / case / "decisions.yaml").read_text())
    decisions = tuple(decision(name, each) for name, each in told.items())
    assert {d.job for d in decisions} == {job.id for job in declared.jobs}
    return declared, Schedule(at_ms=NOON_MS, decisions=decisions)


@pytest.mark.parametrize("case", CASES)
def test_manifests(case: str, golden: Callable[[Path, str], None]) -> None:
    declared, schedule = read_case(case)
    stream = yaml_stream(render(declared, schedule))
    golden(HERE / case / "expected.yaml", stream)
    assert yaml_stream(render(declared, replace(schedule, decisions=schedule.decisions[::-1]))) == stream


@pytest.mark.parametrize("case", CASES)
def test_they_read_back_as_they_were(case: str) -> None:
    manifests = render(*read_case(case))
    documents = list(yaml.safe_load_all(yaml_stream(manifests)))
    assert documents == [manifest.body for manifest in manifests.items]


def already_there(case: str) -> Iterable[Any]:
    """What a case's jobs use and gpuctl does not make."""
    path = HERE / case / "there.yaml"
    return yaml.safe_load_all(path.read_text()) if path.exists() else ()


@pytest.mark.parametrize("case", CASES)
def test_an_api_server_takes_them_and_runs_stand_where_they_were_sent(case: str) -> None:
    """Kubernetes' own rules on every object, quotas among them; devices by the claims its scheduler makes."""
    declared, schedule = read_case(case)
    clock = VirtualClock(NOON_MS)
    cluster = EmbeddedCluster(clock)
    cluster.provide(declared.cluster.pools)
    for manifest in sorted(render(declared, schedule).items, key=lambda m: m.ref.kind != "Namespace"):
        cluster.apply(manifest.body)
    for body in already_there(case):
        cluster.apply(body)
    cluster.settle()
    while (due := cluster.next_event_ms()) is not None and due <= NOON_MS + 5_000:
        clock.advance_to(due)
        cluster.settle()
    objects = {ref_of(body): body for kind in OBSERVED for body in cluster.list(kind).items}
    runs = {run.job: run for run in observe(RawObjects(objects=objects)).runs}
    for told in schedule.decisions:
        if isinstance(told, Admit | Keep):
            assert (runs[told.job].phase, runs[told.job].placement) == (RunPhase.RUNNING, told.placement)
        elif isinstance(told, TimeOut):
            assert runs[told.job].phase is RunPhase.TIMED_OUT
        elif isinstance(told, Finished):
            assert told.job not in runs
        else:
            assert runs[told.job].phase is RunPhase.QUEUED
