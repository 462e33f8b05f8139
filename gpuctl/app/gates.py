"""The gates of `plan --fail-on`: effects of a change that make the command fail."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum

from gpuctl.model.change import Action
from gpuctl.model.effect import Effect
from gpuctl.views.plan_report import Failed, PlanReport


class Gate(StrEnum):
    """An effect that can make `plan` fail.

    - PAUSED: a run is paused, and waits again.
    - STOPPED: a run ends, even if a new run of its job starts.
    - MOVED: a run starts again elsewhere.
    - STARVED: a job waits because of the change, with no start forecast.
    - DELETED: an object is deleted and not replaced by that of a new run.
    """

    PAUSED = "paused"
    STOPPED = "stopped"
    MOVED = "moved"
    STARVED = "starved"
    DELETED = "deleted"


def failed(report: PlanReport, gates: Collection[Gate]) -> Iterator[Failed]:
    """The gates that the change fails, each with its jobs or objects."""
    found = _on_jobs(report.effect) if report.effect is not None else {}
    gone = [o for o in report.objects if o.action is Action.DELETE and not o.replaced]
    found = {**found, Gate.DELETED: [str(each.ref) for each in gone]}
    for gate in Gate:
        if gate in gates and found.get(gate):
            yield Failed(gate=gate.value, names=tuple(found[gate]))


def _on_jobs(effect: Effect) -> Mapping[Gate, list[str]]:
    anew = [each.job for each in effect.started if each.anew]
    starved = [each.job for each in effect.waits if each.news and each.now.forecast.start_ms is None]
    return {
        Gate.PAUSED: [str(each.job) for each in effect.paused],
        Gate.STOPPED: [str(job) for job in sorted({*(each.job for each in effect.stopped), *anew})],
        Gate.MOVED: [str(each.job) for each in effect.moved],
        Gate.STARVED: [str(job) for job in starved],
    }
