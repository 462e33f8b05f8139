"""The autoscaler of Kubernetes, for one metric whose target is a mean value. A scenario sets a job's load.

It looks when something changes, and every 15 seconds until it has come to rest. Source: Kubernetes,
pkg/controller/podautoscaler/horizontal.go and replica_calculator.go, with the defaults of kube-controller-manager.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpuctl.adapters.embedded.bodies import Key, holds, put, with_condition
from gpuctl.adapters.embedded.controller import Desk
from gpuctl.k8s import kinds
from gpuctl.k8s.objects import is_deleting, items, mapping, number, text
from gpuctl.k8s.quantity import format_cpu, parse_milli
from gpuctl.k8s.workloads import job_of
from gpuctl.model.state import Body
from gpuctl.model.units import DurationMs, Instant

LOAD = "load"
"""The fact about a job: the sum of the metric over all its replicas, in thousandths."""
SCALED_TO_ZERO = "ScaledToZero"
"""The condition of an autoscaler that removed the last replica. Without it, the autoscaler leaves a Deployment without
replicas alone."""
_EVERY_MS: DurationMs = 15_000
_STABLE_MS: DurationMs = 300_000
"""The autoscaler takes a smaller number once it recommended no larger one for this long."""
_MANAGER = "kube-controller-manager"


@dataclass(frozen=True, slots=True)
class _Look:
    """The result of one look: replicas now and wanted, the load if there is one, and the limit that stopped the number.

    `acts`: whether it scales at all.
    """

    now: int
    allowed: int
    load_milli: int | None = None
    limit: str = ""
    acts: bool = True


class Autoscalers:
    """The controller."""

    name = "autoscalers"

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._recommended: dict[Key, list[tuple[Instant, int]]] = {}

    def concerns(self, key: Key, old: Body | None, new: Body | None) -> Iterable[Key]:
        """The autoscaler that changed."""
        return (key,) if key.kinds == kinds.AUTOSCALER and new is not None else ()

    def sync(self, key: Key) -> None:
        """Write the replicas that the load asks for, and report it."""
        body = self._desk.store.get(key)
        if body is None or is_deleting(body):
            self._recommended.pop(key, None)
            return
        target = Key(*kinds.DEPLOYMENT, key.namespace, text(body, "spec", "scaleTargetRef", "name"))
        deployment, load_milli = self._desk.store.get(target), self._desk.store.fact(str(job_of(body)), LOAD)
        if deployment is None:
            return
        now = number(deployment, "spec", "replicas", default=1)
        waits = not now and not number(body, "spec", "minReplicas", default=1) and holds(body, SCALED_TO_ZERO)
        if (not now and not waits) or load_milli is None:
            self._report(body, _Look(now, now, acts=bool(now or waits)))
            return
        wanted = _by_load(body, load_milli, now)
        stable = self._stable(key, wanted, now)
        allowed, limit = _allowed(body, stable, now)
        if allowed != now:
            self._desk.api.update(put(deployment, ("spec", "replicas"), allowed), _MANAGER)
        self._report(body, _Look(now, allowed, load_milli, limit))
        if allowed != wanted:
            self._desk.again(self.name, key, self._desk.instant + _EVERY_MS)

    def _stable(self, key: Key, wanted: int, now: int) -> int:
        """The largest number of the last minutes; at first the present one."""
        known = self._recommended.setdefault(key, [(self._desk.instant, now)])
        known.append((self._desk.instant, wanted))
        recent = [each for each in known if each[0] > self._desk.instant - _STABLE_MS]
        self._recommended[key] = recent
        return max(number for _, number in recent)

    def _report(self, body: Body, look: _Look) -> None:
        kind = text(next(items(body, "spec", "metrics"), {}), "type")
        measured = []
        if look.load_milli is not None and look.now:
            mean = format_cpu(-(-look.load_milli // look.now))
            measured = [{"type": kind, kind.lower(): {"current": {"averageValue": mean}}}]
        active = look.acts and look.load_milli is not None
        told = self._says(body, "ScalingActive", "ValidMetricFound" if active else "ScalingDisabled", holds_now=active)
        told = self._says(told, "ScalingLimited", look.limit or "DesiredWithinRange", holds_now=bool(look.limit))
        scaled = {}
        if look.allowed != look.now:
            scaled = {"lastScaleTime": self._desk.api.now}
            why = "NotScaledToZero" if look.allowed else SCALED_TO_ZERO
            told = self._says(told, SCALED_TO_ZERO, why, holds_now=not look.allowed)
        counts = {"currentReplicas": look.now, "desiredReplicas": look.allowed, "currentMetrics": measured}
        self._desk.api.replace(put(told, ("status",), {**mapping(told, "status"), **counts, **scaled}))

    def _says(self, body: Body, kind: str, reason: str, *, holds_now: bool) -> Body:
        told = {"type": kind, "status": "True" if holds_now else "False", "reason": reason}
        return with_condition(body, told, self._desk.instant)


def _by_load(body: Body, load_milli: int, now: int) -> int:
    """The replicas at which each has its target; the present number if the load is nearly that."""
    metric = next(items(body, "spec", "metrics"), {})
    target = parse_milli(mapping(metric, text(metric, "type").lower(), "target").get("averageValue", 0))
    if abs(load_milli - target * now) * 10 <= target * now:
        return now
    return -(-load_milli // target)


def _allowed(body: Body, wanted: int, now: int) -> tuple[int, str]:
    """The number within its bounds, and the reason if a bound changed it."""
    least, most = number(body, "spec", "minReplicas", default=1), number(body, "spec", "maxReplicas")
    if wanted < least:
        return least, "TooFewReplicas"
    at_once = _at_once(body, now)
    if wanted > min(most, at_once):
        return min(most, at_once), "TooManyReplicas" if most <= at_once else "ScaleUpLimit"
    return wanted, ""


def _at_once(body: Body, now: int) -> int:
    """The most replicas after one step: by the autoscaler's own policies, which are percentages of the present number;
    by default twice as many, or 4 if that is more."""
    parts = [number(policy, "value") for policy in items(body, "spec", "behavior", "scaleUp", "policies")]
    return -(-now * (100 + max(parts)) // 100) if parts else max(2 * now, 4)
