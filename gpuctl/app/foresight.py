"""What a cycle would decide and write, for those that only look: `diff` and `plan`.

A cycle writes, and learns by that which names are taken. Here it is known beforehand: what an object of others keeps
from being made is refused as the API server would, and decided anew.
"""

from __future__ import annotations

from collections.abc import Callable

from gpuctl.app.cycle import CycleReport
from gpuctl.app.ports import Taken
from gpuctl.app.rejections import Rejections, with_new
from gpuctl.model.change import ApplyResult, Outcome, OutcomeStatus
from gpuctl.plan import TAKEN


def foreseen_twice(look: Callable[[Rejections], CycleReport]) -> tuple[CycleReport, ApplyResult]:
    """What a cycle decides once it knows which names are taken, and the writes that are refused for that.

    `look` decides, given what is refused. Cost: one look, and a second where a name is taken.
    """
    first = look({})
    refused = _refused(first)
    if not refused.outcomes:
        return first, refused
    return look(with_new({}, refused, first.declared, first.state, first.at_ms)), refused


def _refused(foreseen: CycleReport) -> ApplyResult:
    """What becomes of the writes in whose place there is an object of others."""
    taken = ((change, Taken(change.ref)) for change in foreseen.plan.changes if change.reason == TAKEN)
    return ApplyResult(
        outcomes=tuple(
            Outcome(change=change, status=OutcomeStatus.FAILED, error=f"{fault.code}: {fault}", refused=True)
            for change, fault in taken
        )
    )
