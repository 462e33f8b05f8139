"""How many workers the autoscaler of a service asks for: what it made of the Deployment, and what it would if it might.

It writes the number of replicas, up to the bound that gpuctl gives it. Where it wants more than that, its status says
so, with the metric's mean over the replicas that there are; from this follows how many it would have.

A status is written by Kubernetes' controller; a tenant may neither write it nor, where the guard is installed, have
another autoscaler act on a run's Deployment. Whatever it says counts within the bounds of the declaration alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpuctl.k8s import kinds
from gpuctl.k8s.bounds import MOST_WORKERS
from gpuctl.k8s.objects import condition, items, mapping, number, text
from gpuctl.k8s.quantity import parse_milli
from gpuctl.model.ids import ObjectRef
from gpuctl.model.state import Body

_WANTS_MORE = frozenset({"TooManyReplicas", "ScaleUpLimit"})
"""Why a ScalingLimited autoscaler has fewer replicas than it would: its upper bound, or how fast it may go."""


def asked_workers(
    autoscalers: Mapping[ObjectRef, Body], refs: Sequence[ObjectRef], bodies: Sequence[Body]
) -> list[int | None]:
    """What is asked for by the autoscaler of each run, by its object; None where it has none, or one that is silent."""
    if not autoscalers:
        return [None] * len(refs)
    named = (ObjectRef(*kinds.AUTOSCALER, ref.namespace, ref.name) for ref in refs)
    found = [autoscalers.get(name) for name in named]
    return [None if one is None else asked(one, body) for one, body in zip(found, bodies, strict=True)]


def asked(autoscaler: Body, deployment: Body) -> int | None:
    """What one autoscaler asks for; None before it has looked for the first time, and where its metric fails.

    A status that is not about the replicas that there are now is of before them, and does not say that more are wanted.
    """
    replicas = number(deployment, "spec", "replicas", default=1)
    if not replicas or not condition(autoscaler, "ScalingActive"):
        return None
    limited = condition(autoscaler, "ScalingLimited")
    if text(limited, "reason") not in _WANTS_MORE or number(autoscaler, "status", "desiredReplicas") != replicas:
        return replicas
    return min(MOST_WORKERS, max(replicas + 1, _by_metric(autoscaler)))


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
