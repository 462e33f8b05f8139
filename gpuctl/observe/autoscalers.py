"""How many workers the autoscaler of a service asks for: what it made of the Deployment, and what it would if it might.

It writes the number of replicas, up to the bound that gpuctl gives it. Where it wants more than that, its status says
so, with the metric's mean over the replicas that there are; from this follows how many it would have.

A status is written by Kubernetes' controller; a tenant may neither write it nor, where the guard is installed, have
another autoscaler act on a run's Deployment. Whatever it says counts within the bounds of the declaration alone.
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
"""Why a ScalingLimited autoscaler has fewer replicas than it would: its upper bound, or how fast it may go."""


SCALED_TO_ZERO = "ScaledToZero"
"""The condition of an autoscaler that has taken the last replica itself, and waits for load."""


class Asked(NamedTuple):
    """What an autoscaler asks for: so many workers; None before it has looked, and where its metric fails.

    `at_zero`: it may take the last replica, and there is none, which it did or has not seen yet. `load_ms`: since when
    it asks for one then. `taken_ms`: when it took the last.
    """

    workers: int | None
    at_zero: bool = False
    load_ms: Instant = 0
    taken_ms: Instant = 0


def asked_workers(
    autoscalers: Mapping[ObjectRef, Body], refs: Sequence[ObjectRef], bodies: Sequence[Body]
) -> list[Asked | None]:
    """What is asked for by the autoscaler of each run, by its object; None where it has none."""
    if not autoscalers:
        return [None] * len(refs)
    named = (ObjectRef(*kinds.AUTOSCALER, ref.namespace, ref.name) for ref in refs)
    found = [autoscalers.get(name) for name in named]
    return [None if one is None else asked(one, body) for one, body in zip(found, bodies, strict=True)]


def asked(autoscaler: Body, deployment: Body) -> Asked:
    """What one autoscaler asks for.

    A status that is not about the replicas that there are now is of before them, and does not say that more are wanted.
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
    """One worker where there is load again, none where there is none. It never makes that worker itself (see
    `render.inference`), so that it says so by being limited."""
    if number(autoscaler, "spec", "minReplicas", default=1):
        return Asked(None)
    if not condition(autoscaler, SCALED_TO_ZERO):
        return Asked(None, at_zero=bool(condition(autoscaler, "ScalingActive")))
    load_ms, taken_ms = instant(limited, "lastTransitionTime") or 0, instant(autoscaler, "status", "lastScaleTime") or 0
    return Asked(1 if limited else 0, at_zero=True, load_ms=load_ms, taken_ms=taken_ms)


def asked_of_run(told: Asked | None, has: int | None, *, is_let_go: bool) -> int | None:
    """How many workers a run is to have by its load, where those are not the ones that it has. `has`: of one whose pods
    start or run, None for any other.

    The last worker of a run that was let go is taken before its autoscaler says that it took it.
    """
    if told is None:
        return None
    if has is None:
        return (0 if is_let_go and told.workers is None else told.workers) if told.at_zero else None
    return None if told.workers == has else told.workers


def _by_metric(autoscaler: Body) -> int:
    """How many replicas would have the target each, of what all have together; 0 where that is not told."""
    (wanted,) = [*items(autoscaler, "spec", "metrics")][:1] or [{}]
    (measured,) = [*items(autoscaler, "status", "currentMetrics")][:1] or [{}]
    kind = text(wanted, "type").lower()
    try:
        target = parse_milli(mapping(wanted, kind, "target").get("averageValue", 0))
        mean = parse_milli(mapping(measured, kind, "current").get("averageValue", 0))
    except ValueError:
        return 0
    return -(-mean * number(autoscaler, "status", "currentReplicas") // target) if target > 0 else 0
