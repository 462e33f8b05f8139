"""The labels of a pull or merge request, by the effects of its plan."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from gpuctl.model.change import Action
from gpuctl.views.plan_report import PlanReport


class Labelled(StrEnum):
    """What a label tells of a plan.

    PAUSES: a run is paused, moved or restarted. DELETES: a run ends for good, or an object is deleted that no new run
    replaces. REFUSED: a guard or a gate of --fail-on refuses the change.
    """

    PAUSES = "pauses"
    DELETES = "deletes"
    REFUSED = "refused"


LABELS: Mapping[Labelled, str] = {each: f"gpuctl/{each.value}" for each in Labelled}
"""The default names of the labels."""


def labels_of(report: PlanReport) -> frozenset[Labelled]:
    """The labels that a plan should have."""
    effect = report.effect
    pauses = effect is not None and (effect.paused or effect.moved or any(each.anew for each in effect.started))
    gone = any(each.action is Action.DELETE and not each.replaced for each in report.objects)
    found = {
        Labelled.PAUSES: bool(pauses),
        Labelled.DELETES: gone or bool(effect is not None and effect.stopped),
        Labelled.REFUSED: report.refused,
    }
    return frozenset(each for each, is_so in found.items() if is_so)
