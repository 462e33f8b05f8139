"""The life of a job that is a JobSet, with JobSet's own controller on a real API server: only the nodes are not real.

gpuctl is installed with its guard and has no more than its account; the controller is named by `--controllers`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))

from controlplane.build import go
from controlplane.server import ControlPlane
from town import Town, running, town_on
from unattended import install
from workloads.declarations import manifest

from gpuctl.install.installation import ACCOUNT
from gpuctl.k8s import kinds
from gpuctl.k8s.objects import flag, labels_of, mapping, text, uid
from gpuctl.model.state import Body, Run
from jobset import controller
from jobset.tools import HERE, HOW, JOBSET, MODULE

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("jobset")]


@pytest.fixture(scope="module")
def plane_with_jobset(new_control_plane: Callable[..., ControlPlane]) -> Iterator[ControlPlane]:
    built = JOBSET.find()
    if built is None:
        pytest.skip(f"no JobSet for the tests: {HOW}")
    listed = [*go(built.parent), "list", "-m", "-f", "{{.Dir}}", MODULE]
    found = subprocess.run(listed, cwd=HERE, capture_output=True, text=True, check=True, env=os.environ)
    plane = new_control_plane()
    install(plane, controllers=(controller.ACCOUNT,))
    with controller.running(built / "jobset", Path(found.stdout.strip()), plane):
        yield plane


@pytest.fixture
def town(plane_with_jobset: ControlPlane, request: pytest.FixtureRequest) -> Iterator[Town]:
    with town_on(plane_with_jobset, request.node.name) as made:
        made.more_of_pool = ", resourcesPerNode: {cpu: 8, memory: 64Gi}"
        yield made


def job_set(more: str = "") -> str:
    return f"\n{more}\n  manifest: {json.dumps(manifest(kinds.JOB_SET))}"


def train(town: Town) -> Run:
    (found,) = [run for run in town.state().runs if run.job.name == "train"]
    return found


def pods(town: Town, part: str = "") -> list[Any]:
    return [body for ref, body in town.live("Pod", "train") if part in ref.name and running(body)]


def nodes(found: list[Any]) -> list[str]:
    return sorted(body["spec"]["nodeName"].rpartition("-")[2] for body in found)


def job_set_of(town: Town) -> Body:
    found: Body = town.one("JobSet", "train")
    return found


def test_it_is_born_suspended_and_runs_at_its_place(town: Town) -> None:
    town.jobs["train"] = job_set()
    told: list[Any] = []
    while not told:
        told = [each for each in town.cycle().result.outcomes if each.change.ref.kind == "JobSet"]
        time.sleep(0.05)
    assert [(each.status, each.error) for each in told] == [("applied", "")]
    assert flag(job_set_of(town), "spec", "suspend")
    assert town.live("Pod", "train") == []
    town.until(lambda: town.phases() == {"train": "Running"} and len(pods(town)) == 3)
    run = train(town)
    assert (run.gpu_milli, run.starts) == (1000, 1)
    places = sorted(worker.node for worker in run.placement.workers) if run.placement else []
    assert [place.rpartition("-")[2] for place in places] == nodes(pods(town, "workers"))
    assert len(set(nodes(pods(town)))) == 1, "two workers of one GPU are packed onto one node, and the driver with them"
    assert town.until(lambda: town.cycle().settled)
    for _ in range(3):
        assert town.cycle().settled, "at rest it costs no write"


def test_it_makes_way_whole_and_goes_on_elsewhere(town: Town) -> None:
    town.jobs["train"] = job_set()
    town.until(lambda: town.phases() == {"train": "Running"} and len(pods(town)) == 3)
    first, at = uid(job_set_of(town)), nodes(pods(town, "workers"))
    town.jobs["train"] = job_set("  suspend: true")
    town.until(lambda: town.phases() == {"train": "Queued"} and not town.live("Pod", "train"))
    paused = job_set_of(town)
    assert flag(paused, "spec", "suspend")
    assert uid(paused) == first
    town.jobs["other"] = ", gpus: 2"
    town.until(lambda: town.phases().get("other") == "Running")
    taken = town.one("Pod", "other")["spec"]["nodeName"].rpartition("-")[2]
    town.jobs["train"] = job_set()
    town.until(lambda: train(town).phase == "Running" and len(pods(town)) == 3)
    assert taken not in nodes(pods(town))
    resumed = job_set_of(town)
    assert (uid(resumed) == first) is (taken not in at), "its templates can't be changed: elsewhere it is made anew"
    assert train(town).starts == 2
    assert town.until(lambda: town.cycle().settled)


def test_what_crashes_is_begun_anew_by_its_controller(town: Town) -> None:
    town.jobs["train"] = job_set()
    town.until(lambda: town.phases() == {"train": "Running"} and len(pods(town)) == 3)
    before = {uid(pod) for pod in pods(town)}
    town.mark("train", fail_after="0s")
    town.until(lambda: len(pods(town)) == 3 and not before & {uid(pod) for pod in pods(town)})
    assert mapping(job_set_of(town), "status")["restarts"] == 1
    town.until(lambda: train(town).phase == "Running")
    assert train(town).starts == 1
    town.mark("train", fail_after="0s")
    town.until(lambda: town.ended() == {"train": "Failed"})


def test_it_ends_and_is_not_run_again_and_is_pruned(town: Town) -> None:
    town.jobs["train"] = job_set()
    town.until(lambda: town.phases() == {"train": "Running"} and len(pods(town)) == 3)
    town.mark("train", run_for="0s")
    town.until(lambda: town.ended() == {"train": "Succeeded"})
    assert town.until(lambda: town.cycle().settled)
    assert text(job_set_of(town), "metadata", "namespace") == town.namespace
    town.jobs["next"] = ", gpus: 1"
    del town.jobs["train"]
    town.until(lambda: not [r for kind in ("JobSet", "Job", "Pod") for r, _ in town.live(kind, "train")])


def test_a_tenant_can_have_none_made_with_the_marks_of_a_run(town: Town) -> None:
    town.jobs["train"] = job_set()
    town.until(lambda: town.phases() == {"train": "Running"})
    whole = job_set_of(town)
    forged = {
        "apiVersion": whole["apiVersion"],
        "kind": whole["kind"],
        "metadata": {"name": "forged", "namespace": town.namespace},
        "spec": {**whole["spec"], "suspend": False},
    }
    path = f"/apis/{whole['apiVersion']}/namespaces/{town.namespace}/jobsets"
    refused = town.plane.refused("POST", path, forged)
    assert refused is not None
    assert "declared in Git" in refused[1]
    assert labels_of(whole)


def test_every_right_on_them_is_used(plane_with_jobset: ControlPlane) -> None:
    """By what the tests above did. That none is missing they show themselves: gpuctl has its account's rights alone."""
    requests = plane_with_jobset.audit.requests(told='"resource":"jobsets"')
    asked = [each for each in requests if each.get("objectRef", {}).get("resource") == "jobsets"]
    own = [each for each in asked if each["user"]["username"] == ACCOUNT]
    used = {each["verb"] for each in own} | ({"create"} if any(_made(each) for each in own) else set())
    assert used == set(kinds.VERBS[kinds.JOB_SET])


def _made(request: Any) -> bool:
    return bool(request.get("responseStatus", {}).get("code") == 201)
