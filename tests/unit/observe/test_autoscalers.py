"""How many workers an autoscaler asks for, by what it has written and by what it says it would."""

from __future__ import annotations

from typing import Any

import pytest

from gpuctl.k8s import kinds
from gpuctl.k8s.bounds import MOST_WORKERS
from gpuctl.model.ids import ObjectRef
from gpuctl.observe.autoscalers import asked, asked_workers


def scaler(*, desired: int = 2, current: int = 2, limit: str = "", mean: object = "15", **more: Any) -> dict[str, Any]:
    spec = {"metrics": [{"type": "Pods", "pods": {"target": {"averageValue": more.get("target", "10")}}}]}
    active = {"type": "ScalingActive", "status": more.get("active", "True")}
    limited = {
        "type": "ScalingLimited",
        "status": "True" if limit else "False",
        "reason": limit or "DesiredWithinRange",
    }
    status = {
        "desiredReplicas": desired,
        "currentReplicas": current,
        "conditions": [active, limited],
        "currentMetrics": [{"type": "Pods", "pods": {"current": {"averageValue": mean}}}],
    }
    return {"spec": spec, "status": status}


@pytest.mark.parametrize(
    ("autoscaler", "replicas", "wanted"),
    [
        (scaler(), 2, 2),
        (scaler(), 5, 5),  # it has changed them since
        (scaler(), 0, None),  # nothing runs
        (scaler(active="False"), 2, None),
        ({}, 2, None),  # it has not looked yet
        (scaler(limit="TooManyReplicas"), 2, 3),
        (scaler(limit="TooManyReplicas", mean="100"), 2, 20),
        (scaler(limit="ScaleUpLimit", mean="100500m"), 2, 21),
        (scaler(limit="TooManyReplicas", mean="10100m", target="10"), 2, 3),  # nearly enough, it says, is not
        (scaler(limit="TooFewReplicas"), 2, 2),
        (scaler(limit="TooManyReplicas", mean="100"), 4, 4),  # it spoke of two
        (scaler(limit="TooManyReplicas", mean="all"), 2, 3),
        (scaler(limit="TooManyReplicas", mean=None), 2, 3),
        (scaler(limit="TooManyReplicas", target="0"), 2, 3),
        (scaler(limit="TooManyReplicas", target={"x": 1}), 2, 3),
        (scaler(limit="TooManyReplicas", mean="9" * 40), 2, MOST_WORKERS),
    ],
)
def test_what_it_asks_for(autoscaler: dict[str, Any], replicas: int, wanted: int | None) -> None:
    assert asked(autoscaler, {"spec": {"replicas": replicas}}) == wanted


def test_each_run_has_the_autoscaler_of_its_name_and_namespace() -> None:
    refs = [ObjectRef(*kinds.DEPLOYMENT, space, "web-1") for space in ("a", "b")]
    found = {ObjectRef(*kinds.AUTOSCALER, "b", "web-1"): scaler(limit="TooManyReplicas")}
    assert asked_workers(found, refs, [{"spec": {"replicas": 2}}] * 2) == [None, 3]
    assert asked_workers({}, refs, [{}, {}]) == [None, None]
