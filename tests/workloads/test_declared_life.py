"""The life of a job of a kind that only the Cluster declares, on a real API server, with its installation's rights.

The kind's controller is the test: it makes and removes pods as the account that `--controller` names.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))

from controlplane.server import ControlPlane, is_served
from town import MERGE, Town, running, town_on
from unattended import install, typed, within

from gpuctl.app.overview import overview_of
from gpuctl.app.report import of_lacking
from gpuctl.install import Duties
from gpuctl.k8s import names
from gpuctl.k8s.objects import labels_of, uid
from gpuctl.k8s.overview import encode_overview
from workloads.declarations import KINDS_OF_CLUSTER, ROWS, TF_JOB, TRAINING_RUN, manifest
from workloads.definitions import definition

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("declared")]
CONTROLLER = "system:serviceaccount:training:controller"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture(scope="module")
def plane(new_control_plane: Callable[..., ControlPlane]) -> ControlPlane:
    """gpuctl was installed before the Cluster declared the kinds; one of the two is there."""
    made = new_control_plane()
    install(made, controllers=(CONTROLLER,))
    body = definition(TRAINING_RUN)
    made.call("POST", CRDS, body)
    within(30, lambda: is_served(made.call("GET", f"{CRDS}/{body['metadata']['name']}")))
    for user in (CONTROLLER, "ann"):
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
        binding = {"metadata": {"name": user.rpartition(":")[2]}, "roleRef": role, "subjects": [subject]}
        made.call("POST", f"{RBAC}/clusterrolebindings", binding)
    return made


@pytest.fixture
def town(plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[Town]:
    with town_on(plane, request.node.name) as made:
        made.more_of_pool = ", resourcesPerNode: {cpu: 8, memory: 64Gi}"
        made.more_of_cluster = KINDS_OF_CLUSTER
        made.jobs["train"] = f"\n  manifest: {json.dumps(manifest(TRAINING_RUN))}"
        yield made


def told(town: Town) -> list[tuple[str, str]]:
    cache = town.context.object_cache
    entries = [entry.fields for entry in of_lacking(cache.absent, cache.refused)]
    return [(str(facts["code"]), str(facts["message"]).partition(" of ")[0].split()[-1]) for facts in entries]


def test_without_rights_and_without_a_definition_it_is_told_and_other_jobs_run(town: Town) -> None:
    town.jobs["other"] = ", gpus: 1"
    town.until(lambda: town.phases() == {"other": "Running"})
    assert told(town) == [("GPU7022", "TFJob"), ("GPU7021", "TrainingRun")]
    (waits,) = [each for each in town.cycle().schedule.decisions if each.job.name == "train"]
    assert waits.reason is not None
    assert waits.reason.code == "GPU5074"
    assert town.cycle().settled


def runs_of(town: Town) -> str:
    return f"/apis/{TRAINING_RUN[0]}/namespaces/{town.namespace}/trainingruns"


def the_run(town: Town) -> Any:
    (found,) = town.plane.call("GET", runs_of(town))["items"]
    return found


def pods(town: Town) -> list[Any]:
    found: list[Any] = town.plane.call("GET", f"/api/v1/namespaces/{town.namespace}/pods")["items"]
    return [pod for pod in found if labels_of(pod).get(names.JOB_LABEL) == "train"]


def control(town: Town) -> None:
    """What the kind's controller does."""
    run = the_run(town)
    path, own = f"/api/v1/namespaces/{town.namespace}/pods", pods(town)
    owner = {"apiVersion": run["apiVersion"], "kind": run["kind"], "name": run["metadata"]["name"], "uid": uid(run)}
    if run["spec"].get("paused"):
        for pod in own:
            town.plane.call("DELETE", f"{path}/{pod['metadata']['name']}?gracePeriodSeconds=0", user=CONTROLLER)
    elif not own:
        for group in run["spec"]["groups"]:
            for number in range(group["pods"].get("count", 1)):
                name = f"{run['metadata']['name']}-{group['name']}-{number}"
                template = group["pods"]["template"]
                meta = {**template["metadata"], "name": name, "ownerReferences": [{**owner, "controller": True}]}
                town.plane.call("POST", path, {"metadata": meta, "spec": template["spec"]}, user=CONTROLLER)
    left = len(pods(town))
    tells(town, "Paused" if run["spec"].get("paused") and not left else "Running", left)


def tells(town: Town, phase: str, left: int) -> None:
    path = f"{runs_of(town)}/{the_run(town)['metadata']['name']}/status"
    town.plane.call("PATCH", path, {"status": {"phase": phase, "running": left}}, media=MERGE, user=CONTROLLER)


def test_it_is_admitted_placed_paused_resumed_and_ended_and_none_is_made_by_hand(town: Town) -> None:
    rows = tuple(ROWS[kind] for kind in (TF_JOB, TRAINING_RUN))
    install(town.plane, controllers=(CONTROLLER,), duties=Duties(kinds=rows))
    declared, until = town.jobs.pop("train"), time.monotonic() + 120
    town.until(lambda: told(town) == [("GPU7022", "TFJob")])
    while not is_counted(town):
        assert time.monotonic() < until, "the server does not count the kind"
    town.jobs["train"] = declared
    town.until(lambda: town.plane.call("GET", runs_of(town))["items"])
    assert the_run(town)["spec"]["paused"] is True, "it is born without pods"
    assert pods(town) == []

    def goes_on() -> bool:
        control(town)
        return town.phases() == {"train": "Running"} and len([pod for pod in pods(town) if running(pod)]) == 3

    town.until(goes_on)
    (run,) = town.state().runs
    assert (run.gpu_milli, run.cpu_milli, run.starts) == (1000, 1500, 1)
    workers = [pod["spec"]["nodeName"] for pod in pods(town) if "workers" in pod["metadata"]["name"]]
    assert sorted(workers) == sorted(worker.node for worker in run.placement.workers) if run.placement else False
    assert all(node.foreign_cpu_milli == 0 for node in town.state().nodes if node.labels.get("town") == town.name)

    made = {"apiVersion": TRAINING_RUN[0], "kind": "TrainingRun", "metadata": {"name": "by-hand"}, "spec": {}}
    refusal = within(30, lambda: town.plane.refused("POST", f"{runs_of(town)}?dryRun=All", made, user="ann"))
    assert refusal is not None
    assert "declared in Git" in refusal[1]

    town.jobs["train"] = f"\n  suspend: true{declared}"

    def is_paused() -> bool:
        control(town)
        return town.phases() == {"train": "Queued"}

    town.until(is_paused)
    before = uid(the_run(town))
    town.jobs["train"] = declared
    town.until(goes_on)
    assert uid(the_run(town)) == before, "in the same place it is the same object"
    seen_by_people(town)

    for pod in pods(town):
        path = f"/api/v1/namespaces/{town.namespace}/pods/{pod['metadata']['name']}"
        town.plane.call("DELETE", f"{path}?gracePeriodSeconds=0", user=CONTROLLER)
    tells(town, "Done", 0)
    town.until(lambda: town.ended() == {"train": "Succeeded"})
    del town.jobs["train"]
    town.until(lambda: not town.plane.call("GET", runs_of(town))["items"])


def is_counted(town: Town) -> bool:
    """The server counts a new kind some time after it serves it, in quotas that are made then; else it refuses it."""
    path = f"/api/v1/namespaces/{town.namespace}/resourcequotas/{names.QUOTA_NAME}"
    town.until(lambda: town.plane.refused("GET", path) is None)
    town.plane.call("DELETE", path)
    town.until(lambda: town.plane.refused("GET", path) is None)
    time.sleep(2)
    return "count/trainingruns.batch.example.com" in town.plane.call("GET", path).get("status", {}).get("used", {})


def seen_by_people(town: Town) -> None:
    """`list` and `get` know of the kind by what the leader publishes."""
    report = town.cycle()
    body = encode_overview(overview_of(report.declared, report.state, report.schedule, {}))
    path = f"/api/v1/namespaces/gpuctl-system/configmaps/{body['metadata']['name']}?fieldManager=gpuctl&force=true"
    town.plane.call("PATCH", path, body)
    listed = typed(town.plane.kubeconfig, "list")
    (line,) = [line for line in listed.output.splitlines() if " train " in line or line.startswith("train")]
    assert "Running" in line
    assert typed(town.plane.kubeconfig, "get", "a/train").exit_code == 0
