"""How many workers an autoscaler asks for, by what it has written and by what it says it would."""

from __future__ import annotations

from typing import Any

import pytest

from gpuctl.k8s import kinds
from gpuctl.k8s.bounds import MOST_WORKERS
from gpuctl.model.ids import ObjectRef
from gpuctl.observe.autoscalers import Asked, asked, asked_of_run, asked_workers


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
    assert asked(autoscaler, {"spec": {"replicas": replicas}}) == Asked(wanted)


def at_zero(*, scaled: bool = True, limit: str = "", active: str = "True") -> dict[str, Any]:
    found = scaler(desired=0, current=0, limit=limit, active=active)
    conditions = [{**each, "lastTransitionTime": "2026-11-26T12:00:00Z"} for each in found["status"]["conditions"]]
    mark = {"type": "ScaledToZero", "status": "True" if scaled else "False"}
    status = {**found["status"], "conditions": [*conditions, mark], "lastScaleTime": "2026-11-26T11:00:00Z"}
    return {"spec": {**found["spec"], "minReplicas": 0}, "status": status}


NOON_MS = 1_795_694_400_000


@pytest.mark.parametrize(
    ("autoscaler", "wanted"),
    [
        (at_zero(), Asked(0, at_zero=True, taken_ms=NOON_MS - 3_600_000)),
        (at_zero(limit="ScaleUpLimit"), Asked(1, at_zero=True, load_ms=NOON_MS, taken_ms=NOON_MS - 3_600_000)),
        (at_zero(active="False"), Asked(0, at_zero=True, taken_ms=NOON_MS - 3_600_000)),  # its metric fails: it waits
        (at_zero(scaled=False), Asked(None, at_zero=True)),  # it has just taken the last
        (at_zero(scaled=False, active="False"), Asked(None)),  # it does not wait for load
        (scaler(), Asked(None)),  # gpuctl took them
    ],
)
def test_what_it_asks_for_at_zero(autoscaler: dict[str, Any], wanted: Asked) -> None:
    assert asked(autoscaler, {"spec": {"replicas": 0}}) == wanted


@pytest.mark.parametrize(
    ("told", "has", "is_let_go", "wanted"),
    [
        (None, 2, True, None),
        (Asked(2), 2, True, None),
        (Asked(3), 2, True, 3),
        (Asked(None, at_zero=True), None, True, 0),  # its mark comes a moment after it took the last
        (Asked(None, at_zero=True), None, False, None),  # gpuctl paused it
        (Asked(1, at_zero=True), None, False, 1),
        (Asked(3), None, True, None),
    ],
)
def test_what_a_run_is_to_have(told: Asked | None, has: int | None, *, is_let_go: bool, wanted: int | None) -> None:
    assert asked_of_run(told, has, is_let_go=is_let_go) == wanted


def test_each_run_has_the_autoscaler_of_its_name_and_namespace() -> None:
    refs = [ObjectRef(*kinds.DEPLOYMENT, space, "web-1") for space in ("a", "b")]
    found = {ObjectRef(*kinds.AUTOSCALER, "b", "web-1"): scaler(limit="TooManyReplicas")}
    assert asked_workers(found, refs, [{"spec": {"replicas": 2}}] * 2) == [None, Asked(3)]
    assert asked_workers({}, refs, [{}, {}]) == [None, None]
