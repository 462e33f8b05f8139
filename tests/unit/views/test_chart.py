from __future__ import annotations

from xml.etree import ElementTree as ET

from gpuctl.model.ids import ProjectName
from gpuctl.views.chart import HEIGHT, svg_chart, text_chart
from gpuctl.views.styled import plain

A, B = ProjectName("team-a"), ProjectName("team-b")
HELD = {A: (0, 8000, 4000, 500), B: (0, 8000, 4000, 0)}


def test_a_column_is_a_step_and_a_letter_its_part_of_all_gpus() -> None:
    lines = [plain(line) for line in text_chart(HELD, 16_000, "0s", "4m")]
    columns = ["".join(line[3 + step] for line in reversed(lines[:HEIGHT])) for step in range(4)]
    assert columns == ["." * 16, "a" * 8 + "b" * 8, "a" * 4 + "b" * 4 + "." * 8, "a" + "." * 15]
    assert [line[:2] for line in lines[:HEIGHT] if line[:2].strip()] == ["16", "12", " 8", " 4"]
    assert lines[HEIGHT:] == [
        "   0s 4m",
        "   a team-a: at most 8 GPUs in a step",
        "   b team-b: at most 8 GPUs in a step",
    ]


def test_nothing_to_draw_is_no_mistake() -> None:
    assert len(text_chart({}, 0, "0s", "0s")) == HEIGHT + 1
    assert ET.fromstring(svg_chart({}, 0, "", "")).tag.endswith("svg")


def test_a_drawing_has_an_area_a_project_and_never_leaves_the_frame() -> None:
    root = ET.fromstring(svg_chart({**HELD, ProjectName("a<b"): (0, 0, 0, 0)}, 16_000, "0s", "4m"))
    areas = root.findall("{http://www.w3.org/2000/svg}polygon")
    assert len(areas) == 3
    corners = [tuple(map(int, point.split(","))) for area in areas for point in area.attrib["points"].split()]
    assert (min(x for x, _ in corners), max(x for x, _ in corners)) == (60, 1020)
    assert (min(y for _, y in corners), max(y for _, y in corners)) == (20, 380)
