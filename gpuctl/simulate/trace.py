"""Traces of real clusters as values, and the tables that hold them.

A trace says when each job was submitted, how long it ran and how many GPUs it held, but not where it ran.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gpuctl.compile.text import LONGEST_QUOTED_LINE
from gpuctl.diag.codes import CODES
from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.diag.span import SourceSpan
from gpuctl.diag.wording import message
from gpuctl.model.ids import ProjectName
from gpuctl.model.units import CpuMilli, DurationMs, GpuMilli, Instant, MemBytes

MOST_BYTES = 64 << 20
"""A larger file is not read, since its lines are held in memory. Published traces are below a tenth of that."""
MOST_TOLD = 20
"""Wrong lines of one file that are reported: the first ones show the cause."""

_ABSENT = -1
"""The position of an optional column that a file does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceJob:
    """One job. `gpu_milli` is of all its workers together: a fraction of one device, or whole devices."""

    project: ProjectName
    submitted_ms: Instant
    duration_ms: DurationMs
    gpu_milli: GpuMilli
    cpu_milli: CpuMilli = 0
    mem_bytes: MemBytes = 0

    @property
    def work_ms(self) -> int:
        """Milli-GPU times milliseconds."""
        return self.gpu_milli * self.duration_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """All jobs in order of submission. `history`: each project's work before the first of these jobs."""

    name: str
    jobs: tuple[TraceJob, ...]
    history: Mapping[ProjectName, int] = field(default_factory=dict)

    def between(self, from_ms: Instant | None, until_ms: Instant | None) -> Trace:
        """Keep the jobs submitted in a span of time. Earlier ones become history."""
        history = dict(self.history)
        inside = []
        for job in self.jobs:
            if from_ms is not None and job.submitted_ms < from_ms:
                history[job.project] = history.get(job.project, 0) + job.work_ms
            elif until_ms is None or job.submitted_ms < until_ms:
                inside.append(job)
        return Trace(name=self.name, jobs=tuple(inside), history=history)


class Table:
    """A file of comma-separated columns with a header; collects its mistakes with their places.

    A file without one of the `optional` columns is read as if each of its lines had an empty cell there.
    """

    def __init__(self, path: str, content: bytes, columns: Sequence[str], optional: Sequence[str] = ()) -> None:
        self.path = path
        self.lines = lines_of(content)
        self.mistakes: list[Diagnostic] = []
        self.positions: list[int] = []
        if len(content) > MOST_BYTES:
            self.mistakes.append(self.mistake("GPU3908", 1, limit=MOST_BYTES))
            return
        header = header_of(self.lines)
        missing = [column for column in columns if column not in header]
        wanted = (*columns, *optional)
        self.positions = [] if missing else [header.index(c) if c in header else _ABSENT for c in wanted]
        if not any(header):
            self.nothing("the file is empty" if len(self.lines) < 2 else "its first line is empty")
        elif missing:
            self.mistakes.append(self.mistake("GPU3911", 1, columns=", ".join(missing)))

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """The wanted columns of each line, with the line's number. Empty lines are skipped, short ones reported."""
        reader = csv.reader(self.lines[1:] if self.positions else [])
        while True:
            number = reader.line_num + 2
            try:
                cells = next(reader, None)
            except csv.Error as error:
                self.wrong(number, str(error))
                continue
            if cells is None:
                return
            if len(cells) > max(self.positions):
                yield number, ["" if position == _ABSENT else cells[position] for position in self.positions]
            elif "".join(cells).strip():
                self.wrong(number, "too few columns")

    def nothing(self, problem: str) -> None:
        """Report a file without usable content, where no single line is wrong."""
        self.mistakes.append(self.mistake("GPU3915", 1, problem=problem))

    def wrong(self, number: int, problem: str) -> None:
        """Report a line that can't be used."""
        if len(self.mistakes) < MOST_TOLD:
            self.mistakes.append(self.mistake("GPU3910", number, problem=problem))

    def mistake(self, code: str, number: int, **params: str | int) -> Diagnostic:
        """Make a diagnostic of a line."""
        text = self.lines[number - 1] if number <= len(self.lines) else ""
        text = text if len(text) <= LONGEST_QUOTED_LINE else ""
        span = SourceSpan(file=self.path, line=number, column=1, end_column=len(text) + 1)
        return Diagnostic(code=code, message=message(code, params), span=span, help=CODES[code].fix, source_line=text)


def lines_of(content: bytes) -> list[str]:
    """A file's lines, without a byte order mark; empty for a file that is too large."""
    return [] if len(content) > MOST_BYTES else content.decode("utf-8-sig", "replace").splitlines()


def header_of(lines: Sequence[str]) -> list[str]:
    """The names of the columns."""
    try:
        return [name.strip() for name in next(csv.reader(lines[:1]), [])]
    except csv.Error:
        return ["?"]


ReadTrace = Callable[[str, bytes], "tuple[Trace | None, tuple[Diagnostic, ...]]"]
"""Reads a trace file of one format; returns None if something is wrong with it."""
