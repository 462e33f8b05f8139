"""Typed reading of Kubernetes objects as decoded JSON. An absent value, or one of another type, reads as empty.

The API server checks its objects. But broken ones from elsewhere (a hand-made file of state) must not stop gpuctl.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuctl.k8s.bounds import MOST_AMOUNT
from gpuctl.k8s.names import FIELD_MANAGER
from gpuctl.k8s.quantity import parse_milli, parse_whole
from gpuctl.k8s.timestamps import parse_timestamp
from gpuctl.model.ids import ObjectRef
from gpuctl.model.state import Body
from gpuctl.model.units import Instant

_NOTHING: Mapping[str, Any] = {}
_MAPPING = (dict, Mapping)
"""dict first, which is the usual type: finding out that a dict is a Mapping takes ten times as long."""


def ref_of(body: Body) -> ObjectRef:
    """The reference of an object; missing parts are empty."""
    own, meta = mapping(body), mapping(body, "metadata")
    return ObjectRef(
        _as_text(own.get("apiVersion")),
        _as_text(own.get("kind")),
        _as_text(meta.get("namespace")),
        _as_text(meta.get("name")),
    )


def _value(body: Body, path: Sequence[str]) -> Any:
    """The value at a path, or None. Stops at the first None: finding out that None is no Mapping takes long."""
    value: Any = body
    for key in path:
        value = value.get(key) if isinstance(value, _MAPPING) else None
        if value is None:
            return None
    return value


def mapping(body: Body, *path: str) -> Mapping[str, Any]:
    """The mapping at a path, or an empty one."""
    value = _value(body, path)
    return value if value is not None and isinstance(value, _MAPPING) else _NOTHING


def items(body: Body, *path: str) -> Iterator[Mapping[str, Any]]:
    """The mappings of the list at a path."""
    value = _value(body, path)
    if isinstance(value, list | tuple):
        yield from (item for item in value if isinstance(item, _MAPPING))


def with_value(body: Body, path: Sequence[str], value: object) -> dict[str, Any]:
    """The body with a value at a path; missing mappings on the way are created."""
    first, *rest = path
    return {**body, first: with_value(mapping(body, first), rest, value) if rest else value}


def text(body: Body, *path: str) -> str:
    """The string at a path, or ""."""
    value = _value(body, path)
    return value if isinstance(value, str) else ""


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else ""


def texts(body: Body, *path: str) -> Iterator[str]:
    """The strings of the list at a path."""
    value = _value(body, path)
    if isinstance(value, list | tuple):
        yield from (item for item in value if isinstance(item, str))


def number(body: Body, *path: str, default: int = 0) -> int:
    """The integer at a path; the default if there is none, or one that no API server holds."""
    value = _value(body, path)
    return value if type(value) is int and -MOST_AMOUNT <= value <= MOST_AMOUNT else default


def flag(body: Body, *path: str) -> bool:
    """Whether the value at a path is true."""
    return _value(body, path) is True


def instant(body: Body, *path: str) -> Instant | None:
    """The timestamp at a path in milliseconds; None when absent or unreadable."""
    try:
        return parse_timestamp(text(body, *path))
    except ValueError:
        return None


def milli(amounts: Body, resource: str) -> int:
    """A resource of a list of amounts in thousandths; 0 when absent or unreadable."""
    try:
        return parse_milli(amounts[resource])
    except (KeyError, ValueError):
        return 0


def whole(amounts: Body, resource: str) -> int:
    """A resource of a list of amounts in units; 0 when absent or unreadable."""
    try:
        return parse_whole(amounts[resource])
    except (KeyError, ValueError):
        return 0


def labels_of(body: Body) -> Mapping[str, Any]:
    """metadata.labels."""
    return mapping(body, "metadata", "labels")


def annotations_of(body: Body) -> Mapping[str, Any]:
    """metadata.annotations."""
    return mapping(body, "metadata", "annotations")


def uid(body: Body) -> str:
    """metadata.uid."""
    return text(body, "metadata", "uid")


def resource_version(body: Body) -> str:
    """metadata.resourceVersion."""
    return text(body, "metadata", "resourceVersion")


def is_deleting(body: Body) -> bool:
    """Whether deletion has been asked for."""
    return bool(text(body, "metadata", "deletionTimestamp"))


def is_own_apply(entry: Mapping[str, Any]) -> bool:
    """Whether an entry of managed fields says that gpuctl applied the object, not only updated it or a subresource."""
    is_own = entry.get("manager") == FIELD_MANAGER and entry.get("operation") == "Apply"
    return is_own and not entry.get("subresource")


def condition(body: Body, kind: str) -> Mapping[str, Any]:
    """The condition of that type if its status is "True", else an empty mapping."""
    for entry in items(body, "status", "conditions"):
        if entry.get("type") == kind:
            return entry if entry.get("status") == "True" else _NOTHING
    return _NOTHING


def status_of(body: Body, kind: str) -> str:
    """The status of the condition of that type: "True", "False" or "Unknown"; "" if there is none."""
    entries = items(body, "status", "conditions")
    return next((text(entry, "status") for entry in entries if entry.get("type") == kind), "")
