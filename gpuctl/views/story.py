"""A cluster at rest as one line (its devices by team, and its projects), and the events before it in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuctl.model.decision import Placement
from gpuctl.model.ids import JobId, NodeName, ProjectName
from gpuctl.model.units import GpuMilli, format_gpus
from gpuctl.views.bars import bars, teams
from gpuctl.views.styled import Line, Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectCell:
    """A project's held GPUs, quota and queued jobs."""

    name: ProjectName
    allocated_milli: GpuMilli
    quota_milli: GpuMilli
    queued: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The content of one line: a cluster at rest. `nodes`: name to number of devices, 0 for a lost node."""

    nodes: Mapping[NodeName, int]
    projects: tuple[ProjectCell, ...]
    placements: tuple[tuple[ProjectName, Placement], ...]


CELL = 9
"""The least width of a project's cell, in characters."""

MOST_DEVICES = 40
MOST_PROJECTS = 6
"""Larger clusters are shown as totals."""


def heading(moment: Moment) -> Line:
    """The names above the bars and cells of a moment's line."""
    drawn = teams(cell.name for cell in moment.projects)
    segments: list[Segment] = []
    if _shows_devices(moment):
        segments += [Segment(f"{node:<{_bar_width(node, gpus)}}  ", "dim") for node, gpus in moment.nodes.items()]
    if len(moment.projects) <= MOST_PROJECTS:
        segments += [Segment(f"{name:<{_cell_width(name)}}", team.style) for name, team in drawn.items()]
    return (*segments, Segment("(GPUs/quota, +queued)", "dim"))


def moment_line(moment: Moment) -> Line:
    """Bars, then allocated/quota of each project and `+n` for queued jobs; totals for many projects."""
    drawn = teams(cell.name for cell in moment.projects)
    segments: list[Segment] = []
    if _shows_devices(moment):
        lines = bars(moment.nodes, moment.placements, drawn)
        for bar, (node, gpus) in zip(lines, moment.nodes.items(), strict=True):
            segments += [*bar, Segment(" " * (_bar_width(node, gpus) - len(bar) + 2))]
    if len(moment.projects) <= MOST_PROJECTS:
        for cell in moment.projects:
            segments += _cell(cell, _cell_width(cell.name))
    else:
        segments += _cell(_total(moment.projects), CELL)
    return tuple(segments)


def _shows_devices(moment: Moment) -> bool:
    return sum(_bar_width(node, gpus) for node, gpus in moment.nodes.items()) <= MOST_DEVICES


def _bar_width(node: NodeName, gpus: int) -> int:
    return max(gpus, len(node))


def _cell_width(project: ProjectName) -> int:
    return max(CELL, len(project) + 1)


def _total(cells: Sequence[ProjectCell]) -> ProjectCell:
    return ProjectCell(
        name=ProjectName("all"),
        allocated_milli=sum(cell.allocated_milli for cell in cells),
        quota_milli=sum(cell.quota_milli for cell in cells),
        queued=sum(cell.queued for cell in cells),
    )


def _cell(cell: ProjectCell, width: int) -> Line:
    held = f"{format_gpus(cell.allocated_milli)}/{format_gpus(cell.quota_milli)}"
    queued = f" +{cell.queued}" if cell.queued else ""
    over = "strong" if cell.allocated_milli > cell.quota_milli else ""
    return (
        Segment(held, over),
        Segment(queued, "warning" if queued else ""),
        Segment(" " * max(1, width - len(held) - len(queued))),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """What happened to one job between two moments."""

    job: JobId
    started_on: tuple[str, ...] = ()
    again: bool = False
    paused: bool = False
    paused_for: JobId | None = None
    queued: bool = False
    ended: str = ""
    gone: bool = False


def sentences(news: Sequence[News]) -> tuple[str, ...]:
    """The events in sentences: pauses first, since other jobs start because of them."""
    said: list[str] = []
    said += [f"{n.job.name} is paused{f' for {n.paused_for.name}' if n.paused_for else ''}" for n in news if n.paused]
    gone = [n.job.name for n in news if n.gone]
    if gone:
        said.append(f"{_and(gone)} {'is' if len(gone) == 1 else 'are'} gone")
    said += [f"{n.job.name} {n.ended}" for n in news if n.ended]
    said += _starts(news)
    queued = [n.job.name for n in news if n.queued]
    if queued:
        said.append(f"{_and(queued)} {'waits' if len(queued) == 1 else 'wait'}")
    return tuple(said)


def _starts(news: Sequence[News]) -> list[str]:
    """Join the starts on the same nodes into one sentence."""
    together: dict[tuple[tuple[str, ...], bool], list[str]] = {}
    for one in news:
        if one.started_on:
            together.setdefault((tuple(sorted(set(one.started_on))), one.again), []).append(one.job.name)
    return [
        f"{_and(names)} {_begins(len(names), again)} on {_and(nodes)}" for (nodes, again), names in together.items()
    ]


def _begins(count: int, again: bool) -> str:  # noqa: FBT001 - a grammatical number and aspect
    one, several = ("runs again", "run again") if again else ("starts", "start")
    return one if count == 1 else several


def _and(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
