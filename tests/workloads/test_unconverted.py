"""On a real API server: a kind whose versions a webhook converts that is away."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))

from controlplane.known import define
from controlplane.server import ControlPlane
from town import Town, town_on
from unattended import install

from gpuctl.k8s import kinds
from workloads.definitions import a_like_of

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("unconverted")]


@pytest.fixture
def town(new_control_plane: Callable[..., ControlPlane], request: pytest.FixtureRequest) -> Iterator[Town]:
    """An object of the kind is stored in another version than gpuctl asks for."""
    plane = new_control_plane()
    install(plane)
    (group, version), kind = kinds.JOB_SET[0].split("/"), kinds.JOB_SET[1]
    body = a_like_of(group, kind)
    body["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved, for a test"}
    (only,) = body["spec"]["versions"]
    body["spec"]["versions"] = [{**only, "name": version, "storage": False}, {**only, "name": "v9", "storage": True}]
    away = {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/convert"}}
    body["spec"]["conversion"] = {"strategy": "Webhook", "webhook": away}
    define(plane, body)
    one = {"apiVersion": f"{group}/v9", "kind": kind, "metadata": {"name": "one"}}
    plane.call("POST", f"/apis/{group}/v9/namespaces/default/jobsets", one)
    with town_on(plane, request.node.name) as made:
        yield made


def test_a_kind_that_the_server_can_not_convert_holds_up_nothing_else(town: Town) -> None:
    town.jobs["j"] = ", gpus: 1"
    town.comes_to(j="Running")
    ((kind, fault),) = town.context.object_cache.unread.items()
    assert (kind, fault.code) == (kinds.JOB_SET, "GPU7001")
