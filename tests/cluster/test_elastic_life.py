"""The life of an elastic job on a real API server: it gives up workers and has them back, and is never stopped."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from controlplane.server import ControlPlane
from town import Town, running, town_on

from gpuctl.k8s import names
from gpuctl.k8s.objects import annotations_of, number, uid


@pytest.fixture
def town(plane_with_gpuctl: ControlPlane, request: pytest.FixtureRequest) -> Iterator[Town]:
    with town_on(plane_with_gpuctl, request.node.name) as made:
        yield made


def workers(town: Town) -> int:
    """Workers of the job that run and stay."""
    return sum(running(pod) and "deletionTimestamp" not in pod["metadata"] for _, pod in town.live("Pod", "e"))


def first_worker(town: Town) -> str:
    return next(uid(pod) for _, pod in town.live("Pod", "e") if annotations_of(pod)[names.WORKER_INDEX_LABEL] == "0")


def test_an_elastic_job_makes_way_with_workers_only_and_grows_when_it_may(town: Town) -> None:
    elastic = ", gpus: 1, workers: 4, minWorkers: 1"
    town.jobs["e"] = elastic
    town.until(lambda: workers(town) == 4)
    first = first_worker(town)
    town.jobs["urgent"] = ", gpus: 2, priority: 5"
    town.until(lambda: town.phases() == {"e": "Running", "urgent": "Running"} and workers(town) == 2)
    job = town.one("Job", "e")
    assert number(job, "spec", "completions") == number(job, "spec", "parallelism") == 2
    assert annotations_of(job)[names.STARTS_ANNOTATION] == "1"
    assert first_worker(town) == first
    assert not number(job, "status", "failed")
    town.until(lambda: town.cycle().settled)
    town.mark("urgent", run_for="0s")
    town.until(lambda: town.ended() == {"urgent": "Succeeded"} and workers(town) == 4)
    assert first_worker(town) == first
    assert annotations_of(town.one("Job", "e"))[names.STARTS_ANNOTATION] == "1"
    town.until(lambda: town.cycle().settled)
