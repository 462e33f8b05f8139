"""Kinds and references as paths of the API server."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, urlencode

from gpuctl.k8s.kinds import CLUSTER_SCOPED, KINDS, Kind
from gpuctl.model.ids import ObjectRef


def group_path(api_version: str) -> str:
    """The root of a group and version: `v1` is the one without a group."""
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def collection(kind: Kind, namespace: str = "", plural: str = "") -> str:
    """The path of all objects of a kind, in one namespace or in all. `plural`: for a kind that is not in `kinds.KINDS`;
    raises KeyError if it is needed and not given."""
    root = group_path(kind[0])
    within = f"/namespaces/{quote(namespace, safe='')}" if namespace and kind not in CLUSTER_SCOPED else ""
    return f"{root}{within}/{plural or KINDS[kind].plural}"


def item(ref: ObjectRef, plural: str = "") -> str:
    """The path of one object. `plural`: as for `collection`."""
    return f"{collection((ref.api_version, ref.kind), ref.namespace, plural)}/{quote(ref.name, safe='')}"


def with_query(path: str, query: Mapping[str, str]) -> str:
    """The path with its parameters, empty ones left out."""
    given = {name: value for name, value in query.items() if value}
    return f"{path}?{urlencode(given)}" if given else path
