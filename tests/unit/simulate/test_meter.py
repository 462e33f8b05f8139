from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpuctl.engine.shares.fairshare import Portion
from gpuctl.model.ids import JobId, ProjectName
from gpuctl.simulate.meter import Meter, Place, entitled, fluid_shares

A, B = ProjectName("a"), ProjectName("b")
FIRST, SECOND, THIRD, OTHER = JobId(A, "1"), JobId(A, "2"), JobId(A, "3"), JobId(B, "1")


def _meter(until_ms: int = 1000, reclaim_ms: int = 30) -> Meter:
    """Eight GPUs, four guaranteed to each of two projects."""
    return Meter({A: 4000, B: 4000}, 8000, (0, until_ms), reclaim_ms)


def _run(meter: Meter, job: JobId, milli: int, at_ms: int = 0) -> None:
    """A job comes, and starts at once."""
    meter.come(job, milli, at_ms)
    meter.start(job, milli)


def test_what_lasts_no_time_counts_for_nothing() -> None:
    meter = _meter()
    meter.advance(100)
    _run(meter, FIRST, 8000, 100)
    short = meter.close()
    assert meter.used == 900 * 8000
    assert short[A].unfair == short[A].below_quota == short[A].violations == 0


def test_unfair_is_what_is_missing_of_the_fluid_share() -> None:
    meter = _meter()
    _run(meter, OTHER, 8000)
    meter.advance(100)
    meter.come(FIRST, 6000, 100)
    meter.advance(300)
    meter.pause(OTHER, 8000)
    meter.wait(OTHER, 8000, 300)
    meter.start(FIRST, 6000)
    meter.advance(350)
    short = meter.close()
    assert short[A].unfair == 200 * 4000
    assert short[A].below_quota == 200 * 4000
    assert short[B].unfair == 700 * 4000
    assert meter.used == 300 * 8000 + 700 * 6000


def test_a_job_that_is_larger_than_what_is_left_of_the_quota_is_no_violation() -> None:
    meter = _meter()
    _run(meter, OTHER, 5000)
    _run(meter, FIRST, 3000)
    meter.come(SECOND, 2000, 0)
    short = meter.close()
    assert short[A].below_quota == 1000 * 1000
    assert (short[A].violations, short[A].violation_ms, short[A].longest_ms) == (0, 0, 0)


def test_a_violation_is_what_a_job_within_quota_waits_beyond_a_reclaim() -> None:
    meter = _meter()
    _run(meter, OTHER, 8000)
    meter.advance(100)
    meter.come(FIRST, 1000, 100)
    meter.advance(200)
    meter.come(SECOND, 1000, 200)
    meter.advance(210)
    meter.start(FIRST, 1000)
    meter.advance(230)
    meter.start(SECOND, 1000)
    short = meter.close()
    assert (short[A].violations, short[A].violation_ms, short[A].longest_ms) == (1, 80, 110)


def test_a_paused_job_waits_from_when_it_has_left() -> None:
    meter = _meter()
    _run(meter, FIRST, 4000)
    meter.advance(100)
    meter.pause(FIRST, 4000)
    meter.advance(130)
    meter.wait(FIRST, 4000, 130)
    meter.advance(160)
    meter.start(FIRST, 4000)
    short = meter.close()
    assert short[A].unfair == short[A].below_quota == 60 * 4000
    assert (short[A].violations, short[A].longest_ms) == (0, 30)


def test_gpus_that_one_job_is_entitled_to_are_no_room_for_the_next() -> None:
    meter = _meter()
    _run(meter, OTHER, 8000)
    meter.advance(100)
    meter.come(FIRST, 3000, 100)
    meter.come(SECOND, 2000, 100)
    meter.come(THIRD, 1000, 100)
    meter.advance(130)
    meter.start(FIRST, 3000)
    meter.advance(150)
    meter.start(THIRD, 1000)
    meter.advance(900)
    short = meter.close()
    assert (short[A].violations, short[A].violation_ms, short[A].longest_ms) == (1, 20, 50)


def test_jobs_with_a_reservation_are_entitled_first_then_the_longest_waiting() -> None:
    waiting: list[Place] = [(1, 7, FIRST), (1, 9, THIRD)]
    second: list[Place] = [(1, 8, SECOND)]
    assert entitled(4000, {3000: waiting, 2000: second}) == {FIRST}
    assert entitled(5000, {3000: waiting, 2000: second}) == {FIRST, SECOND}
    assert entitled(4000, {3000: waiting, 1000: second}) == {FIRST, SECOND}
    assert entitled(4000, {5000: waiting, 2000: second}) == {SECOND}
    assert entitled(4000, {3000: [(0, 99, THIRD), (1, 7, FIRST)], 2000: second}) == {THIRD}
    assert entitled(0, {3000: waiting}) == set()


def test_gpus_reserved_for_others_are_no_room() -> None:
    """FIRST has waited longest, but a place within the quota was found for SECOND: FIRST would be beyond it."""
    meter = _meter()
    meter.come(FIRST, 3000, 0)
    meter.come(SECOND, 2000, 0)
    meter.reserve(SECOND, 2000, 0)
    meter.reserve(SECOND, 2000, 0)
    meter.advance(30)
    meter.start(SECOND, 2000)
    meter.advance(900)
    short = meter.close()
    assert (short[A].violations, short[A].longest_ms) == (0, 30)


def test_an_unmet_reservation_is_a_violation_and_a_cancelled_one_is_not() -> None:
    meter = _meter()
    meter.come(FIRST, 3000, 0)
    meter.come(SECOND, 2000, 0)
    meter.reserve(SECOND, 2000, 0)
    meter.advance(100)
    meter.cancel_reservation(SECOND, 2000, 0)
    meter.cancel_reservation(SECOND, 2000, 0)
    meter.advance(120)
    meter.start(FIRST, 3000)
    meter.advance(900)
    short = meter.close()
    assert (short[A].violations, short[A].violation_ms, short[A].longest_ms) == (1, 70, 100)


def test_where_a_job_moves_to_is_its_own_while_it_leaves_and_it_waits_from_then_on() -> None:
    meter = _meter()
    _run(meter, FIRST, 4000)
    meter.come(SECOND, 1000, 0)
    meter.advance(100)
    meter.move(FIRST, 4000, 100)
    meter.advance(200)
    meter.wait(FIRST, 4000, 100)
    meter.advance(215)
    meter.start(FIRST, 4000)
    meter.advance(300)
    meter.move(FIRST, 4000, 300)
    meter.advance(310)
    meter.cancel_reservation(FIRST, 4000, 300)
    meter.advance(330)
    meter.start(SECOND, 1000)
    meter.wait(FIRST, 4000, 300)
    meter.advance(900)
    short = meter.close()
    assert (short[A].violations, short[A].longest_ms) == (0, 20)


def test_the_run_that_left_last_stands_where_it_was_told_to_leave() -> None:
    """A paused job needs time to leave; a job that came meanwhile is behind it."""
    meter = _meter()
    _run(meter, FIRST, 3000)
    meter.advance(100)
    meter.pause(FIRST, 3000)
    meter.advance(120)
    meter.come(SECOND, 3000, 120)
    meter.advance(130)
    meter.wait(FIRST, 3000, 100)
    meter.advance(155)
    meter.start(FIRST, 3000)
    meter.advance(900)
    short = meter.close()
    assert (short[A].violations, short[A].longest_ms) == (0, 25)


def test_quotas_of_more_than_there_is_are_scaled_as_the_engine_does() -> None:
    meter = Meter({A: 8000, B: 8000}, 8000, (0, 1000), 30)
    meter.come(OTHER, 4000, 0)
    meter.come(FIRST, 4000, 0)
    meter.come(SECOND, 1000, 0)
    for job in (OTHER, FIRST):
        meter.start(job, 4000)
    meter.advance(500)
    short = meter.close()
    assert (short[A].below_quota, short[A].violations) == (0, 0)


def test_nothing_counts_beyond_the_window() -> None:
    meter = _meter(until_ms=150)
    _run(meter, OTHER, 8000)
    meter.advance(100)
    meter.come(FIRST, 1000, 100)
    meter.advance(5000)
    meter.start(FIRST, 1000)
    meter.advance(6000)
    short = meter.close()
    assert short[A].unfair == 50 * 1000
    assert (short[A].violations, short[A].longest_ms) == (1, 50)
    assert meter.used == 150 * 8000


def test_more_of_what_is_not_served_anyway_changes_no_share() -> None:
    quotas, capacity = {A: 4000, B: 2000}, 8000
    meter = Meter(quotas, capacity, (0, 1000), 0)
    _run(meter, OTHER, 8000)
    for index in range(9):
        meter.come(JobId(A, str(index)), 1000, 100 * index)
        meter.advance(100 * index + 1)
    expected = 0
    for index, (begin, end) in enumerate(zip([0, *range(1, 802, 100)], [*range(1, 802, 100), 1000], strict=True)):
        share = fluid_shares(capacity, quotas, {A: 1000 * min(9, index + 1), B: 8000})[A].share_milli
        expected += share * (end - begin)
    assert meter.close()[A].unfair == expected


def test_shares_are_demand_where_there_is_enough() -> None:
    enough = fluid_shares(8000, {A: 1000, B: 0}, {A: 3000, B: 5000})
    assert enough == {A: Portion(1000, 3000), B: Portion(0, 5000)}
    scarce = fluid_shares(8000, {A: 1000, B: 0}, {A: 8000, B: 5000})
    assert scarce == {A: Portion(1000, 8000), B: Portion(0, 0)}


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.sampled_from("ab"), st.sampled_from([1, 2, 7]), st.sampled_from("cssepee")),
        min_size=5,
        max_size=30,
    )
)
def test_integrals_are_those_of_a_look_at_everything_in_each_instant(steps: list[tuple[int, str, int, str]]) -> None:
    """Each step: so much time passes; then a job comes, or the first to start, be paused or end of them does."""
    quotas, capacity = {A: 5000, B: 3000}, 8000
    meter = Meter(quotas, capacity, (0, 1000), 30)
    demand, held = dict.fromkeys(quotas, 0), dict.fromkeys(quotas, 0)
    unfair, below, used = dict.fromkeys(quotas, 0), dict.fromkeys(quotas, 0), 0
    waiting: list[tuple[JobId, int]] = []
    running: list[tuple[JobId, int]] = []

    def pass_by(lasts_ms: int) -> int:
        shares = fluid_shares(capacity, quotas, demand)
        for project, quota in quotas.items():
            unfair[project] += lasts_ms * max(0, shares[project].share_milli - held[project])
            below[project] += lasts_ms * max(0, min(quota, demand[project]) - held[project])
        return lasts_ms * sum(held.values())

    now_ms = 0
    for number, (lasts_ms, name, gpus, what) in enumerate(steps):
        used += pass_by(lasts_ms)
        now_ms += lasts_ms
        meter.advance(now_ms)
        if what == "s" and waiting:
            job, milli = waiting.pop(0)
            meter.start(job, milli)
            held[job.project] += milli
            running.append((job, milli))
        elif what in "ep" and running:
            job, milli = running.pop(0)
            held[job.project] -= milli
            if what == "p":
                meter.pause(job, milli)
                meter.wait(job, milli, now_ms)
                waiting.append((job, milli))
            else:
                meter.end(job, milli)
                demand[job.project] -= milli
        else:
            job, milli = JobId(ProjectName(name), str(number)), 1000 * gpus
            meter.come(job, milli, now_ms)
            demand[job.project] += milli
            waiting.append((job, milli))
    used += pass_by(1000 - now_ms)
    short = meter.close()
    assert meter.used == used
    assert {project: short[project].unfair for project in quotas} == unfair
    assert {project: short[project].below_quota for project in quotas} == below
