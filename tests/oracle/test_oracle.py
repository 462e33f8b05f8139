"""The engine against every legal way, in small worlds and histories; and the list of known families is true.

A larger run is recorded by `python -m tests.oracle`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from gpuctl import wiring
from gpuctl.app.simulation import simulate_file
from gpuctl.model.ids import JobId

from .cluster import start
from .commits import check_commits
from .known import KNOWN
from .large import live_large
from .report import run_histories, run_worlds, seeds, smallest_history, smallest_world
from .view import View
from .worlds import declared, draw

WORLDS = 2000
HISTORIES = 600
COMMITS = 300


def test_no_disagreement_but_the_known_ones() -> None:
    assert run_worlds(seeds(0, WORLDS)).unknown() == {}


def test_no_history_goes_wrong_but_the_known_ones() -> None:
    assert run_histories(seeds(0, HISTORIES)).unknown() == {}


def test_a_commit_does_to_jobs_what_is_predicted() -> None:
    told = check_commits(seeds(0, COMMITS))
    assert told.wrong == {}
    assert told.otherwise * 200 < told.commits
    assert told.elsewhere * 20 < told.commits


@pytest.mark.parametrize("family", KNOWN)
def test_a_known_family_still_occurs_wherever_it_is_recorded(family: str) -> None:
    known = KNOWN[family]
    found = run_worlds(known.worlds).families[family], run_histories(known.histories).families[family]
    assert found == ([*known.worlds], [*known.histories]), "the engine has learned it: take it off the list"


@pytest.mark.parametrize("seed", [30, 2862, 7002569, 7003348, 7006926, 7007454, 7012372, 7016702])
def test_nothing_is_paused_for_a_job_that_idle_gpus_will_do_for(seed: int) -> None:
    assert run_worlds([seed]).families == {}


@pytest.mark.parametrize("seed", [7003932])
def test_a_limit_and_a_surplus_workers_way_back_are_in_the_price(seed: int) -> None:
    assert run_worlds([seed]).families == {}


@pytest.mark.parametrize("seed", [7000509, 7000542, 7007368, 7014908, 11000229, 11004758, 11004824])
def test_the_price_of_a_set_counts_all_that_follows_from_it(seed: int) -> None:
    assert run_worlds([seed]).families == {}


@pytest.mark.parametrize("seed", [1243, 7001602, 7003871, 7012469])
def test_victims_are_compared_over_all_pools(seed: int) -> None:
    assert run_worlds([seed]).families == {}


@pytest.mark.parametrize("seed", [7000652, 7000950, 7005910, 7006099, 7006307, 7018231])
def test_a_run_that_goes_on_elsewhere_is_not_stopped_again(seed: int) -> None:
    assert run_worlds([seed]).families == {}


@pytest.mark.parametrize("seed", [7003424])
def test_workers_are_given_up_for_a_job_that_keeps_them(seed: int) -> None:
    assert run_histories([seed]).families == {}


@pytest.mark.parametrize("seed", [7000099, 7001772, 7002140, 7003479])
def test_a_pause_moves_no_share_while_pods_stop(seed: int) -> None:
    assert run_histories([seed]).families == {}


@pytest.mark.parametrize("seed", [7003107, 7003218, 7003758])
def test_a_paused_run_makes_its_own_way_in_the_same_cycle(seed: int) -> None:
    assert run_histories([seed]).families == {}


def test_an_elastic_job_is_demand_with_the_workers_that_its_quota_leaves() -> None:
    assert run_worlds([5001493]).families == {}


@pytest.mark.parametrize("seed", [7004353, 7004385, 7004662])
def test_a_start_and_a_set_of_victims_are_final(seed: int) -> None:
    assert run_histories([seed]).families == {}


def test_a_run_is_not_moved_beside_the_pause_of_one_that_outranks_it() -> None:
    assert run_histories([7002667]).families == {}


@pytest.mark.parametrize("seed", [10000735, 10005879, 10007532, 13007490])
def test_a_run_that_stops_anyway_is_not_moved_before(seed: int) -> None:
    assert run_worlds([seed]).families == {}


def test_a_limit_of_a_department_is_no_hindrance_to_a_worker_that_others_may_make_way_for() -> None:
    assert run_worlds([10018491]).families == {}


def test_a_run_for_which_others_make_way_is_not_moved_in_the_same_cycle() -> None:
    assert run_histories([13003984]).families == {}


def test_surplus_workers_are_not_settled_and_no_start_waits_for_them() -> None:
    assert run_histories([7001964]).families == {}


def test_idle_gpus_wait_for_the_run_that_is_next() -> None:
    assert run_worlds([7008145]).families == {}


def test_own_work_elsewhere_wins_no_claim_for_a_worker() -> None:
    assert run_worlds([9003489]).families == {}


def test_workers_of_an_elastic_run_are_freed_once() -> None:
    assert run_worlds([9002920]).families == {}


def test_a_run_that_goes_on_elsewhere_is_as_good_as_moved() -> None:
    assert run_worlds([8013208]).families == {}


@pytest.mark.parametrize("seed", [8007073, 8018392, 9003042, 9005205, 9008020])
def test_what_follows_is_decided_with_the_pause(seed: int) -> None:
    assert run_worlds([seed]).families == {}


@pytest.mark.parametrize("seed", [14016508, 15006556, 15016002])
def test_paused_jobs_alone_do_not_undo_each_others_pauses(seed: int) -> None:
    assert run_worlds([seed]).families == {}


@pytest.mark.parametrize("seed", [17000069, 17000446, 17008012, 14006900, 11009074, 13003258])
def test_a_run_that_would_have_others_paused_in_its_turn_is_left_alone(seed: int) -> None:
    assert run_worlds([seed]).families == {}


@pytest.mark.parametrize("seed", [7003476, 9000671])
def test_a_run_starts_where_it_would_be_moved_to(seed: int) -> None:
    assert run_histories([seed]).families == {}


@pytest.mark.parametrize("seed", [20002064, 20002259, 20004447])
def test_a_paused_run_is_given_no_place_that_another_job_would_take_from_it(seed: int) -> None:
    assert run_histories([seed]).families == {}


def test_a_young_run_is_moved_for_a_guarantee_alone() -> None:
    assert run_worlds([20016287]).families == {}


@pytest.mark.parametrize("seed", [18001318, 12001219, 13003139, 15002276, 17003973])
def test_no_run_is_paused_that_another_pause_makes_room_for(seed: int) -> None:
    assert run_histories([seed]).families == {}


@pytest.mark.parametrize("seed", [*range(4), 15])
def test_nothing_goes_wrong_where_searches_meet_their_bounds(seed: int) -> None:
    assert live_large(seed) == ""


def test_halves_of_a_gang_fill_one_device() -> None:
    assert run_worlds([7016427]).families == {}


@pytest.mark.parametrize("seed", seeds(0, 200))
def test_the_engine_divides_as_the_design_says(seed: int) -> None:
    spec = draw(seed)
    tree, cluster = declared(spec), start(spec)
    cluster.add_waiting(JobId.parse(spec.wanted))
    cluster.settle(tree)
    view = View(tree, cluster.state(), cluster.now_ms)
    for row in cluster.decide(tree).shares:
        assert row.share_milli == view.portions[row.domain, f"project {row.project}"].share


@pytest.mark.parametrize(
    ("sort", "family", "smallest"),
    [("worlds", "stopped twice", smallest_world), ("histories", "waits: one run", smallest_history)],
)
def test_the_smallest_example_of_a_family_is_a_scenario(
    sort: str, family: str, smallest: Callable[[str, Iterable[int]], str]
) -> None:
    recorded = getattr(KNOWN[family], sort)
    text = smallest(family, recorded[:1])
    path = Path("smallest.yaml")
    outcome = simulate_file(str(path), text.encode(), wiring.scenario_reader(path), wiring.sandbox)
    assert outcome.report is not None
    assert outcome.report.outcomes
