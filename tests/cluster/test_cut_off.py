"""The control plane is cut off from all nodes: no run is stopped then.

The node controller evicts nothing either, but it may have tainted a first node before it has looked at all of them: the
surer, the more pods it marks as not ready meanwhile. On a control plane of its own: it counts the nodes of all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from controlplane.server import ControlPlane
from town import MERGE, Town, town_on
from unattended import install

from gpuctl.k8s.objects import condition, uid

_LOOKS_EVERY_S = 5
"""The node controller."""
_PODS = 30
"""So many that most times the node is tainted with NoExecute too."""


@pytest.fixture
def town(new_control_plane: Callable[..., ControlPlane], request: pytest.FixtureRequest) -> Iterator[Town]:
    plane = new_control_plane()
    install(plane)
    with town_on(plane, request.node.name) as made:
        yield made


def test_runs_go_on_while_no_node_is_heard_of(town: Town) -> None:
    path = f"/api/v1/nodes/{town.name}"
    town.plane.call("DELETE", f"{path}-n2")
    town.jobs["j"] = ", gpus: 1"
    town.comes_to(j="Running")
    ((_, pod),) = town.live("Pod", "j")
    for number in range(_PODS):
        other = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"other-{number}", "namespace": "default"}}
        other["spec"] = {"nodeName": f"{town.name}-n1", "containers": [{"name": "main", "image": "x"}]}
        town.plane.call("POST", "/api/v1/namespaces/default/pods", other)
    town.plane.call("PATCH", f"{path}-n1", {"metadata": {"annotations": {"test/not-ready": "yes"}}}, media=MERGE)
    town.until(lambda: not condition(town.plane.call("GET", f"{path}-n1"), "Ready"))

    town.until(lambda: town.plane.call("GET", f"{path}-n1")["spec"].get("taints", ()))
    until = time.monotonic() + 2 * _LOOKS_EVERY_S
    while time.monotonic() < until:
        town.cycle()
        time.sleep(0.5)
    assert town.phases() == {"j": "Running"}
    assert [uid(body) for _, body in town.live("Pod", "j")] == [uid(pod)]
