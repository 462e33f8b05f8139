"""Kueue's view of a run: the conditions of the Workload that it keeps for a Job, or for each pod of a service.

Source: Kueue 0.19, apis/kueue/v1beta2/workload_types.go.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from gpuctl.k8s.objects import items, text
from gpuctl.model.state import Body

_TOLD = ("Finished", "Evicted", "Preempted", "Admitted", "QuotaReserved")
"""The conditions that say why a run runs or waits, the last event first."""
_LONGEST = 500
_MOST = 20


class Condition(NamedTuple):
    """One condition of a Workload; `holds`: its status."""

    workload: str
    type: str
    holds: bool
    reason: str
    message: str

    @property
    def sentence(self) -> str:
        """The condition in words: `not QuotaReserved (Pending): insufficient unused quota`."""
        return f"{'' if self.holds else 'not '}{self.type} ({self.reason}): {self.message}"


def conditions_of(workloads: Iterable[Body], owners: Collection[str]) -> list[Condition]:
    """The conditions of the Workloads that are owned by objects with these uids, at most _MOST."""
    own = (body for body in workloads if any(text(owner, "uid") in owners for owner in _owners(body)))
    found = [told for body in own for told in _conditions(body)]
    return found[:_MOST]


def deciding(conditions: Sequence[Condition]) -> Condition | None:
    """The one condition that says why a run runs or waits; None if there is none.

    For one Workload: the last event that holds, else what it waits for. For the pods of a service, each with a
    Workload: that of the first one that waits.
    """
    found: dict[str, Condition] = {}
    for each in conditions:
        known = found.get(each.workload)
        if known is None or (each.holds and not known.holds):
            found[each.workload] = each
    return min(found.values(), key=lambda each: each.type == "Admitted" and each.holds, default=None)


def _owners(body: Body) -> Iterable[Body]:
    return items(body, "metadata", "ownerReferences")


def _conditions(body: Body) -> Iterator[Condition]:
    by_type = {text(entry, "type"): entry for entry in items(body, "status", "conditions")}
    for name in _TOLD:
        entry = by_type.get(name)
        if entry is not None:
            message = " ".join(text(entry, "message")[:_LONGEST].split())
            holds = text(entry, "status") == "True"
            yield Condition(text(body, "metadata", "name"), name, holds, text(entry, "reason")[:_LONGEST], message)
