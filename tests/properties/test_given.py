"""A scenario begins as it is given: each running job on the very nodes and GPUs that the file names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuctl import wiring
from gpuctl.app.simulation import simulate_file
from gpuctl.diag.text import text_form

NODES = {"n1": 4, "n2": 3, "n3": 2}


@st.composite
def scenarios(draw: st.DrawFn) -> dict[str, Any]:
    """Gangs and services on any GPUs of three nodes, and foreign pods on some of the rest."""
    free = {node: list(range(gpus)) for node, gpus in NODES.items()}
    jobs: list[dict[str, Any]] = []
    running: list[dict[str, Any]] = []
    for number in range(draw(st.integers(1, 4))):
        each = draw(st.sampled_from((1, 1, 2)))
        workers = []
        for _ in range(draw(st.integers(1, 3))):
            able = [node for node, gpus in free.items() if len(gpus) >= each]
            if able:
                node = draw(st.sampled_from(able))
                gpus = sorted(draw(st.permutations(free[node]))[:each])
                free[node] = [gpu for gpu in free[node] if gpu not in gpus]
                workers.append({"node": node, "gpus": gpus})
        if workers:
            kind = draw(st.sampled_from(("training", "training", "inference")))
            spec = {"type": kind, "image": "i", "gpus": each, "workers": len(workers)}
            jobs.append(_document("Job", {"name": f"j{number}", "project": "a"}, spec))
            since = f"-{draw(st.integers(5, 60))}s"
            running.append({"job": f"a/j{number}", "since": since, "placement": workers})
    pool = {
        "name": "p",
        "gpuMemory": "32Gi",
        "sharing": draw(st.sampled_from(("device-plugin", "dra", "hami"))),
        "nodes": [{"name": node, "gpus": gpus} for node, gpus in NODES.items()],
    }
    documents = [
        _document("Cluster", {"name": "c"}, {"nodePools": [pool]}),
        _document("Project", {"name": "a"}, {"quota": sum(NODES.values())}),
        *jobs,
    ]
    foreign = {node: draw(st.integers(0, len(gpus))) for node, gpus in free.items()}
    given_state = {"documents": documents, "running": running, "foreign": foreign}
    scenario = _document("Scenario", {"name": "given"}, {})
    del scenario["spec"]
    return {**scenario, "given": given_state, "until": "0s"}


def _document(kind: str, metadata: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "gpuctl.dev/v1", "kind": kind, "metadata": metadata, "spec": spec}


@given(scenarios())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_given_jobs_run_where_they_are_given(scenario: dict[str, Any]) -> None:
    content = json.dumps(scenario).encode()
    found = simulate_file("s.yaml", content, wiring.scenario_reader(Path("s.yaml")), wiring.sandbox)
    assert found.report is not None, text_form(found.diagnostics)
    rows = {str(row.job): row for row in found.report.checkpoints[0].jobs}
    for run in scenario["given"]["running"]:
        row = rows[run["job"]]
        assert row.placement is not None, run
        there = [(worker.node, list(worker.gpus)) for worker in row.placement.workers]
        assert sorted(there) == sorted((worker["node"], worker["gpus"]) for worker in run["placement"])
        assert (row.state.value, row.starts) == ("Running", 1)
