"""Object bodies as values: read by path, and changed by making a new one that shares all that stays the same.

Invariant: a stored body is never changed in place, since lists and watches hand out the stored dictionaries themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gpuctl.k8s.kinds import CLUSTER_SCOPED, Kind
from gpuctl.k8s.objects import condition
from gpuctl.k8s.timestamps import format_seconds
from gpuctl.model.state import Body
from gpuctl.model.units import Instant


class Key(NamedTuple):
    """Names an object; `namespace` is "" for cluster-scoped kinds."""

    api_version: str
    kind: str
    namespace: str
    name: str

    @property
    def kinds(self) -> Kind:
        """The (apiVersion, kind) of the object."""
        return (self.api_version, self.kind)

    def __str__(self) -> str:
        where = f"{self.namespace}/" if self.namespace else ""
        return f"{self.kind} {where}{self.name}"


def key_of(body: Body) -> Key:
    """The key of a body with apiVersion, kind and metadata.name."""
    meta = body["metadata"]
    kind = (body["apiVersion"], body["kind"])
    return Key(*kind, "" if kind in CLUSTER_SCOPED else meta.get("namespace", ""), meta["name"])


def at(body: Any, *path: str, default: Any = None) -> Any:
    """The value at a path of field names; `default` if a step is missing or null."""
    for step in path:
        if not isinstance(body, dict):
            return default
        body = body.get(step)
    return default if body is None else body


def put(body: Body, path: Sequence[str], value: Any) -> dict[str, Any]:
    """The body with a value at a path; missing steps are made."""
    copy = dict(body)
    if len(path) == 1:
        copy[path[0]] = value
    else:
        copy[path[0]] = put(copy.get(path[0]) or {}, path[1:], value)
    return copy


def drop(body: Body, path: Sequence[str]) -> dict[str, Any]:
    """The body without the value at a path."""
    copy = dict(body)
    if len(path) == 1:
        copy.pop(path[0], None)
    elif isinstance(copy.get(path[0]), Mapping):
        copy[path[0]] = drop(copy[path[0]], path[1:])
    return copy


def terminal(pod: Body) -> bool:
    """Whether all containers of a pod have ended for good."""
    return at(pod, "status", "phase") in {"Succeeded", "Failed"}


def owner_uids(body: Body) -> tuple[str, ...]:
    """The uids of the object's owners."""
    return tuple(str(owner["uid"]) for owner in at(body, "metadata", "ownerReferences", default=()))


def holds(body: Body, kind: str) -> bool:
    """Whether the status condition of that type exists and is True."""
    return bool(condition(body, kind))


def with_condition(body: Body, new: Mapping[str, str], now_ms: Instant) -> dict[str, Any]:
    """The body with a condition of `type`, `status`, `reason`, `message`; the transition time changes with the
    status."""
    conditions = at(body, "status", "conditions", default=())
    old = next((entry for entry in conditions if entry["type"] == new["type"]), None)
    if old is not None and all(old.get(field) == value for field, value in new.items()):
        return dict(body)
    same = old is not None and old["status"] == new["status"]
    since = old["lastTransitionTime"] if old is not None and same else format_seconds(now_ms)
    kept = [entry for entry in conditions if entry["type"] != new["type"]]
    return put(body, ("status", "conditions"), [*kept, {**new, "lastTransitionTime": since}])
