"""GPUs by project over time, as stacked columns of letters or as an SVG drawing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

from gpuctl.diag.escapes import printable
from gpuctl.model.ids import ProjectName
from gpuctl.model.units import GpuMilli, count_gpus, format_gpus
from gpuctl.views.bars import FREE, teams
from gpuctl.views.styled import Line, Segment

Held = Mapping[ProjectName, Sequence[GpuMilli]]
"""The GPUs that each project held in each step of time; all projects have the same number of steps."""

HEIGHT = 16
"""Lines of a chart in text."""

_WIDTH, _TALL, _LEFT, _TOP, _LEGEND = 960, 360, 60, 20, 150
_COLOURS = (
    "#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#997700", "#994455", "#004488", "#ddaa33",
    "#117733", "#882255", "#44aa99", "#bbbbbb",
)  # fmt: skip


def text_chart(held: Held, capacity_milli: GpuMilli, begin: str, end: str) -> tuple[Line, ...]:
    """A column for each step, a letter for each HEIGHT-th of all GPUs that a project held, and a legend below."""
    drawn = teams(held)
    columns = [_column(held, capacity_milli, step) for step in range(_steps(held))]
    width = len(format_gpus(capacity_milli))
    lines: list[Line] = []
    for level in range(HEIGHT - 1, -1, -1):
        label = format_gpus(capacity_milli * (level + 1) // HEIGHT // 1000 * 1000) if (level + 1) % 4 == 0 else ""
        cells = (column[level] for column in columns)
        drawing = (Segment(FREE, "dim") if of is None else Segment(drawn[of].letter, drawn[of].style) for of in cells)
        lines.append((Segment(f"{label:>{width}} "), *drawing))
    gap = max(1, len(columns) - len(begin) - len(end))
    lines.append((Segment(" " * (width + 1) + begin + " " * gap + end, "dim"),))
    for project, team in drawn.items():
        most = max(held[project], default=0)
        lines.append((
            Segment(" " * (width + 1)), Segment(team.letter, team.style),
            Segment(f" {project}: at most {count_gpus(most // 100 * 100)} in a step"),
        ))  # fmt: skip
    return tuple(lines)


def _steps(held: Held) -> int:
    return max((len(amounts) for amounts in held.values()), default=0)


def _column(held: Held, capacity_milli: GpuMilli, step: int) -> list[ProjectName | None]:
    """The project at each level of one step, bottom-up. Amounts are added before they are rounded."""
    column: list[ProjectName | None] = []
    total = 0
    for project in sorted(held):
        total += held[project][step]
        upto = min(HEIGHT, (total * HEIGHT * 2 + capacity_milli) // (2 * max(1, capacity_milli)))
        column += [project] * (upto - len(column))
    return column + [None] * (HEIGHT - len(column))


def svg_chart(held: Held, capacity_milli: GpuMilli, begin: str, end: str) -> str:
    """One drawing: stacked areas below the line of all GPUs, and a legend."""
    steps = max(1, _steps(held))
    below = [0] * steps
    size = f"0 0 {_LEFT + _WIDTH + _LEGEND} {_TOP + _TALL + 40}"
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size}" font-family="sans-serif" font-size="12">']
    for index, project in enumerate(sorted(held)):
        colour = _COLOURS[index % len(_COLOURS)]
        above = [low + milli for low, milli in zip(below, held[project], strict=True)]
        edge = [*_edge(above, capacity_milli), *reversed(_edge(below, capacity_milli))]
        points = " ".join(f"{x},{y}" for x, y in edge)
        parts.append(
            f'<polygon points="{points}" fill="{colour}"><title>{escape(printable(project))}</title></polygon>'
        )
        top = _TOP + 16 * index
        parts.append(f'<rect x="{_LEFT + _WIDTH + 12}" y="{top}" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{_LEFT + _WIDTH + 28}" y="{top + 10}">{escape(printable(project))}</text>')
        below = above
    bottom = _TOP + _TALL
    parts += [
        f'<path d="M{_LEFT},{_TOP} h{_WIDTH} M{_LEFT},{_TOP} v{_TALL} h{_WIDTH}" fill="none" stroke="black"/>',
        f'<text x="{_LEFT - 6}" y="{_TOP + 4}" text-anchor="end">{format_gpus(capacity_milli)}</text>',
        f'<text x="{_LEFT - 6}" y="{bottom}" text-anchor="end">0</text>',
        f'<text x="{_LEFT}" y="{bottom + 20}">{escape(printable(begin))}</text>',
        f'<text x="{_LEFT + _WIDTH}" y="{bottom + 20}" text-anchor="end">{escape(printable(end))}</text>',
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def svg_sheet(charts: Mapping[str, str]) -> str:
    """Combine several drawings of `svg_chart`, one below the other, each with its name."""
    wide, tall = _LEFT + _WIDTH + _LEGEND, _TOP + _TALL + 40
    step = tall + _TOP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {step * len(charts)}" font-family="sans-serif">'
    ]
    for index, (name, chart) in enumerate(charts.items()):
        parts.append(f'<text x="{_LEFT}" y="{step * index + 16}" font-weight="bold">{escape(printable(name))}</text>')
        place = f'<svg y="{step * index + _TOP}" width="{wide}" height="{tall}" '
        parts.append(chart.replace("<svg ", place, 1).rstrip())
    return "\n".join([*parts, "</svg>"]) + "\n"


def _edge(amounts: Sequence[GpuMilli], capacity_milli: GpuMilli) -> list[tuple[int, int]]:
    """The corners of a stepped line, from left to right."""
    corners = []
    for step, milli in enumerate(amounts):
        y = _TOP + _TALL - milli * _TALL // max(1, capacity_milli)
        corners += [(_LEFT + _WIDTH * step // len(amounts), y), (_LEFT + _WIDTH * (step + 1) // len(amounts), y)]
    return corners
