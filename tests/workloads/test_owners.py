"""Whose a pod is where other objects stand between it and the run's: as the real controllers put them there."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from gpuctl import api
from gpuctl.app.other_engine import waiting_manifests
from gpuctl.k8s import kinds
from gpuctl.k8s.kinds import Kind
from gpuctl.k8s.objects import mapping, ref_of, with_value
from gpuctl.k8s.workload_kinds import PodSet, pod_sets
from gpuctl.k8s.workload_table import BUILT_IN
from gpuctl.model.state import Body, RawObjects
from gpuctl.observe import observe
from workloads.declarations import CLUSTER, declared

POD = kinds.POD


def owned(kind: Kind, name: str, owner: Body, **fields: Any) -> dict[str, Any]:
    """An object that another one controls."""
    controller = {
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "controller": True,
    }  # fmt: skip
    meta = {"name": name, "namespace": "gpu-a", "uid": f"uid-{kind[1]}-{name}", "ownerReferences": [controller]}
    return {"apiVersion": kind[0], "kind": kind[1], "metadata": meta, **fields}


def pod(name: str, owner: Body, made: PodSet) -> dict[str, Any]:
    spec = {**made.template["spec"], "nodeName": "dgx-1"}
    return owned(POD, name, owner, spec=spec, status={"phase": "Running"})


def let_go(kind: Kind) -> tuple[dict[str, Any], dict[str, PodSet]]:
    """The run's object, and its pods by name."""
    compiled = api.compile({"cluster.yaml": CLUSTER, "train.yaml": declared(kind)})
    assert compiled.declared is not None
    (body,) = [each.body for each in waiting_manifests(compiled.declared).items if each.ref.kind == kind[1]]
    row = BUILT_IN[kind]
    whole = yaml.safe_load(
        yaml.safe_dump(with_value(body, row.suspension.field, 1 if row.suspension.is_count else False))
    )
    whole["metadata"]["uid"] = "uid-of-the-run"
    return whole, {each.name: each for each in pod_sets(row, mapping(whole, "spec"))}


def leader_worker_set() -> list[Body]:
    run, made = let_go(kinds.LEADER_WORKER_SET)
    name = run["metadata"]["name"]
    leaders = owned(kinds.STATEFUL_SET, name, run)
    leader = pod(f"{name}-0", leaders, made["leader"])
    workers = owned(kinds.STATEFUL_SET, f"{name}-0", leader)
    return [run, leaders, leader, workers, *(pod(f"{name}-0-{n}", workers, made["worker"]) for n in (1, 2))]


def ray_job() -> list[Body]:
    run, made = let_go(kinds.RAY_JOB)
    cluster, submitter = owned(kinds.RAY_CLUSTER, "train-abcde", run), owned(kinds.JOB, "train", run)
    heads = [pod("head", cluster, made["head"]), pod("submitter", submitter, made["submitter"])]
    return [run, cluster, submitter, *heads, *(pod(f"w{n}", cluster, made["gpu"]) for n in (1, 2))]


def pytorch_job() -> list[Body]:
    run, made = let_go(kinds.PYTORCH_JOB)
    return [run, pod("m", run, made["master"]), pod("w", run, made["worker"])]


def mpi_job() -> list[Body]:
    run, made = let_go(kinds.MPI_JOB)
    launcher = owned(kinds.JOB, "launcher", run)
    return [run, launcher, pod("l", launcher, made["launcher"]), *(pod(f"w{n}", run, made["worker"]) for n in (1, 2))]


@pytest.mark.parametrize("made", [leader_worker_set, ray_job, pytorch_job, mpi_job], ids=lambda made: made.__name__)
def test_each_pod_is_the_runs_through_what_stands_between(made: Any) -> None:
    bodies = made()
    state = observe(RawObjects(objects={ref_of(body): body for body in bodies}))
    (run,) = state.runs
    assert (run.phase, len(run.placement.workers) if run.placement else 0) == ("Running", 2)
    pods = [ref_of(body) for body in bodies if body["kind"] == "Pod"]
    assert sorted(state.pods) == sorted(pods)


@pytest.mark.parametrize("made", [leader_worker_set, ray_job], ids=lambda made: made.__name__)
def test_a_pod_whose_chain_is_broken_is_nobodys(made: Any) -> None:
    bodies = [body for body in made() if body["kind"] not in {"StatefulSet", "RayCluster"}]
    state = observe(RawObjects(objects={ref_of(body): body for body in bodies}))
    (run,) = state.runs
    assert run.phase == "Starting"
    assert not [ref for ref in state.pods if ref.name.startswith(("w", "train-")) and ref.name != "submitter"]
