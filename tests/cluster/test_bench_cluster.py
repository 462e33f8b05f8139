"""`gpuctl bench cluster` in small: what it counts is exact, whatever the machine's speed."""

from __future__ import annotations

import json
from collections.abc import Callable

from click.testing import CliRunner
from controlplane.server import ControlPlane, node

from gpuctl.cli.bench_cluster import cluster


def test_the_owner_gets_its_gpus_back_in_one_decision_and_everything_runs(
    new_control_plane: Callable[[], ControlPlane],
) -> None:
    plane = new_control_plane()
    arguments = ["--kubeconfig", str(plane.kubeconfig), "--scale", "small", "-o", "json"]
    only = [word for name in ("flow", "reclaim", "memory") for word in ("--only", name)]
    done = CliRunner().invoke(cluster, [*arguments, *only], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    (measured,) = json.loads(done.stdout)["rounds"]
    flow, reclaim = measured["flow"], measured["reclaim"]
    assert flow["jobs"] == 20
    assert flow["costs"]["writes"] <= 4 * 20
    assert 0 < flow["busy_milli"] <= 1000
    written = {kind: one["count"] for kind, one in flow["costs"]["by_kind"].items()}
    assert sum(count for kind, count in written.items() if kind != "Event") == flow["costs"]["writes"]
    assert (reclaim["wanted"], reclaim["paused"], reclaim["pausing_cycles"]) == (4, 4, 1)
    assert measured["queued"]["wall_ms"] >= 1_000
    assert {name: len(costs) for name, costs in measured["bare"].items()} == {"flow": 2, "reclaim": 1}
    memory = measured["memory"]
    assert memory["jobs"] == 20
    assert 0 < memory["made"]["memory_mib"] <= memory["made"]["peak_mib"]
    assert 0 < memory["found"]["memory_mib"] <= memory["found"]["peak_mib"]
    published = 2  # the status and the overview, once each by a new leader
    assert memory["made"]["writes"] > 20
    assert memory["found"]["writes"] <= 1 + published
    namespaces = plane.call("GET", "/api/v1/namespaces")["items"]
    assert [name for one in namespaces if (name := one["metadata"]["name"]).startswith("bench-")] == []

    plane.call("POST", "/api/v1/nodes", node("somebody-elses"))
    refused = CliRunner().invoke(cluster, arguments)
    assert getattr(refused.exception, "code", "") == "GPU7095"
