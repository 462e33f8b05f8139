"""Taints, which keep pods off a node, and tolerations, which let them on, as in Kubernetes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """A taint of a node. Its effect: NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Toleration:
    """The taints of a key that a pod tolerates. `value` None: of any value; `effect` None: of any effect."""

    key: str
    value: str | None = None
    effect: str | None = None

    def covers(self, taint: Taint) -> bool:
        """Whether a pod with this toleration may be on a node with that taint."""
        same = self.key == taint.key and self.value in (None, taint.value)
        return same and self.effect in (None, taint.effect)
