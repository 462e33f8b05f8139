"""A cluster at rest as one line, grasped at a glance: devices by team, and projects; and what happened, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuctl.model.decision import Placement
from gpuctl.model.ids import JobId, NodeName, ProjectName
from gpuctl.model.units import GpuMilli, format_gpus
from gpuctl.views.bars import Team, bars
from gpuctl.views.styled import Line, Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectCell:
    """What a project has."""

    name: ProjectName
    allocated_milli: GpuMilli
    quota_milli: GpuMilli
    queued: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One line's worth: a cluster at rest."""

    projects: tuple[ProjectCell, ...]
    placements: tuple[tuple[ProjectName, Placement], ...]


def heading(nodes: Mapping[NodeName, int], drawn: Mapping[ProjectName, Team]) -> Line:
    """The names above bars and cells."""
    segments = [Segment(f"{node:<{_bar_width(node, gpus)}}  ", "dim") for node, gpus in nodes.items()]
    segments += [Segment(f"{team.project:<{CELL}}", team.style) for team in drawn.values()]
    return tuple(segments)


CELL = 9
"""Characters a project's cell takes at least."""


def moment_line(moment: Moment, nodes: Mapping[NodeName, int], drawn: Mapping[ProjectName, Team]) -> Line:
    """Bars, then allocated/quota of each project and `+n` for queued jobs."""
    segments: list[Segment] = []
    for bar, (node, gpus) in zip(bars(nodes, moment.placements, drawn), nodes.items(), strict=True):
        segments += [*bar, Segment(" " * (_bar_width(node, gpus) - gpus + 2))]
    for cell in moment.projects:
        segments += _cell(cell)
    return tuple(segments)


def _bar_width(node: NodeName, gpus: int) -> int:
    return max(gpus, len(node))


def _cell(cell: ProjectCell) -> Line:
    held = f"{format_gpus(cell.allocated_milli)}/{format_gpus(cell.quota_milli)}"
    queued = f" +{cell.queued}" if cell.queued else ""
    over = "strong" if cell.allocated_milli > cell.quota_milli else ""
    return (
        Segment(held, over),
        Segment(queued, "warning" if queued else ""),
        Segment(" " * max(1, CELL - len(held) - len(queued))),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """What became of one job between two moments."""

    job: JobId
    started_on: tuple[str, ...] = ()
    again: bool = False
    paused: bool = False
    paused_for: JobId | None = None
    queued: bool = False
    ended: str = ""
    gone: bool = False


def sentences(news: Sequence[News]) -> tuple[str, ...]:
    """Plain words: pauses first, since they are why others start."""
    said: list[str] = []
    said += [f"{n.job.name} is paused{f' for {n.paused_for.name}' if n.paused_for else ''}" for n in news if n.paused]
    gone = [n.job.name for n in news if n.gone]
    if gone:
        said.append(f"{_and(gone)} {'is' if len(gone) == 1 else 'are'} gone")
    said += [f"{n.job.name} {n.ended}" for n in news if n.ended]
    said += [_started(n) for n in news if n.started_on]
    queued = [n.job.name for n in news if n.queued]
    if queued:
        said.append(f"{_and(queued)} {'waits' if len(queued) == 1 else 'wait'}")
    return tuple(said)


def _started(news: News) -> str:
    return f"{news.job.name} {'runs again' if news.again else 'starts'} on {_and(sorted(set(news.started_on)))}"


def _and(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
