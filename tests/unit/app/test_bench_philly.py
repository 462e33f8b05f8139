"""Two crowded days of Philly on 240 GPUs: what a month of it is to show, gated on counters.

Of the jobs that came in those days some ran for weeks; the replay goes on until the last has ended.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuctl.app.bench.philly import PhillyRun, bench_philly, philly_order
from gpuctl.app.replay import File
from gpuctl.simulate.modes import ModeName
from gpuctl.simulate.replay import PauseCost
from gpuctl.simulate.replay_report import Figures

TWO_DAYS = Path(__file__).parents[2] / "traces" / "philly-2017-11-02.csv"
JOBS = 1160
STOP_MS = 30_000


@pytest.fixture(scope="module")
def ran() -> PhillyRun:
    pause_cost = PauseCost(stop_ms=STOP_MS, checkpoint_ms=1_800_000)
    trace = File(path=TWO_DAYS.name, content=TWO_DAYS.read_bytes())
    bench = bench_philly([philly_order(trace, 240, [ModeName.FLOOR, ModeName.FIFO, ModeName.FAIR], pause_cost)])
    assert bench.diagnostics == ()
    return bench.runs[0]


def _of(ran: PhillyRun, mode: ModeName) -> Figures:
    return next(figures for figures in ran.report.modes if figures.mode is mode)


def test_no_job_within_quota_waits_longer_than_a_pause_takes(ran: PhillyRun) -> None:
    fair = _of(ran, ModeName.FAIR)
    assert (fair.ended, fair.unfinished) == (JOBS, 0)
    assert (fair.violations, fair.violation_ms, fair.longest_ms) == (0, 0, STOP_MS)


def test_what_projects_are_short_of_is_little_and_jobs_wait_less_than_by_count_alone(ran: PhillyRun) -> None:
    fair = _of(ran, ModeName.FAIR)
    ratio = ran.report.wait_ratio_milli(fair)
    # A project is not above its share by places that are only reserved for it: it keeps its runs until those start.
    assert fair.unfair_ppm <= 15_000
    assert ratio is not None
    # On a cluster as small as this it moves by a third with one start more or less.
    assert ratio <= 900


def test_pausing_wastes_less_than_a_hundredth(ran: PhillyRun) -> None:
    fair = _of(ran, ModeName.FAIR)
    assert 0 < fair.lost_ppm < fair.wasted_ppm <= 6_000
    # Runs that have just begun are paused last, so that those that are paused have done more: most of it goes on later.
    assert fair.wasted_ppm < fair.displaced_ppm <= 95_000
    assert fair.pauses <= 350


def test_how_often_a_run_that_has_just_begun_is_reclaimed(ran: PhillyRun) -> None:
    fair = _of(ran, ModeName.FAIR)
    assert fair.young_ppm is not None
    assert 0 < fair.reclaims <= fair.pauses
    assert fair.young_ppm <= 20_000
    assert 1 < fair.most_starts <= 8
    floor = _of(ran, ModeName.FLOOR)
    assert (floor.reclaims, floor.young_ppm, floor.most_starts) == (0, None, 1)


def test_exact_figures_of_the_modes_beside_it(ran: PhillyRun) -> None:
    seen = {mode: _of(ran, mode) for mode in (ModeName.FLOOR, ModeName.FIFO)}
    shown = {mode.value: (f.mean_wait_ms, f.unfair_ppm, f.violations, f.pauses) for mode, f in seen.items()}
    assert shown == {"floor": (3_070_287, 49_269, 78, 0), "fifo": (4_471_809, 87_496, 82, 0)}
