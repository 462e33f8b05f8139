"""Removes fields of others that keep gpuctl's fields out.

Server-side apply restores gpuctl's field and leaves those that others own beside it. If the server allows only one of
them, or has no room for both, it refuses that each time. The first case was seen with a Deployment whose strategy was
changed to RollingUpdate, Kubernetes 1.36, even with an explicit null in the apply.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpuctl.adapters.kubernetes.requests import JSON_PATCH, MERGE
from gpuctl.app.ports import Invalid
from gpuctl.k8s.crowding import BARE, is_crowded
from gpuctl.k8s.kinds import DEPLOYMENT
from gpuctl.k8s.objects import mapping, text
from gpuctl.model.state import Body

_ROLLING = "spec.strategy.rollingUpdate"


def amends(body: Body, refusal: Invalid) -> Iterator[tuple[Any, str]]:
    """Patches with their media types, after each of which the apply may succeed; empty for any other refusal.

    A field that conflicts with gpuctl's strategy is removed, without touching pods. From a crowded object, everything
    that others can write is removed. If the object should be paused, the same patch pauses it: a program that fills it
    again and again would be faster than a second patch. If that is not enough, the record of field managers is removed
    too.
    """
    strategy = mapping(body, "spec", "strategy")
    of_deployment = (body["apiVersion"], body["kind"]) == DEPLOYMENT
    if of_deployment and "rollingUpdate" not in strategy and _ROLLING in str(refusal):
        yield {"spec": {"strategy": {**strategy, "rollingUpdate": None}}}, MERGE
    elif is_crowded(body, str(refusal)):
        uid = text(body, "metadata", "uid")
        same = [{"op": "test", "path": "/metadata/uid", "value": uid}] if uid else []
        yield [*same, *_set("/metadata", BARE), *_set("/spec", _pause(body))], JSON_PATCH
        yield [*same, *_set("/metadata", {"managedFields": [{}]})], JSON_PATCH


def _set(path: str, fields: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    return ({"op": "add", "path": f"{path}/{name}", "value": value} for name, value in fields.items())


def _pause(body: Body) -> Mapping[str, Any]:
    """The fields that make the object have no pods, if it should have none."""
    spec = mapping(body, "spec")
    return {name: spec[name] for name, value in (("suspend", True), ("replicas", 0)) if spec.get(name) == value}
