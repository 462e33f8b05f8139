"""What stops an object of each kind, and when it has stopped."""

from __future__ import annotations

from typing import Any

import pytest

from gpuctl.k8s import kinds
from gpuctl.k8s.kinds import Kind
from gpuctl.k8s.objects import with_value
from gpuctl.k8s.suspension import (
    is_let_go,
    is_stopped,
    suspended_like,
    suspension_of,
    with_suspension,
)
from gpuctl.k8s.workload_table import BUILT_IN

EVERY = pytest.mark.parametrize("kind", [kinds.JOB, kinds.DEPLOYMENT, *BUILT_IN], ids=lambda kind: kind[1])


def a(kind: Kind, **status: Any) -> dict[str, Any]:
    return {"apiVersion": kind[0], "kind": kind[1], "spec": {"replicas": 3}, "status": status}


@EVERY
def test_an_object_is_stopped_and_let_go_again(kind: Kind) -> None:
    rule = suspension_of(a(kind), BUILT_IN)
    goes = with_suspension(rule, a(kind), stopped=False)
    assert is_let_go(goes, BUILT_IN)
    stops = with_suspension(rule, goes, stopped=True)
    assert not is_let_go(stops, BUILT_IN)
    assert suspended_like(rule, stops, goes) == goes
    assert suspended_like(rule, goes, stops) == stops


@EVERY
def test_it_has_stopped_once_its_status_says_so(kind: Kind) -> None:
    rule = suspension_of(a(kind), BUILT_IN)
    stops = with_suspension(rule, a(kind), stopped=True)
    assert is_stopped(stops, BUILT_IN)
    for path in rule.active:
        assert not is_stopped(with_value(stops, path, 1), BUILT_IN)
    if rule.begun:
        assert not is_stopped(with_value(stops, rule.begun, "2026-01-01T00:00:00Z"), BUILT_IN)
    if rule.told is not None:
        condition = [{"type": rule.told.condition, "status": "False"}]
        path, says = (rule.told.field, "Running") if rule.told.field else (("status", "conditions"), condition)
        assert not is_stopped(with_value(stops, path, says), BUILT_IN)
    assert not is_stopped(with_suspension(rule, a(kind), stopped=False), BUILT_IN)


def test_a_count_that_is_not_said_lets_a_deployment_go() -> None:
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {}}
    assert is_let_go(body, BUILT_IN)
