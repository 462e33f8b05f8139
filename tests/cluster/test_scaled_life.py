"""A service that follows its load, on a real API server: Kubernetes' own autoscaler acts, gpuctl bounds it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from controlplane.server import ControlPlane
from metrics import Metrics, metrics_of
from town import Town, running, town_on

from gpuctl.k8s import names
from gpuctl.k8s.objects import annotations_of, number

SCALED = (
    ", type: inference, gpus: 1, workers: 4, minWorkers: 1, "
    "scaling: {metric: messages, of: external, labels: {queue: chat}, target: 10}"
)


@pytest.fixture
def town(plane_with_gpuctl: ControlPlane, request: pytest.FixtureRequest) -> Iterator[Town]:
    with town_on(plane_with_gpuctl, request.node.name) as made:
        yield made


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
