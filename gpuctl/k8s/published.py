"""Common parts of the ConfigMaps that the leader publishes: JSON under one key, and rows under tickets.

Published data that is read back may be damaged, or of another release: each value is checked.
"""

from __future__ import annotations

from typing import Any

from gpuctl.k8s import names
from gpuctl.k8s.bounds import MOST_AMOUNT, is_amount, is_short
from gpuctl.k8s.objects import mapping, ref_of
from gpuctl.model.ids import ObjectRef
from gpuctl.model.state import Body

DAMAGE = (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError)
"""The exceptions that reading a document of another form may raise."""


def published_object(ref: ObjectRef, key: str, said: str) -> Body:
    """The object as gpuctl applies it."""
    labels = {names.MANAGED_BY_LABEL: names.MANAGED_BY}
    meta = {"name": ref.name, "namespace": ref.namespace, "labels": labels}
    return {"apiVersion": ref.api_version, "kind": ref.kind, "metadata": meta, "data": {key: said}}


def published_text(body: Body, ref: ObjectRef, key: str) -> str | None:
    """The text under the key; None for another object, or if there is no text."""
    said = mapping(body, "data").get(key)
    return said if ref_of(body) == ref and isinstance(said, str) else None


def amount(value: Any) -> int:
    """The value if it is an amount; else raises ValueError."""
    if not is_amount(value, MOST_AMOUNT):
        raise ValueError("no amount")
    return value


def short_text(value: Any) -> str:
    """The value if it is a text that is not too long; else raises ValueError."""
    if not is_short(value):
        raise ValueError("no short text")
    return value
