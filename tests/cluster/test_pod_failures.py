"""Pods that do not run, on a real API server: told by their reason, their GPUs given back, the next job started."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from controlplane.server import ControlPlane
from town import Town, town_on

from gpuctl.adapters.clock import SystemClock
from gpuctl.app.inspect import live
from gpuctl.model.ids import JobId
from gpuctl.model.units import DurationMs, Instant

STUCK = JobId.parse("a/stuck")
REASONS = ("ImagePullBackOff", "ErrImageNeverPull", "CreateContainerConfigError", "CrashLoopBackOff")


class Ahead:
    """The machine's clock, put ahead so that nothing has to be waited for."""

    def __init__(self) -> None:
        self.by_ms: DurationMs = 0
        self._clock = SystemClock()

    def now_ms(self) -> Instant:
        return self._clock.now_ms() + self.by_ms


@pytest.fixture
def town(plane_with_gpuctl: ControlPlane, request: pytest.FixtureRequest) -> Iterator[Town]:
    with town_on(plane_with_gpuctl, request.node.name) as made:
        yield made


def status(town: Town) -> str:
    found = [view for view in live(town.cluster).find(STUCK) if view.ref.namespace == town.namespace]
    return found[0].status if found else ""


def gives_its_gpus_back(town: Town, *, then: bool = True) -> None:
    """Of two jobs of all GPUs the second starts once the first is given up; `then`: if the server takes its pods."""
    clock = Ahead()
    town.context = replace(town.context, clock=clock)
    town.jobs["then"] = ", gpus: 2, workers: 2"
    clock.by_ms += 61_000
    town.cycle()
    clock.by_ms += 900_000
    town.until(lambda: town.phases().get("then") == ("Running" if then else "Starting"))
    assert town.phases()["stuck"] == "Queued"
    (run,) = [run for run in town.state().runs if run.job.name == "stuck"]
    assert (run.starts, run.failed_starts) == (0, 1)


@pytest.mark.parametrize("reason", REASONS)
def test_a_container_that_can_not_start(town: Town, reason: str) -> None:
    town.jobs["stuck"] = f", gpus: 2, workers: 2, env: {{STUCK: {reason}}}"
    town.until(lambda: status(town) == reason)
    gives_its_gpus_back(town)


def test_pods_that_the_server_refuses(town: Town) -> None:
    town.until(lambda: town.cycle().settled)
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "no-more"}}
    town.plane.call(
        "POST", f"/api/v1/namespaces/{town.namespace}/resourcequotas", {**quota, "spec": {"hard": {"pods": "0"}}}
    )
    town.jobs["stuck"] = ", gpus: 2, workers: 2"
    town.until(lambda: status(town) == "FailedCreate")
    gives_its_gpus_back(town, then=False)
