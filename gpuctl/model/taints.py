"""What keeps pods off a node, and what lets them on all the same, as Kubernetes has it."""

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
    """What a pod tolerates: the taints of a key. `value` None: of any value; `effect` None: of any effect."""

    key: str
    value: str | None = None
    effect: str | None = None

    def covers(self, taint: Taint) -> bool:
        """Whether a pod with it may be on a node with that taint."""
        same = self.key == taint.key and self.value in (None, taint.value)
        return same and self.effect in (None, taint.effect)
