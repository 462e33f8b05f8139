"""A server as Kubernetes 1.33 was, before claims for devices: what it lacks is told, and the rest works.

Its API server is today's with `--emulated-version`, which serves what that version served.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from controlplane.server import ControlPlane
from town import Town, town_on
from unattended import install

from gpuctl.adapters.kubernetes.connection import connect
from gpuctl.adapters.kubernetes.discovery import discover
from gpuctl.adapters.kubernetes.requests import Requests
from gpuctl.k8s import kinds
from gpuctl.model.decision import Pending


@pytest.fixture(scope="module")
def plane(new_control_plane: Callable[..., ControlPlane]) -> ControlPlane:
    made = new_control_plane(emulated="1.33")
    install(made)
    return made


@pytest.fixture
def town(plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[Town]:
    with town_on(plane, request.node.name) as made:
        yield made


def test_what_is_missing_is_told_once_each(plane: ControlPlane) -> None:
    with closing(connect(str(plane.kubeconfig))) as connection:
        report = discover(Requests(connection))
    claims = {kinds.CLAIM_TEMPLATE, kinds.RESOURCE_CLAIM, kinds.RESOURCE_SLICE, kinds.DEVICE_CLASS}
    assert (set(report.absent), len(report.absent)) == (claims, 4)
    assert report.told is not None
    assert " as 1.33 and does not serve DeviceClass, ResourceClaim, " in report.told[1]


def test_counted(town: Town) -> None:
    """Everything that needs no claim works: a job runs, is paused for nobody, ends, and its GPUs are free again."""
    town.jobs = {"one": ", gpus: 2", "two": ", gpus: 2, workers: 2"}
    town.comes_to(one="Running", two="Queued")
    town.mark("one", run_for="0s")
    town.until(lambda: town.ended().get("one") == "Succeeded")
    town.comes_to(one="Succeeded", two="Running")


def test_claimed(town: Town) -> None:
    """A job that needs a claim is not let go without it; its neighbour is."""
    town.sharing = "dra"
    town.jobs = {"half": ", gpus: 0.5", "cpu": ", gpus: 0"}
    town.comes_to(cpu="Running", half="Queued")
    (waits,) = (one for one in town.cycle().schedule.decisions if isinstance(one, Pending))
    assert (waits.job.name, waits.reason.code) == ("half", "GPU5061")


def test_changed_to_claims(town: Town) -> None:
    """Whole GPUs whose pool is declared to hand them out by claims from now on: what the server says is told."""
    town.jobs = {"one": ", gpus: 2"}
    town.comes_to(one="Running")
    town.sharing = "dra"
    faults = town.cycle().faults
    assert [fault.change.ref.kind for fault in faults] == ["ResourceClaimTemplate"]
    assert faults[0].error.endswith("the server does not serve this kind")
    assert town.phases() == {"one": "Running"}
