"""How many workers the autoscaler of a service asks for: the replicas that it wrote, and those it would write if
allowed.

It writes the number of replicas, up to the bound that gpuctl gives it. If it wants more, its status says so, with the
metric's mean over the present replicas; the wanted number follows from that.

Security: Kubernetes' controller writes the status. A tenant may not write it and, where the guard is installed, may not
have another autoscaler act on a run's Deployment. The status counts only within the bounds of the declaration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gpuctl.k8s import kinds
from gpuctl.k8s.bounds import MOST_WORKERS
from gpuctl.k8s.objects import condition, instant, items, mapping, number, text
from gpuctl.k8s.quantity import parse_milli
from gpuctl.model.ids import ObjectRef
from gpuctl.model.state import Body
from gpuctl.model.units import Instant

_WANTS_MORE = frozenset({"TooManyReplicas", "ScaleUpLimit"})
"""Why a ScalingLimited autoscaler has fewer replicas than it wants: its upper bound, or the allowed speed of
scaling."""


SCALED_TO_ZERO = "ScaledToZero"
"""The condition of an autoscaler that has removed the last replica itself, and waits for load."""


class Asked(NamedTuple):
    """How many workers an autoscaler asks for; None before it has looked, and where its metric fails.

    `at_zero`: it may remove the last replica, and there is none: it removed it, or has not seen yet that it is gone.
    `load_ms`: since when it asks for a worker then. `taken_ms`: when it removed the last one.
    """

    workers: int | None
    at_zero: bool = False
    load_ms: Instant = 0
    taken_ms: Instant = 0


def asked_workers(
    autoscalers: Mapping[ObjectRef, Body], refs: Sequence[ObjectRef], bodies: Sequence[Body]
) -> list[Asked | None]:
    """The replicas that the autoscaler of each run's object asks for; None for a run without one."""
    if not autoscalers:
        return [None] * len(refs)
    named = (ObjectRef(*kinds.AUTOSCALER, ref.namespace, ref.name) for ref in refs)
    found = [autoscalers.get(name) for name in named]
    return [None if one is None else asked(one, body) for one, body in zip(found, bodies, strict=True)]


def asked(autoscaler: Body, deployment: Body) -> Asked:
    """The replicas that one autoscaler asks for.

    A status about another number of replicas than the present one is older: it does not show that more are wanted.
    """
    replicas = number(deployment, "spec", "replicas", default=1)
    limited = condition(autoscaler, "ScalingLimited")
    wants_more = text(limited, "reason") in _WANTS_MORE
    if not replicas:
        return _from_zero(autoscaler, limited if wants_more else {})
    if not condition(autoscaler, "ScalingActive"):
        return Asked(None)
    if not wants_more or number(autoscaler, "status", "desiredReplicas") != replicas:
        return Asked(replicas)
    return Asked(min(MOST_WORKERS, max(replicas + 1, _by_metric(autoscaler))))


def _from_zero(autoscaler: Body, limited: Mapping[str, Any]) -> Asked:
    """One worker where there is load again, none where there is none. The autoscaler never creates that worker itself
    (see `render.inference`), so it shows the load by being limited."""
    if number(autoscaler, "spec", "minReplicas", default=1):
        return Asked(None)
    if not condition(autoscaler, SCALED_TO_ZERO):
        return Asked(None, at_zero=bool(condition(autoscaler, "ScalingActive")))
    load_ms, taken_ms = instant(limited, "lastTransitionTime") or 0, instant(autoscaler, "status", "lastScaleTime") or 0
    return Asked(1 if limited else 0, at_zero=True, load_ms=load_ms, taken_ms=taken_ms)


def asked_of_run(told: Asked | None, has: int | None, *, is_let_go: bool) -> int | None:
    """How many workers a run should have by its load; None if it has as many. `has`: the workers of a run whose pods
    start or run; None for any other run.

    The last worker of a released run is gone before its autoscaler reports that it removed it.
    """
    if told is None:
        return None
    if has is None:
        return (0 if is_let_go and told.workers is None else told.workers) if told.at_zero else None
    return None if told.workers == has else told.workers


def _by_metric(autoscaler: Body) -> int:
    """The number of replicas that divides the whole load into targets, rounded up; 0 if the load is not known."""
    (wanted,) = [*items(autoscaler, "spec", "metrics")][:1] or [{}]
    (measured,) = [*items(autoscaler, "status", "currentMetrics")][:1] or [{}]
    kind = text(wanted, "type").lower()
    try:
        target = parse_milli(mapping(wanted, kind, "target").get("averageValue", 0))
        mean = parse_milli(mapping(measured, kind, "current").get("averageValue", 0))
    except ValueError:
        return 0
    return -(-mean * number(autoscaler, "status", "currentReplicas") // target) if target > 0 else 0
