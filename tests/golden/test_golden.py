"""Declarations and decisions in, manifests out, byte by byte. Each folder here is a case:

`repo/` is compiled as a cluster's folder of commit RELEASE, `decisions.yaml` says what the engine decided of each job,
`expected.yaml` is the stream that must come out, whatever the order of files and decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuctl.compile import compile_tree
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
        workers=tuple(WorkerPlacement(node=NodeName(w["node"]), gpus=tuple(w.get("gpus", ()))) for w in workers)
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


@pytest.mark.parametrize("case", CASES)
def test_manifests(case: str, golden: Callable[[Path, str], None]) -> None:
    declared = declared_in(HERE / case / "repo")
    told = yaml.safe_load((HERE / case / "decisions.yaml").read_text())
    decisions = tuple(decision(name, each) for name, each in told.items())
    assert {d.job for d in decisions} == {job.id for job in declared.jobs}
    stream = yaml_stream(render(declared, Schedule(at_ms=NOON_MS, decisions=decisions)))
    golden(HERE / case / "expected.yaml", stream)
    assert yaml_stream(render(declared, Schedule(at_ms=NOON_MS, decisions=decisions[::-1]))) == stream


@pytest.mark.parametrize("case", CASES)
def test_every_reader_reads_the_same(case: str) -> None:
    """What is written reads back as it was, also where YAML 1.1 and 1.2 differ on plain texts."""
    declared = declared_in(HERE / case / "repo")
    told = yaml.safe_load((HERE / case / "decisions.yaml").read_text())
    decisions = tuple(decision(name, each) for name, each in told.items())
    manifests = render(declared, Schedule(at_ms=NOON_MS, decisions=decisions))
    documents = list(yaml.safe_load_all(yaml_stream(manifests)))
    assert documents == [manifest.body for manifest in manifests.items]
