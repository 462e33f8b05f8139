"""The devices of a few nodes as one character each: the letter of the team that holds the device, or a dot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpuctl.model.decision import Placement
from gpuctl.model.ids import NodeName, ProjectName
from gpuctl.views.styled import Line, Segment, team_style

FREE = "."
SHARED = "+"
"""The character of a device that jobs of several teams share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """A project's letter and style."""

    project: ProjectName
    letter: str
    style: str


def teams(projects: Iterable[ProjectName]) -> dict[ProjectName, Team]:
    """Give each project a letter and a style: the last letter of its name if all of these differ, else a, b, c in
    order."""
    names = sorted(projects)
    last = [name[-1:] for name in names]
    distinct = len(set(last)) == len(last) and all(letter.isalpha() for letter in last)
    letters = last if distinct else [_ordinal(index) for index in range(len(names))]
    return {
        name: Team(project=name, letter=letter, style=team_style(index))
        for index, (name, letter) in enumerate(zip(names, letters, strict=True))
    }


def bars(
    nodes: Mapping[NodeName, int],
    placements: Sequence[tuple[ProjectName, Placement]],
    drawn: Mapping[ProjectName, Team],
) -> tuple[Line, ...]:
    """One line a node, in the order of `nodes` (name to number of devices)."""
    holders: dict[tuple[NodeName, int], set[ProjectName]] = {}
    for project, placement in placements:
        for worker in placement.workers:
            for gpu in worker.gpus:
                holders.setdefault((worker.node, gpu), set()).add(project)
    return tuple(
        tuple(_cell(holders.get((node, gpu), set()), drawn) for gpu in range(gpus)) for node, gpus in nodes.items()
    )


def _cell(projects: set[ProjectName], drawn: Mapping[ProjectName, Team]) -> Segment:
    if not projects:
        return Segment(FREE, "dim")
    if len(projects) > 1:
        return Segment(SHARED, "strong")
    team = drawn.get(next(iter(projects)))
    return Segment(team.letter, team.style) if team else Segment("?", "dim")


def _ordinal(index: int) -> str:
    """A to z, then A to Z, then digits, then # for all others."""
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    return letters[index] if index < len(letters) else "#"
