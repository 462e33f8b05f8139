"""The Kubernetes events of a job's objects, in the columns of Run:ai's `get`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpuctl.diag.escapes import printable
from gpuctl.k8s import objects
from gpuctl.model.state import Body
from gpuctl.model.units import Instant
from gpuctl.views.tables import age, table

COLUMNS = ("SOURCE", "TYPE", "AGE", "MESSAGE")
_TIMES = (("series", "lastObservedTime"), ("lastTimestamp",), ("eventTime",), ("metadata", "creationTimestamp"))


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class EventView:
    """One event: when it was last seen, its object, and its message."""

    at_ms: Instant
    source: str
    type: str
    message: str


def event_views(bodies: Iterable[Body]) -> tuple[EventView, ...]:
    """Views of core/v1 events, the oldest first; equal ones once."""
    return tuple(sorted({_view(body) for body in bodies}))


def _view(body: Body) -> EventView:
    about = objects.mapping(body, "involvedObject")
    times = (objects.instant(body, *path) for path in _TIMES)
    said = " ".join(objects.text(body, "message").split())
    return EventView(
        at_ms=next((at_ms for at_ms in times if at_ms is not None), 0),
        source=f"{objects.text(about, 'kind').lower()}/{objects.text(about, 'name')}",
        type=objects.text(body, "type"),
        message=printable(f"[{objects.text(body, 'reason')}] {said}"),
    )


def event_table(views: Sequence[EventView], now_ms: Instant) -> str:
    """The events as a table, or `none`."""
    rows = [(view.source, view.type, age(now_ms - view.at_ms), view.message) for view in views]
    return table(COLUMNS, rows) if rows else "none\n"
