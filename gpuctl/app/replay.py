"""`simulate --trace`: reads a trace file, adds nodes and quotas, and replays it in several scheduling modes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from gpuctl.diag.codes import CODES
from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.diag.span import SourceSpan
from gpuctl.diag.wording import message
from gpuctl.model.declared import SchedulingPolicy
from gpuctl.model.ids import ProjectName
from gpuctl.model.units import GpuMilli, Instant
from gpuctl.simulate import trace_openb, trace_philly
from gpuctl.simulate.modes import ModeName
from gpuctl.simulate.replay import PauseCost
from gpuctl.simulate.replay_report import ReplayReport, replay_all
from gpuctl.simulate.trace import ReadTrace, Table, Trace, header_of, lines_of
from gpuctl.simulate.workload import Layout, equal_quotas, quotas_by_history, read_quotas, workload


class Format(NamedTuple):
    """The reader of a trace format, and the columns by which its files are recognized."""

    read: ReadTrace
    columns: Sequence[str]


FORMATS: Mapping[str, Format] = {
    "philly": Format(trace_philly.read_philly, trace_philly.COLUMNS),
    "openb": Format(trace_openb.read_openb, trace_openb.COLUMNS),
}
"""The formats by name."""

FROM_HISTORY = "from-history"
EQUAL = "equal"


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file: its path, as messages show it, and its content."""

    path: str
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """An instant, or a time after the trace's first job."""

    ms: int
    after_first: bool

    def instant(self, first_ms: Instant) -> Instant:
        """The instant, in a trace whose first job came at `first_ms`."""
        return first_ms + self.ms if self.after_first else self.ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to replay and how: the jobs submitted between the two bounds.

    `format`: one of FORMATS; None: the one that has the file's columns. `quotas`: FROM_HISTORY, EQUAL, or a file with
    quotas; None: from history if there is one.
    """

    trace: File
    format: str | None
    layout: Layout
    quotas: str | File | None
    modes: Sequence[ModeName]
    pause_cost: PauseCost
    policy: SchedulingPolicy
    begin: Bound | None = None
    end: Bound | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The report; None if a file has errors, which are in the diagnostics."""

    report: ReplayReport | None
    diagnostics: tuple[Diagnostic, ...] = ()


def replay_trace(order: Order) -> Replayed:
    """Read a trace and replay it."""
    format_ = FORMATS[order.format] if order.format is not None else _format_of(order.trace)
    if format_ is None:
        return _unknown(order.trace)
    whole, mistakes = format_.read(order.trace.path, order.trace.content)
    if whole is None:
        return Replayed(report=None, diagnostics=mistakes)
    first_ms = whole.jobs[0].submitted_ms
    from_ms = None if order.begin is None else order.begin.instant(first_ms)
    until_ms = None if order.end is None else order.end.instant(first_ms)
    trace = whole.between(from_ms, until_ms)
    if not trace.jobs:
        return _wrong("GPU3913", order.trace)
    wanted = order.quotas or (FROM_HISTORY if any(trace.history.values()) else EQUAL)
    quotas, mistakes = _quotas(wanted, order.layout, trace)
    if mistakes:
        return Replayed(report=None, diagnostics=mistakes)
    if not quotas:
        return _wrong("GPU3912", order.trace)
    load = workload(trace, order.layout, quotas, order.policy)
    report = replay_all(load, str(order.layout), order.modes, order.pause_cost, _window(trace, from_ms, until_ms))
    told = wanted.path if isinstance(wanted, File) else wanted
    return Replayed(report=replace(report, quotas_from=told))


def _format_of(file: File) -> Format | None:
    """The format whose columns the file has."""
    header = header_of(lines_of(file.content))
    return next((each for each in FORMATS.values() if set(each.columns) <= set(header)), None)


def _unknown(file: File) -> Replayed:
    """The result for a file of unknown format, or an empty one."""
    table = Table(file.path, file.content, ())
    if not table.mistakes:
        formats = "; ".join(f"{name} ({', '.join(each.columns)})" for name, each in FORMATS.items())
        table.mistakes.append(table.mistake("GPU3914", 1, formats=formats))
    return Replayed(report=None, diagnostics=tuple(table.mistakes))


def _window(trace: Trace, from_ms: Instant | None, until_ms: Instant | None) -> tuple[Instant, Instant]:
    """The window of the integrals: from the first submission to the last. If all jobs came at once, until the longest
    could have ended."""
    begin_ms = trace.jobs[0].submitted_ms if from_ms is None else from_ms
    end_ms = trace.jobs[-1].submitted_ms if until_ms is None else until_ms
    return begin_ms, end_ms if end_ms > begin_ms else begin_ms + max(job.duration_ms for job in trace.jobs)


def _quotas(
    wanted: str | File, layout: Layout, trace: Trace
) -> tuple[dict[ProjectName, GpuMilli], tuple[Diagnostic, ...]]:
    if isinstance(wanted, File):
        return read_quotas(wanted.path, wanted.content)
    if wanted == EQUAL:
        return equal_quotas({job.project for job in trace.jobs}, layout), ()
    return quotas_by_history(trace, layout), ()


def _wrong(code: str, file: File) -> Replayed:
    span = SourceSpan(file=file.path)
    told = Diagnostic(code=code, message=message(code, {}), span=span, help=CODES[code].fix)
    return Replayed(report=None, diagnostics=(told,))
