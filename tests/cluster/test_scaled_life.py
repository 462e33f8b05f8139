"""A service that follows its load, on a real API server: Kubernetes' own autoscaler acts, gpuctl bounds it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from controlplane.server import ControlPlane
from metrics import Metrics, metrics_of
from town import Town, running

from gpuctl.adapters.clock import SystemClock
from gpuctl.app.cycle import CycleContext
from gpuctl.app.object_cache import ObjectCache
from gpuctl.k8s import names
from gpuctl.k8s.objects import annotations_of, number
from gpuctl.views.jobs import job_views

SCALED = (
    ", type: inference, gpus: 1, workers: 4, minWorkers: 1, "
    "scaling: {metric: messages, of: external, labels: {queue: chat}, target: 10}"
)


@pytest.fixture
def metrics(plane_with_gpuctl: ControlPlane) -> Iterator[Metrics]:
    with metrics_of(plane_with_gpuctl) as found:
        yield found


def replicas(town: Town) -> int:
    """Pods of the service that run and stay."""
    return sum(running(pod) and "deletionTimestamp" not in pod["metadata"] for _, pod in town.live("Pod", "web"))


def test_a_service_has_as_many_workers_as_its_load_asks_for_and_the_engine_admits(town: Town, metrics: Metrics) -> None:
    load = town.namespace, "messages"
    metrics.loads[load] = "5"
    town.jobs["web"] = SCALED
    town.until(lambda: town.phases() == {"web": "Running"} and replicas(town) == 1)
    scaler = town.one("HorizontalPodAutoscaler", "web")
    assert (scaler["spec"]["minReplicas"], scaler["spec"]["maxReplicas"]) == (1, 1)
    metrics.loads[load] = "25"
    town.until(lambda: replicas(town) == 3)
    assert town.one("HorizontalPodAutoscaler", "web")["spec"]["maxReplicas"] == 3
    assert any("labelSelector=queue%3Dchat" in path for path in metrics.asked)
    town.until(lambda: town.cycle().settled)
    town.jobs["train"] = ", gpus: 1"
    town.until(lambda: town.phases() == {"train": "Running", "web": "Running"})
    metrics.loads[load] = "400"
    town.until(lambda: town.phases() == {"train": "Queued", "web": "Running"} and replicas(town) == 4)
    service = town.one("Deployment", "web")
    assert number(service, "spec", "replicas") == 4
    assert annotations_of(service)[names.STARTS_ANNOTATION] == "1"
    town.until(lambda: town.cycle().settled)


def state_of(town: Town) -> str:
    (view,) = [each for each in job_views(town.state()) if each.id.name == "web"]
    return view.status


def test_a_service_without_load_has_no_worker_and_with_load_waits_for_a_place(town: Town, metrics: Metrics) -> None:
    load = town.namespace, "messages"
    metrics.loads[load] = "5"
    town.more_of_cluster = "  scheduling: {scaleToZero: true}\n"
    town.jobs["web"] = SCALED.replace("minWorkers: 1", "minWorkers: 0")
    town.until(lambda: town.phases() == {"web": "Running"} and replicas(town) == 1)
    town.jobs["train"] = ", gpus: 2, workers: 2, preemptible: false"
    metrics.loads[load] = "0"
    town.until(lambda: town.phases() == {"train": "Running", "web": "Queued"})
    assert state_of(town) == "ScaledToZero"
    assert number(town.one("Deployment", "web"), "spec", "replicas") == 0
    assert town.one("HorizontalPodAutoscaler", "web")["spec"]["minReplicas"] == 0
    town.until(lambda: town.cycle().settled)
    town.context = CycleContext(object_cache=ObjectCache(town.cluster), clock=SystemClock())  # gpuctl starts anew
    assert town.until(lambda: town.cycle().settled)
    assert state_of(town) == "ScaledToZero"
    metrics.loads[load] = "25"
    town.until(lambda: state_of(town) != "ScaledToZero")
    end = time.monotonic() + 11  # longer than from one look of the autoscaler to the next
    while time.monotonic() < end:
        town.cycle()
        assert town.live("Pod", "web") == []
        assert town.phases() == {"train": "Running", "web": "Queued"}
        time.sleep(1)
    assert number(town.one("Deployment", "web"), "spec", "replicas") == 0
    town.mark("train", run_for="0s")
    town.until(lambda: town.phases().get("web") == "Running" and replicas(town) == 3)
    assert annotations_of(town.one("Deployment", "web"))[names.STARTS_ANNOTATION] == "2"
    metrics.loads[load] = "0"
    town.until(lambda: state_of(town) == "ScaledToZero" and town.live("Pod", "web") == [])
    town.until(lambda: town.cycle().settled)
