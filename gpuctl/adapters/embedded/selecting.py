"""Lists and watches of the objects that have a label, as a client asks a server for them.

For such a watch, an object that loses the label is deleted, and one that gets it is new, whatever else happened to it.
Source: staging/src/k8s.io/apiserver, pkg/storage/cacher/cache_watcher.go, convertToWatchEvent, Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from gpuctl.adapters.embedded.bodies import put
from gpuctl.app.ports import WatchEvent
from gpuctl.k8s.kinds import Kind, Scope
from gpuctl.k8s.objects import labels_of, text
from gpuctl.model.state import Body

Selects = Callable[[Body], bool]


def selections(scopes: Mapping[Kind, Scope]) -> Mapping[Kind, Selects]:
    """The test that selects the objects of each kind that is asked for by a label: `name` or `name=value`."""
    asked = {kind: scope.label_selector.partition("=") for kind, scope in scopes.items() if scope.label_selector}
    return {kind: partial(_has, name, value if sign else None) for kind, (name, sign, value) in asked.items()}


def selected(event: WatchEvent, before: Body | None, selects: Selects) -> WatchEvent | None:
    """The event as a watch of a selection reports it; None if it reports nothing. `before`: the object before the
    event."""
    was, is_now = before is not None and selects(before), event.type != "DELETED" and selects(event.body)
    if is_now:
        return event if was or event.type == "ADDED" else WatchEvent(type="ADDED", body=event.body)
    if not was or before is None:
        return None
    version = text(event.body, "metadata", "resourceVersion")
    return WatchEvent(type="DELETED", body=put(before, ("metadata", "resourceVersion"), version))


def _has(name: str, value: str | None, body: Body) -> bool:
    labels = labels_of(body)
    return name in labels and value in {None, labels[name]}
