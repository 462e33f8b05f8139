from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuctl.engine.reasons import GUARDED
from gpuctl.model.decision import Decision, Pending, Schedule
from gpuctl.model.declared import MinRuntime, SchedulingPolicy
from gpuctl.model.ids import ProjectName
from gpuctl.model.state import RunPhase
from gpuctl.simulate.meter import Meter
from gpuctl.simulate.modes import Engine, ModeName
from gpuctl.simulate.replay import PauseCost, Replay, RunTransition
from gpuctl.simulate.replay_report import Figures, document, replay, replay_all
from gpuctl.simulate.trace import Trace, TraceJob
from gpuctl.simulate.workload import Layout, Workload, workload

A, B = ProjectName("a"), ProjectName("b")
HOUR = 3_600_000
WINDOW = (0, 48 * HOUR)
SLOW = PauseCost(stop_ms=30_000)


def _job(project: ProjectName, at_ms: int, duration_ms: int, gpus: int) -> TraceJob:
    return TraceJob(project=project, submitted_ms=at_ms, duration_ms=duration_ms, gpu_milli=1000 * gpus)


def _load(*jobs: TraceJob, nodes: int = 1, min_runtime_ms: int = 0) -> Workload:
    trace = Trace(name="t", jobs=tuple(sorted(jobs, key=lambda job: job.submitted_ms)))
    policy = SchedulingPolicy(min_runtime=MinRuntime.of_all(min_runtime_ms))
    return workload(trace, Layout(nodes=nodes, gpus=8), {A: 4000 * nodes, B: 4000 * nodes}, policy)


CONTENDED = (_job(A, 0, 4 * HOUR, 4), _job(A, 0, 4 * HOUR, 4), _job(B, HOUR, HOUR, 4))


def test_the_engine_gives_back_what_is_guaranteed_in_the_time_a_pause_takes() -> None:
    figures = replay(_load(*CONTENDED), ModeName.FAIR, SLOW, WINDOW)
    assert (figures.ended, figures.unfinished, figures.pauses) == (3, 0, 1)
    assert (figures.violations, figures.longest_ms) == (0, 30_000)
    assert figures.projects[B].unfair == 4000 * 30_000
    assert figures.max_wait_ms == HOUR + 30_000
    assert figures.mean_wait_ms == (30_000 + HOUR + 30_000) // 3
    assert figures.displaced_ppm == HOUR * 4000 * 1_000_000 // (36 * HOUR * 1000)
    assert figures.lost_ppm == 0


@pytest.mark.parametrize(("ran_ms", "young"), [(59_999, 1), (60_000, 0), (HOUR, 0)])
def test_a_reclaimed_run_is_young_until_it_has_run_for_a_minute(ran_ms: int, young: int) -> None:
    load = _load(_job(A, 0, 4 * HOUR, 4), _job(A, HOUR, 4 * HOUR, 4), _job(B, HOUR + ran_ms, HOUR, 4))
    figures = replay(load, ModeName.FAIR, SLOW, WINDOW)
    assert (figures.pauses, figures.reclaims, figures.young_victims) == (1, 1, young)
    assert (figures.young_ppm, figures.most_starts) == (1_000_000 * young, 2)


def test_a_job_that_is_reclaimed_again_and_again_is_counted_with_all_its_starts() -> None:
    # The second job of A is reclaimed after an hour, resumes when the first job of B ends, and has run for 10 s when
    # the second one comes. Its third start is its last.
    back_ms = 2 * HOUR + SLOW.stop_ms
    load = _load(*CONTENDED, _job(B, back_ms + 10_000, HOUR, 4))
    figures = replay(load, ModeName.FAIR, SLOW, WINDOW)
    assert (figures.reclaims, figures.young_victims, figures.young_ppm, figures.most_starts) == (2, 1, 500_000, 3)
    assert figures.longest_ms == SLOW.stop_ms
    told = document(replay_all(load, "1x8", [ModeName.FAIR, ModeName.FIFO], SLOW, WINDOW))
    assert told["youngMs"] == 60_000
    kept = ("reclaims", "youngVictims", "youngVictimsPpm", "mostStarts")
    assert [[mode[key] for key in kept] for mode in told["modes"]] == [[2, 1, 500_000, 3], [0, 0, None, 1]]


@pytest.mark.parametrize(
    ("checkpoint_ms", "lost_ms"), [(0, 0), (None, HOUR), (HOUR // 2, 0), (40 * 60_000, 20 * 60_000), (2 * HOUR, HOUR)]
)
def test_what_a_paused_job_does_again_is_by_its_checkpoints(checkpoint_ms: int | None, lost_ms: int) -> None:
    pause_cost = PauseCost(stop_ms=30_000, checkpoint_ms=checkpoint_ms)
    figures = replay(_load(*CONTENDED), ModeName.FAIR, pause_cost, WINDOW)
    assert figures.lost_ppm == lost_ms * 4000 * 1_000_000 // (36 * HOUR * 1000)
    assert figures.wasted_ppm == (lost_ms + 30_000) * 4000 * 1_000_000 // (36 * HOUR * 1000)
    assert figures.end_ms == 5 * HOUR + 30_000 + lost_ms


def test_what_a_job_says_of_its_checkpoints_goes_before_the_usual() -> None:
    load = _load(*CONTENDED)
    saving = replace(load, jobs=tuple((each, replace(job, checkpoint_ms=40 * 60_000)) for each, job in load.jobs))
    figures = replay(saving, ModeName.FAIR, SLOW, WINDOW)
    assert figures.end_ms == 5 * HOUR + 30_000 + 20 * 60_000


def test_what_has_not_run_for_long_enough_is_looked_at_again_when_it_has() -> None:
    figures = replay(_load(*CONTENDED, min_runtime_ms=2 * HOUR), ModeName.FAIR, SLOW, WINDOW)
    assert figures.longest_ms == HOUR + 30_000
    assert (figures.violations, figures.projects[B].violation_ms) == (1, HOUR)


def test_a_pause_that_takes_no_time_is_followed_by_the_start_at_once() -> None:
    figures = replay(_load(*CONTENDED), ModeName.FAIR, PauseCost(stop_ms=0), WINDOW)
    assert (figures.pauses, figures.longest_ms, figures.violations) == (1, 0, 0)
    assert figures.end_ms == 5 * HOUR


def test_the_other_modes() -> None:
    load = _load(*CONTENDED)
    waits = {mode: replay(load, mode, SLOW, WINDOW) for mode in ModeName if mode is not ModeName.FAIR}
    assert {mode: (f.mean_wait_ms, f.pauses) for mode, f in waits.items()} == {
        ModeName.FIFO: (HOUR, 0),
        ModeName.STATIC: (4 * HOUR // 3, 0),
        ModeName.DRF: (HOUR, 0),
        ModeName.FLOOR: (HOUR, 0),
    }
    assert waits[ModeName.STATIC].violations == 0
    assert waits[ModeName.FIFO].violation_ms == 3 * HOUR - 30_000


def test_a_job_that_a_mode_never_starts_is_counted() -> None:
    load = _load(_job(A, 0, HOUR, 8), _job(B, 0, HOUR, 1))
    assert replay(load, ModeName.STATIC, SLOW, WINDOW).unfinished == 1
    assert replay(load, ModeName.FIFO, SLOW, WINDOW).unfinished == 0


def test_a_job_that_fits_no_cluster_is_counted() -> None:
    figures = replay(_load(_job(A, 0, HOUR, 16)), ModeName.FAIR, SLOW, WINDOW)
    assert (figures.ended, figures.unfinished, figures.violations) == (0, 1, 0)


def _mixed(jobs: int = 120) -> Workload:
    """Two projects that ask for about as much as there is."""
    made = [
        _job(
            (A, B)[index * 5 % 2],
            index * 7 % 97 * 240_000,
            (1 + index * 13 % 29) * 300_000,
            (1, 1, 2, 4, 1, 8)[index % 6],
        )
        for index in range(jobs)
    ]
    return _load(*made, nodes=2)


def _told(load: Workload) -> dict[str, Any]:
    return document(replay_all(load, "2x8", [ModeName.FLOOR, ModeName.FAIR], SLOW, (0, 24 * HOUR)))


ON_ONE_DAY = pytest.mark.xdist_group("replayed day")


@pytest.fixture(scope="module")
def day() -> dict[str, Any]:
    """What is told of the whole day, which takes seconds."""
    return _told(_mixed())


def test_exact_figures_of_the_simple_modes_on_a_day_of_two_nodes() -> None:
    load = _mixed()
    seen = {mode: replay(load, mode, SLOW, (0, 24 * HOUR)) for mode in ModeName if mode is not ModeName.FAIR}
    assert {mode.value: _shown(figures) for mode, figures in seen.items()} == EXACT


def _shown(figures: Figures) -> tuple[int, ...]:
    return figures.mean_wait_ms, figures.p95_wait_ms, figures.unfair_ppm, figures.used_ppm, figures.violations


EXACT = {
    "fifo": (17_308_000, 64_200_000, 66_482, 948_480, 16),
    "static": (22_992_000, 101_220_000, 249_242, 716_536, 1),
    "drf": (17_192_500, 63_900_000, 67_034, 952_647, 6),
    "floor": (17_099_000, 63_120_000, 55_067, 965_147, 6),
}
"""Mean and 95th wait in ms, unfair work and used GPUs in millionths, violations."""


@ON_ONE_DAY
def test_the_engine_ends_all_jobs_where_it_is_crowded(day: dict[str, Any]) -> None:
    (fair,) = [mode for mode in day["modes"] if mode["mode"] == "fair"]
    assert (fair["ended"], fair["unfinished"]) == (120, 0)
    assert 800_000 < fair["usedPpm"] <= 1_000_000


class Audited(Replay):
    """A replay whose measure is compared with the engine's accounts after each cycle."""

    def __init__(self, load: Workload) -> None:
        self.engine = Engine(load)
        self.meter = Meter(load.quotas, load.capacity_milli, WINDOW, SLOW.stop_ms)
        super().__init__(load, self.engine, SLOW, self.meter)
        self._audited: Schedule | None = None

    def _carry_out(self, decisions: Sequence[RunTransition], now_ms: int) -> bool:
        paused = super()._carry_out(decisions, now_ms)
        decided = self.engine.last
        if decided is not None and decided is not self._audited:
            self._audited = decided
            reserved = self._reserved(decided.decisions)
            counted = {row.project: row.allocated_milli + reserved.get(row.project, 0) for row in decided.shares}
            assert {project: self.meter.counted(project) for project in counted} == counted
        return paused

    def _reserved(self, decisions: Iterable[Decision]) -> dict[ProjectName, int]:
        """GPUs reserved for waiting runs; a run that moves is counted where it goes."""
        found: dict[ProjectName, int] = {}
        for each in decisions:
            if isinstance(each, Pending) and each.reserved is not None and each.reason.code != GUARDED:
                tracked = self._tracked[each.job]
                if tracked.run.phase is RunPhase.QUEUED:
                    found[each.job.project] = found.get(each.job.project, 0) + tracked.total_milli
        return found


@given(
    st.integers(1, 3),
    st.lists(
        st.tuples(
            st.sampled_from([A, B]), st.integers(0, 240), st.integers(1, 300), st.sampled_from([1, 1, 2, 3, 4, 8, 16])
        ),
        min_size=4,
        max_size=30,
    ),
)
@settings(max_examples=40)
def test_the_measure_counts_as_held_what_the_engine_does(
    nodes: int, jobs: list[tuple[ProjectName, int, int, int]]
) -> None:
    """A reservation counts; one by the starvation guard does not; a run that moves counts once."""
    Audited(
        _load(*(_job(project, 1000 * at, 1000 * lasts, gpus) for project, at, lasts, gpus in jobs), nodes=nodes)
    ).run()


def _no_float(text: str) -> None:
    raise AssertionError(text)


@ON_ONE_DAY
def test_a_report_is_one_document_of_whole_numbers_and_the_same_each_time(day: dict[str, Any]) -> None:
    assert _told(_mixed(60)) == _told(_mixed(60))
    assert day == json.loads(json.dumps(day), parse_float=_no_float)
    assert day["kind"] == "ReplayReport"
    assert day["modes"][0]["waitOfFloorMilli"] == 1000
    held = [sum(step) for step in zip(*(p["heldGpuMilli"] for p in day["modes"][1]["projects"]), strict=True)]
    assert max(held) <= 16_000
