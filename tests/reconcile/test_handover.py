"""What another version of gpuctl left in ledgers and on objects, as after an upgrade that is rolled back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from stage import BASE, CLUSTER, Stage, WithoutGit, job, project

from gpuctl.app.status import Direct, read_status
from gpuctl.compile import compile_tree
from gpuctl.k8s import kinds, names
from gpuctl.k8s.ledger import decode_ledger
from gpuctl.k8s.objects import uid
from gpuctl.model.ids import ObjectRef
from gpuctl.model.source import SourceFile, SourceTree
from gpuctl.model.state import Body

RECORDED = Path(__file__).parent / "recorded"
LEDGER = ObjectRef(*kinds.CONFIG_MAP, names.SYSTEM_NAMESPACE, "ledger.one.a")
RUNNING = {"a/j1": "Running", "b/j2": "Running", "a/waits": "Queued"}


def begun(folder: Path) -> Stage:
    stage = WithoutGit(folder)
    stage.publisher = Direct(stage.cluster)
    stage.commit({**BASE, "c/projects/a/waits.yaml": job("waits", "a", 4)})
    stage.play(30)
    assert stage.phases() == RUNNING
    return stage


def ledger(stage: Stage) -> dict[str, Any]:
    found: Body = stage.state().live[LEDGER]
    return dict(found["data"])


def rewritten(stage: Stage, **data: Any) -> None:
    """Write keys of a project's ledger, as values."""
    body = stage.state().live[LEDGER]
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in data.items()}
    stage.cluster.update({**body, "data": {**body["data"], **texts}})


def with_more(runs: dict[str, dict[str, dict[str, Any]]], **more: Any) -> Any:
    return {name: {digest: {**entry, **more} for digest, entry in of.items()} for name, of in runs.items()}


REASON = {"code": "GPU5999", "params": {"novel": "x"}}


def of_new_kinds(inventory: dict[str, Any]) -> dict[str, Any]:
    """Objects of kinds that this version does not know: of a project, of the cluster, and beside a run's object."""
    (run, *_) = inventory["batch/v1 Job"]["gpu-a"]
    return {"example.com/v9 Thing": {"gpu-a": ["t"]}, "v1 Whatever": {"": ["w"]}, "x/v1 Beside": {"gpu-a": [run]}}


@pytest.mark.parametrize("what", ["keys", "fields", "reason", "end", "inventory"])
def test_what_a_newer_version_wrote_restarts_and_removes_nothing(tmp_path: Path, what: str) -> None:
    stage = begun(tmp_path)
    before = {ref: uid(body) for ref, body in stage.state().live.items() if ref.kind == "Job"}
    runs, inventory = (json.loads(ledger(stage)[key]) for key in ("runs", "inventory"))
    match what:
        case "keys":
            rewritten(stage, novel={"x": 1})
        case "fields":
            rewritten(stage, runs=with_more(runs, novel={"x": 1}))
        case "reason":
            rewritten(stage, runs=with_more(runs, reason=REASON))
            for ref in before:
                body = stage.state().live[ref]
                meta = body["metadata"]
                notes = {**meta["annotations"], names.REASON_ANNOTATION: json.dumps(REASON)}
                stage.cluster.update({**body, "metadata": {**meta, "annotations": notes}})
        case "end":
            (digest,) = runs["waits"]
            end = {"at": "2020-07-29T05:20:00Z", "starts": 1, "state": "Novel", "novel": 1}
            rewritten(stage, finished={"old": {digest: end}})
        case _:
            rewritten(stage, inventory={**inventory, **of_new_kinds(inventory)})
    stage.lines.clear()
    stage.play(100)
    assert stage.phases() == RUNNING
    assert {ref: uid(body) for ref, body in stage.state().live.items() if ref.kind == "Job"} == before
    assert [line for line in stage.lines if line["level"] != "info"] == []
    read_status(stage.cluster, stage.clock)
    stage.commit({"c/projects/a/waits.yaml": None, "c/projects/a/k.yaml": job("k", "a")})
    stage.play(160)
    assert stage.phases() == {"a/j1": "Running", "b/j2": "Running", "a/k": "Running"}
    assert [line for line in stage.lines if line["level"] != "info"] == []


def test_what_only_a_newer_version_knows_stays_on_record_for_it(tmp_path: Path) -> None:
    """It made the objects, and is to delete them with the project: until then the namespace stays, too."""
    stage = begun(tmp_path)
    inventory = json.loads(ledger(stage)["inventory"])
    rewritten(stage, inventory={**inventory, **of_new_kinds(inventory)})
    stage.commit({"c/projects/a/j1.yaml": None, "c/projects/a/waits.yaml": None})
    stage.play(90)
    left = json.loads(ledger(stage)["inventory"])
    assert {kind: left.get(kind) for kind in of_new_kinds(inventory)} == of_new_kinds(inventory)
    stage.commit({"c/projects/a/project.yaml": None})
    stage.play(150)
    assert ObjectRef(*kinds.NAMESPACE, "", "gpu-a") in stage.state().live
    rewritten(stage, inventory={"v1 Namespace": {"": ["gpu-a"]}})
    stage.play(210)
    assert ObjectRef(*kinds.NAMESPACE, "", "gpu-a") not in stage.state().live
    assert LEDGER not in stage.state().live


JOBS = {
    "plain": "gpus: 1",
    "shell": "gpus: 1, type: interactive, volumes: [{newClaim: {size: 1Gi}, mountPath: /d}]",
    "web": "gpus: 1, type: inference, workers: 2, expose: [{port: 80}]",
    "el": "gpus: 1, workers: 2, minWorkers: 1",
    "ended": "gpus: 1, env: {RUN_FOR: 1s}",
    "big": "gpus: 8",
    "off": "gpus: 1, suspend: true",
}
"""What the cluster declared whose ledger was recorded."""


def test_a_ledger_of_the_first_version_is_read_whole_and_names_the_runs_of_today() -> None:
    """Recorded on a control plane; its runs went on there when this version took over, and when that one did again."""
    head = json.loads((RECORDED / "ledger-0.1.0.json").read_text())
    reading = decode_ledger(head)
    assert reading is not None
    assert reading.damaged == ()
    files = {"cluster.yaml": CLUSTER.replace("gpusPerNode: 4", "gpusPerNode: 8"), "a.yaml": project("a", 8)}
    for name, spec in JOBS.items():
        meta = f"metadata: {{name: {name}, project: a}}"
        files[f"{name}.yaml"] = f"apiVersion: gpuctl.dev/v1\nkind: Job\n{meta}\nspec: {{image: x, {spec}}}\n"
    sources = {f"c/{path}": SourceFile(content=text.encode()) for path, text in files.items()}
    compiled = compile_tree(SourceTree(cluster_dir="c", files=sources))
    assert compiled.declared is not None, compiled.diagnostics
    runs = {(each.id, each.digest) for each in compiled.declared.jobs}
    assert reading.ledger.seen == reading.ledger.runs.keys() == runs
    started = {run.name for (run, _), entry in reading.ledger.runs.items() if entry.is_let_go and entry.started_with}
    assert started == {"plain", "shell", "web", "el"}
    assert [(run.name, end.state) for (run, _), end in reading.ledger.finished.items()] == [("ended", "Succeeded")]
