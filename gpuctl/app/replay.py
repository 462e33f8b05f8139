"""`simulate --trace`: a trace file read, laid out on nodes with quotas, and replayed in modes of scheduling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuctl.diag.codes import CODES
from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.diag.span import SourceSpan
from gpuctl.diag.wording import message
from gpuctl.model.declared import SchedulingPolicy
from gpuctl.model.ids import ProjectName
from gpuctl.model.units import GpuMilli, Instant
from gpuctl.simulate.modes import ModeName
from gpuctl.simulate.replay import Pace
from gpuctl.simulate.replay_report import ReplayReport, replay_all
from gpuctl.simulate.trace import ReadTrace, Trace
from gpuctl.simulate.trace_openb import read_openb
from gpuctl.simulate.trace_philly import read_philly
from gpuctl.simulate.workload import Layout, equal_quotas, quotas_by_history, read_quotas, workload

READERS: Mapping[str, ReadTrace] = {"philly": read_philly, "openb": read_openb}
"""By the name of the format."""

FROM_HISTORY = "from-history"
EQUAL = "equal"


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file as messages name it, and what is in it."""

    path: str
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """An instant, or so long after the trace's first job."""

    ms: int
    after_first: bool

    def instant(self, first_ms: Instant) -> Instant:
        """The instant meant."""
        return first_ms + self.ms if self.after_first else self.ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to be replayed: the jobs that came from one bound until the other.

    `quotas`: FROM_HISTORY, EQUAL, or a file that holds them.
    """

    trace: File
    format: str
    layout: Layout
    quotas: str | File
    modes: Sequence[ModeName]
    pace: Pace
    policy: SchedulingPolicy
    begin: Bound | None = None
    end: Bound | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The report, or None with what is wrong with a file."""

    report: ReplayReport | None
    diagnostics: tuple[Diagnostic, ...] = ()


def replay_trace(order: Order) -> Replayed:
    """Read a trace and replay it."""
    whole, mistakes = READERS[order.format](order.trace.path, order.trace.content)
    if whole is None:
        return Replayed(report=None, diagnostics=mistakes)
    first_ms = whole.jobs[0].submitted_ms
    from_ms = None if order.begin is None else order.begin.instant(first_ms)
    until_ms = None if order.end is None else order.end.instant(first_ms)
    trace = whole.between(from_ms, until_ms)
    if not trace.jobs:
        return _wrong("GPU3913", order.trace)
    quotas, mistakes = _quotas(order, trace)
    if mistakes:
        return Replayed(report=None, diagnostics=mistakes)
    if not quotas:
        return _wrong("GPU3912", order.trace)
    window = (
        trace.jobs[0].submitted_ms if from_ms is None else from_ms,
        trace.jobs[-1].submitted_ms if until_ms is None else until_ms,
    )
    load = workload(trace, order.layout, quotas, order.policy)
    return Replayed(report=replay_all(load, str(order.layout), order.modes, order.pace, window))


def _quotas(order: Order, trace: Trace) -> tuple[dict[ProjectName, GpuMilli], tuple[Diagnostic, ...]]:
    if isinstance(order.quotas, File):
        return read_quotas(order.quotas.path, order.quotas.content)
    if order.quotas == EQUAL:
        return equal_quotas({job.project for job in trace.jobs}, order.layout), ()
    return quotas_by_history(trace, order.layout), ()


def _wrong(code: str, file: File) -> Replayed:
    span = SourceSpan(file=file.path)
    told = Diagnostic(code=code, message=message(code, {}), span=span, help=CODES[code].fix)
    return Replayed(report=None, diagnostics=(told,))
