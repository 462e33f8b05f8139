"""What a cycle would decide and write, for the commands that only look: `diff` and `plan`.

A real cycle writes, and learns from the answers which names are taken. These commands do not write: they compute which
creations the API server would refuse because another object has the name, and decide again with that.
"""

from __future__ import annotations

from collections.abc import Callable

from gpuctl.app.cycle import CycleReport
from gpuctl.app.ports import Taken
from gpuctl.app.rejections import Rejections, with_new
from gpuctl.model.change import ApplyResult, Outcome, OutcomeStatus
from gpuctl.plan import TAKEN


def foreseen_twice(look: Callable[[Rejections], CycleReport]) -> tuple[CycleReport, ApplyResult]:
    """The cycle's decisions once it knows which names are taken, and the writes that are refused for that reason.

    `look` decides, given the refused writes. Cost: one look, and a second where a name is taken.
    """
    first = look({})
    refused = _refused(first)
    if not refused.outcomes:
        return first, refused
    return look(with_new({}, refused, first.declared, first.state, first.at_ms)), refused


def _refused(foreseen: CycleReport) -> ApplyResult:
    """The refused outcomes of writes whose name another object has."""
    taken = ((change, Taken(change.ref)) for change in foreseen.plan.changes if change.reason == TAKEN)
    return ApplyResult(
        outcomes=tuple(
            Outcome(change=change, status=OutcomeStatus.FAILED, error=f"{fault.code}: {fault}", refused=True)
            for change, fault in taken
        )
    )
