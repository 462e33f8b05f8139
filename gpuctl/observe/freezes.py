"""What people have frozen in the cluster, from an annotation that only people with rights there can write."""

from __future__ import annotations

import json
from collections.abc import Mapping

from gpuctl.k8s import kinds, names
from gpuctl.k8s.objects import annotations_of
from gpuctl.k8s.timestamps import parse_timestamp
from gpuctl.model.freeze import Frozen
from gpuctl.model.ids import ObjectRef, ProjectName
from gpuctl.model.state import Body

CONTROL = ObjectRef(*kinds.CONFIG_MAP, names.SYSTEM_NAMESPACE, names.CONTROL_NAME)
_LONGEST = 200
"""The longest text of a freeze, in characters."""
_LAST_MS = parse_timestamp("9999-12-31T00:00:00Z")


def read_frozen(objects: Mapping[ObjectRef, Body]) -> tuple[Frozen, ...]:
    """What is frozen, sorted. Never raises. An unreadable annotation freezes the whole cluster: it was meant to stop
    something."""
    body = objects.get(CONTROL)
    said = None if body is None else annotations_of(body).get(names.FROZEN_ANNOTATION)
    if not said:
        return ()
    try:
        return decode_frozen(said)
    except (ValueError, RecursionError):
        why = f"annotation {names.FROZEN_ANNOTATION} of ConfigMap {CONTROL.namespace}/{CONTROL.name} can't be read"
        return (Frozen(project=None, by="", reason=why, since_ms=None),)


def decode_frozen(said: str) -> tuple[Frozen, ...]:
    """The frozen parts in an annotation. Raises ValueError for any other text."""
    found = json.loads(said)
    if not isinstance(found, dict) or not all(isinstance(facts, dict) for facts in found.values()):
        raise ValueError("it is no mapping of mappings")
    return tuple(_frozen(part, facts) for part, facts in sorted(found.items()))


def encode_frozen(frozen: tuple[Frozen, ...]) -> str:
    """The annotation for these frozen parts; empty for none."""
    facts = {
        f"project/{each.project}" if each.project else "cluster": {
            "by": each.by,
            "reason": each.reason,
            "sinceMs": each.since_ms,
        }
        for each in frozen
    }
    return json.dumps(facts, sort_keys=True) if facts else ""


def _frozen(part: str, facts: Mapping[str, object]) -> Frozen:
    kind, _, name = part.partition("/")
    if (kind, bool(name)) not in {("project", True), ("cluster", False)}:
        raise ValueError(f"{part[:_LONGEST]} is neither cluster nor project/NAME")
    since = facts.get("sinceMs")
    return Frozen(
        project=ProjectName(name) if name else None,
        by=str(facts.get("by", ""))[:_LONGEST],
        reason=str(facts.get("reason", ""))[:_LONGEST],
        since_ms=since if type(since) is int and 0 <= since <= _LAST_MS else None,
    )
