"""Whether workloads are stopped, and how to stop one: the only place that knows it, for every kind.

A Job is stopped by `suspend: true`, a Deployment by `replicas: 0`, an object of another controller as its row says.
Rendering, observing and planning use this module, and do not distinguish kinds.
"""

from __future__ import annotations

from typing import Any

from gpuctl.k8s import kinds
from gpuctl.k8s.objects import flag, items, mapping, number, text, with_value
from gpuctl.k8s.workload_kinds import is_told, row_of
from gpuctl.k8s.workload_table import BY_REPLICAS, OF_JOB, Rows
from gpuctl.model.state import Body
from gpuctl.model.workload_kind import Path, Suspension


def suspension_of(body: Body, rows: Rows) -> Suspension:
    """How an object that runs a job's pods is stopped."""
    row = row_of(body, rows)
    if row is not None:
        return row.suspension
    return BY_REPLICAS if text(body, "kind") == kinds.DEPLOYMENT[1] else OF_JOB


def is_suspended(suspension: Suspension, body: Body) -> bool:
    """Whether the object is set to have no pods."""
    if suspension.is_count:
        return number(body, *suspension.field, default=1) <= 0
    return flag(body, *suspension.field)


def is_at_rest(suspension: Suspension, body: Body) -> bool:
    """Whether the object is suspended and its controller has acted: by the object's own status, its pods are gone."""
    if not is_suspended(suspension, body) or any(_is_active(body, path) for path in suspension.active):
        return False
    if suspension.begun and text(body, *suspension.begun):
        return False
    return suspension.told is None or is_told(body, suspension.told, or_nothing=True)


def _is_active(body: Body, path: Path) -> bool:
    *above, last = path
    return number(body, *path) > 0 or any(number(each, last) for each in items(body, *above))


def with_suspension(suspension: Suspension, body: Body, *, stopped: bool) -> dict[str, Any]:
    """The object, stopped or released. A released object keeps its count."""
    if suspension.is_count:
        return with_value(body, suspension.field, 0) if stopped else dict(body)
    return with_value(body, suspension.field, stopped)


def suspended_like(suspension: Suspension, body: Body, other: Body) -> dict[str, Any]:
    """The object, stopped or released as another one of its kind is."""
    *above, last = suspension.field
    return with_value(body, suspension.field, mapping(other, *above).get(last))


def is_let_go(body: Body, rows: Rows) -> bool:
    """Whether a workload may have pods."""
    return not is_suspended(suspension_of(body, rows), body)


def is_stopped(body: Body, rows: Rows) -> bool:
    """Whether a workload is suspended and, by its own status, its pods are gone."""
    return is_at_rest(suspension_of(body, rows), body)
