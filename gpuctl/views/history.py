"""The past as people see it: which runs held GPUs, from when to when, why, and by which commit."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from gpuctl.diag.wording import reason_text
from gpuctl.k8s.timestamps import format_seconds, format_timestamp
from gpuctl.model.decision import JobState
from gpuctl.model.history import ALL, History, Period, RunEvent
from gpuctl.model.ids import JobId, ProjectName, RunKey
from gpuctl.model.units import DurationMs, GpuMilli, Instant, format_gpus
from gpuctl.model.utilisation import percent_of
from gpuctl.views.tables import HOUR_MS, age, table

_COMMIT = 10
_MILLI_S_AN_HOUR = 3_600_000
_GROUP = " "


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """A period in which a run held the same GPUs.

    `start` is the event that began it, `end` the one that ended it; None: the run still holds them. `from_ms` is not
    before the history began. `measured_milli_s` and `busy_milli_s`: the sums of its events, also from before the
    history began.
    """

    start: RunEvent
    end: RunEvent | None
    from_ms: Instant
    until_ms: Instant
    measured_milli_s: int = 0
    busy_milli_s: int = 0

    @property
    def gpu_ms(self) -> int:
        """Milli-GPU times milliseconds."""
        return self.start.gpu_milli * (self.until_ms - self.from_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectUse:
    """A project's use in a history: averages over the observed time, and counts of its events."""

    project: ProjectName
    gpu_hours_milli: int = 0
    held_milli: GpuMilli = 0
    share_milli: GpuMilli = 0
    quota_milli: GpuMilli = 0
    waiting_milli: GpuMilli = 0
    measured_milli_s: int = 0
    busy_milli_s: int = 0
    idle_hours_milli: int = 0
    starts: int = 0
    pauses: int = 0
    waits_ms: tuple[DurationMs, ...] = field(default=())

    @property
    def usual_wait_ms(self) -> DurationMs | None:
        """The median of the waits that ended."""
        return sorted(self.waits_ms)[len(self.waits_ms) // 2] if self.waits_ms else None


def holdings(history: History) -> tuple[Holding, ...]:
    """Every period in which a run held GPUs, in the order of their starts."""
    found: list[Holding] = []
    began: dict[RunKey, list[RunEvent]] = {}
    for event in history.events:
        key = (event.job, event.digest)
        held = began.get(key)
        if held is not None and held[0].gpu_milli == event.gpu_milli:
            held.append(event)
            continue
        if held is not None:
            found.extend(_held(history, held, event))
            del began[key]
        if event.gpu_milli:
            began[key] = [event]
    for held in began.values():
        found.extend(_held(history, held, None))
    return tuple(sorted(found, key=lambda each: (each.from_ms, each.start.job)))


def _held(history: History, events: Sequence[RunEvent], end: RunEvent | None) -> Iterator[Holding]:
    from_ms = max(events[0].at_ms, history.since_ms)
    until_ms = history.until_ms if end is None else end.at_ms
    if until_ms > from_ms:
        yield Holding(
            start=events[0],
            end=end,
            from_ms=from_ms,
            until_ms=until_ms,
            measured_milli_s=sum(event.measured_milli_s for event in events),
            busy_milli_s=sum(event.busy_milli_s for event in events),
        )


def project_uses(history: History) -> tuple[ProjectUse, ...]:
    """Each project's use, by name; the total comes last, under the name ALL.

    Cost: linear in periods and events.
    """
    observed_ms = max(1, sum(row.observed_ms for row in history.periods if row.project == ALL))
    sums: dict[ProjectName, Counter[str]] = {}
    for row in history.periods:
        sums.setdefault(row.project, Counter()).update({
            "held": row.held_milli_s,
            "share": row.share_milli_s,
            "quota": row.quota_milli_s,
            "waiting": row.waiting_milli_s,
            "measured": row.measured_milli_s,
            "busy": row.busy_milli_s,
            "idle": row.idle_milli_s,
        })
    uses = {
        name: ProjectUse(
            project=name,
            gpu_hours_milli=found["held"] // 3600,
            held_milli=found["held"] * 1000 // observed_ms,
            share_milli=found["share"] * 1000 // observed_ms,
            quota_milli=found["quota"] * 1000 // observed_ms,
            waiting_milli=found["waiting"] * 1000 // observed_ms,
            measured_milli_s=found["measured"],
            busy_milli_s=found["busy"],
            idle_hours_milli=found["idle"] // 3600,
        )
        for name, found in sums.items()
    }
    for event in history.events:
        if event.at_ms < history.since_ms:
            continue
        for name in (event.job.project, ALL):
            uses[name] = _counted(uses.get(name, ProjectUse(project=name)), event)
    return tuple(sorted(uses.values(), key=lambda use: (use.project == ALL, use.project)))


def _counted(use: ProjectUse, event: RunEvent) -> ProjectUse:
    """The project's use, with one more event."""
    if event.waited_ms is not None:
        use = replace(use, starts=use.starts + 1, waits_ms=(*use.waits_ms, event.waited_ms))
    if event.state is JobState.PREEMPTED and event.paused_for is not None:
        use = replace(use, pauses=use.pauses + 1)
    return use


def event_table(history: History) -> str:
    """The events of a job, a line each; for a sweep, those of each of its jobs by name."""
    several = history.subject.job is not None and any(event.job != history.subject.job for event in history.events)
    header = ("TIME", *(["JOB"] if several else []), "STATE", "GPUS", "BUSY", "NODES", "COMMIT", "AUTHOR", "WHY")
    authors = _authors(history)
    return table(
        header,
        [
            (
                format_seconds(event.at_ms),
                *([event.job.name] if several else []),
                event.state.value,
                format_gpus(event.gpu_milli),
                busy(event.busy_milli_s, event.measured_milli_s),
                ",".join(event.nodes) or "-",
                event.revision[:_COMMIT] or "-",
                authors.get(event.revision) or "-",
                why(event),
            )
            for event in history.events
        ],
    )


def _authors(history: History) -> Mapping[str, str]:
    return {change.revision: change.author for change in history.changes}


def why(event: RunEvent) -> str:
    """The reason of an event in words; for a pause, with the job that it was made for."""
    told = "" if event.reason is None else f"{event.reason.code}: {reason_text(event.reason)}"
    return told or (f"for {event.paused_for}" if event.paused_for is not None else "-")


def holding_table(history: History) -> str:
    """The periods in which GPUs were held, a line each; one line for all jobs of a sweep together."""
    header = ("FROM", "UNTIL", "JOB", "GPUS", "GPU-HOURS", "BUSY", "NODES", "COMMIT", "AUTHOR", "WHY", "ENDED")
    authors = _authors(history)
    return table(header, [_holding_cells(group, authors) for group in _in_groups(history)])


def _in_groups(history: History) -> Iterable[Sequence[Holding]]:
    """The periods of each sweep together, at the place of the first one; each other period by itself."""
    sweep_of = {event.job: event.sweep for event in history.events if event.sweep}
    groups: dict[object, list[Holding]] = {}
    for at, each in enumerate(holdings(history)):
        sweep = sweep_of.get(each.start.job)
        groups.setdefault(at if sweep is None else JobId(each.start.job.project, sweep), []).append(each)
    return groups.values()


def _holding_cells(group: Sequence[Holding], authors: Mapping[str, str]) -> tuple[str, ...]:
    """The line of one period, or of those of a sweep: with the most GPUs that it held at a time."""
    first, jobs = group[0], {each.start.job for each in group}
    sweep = next((each.start.sweep for each in group if each.start.sweep), "")
    revisions = dict.fromkeys(each.start.revision for each in group if each.start.revision)
    ends = Counter("running" if each.end is None else _ended(each.end) for each in group)
    ended = ", ".join(f"{count} {end}" for end, count in ends.items())
    one = "-" if first.end is None else _ended(first.end)
    return (
        format_seconds(first.start.at_ms),
        "-" if any(each.end is None for each in group) else format_seconds(max(each.until_ms for each in group)),
        f"{first.start.job.project}/{sweep} ({len(jobs)})" if sweep else str(first.start.job),
        format_gpus(_most_at_a_time(group)),
        hours(sum(each.gpu_ms for each in group) // HOUR_MS),
        busy(sum(each.busy_milli_s for each in group), sum(each.measured_milli_s for each in group)),
        ",".join(dict.fromkeys(node for each in group for node in each.start.nodes)) or "-",
        ",".join(revision[:_COMMIT] for revision in revisions) or "-",
        ",".join(dict.fromkeys(authors[each] for each in revisions if authors.get(each))) or "-",
        "sweep" if sweep else why(first.start),
        ended if sweep else one,
    )


def _most_at_a_time(group: Sequence[Holding]) -> GpuMilli:
    steps = Counter[Instant]()
    for each in group:
        steps[each.from_ms] += each.start.gpu_milli
        steps[each.until_ms] -= each.start.gpu_milli
    return max(accumulate(steps[at_ms] for at_ms in sorted(steps)))


def _ended(event: RunEvent) -> str:
    return f"{event.state.value} for {event.paused_for}" if event.paused_for is not None else event.state.value


def use_table(history: History) -> str:
    """A line for each project, and one for all."""
    header = (
        "PROJECT", "GPU-HOURS", "BUSY", "IDLE-HOURS", "AVERAGE", "SHARE", "QUOTA", "WAITING", "STARTS", "PAUSES",
        "USUAL WAIT",
    )  # fmt: skip
    return table(
        header,
        [
            (
                use.project or "(all)",
                hours(use.gpu_hours_milli),
                busy(use.busy_milli_s, use.measured_milli_s),
                hours(use.idle_hours_milli) if use.measured_milli_s or use.idle_hours_milli else "-",
                hours(use.held_milli),
                hours(use.share_milli),
                hours(use.quota_milli),
                hours(use.waiting_milli),
                str(use.starts),
                str(use.pauses),
                "-" if use.usual_wait_ms is None else age(use.usual_wait_ms),
            )
            for use in project_uses(history)
        ],
    )


def busy(busy_milli_s: int, measured_milli_s: int) -> str:
    """The part of the held GPUs that worked; a dash if it was not measured."""
    return f"{percent_of(busy_milli_s, measured_milli_s)}%" if measured_milli_s else "-"


def hours(milli: int) -> str:
    """Thousandths with one digit after the point, rounded half up."""
    tenths = (milli + 50) // 100
    return f"{tenths // 10}.{tenths % 10}"


def as_csv(history: History) -> str:
    """A job's events, a project's periods, or a line for each period and project of the cluster.

    Texts that tenants wrote can't become formulas of a spreadsheet.
    """
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerows([harmless(cell) for cell in row] for row in _rows(history))
    return text.getvalue()


def harmless(cell: object) -> object:
    """A cell of CSV that no spreadsheet takes for a formula."""
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in {"=", "+", "-", "@", "\t", "\r"} else cell


def _rows(history: History) -> Iterator[Sequence[object]]:
    authors = _authors(history)
    if history.subject.job is not None:
        yield (
            "time",
            "job",
            "run",
            "state",
            "gpu_milli",
            "nodes",
            "waited_ms",
            "commit",
            "paused_for",
            "why",
            "author",
            "measured_milli_s",
            "busy_milli_s",
            "sweep",
        )
        for event in history.events:
            yield (
                format_timestamp(event.at_ms), str(event.job), event.digest, event.state.value, event.gpu_milli,
                " ".join(event.nodes), event.waited_ms, event.revision, event.paused_for or "", why(event),
                authors.get(event.revision, ""), event.measured_milli_s, event.busy_milli_s, event.sweep,
            )  # fmt: skip
    elif history.subject.project is not None:
        yield (
            "from", "until", "job", "run", "gpu_milli", "gpu_ms", "nodes", "commit", "why", "ended", "author",
            "measured_milli_s", "busy_milli_s", "sweep",
        )  # fmt: skip
        for each in holdings(history):
            yield (
                format_timestamp(each.from_ms), format_timestamp(each.until_ms), str(each.start.job), each.start.digest,
                each.start.gpu_milli, each.gpu_ms, " ".join(each.start.nodes), each.start.revision, why(each.start),
                "" if each.end is None else _ended(each.end), authors.get(each.start.revision, ""),
                each.measured_milli_s, each.busy_milli_s, each.start.sweep,
            )  # fmt: skip
    else:
        yield ("time", *Period._fields[1:])
        for row in history.periods:
            yield (format_timestamp(row.at_ms), *row[1:])
