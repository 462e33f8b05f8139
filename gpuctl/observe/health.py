"""One object's health, from its own conditions alone: Current, InProgress, Failed or Terminating.

Source: the rules of sigs.k8s.io/cli-utils pkg/kstatus, for the kinds gpuctl renders. A suspended Job is Current: it is
as it is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum

from gpuctl.k8s.objects import condition, flag, is_deleting, items, number, text
from gpuctl.model.state import Body


class Health(StrEnum):
    """Whether an object has become what its spec asks for."""

    CURRENT = "Current"
    IN_PROGRESS = "InProgress"
    FAILED = "Failed"
    TERMINATING = "Terminating"


def health_of(body: Body) -> Health:
    """The health of an object; a kind without a rule is Current as soon as it is there."""
    if is_deleting(body):
        return Health.TERMINATING
    rule = _RULES.get(text(body, "kind"))
    return Health.CURRENT if rule is None else rule(body)


def _namespace(body: Body) -> Health:
    return Health.TERMINATING if text(body, "status", "phase") == "Terminating" else Health.CURRENT


def _job(body: Body) -> Health:
    if condition(body, "Failed"):
        return Health.FAILED
    if condition(body, "Complete") or flag(body, "spec", "suspend"):
        return Health.CURRENT
    wanted = number(body, "spec", "parallelism", default=1)
    done = number(body, "status", "ready") + number(body, "status", "succeeded")
    return Health.CURRENT if done >= wanted else Health.IN_PROGRESS


def _deployment(body: Body) -> Health:
    if number(body, "status", "observedGeneration") < number(body, "metadata", "generation"):
        return Health.IN_PROGRESS
    wanted = number(body, "spec", "replicas", default=1)
    counts = [number(body, "status", field) for field in ("updatedReplicas", "availableReplicas", "replicas")]
    if counts == [wanted] * 3:
        return Health.CURRENT
    return Health.FAILED if _progress_deadline_exceeded(body) else Health.IN_PROGRESS


def _progress_deadline_exceeded(body: Body) -> bool:
    return any(entry.get("reason") == "ProgressDeadlineExceeded" for entry in items(body, "status", "conditions"))


def _pod(body: Body) -> Health:
    phase = text(body, "status", "phase")
    if phase == "Failed":
        return Health.FAILED
    return Health.CURRENT if phase == "Succeeded" or condition(body, "Ready") else Health.IN_PROGRESS


def _claim(body: Body) -> Health:
    phase = text(body, "status", "phase")
    if phase == "Lost":
        return Health.FAILED
    return Health.CURRENT if phase == "Bound" else Health.IN_PROGRESS


_RULES: Mapping[str, Callable[[Body], Health]] = {
    "Namespace": _namespace,
    "Job": _job,
    "Deployment": _deployment,
    "Pod": _pod,
    "PersistentVolumeClaim": _claim,
}
