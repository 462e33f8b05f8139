"""Planning: a cycle over any objects decides, renders and plans, and so does the next, which remembers the first."""

from __future__ import annotations

from gpuctl.app.caches import CycleCaches
from gpuctl.app.cycle import CycleReport, foreseen
from gpuctl.app.kept import Keep
from gpuctl.app.notes import notes_of
from gpuctl.app.report import LogForm, of_cycle, of_damage, of_troubles, of_unreadable
from gpuctl.model.state import RawObjects

from .harness import JSON, Target
from .target_observe import TARGET as OBSERVE
from .target_observe import is_bounded
from .town import DECLARED, NOW_MS, objects_of

MOST_WRITES = 200
"""The town has some thirty objects: a plan has about one write for each, however damaged they are."""
MOST_TOLD_BYTES = 1 << 20

_KEEP = Keep()


def check(data: bytes) -> None:
    """Two cycles, without their writes, and all that is told of them."""
    raw = objects_of(data)
    kept, caches = RawObjects(objects={ref: _KEEP(body) for ref, body in raw.objects.items()}), CycleCaches()
    first, second = (foreseen(DECLARED, kept, NOW_MS, caches, {}) for _ in range(2))
    assert first.plan == second.plan
    is_bounded(first.state)
    assert len(first.plan.changes) <= MOST_WRITES
    assert len(told_of(first).encode()) <= MOST_TOLD_BYTES
    decided = [decision.job for decision in first.schedule.decisions]
    assert sorted(decided) == sorted({*decided, *(job.id for job in DECLARED.jobs)})


def told_of(report: CycleReport) -> str:
    """The lines of the journal and the notes on objects."""
    entries = [*of_cycle(report, "r1"), *of_damage(report), *of_unreadable(report.state), *of_troubles(report)]
    lines = [entry.line(report.at_ms, LogForm.JSON) for entry in entries]
    return "\n".join([*lines, *map(repr, notes_of(report))])


TARGET = Target(check=check, form=JSON, words=OBSERVE.words)
