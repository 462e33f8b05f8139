from __future__ import annotations

from pathlib import Path

from gpuctl import wiring
from gpuctl.app.simulation import simulate_file
from gpuctl.model.ids import ProjectName
from gpuctl.simulate.series import series, series_of

A = ProjectName("a")
STORY = Path(__file__).parents[2] / "scenarios" / "tr4858" / "whole-story.yaml"


def test_a_step_is_the_mean_of_what_was_held_in_it() -> None:
    drawn = series({A: [(0, 4000), (150, 0), (250, 8000)]}, (0, 400), 8000, 4)
    assert (drawn.step_ms, drawn.held_milli[A]) == (100, (4000, 2000, 4000, 8000))


def test_what_began_before_the_window_counts_in_it() -> None:
    assert series({A: [(0, 1000)]}, (100, 300), 1000, 2).held_milli[A] == (1000, 1000)


def test_a_short_window_has_fewer_steps() -> None:
    drawn = series({A: [(0, 3000)]}, (0, 3), 3000, 100)
    assert (drawn.step_ms, drawn.held_milli[A]) == (1, (3000, 3000, 3000))


def test_a_scenario_is_drawn_as_its_checkpoints_tell() -> None:
    report = simulate_file(str(STORY), STORY.read_bytes(), wiring.scenario_reader(STORY), wiring.sandbox).report
    assert report is not None
    last = report.checkpoints[-1]
    drawn = series_of(report, last.at_ms // 1000)
    assert drawn.capacity_milli == 16_000
    held = {row.name: row.allocated_milli for row in last.projects}
    assert {project: means[-1] for project, means in drawn.held_milli.items()} == held
