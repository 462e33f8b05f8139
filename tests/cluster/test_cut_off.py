"""The control plane is cut off from all nodes: no run is stopped then.

The node controller evicts nothing either, but it may have tainted a first node before it has looked at all of them: the
surer, the more pods it marks as not ready meanwhile. On a control plane of its own: it counts the nodes of all.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator

import pytest
from controlplane.server import ControlPlane
from town import Town, town_on
from unattended import at_last, install

from gpuctl.k8s.objects import condition, uid

OTHERS = "/api/v1/namespaces/default/pods"
_PODS = 30
"""So many that the node controller has looked at the node before it has marked all of them."""
_CYCLES_S = 5


@pytest.fixture
def town(new_control_plane: Callable[..., ControlPlane], request: pytest.FixtureRequest) -> Iterator[Town]:
    plane = new_control_plane()
    install(plane)
    with town_on(plane, request.node.name) as made:
        yield made


def test_runs_go_on_while_no_node_is_heard_of(town: Town) -> None:
    node = f"{town.name}-n1"
    town.plane.call("DELETE", f"/api/v1/nodes/{town.name}-n2")
    town.jobs["j"] = ", gpus: 1"
    town.comes_to(j="Running")
    ((_, pod),) = town.live("Pod", "j")
    for number in range(_PODS):
        other = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"other-{number}", "namespace": "default"}}
        other["spec"] = {"nodeName": node, "containers": [{"name": "main", "image": "x"}]}
        town.plane.call("POST", OTHERS, other)
    at_last(lambda: ready_pods(town) == _PODS)
    os.kill(town.plane.pid("kwok"), signal.SIGSTOP)
    try:
        at_last(lambda: ready_pods(town) == 0)
        until = time.monotonic() + _CYCLES_S
        while time.monotonic() < until:
            town.cycle()
            time.sleep(0.5)
        tainted = [taint["effect"] for taint in town.plane.call("GET", f"/api/v1/nodes/{node}")["spec"]["taints"]]
        assert "NoSchedule" in tainted
        assert town.phases() == {"j": "Running"}, tainted
        assert [uid(body) for _, body in town.live("Pod", "j")] == [uid(pod)], tainted
    finally:
        os.kill(town.plane.pid("kwok"), signal.SIGCONT)


def ready_pods(town: Town) -> int:
    return sum(bool(condition(body, "Ready")) for body in town.plane.call("GET", OTHERS)["items"])
