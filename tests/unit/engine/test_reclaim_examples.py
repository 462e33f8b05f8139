"""Which run is paused for which job: one example for each rule."""

from __future__ import annotations

from dataclasses import replace

from worlds import World, declared, department, job, live_nodes, pool, project

from gpuctl.model.declared import Declared, MinRuntime, Project, SchedulingPolicy
from gpuctl.model.job import Job, JobType

MINUTE = 60_000


class Play:
    """A cluster of one pool whose jobs arrive in steps. It records which run was paused for which job."""

    def __init__(self, *nodes: int, projects: list[Project], **options: object) -> None:
        self.pools = [pool(nodes=list(nodes))]
        self.projects = projects
        self.options = options
        self.jobs: list[Job] = []
        self.world = World(nodes=live_nodes(self.pools))

    def tree(self) -> Declared:
        return declared(self.projects, self.jobs, self.pools, **self.options)

    def arrive(self, *jobs: Job) -> list[tuple[str, str]]:
        """Add jobs and let the cluster settle. Returns the pairs (paused job, beneficiary) of that time."""
        before = len(self.world.paused)
        self.jobs += jobs
        self.world.settle(self.tree())
        self.world.now_ms += MINUTE
        return [(str(victim), str(gainer)) for victim, gainer in self.world.paused[before:]]


def two(quota_a: int, quota_b: int) -> list[Project]:
    return [project("a", quota_a), project("b", quota_b)]


def test_a_job_within_quota_takes_back_what_others_hold_above_theirs() -> None:
    play = Play(4, projects=two(2000, 2000))
    play.arrive(job("a/1", 2000), job("a/2", 2000))
    assert play.arrive(job("b/1", 2000)) == [("a/1", "b/1")]
    assert play.world.running() == {"a/2", "b/1"}


def test_an_exact_fit_goes_before_a_larger_and_one_before_several() -> None:
    play = Play(8, projects=two(0, 8000))
    play.arrive(job("a/four", 4000))
    play.arrive(job("a/two", 2000))
    play.arrive(job("a/one"), job("a/uno"))
    assert play.arrive(job("b/1", 2000)) == [("a/two", "b/1")]


def test_idle_gpus_are_used_before_anybody_is_paused_for_more() -> None:
    play = Play(8, projects=two(0, 8000))
    play.arrive(job("a/two", 2000), job("a/one"), job("a/four", 4000))
    assert play.arrive(job("b/1", 2000)) == [("a/one", "b/1")]


def test_among_equals_the_lowest_priority_then_the_least_progress() -> None:
    play = Play(3, projects=two(0, 3000))
    play.arrive(job("a/old"))
    play.arrive(job("a/new"))
    play.arrive(job("a/low", priority=-1))
    assert play.arrive(job("b/1")) == [("a/low", "b/1")]
    assert play.arrive(job("b/2")) == [("a/new", "b/2")]


def test_the_project_most_over_its_share_pays_first() -> None:
    play = Play(6, projects=[project("a", 1000), project("b", 1000), project("c", 4000)])
    play.arrive(job("a/1"), job("a/2"), job("b/1"), job("b/2"), job("b/3"), job("b/4"))
    assert {victim for victim, _ in play.arrive(job("c/1"), job("c/2"))} <= {"b/2", "b/3", "b/4", "b/1"}


def test_work_within_quota_and_work_that_cannot_be_paused_is_never_taken() -> None:
    play = Play(4, projects=two(2000, 2000))
    play.arrive(job("a/shell", 2000, kind=JobType.INTERACTIVE))
    play.arrive(job("a/train", 2000))
    assert play.arrive(job("b/1", 2000)) == [("a/train", "b/1")]
    assert play.arrive(job("b/2", 2000)) == []


def test_a_job_across_the_quota_line_goes_whole_but_last() -> None:
    play = Play(4, projects=two(3000, 1000))
    play.arrive(job("a/1", 2000), job("a/2", 2000))
    assert [gainer for _, gainer in play.arrive(job("b/1"))] == ["b/1"]
    assert play.world.allocated() == {"a": 2000, "b": 1000}


def test_a_straddling_job_is_spared_while_another_costs_no_quota() -> None:
    play = Play(4, projects=[project("a", 1000), project("b", 0), project("c", 1000)])
    play.arrive(job("a/straddles", 2000))
    play.arrive(job("b/over", 2000))
    assert play.arrive(job("c/1")) == [("b/over", "c/1")]


def test_fairness_takes_only_what_leaves_the_loser_its_share() -> None:
    projects = [project("a", 0, weight=1), project("b", 0, weight=1)]
    play = Play(4, projects=projects)
    play.arrive(*(job(f"a/{i}") for i in range(4)))
    paused = play.arrive(*(job(f"b/{i}") for i in range(4)))
    assert len(paused) == 2
    assert play.world.allocated() == {"a": 2000, "b": 2000}

    indivisible = Play(4, projects=projects)
    indivisible.arrive(job("a/1", 3000))
    assert indivisible.arrive(job("b/1", 2000)) == []
    assert indivisible.world.allocated() == {"a": 3000}


def test_more_than_the_fair_share_is_never_taken() -> None:
    play = Play(4, projects=[project("a", 0, weight=1), project("b", 0, weight=1)])
    play.arrive(*(job(f"a/{i}") for i in range(4)))
    assert play.arrive(job("b/1", 3000)) == []


def test_young_work_is_left_alone() -> None:
    play = Play(2, projects=two(0, 2000), policy=SchedulingPolicy(min_runtime=MinRuntime.of_all(10 * MINUTE)))
    play.arrive(job("a/1", 2000))
    assert play.arrive(job("b/1", 2000)) == []
    play.world.now_ms += 10 * MINUTE
    assert play.arrive() == [("a/1", "b/1")]


def test_victims_really_make_room_on_one_node_for_all_workers() -> None:
    play = Play(4, 4, 4, projects=two(0, 12_000))
    play.arrive(*(job(f"a/{i:02d}", 1000) for i in range(12)))
    paused = play.arrive(job("b/gang", 4000, workers=2))
    assert len(paused) == 8
    assert play.world.allocated() == {"a": 4000, "b": 8000}


def test_gangs_are_paused_whole() -> None:
    play = Play(4, 4, projects=two(0, 8000))
    play.arrive(job("a/gang", 3000, workers=2))
    play.arrive(job("a/1"), job("a/2"))
    assert play.arrive(job("b/1", 2000)) == [("a/gang", "b/1")]
    assert play.world.allocated() == {"a": 2000, "b": 2000}


def test_a_fraction_takes_a_fraction() -> None:
    play = Play(1, projects=two(0, 1000))
    play.arrive(job("a/half", 500))
    play.arrive(job("a/third", 300))
    assert play.arrive(job("b/1", 500)) == [("a/third", "b/1")]


def test_a_second_schedule_changes_nothing() -> None:
    play = Play(4, 4, projects=two(2000, 6000))
    play.arrive(*(job(f"a/{i}", 2000) for i in range(4)))
    play.arrive(job("b/1", 4000), job("b/2", 2000))
    assert play.world.settle(play.tree()) == 0


def test_a_paused_job_does_not_come_back_by_pausing_the_run_in_its_place() -> None:
    play = Play(2, projects=[project("a", 1000), project("b", 1000)])
    play.arrive(job("a/1", 2000))
    assert play.arrive(job("b/1")) == [("a/1", "b/1")]
    assert play.arrive(job("a/2")) == []
    assert play.world.running() == {"b/1", "a/2"}


def test_inside_a_project_strictly_higher_priority_preempts() -> None:
    play = Play(2, projects=[project("a", 2000)])
    play.arrive(job("a/low", 2000))
    assert play.arrive(job("a/same", 2000)) == []
    assert play.arrive(job("a/high", 2000, priority=1)) == [("a/low", "a/high")]


def test_people_preempt_training_of_their_own_project_within_quota() -> None:
    play = Play(2, projects=[project("a", 1000), project("b", 1000)])
    play.arrive(job("a/1"), job("b/1"))
    assert play.arrive(job("a/shell", kind=JobType.INTERACTIVE)) == [("a/1", "a/shell")]
    assert play.arrive(job("a/shell2", kind=JobType.INTERACTIVE)) == []


def test_what_others_owe_goes_before_what_the_project_has_itself() -> None:
    play = Play(3, projects=[project("a", 2000), project("b", 1000)])
    play.arrive(job("a/low"), job("b/1"), job("b/2"))
    assert play.arrive(job("a/high", priority=1)) == [("b/1", "a/high")]


def test_departments_settle_among_themselves_first() -> None:
    projects = [
        replace(project("vision", 1000), department="research"),
        replace(project("speech", 1000), department="research"),
        project("product", 2000),
    ]
    play = Play(4, projects=projects, departments=(department("research", 2000),))
    play.arrive(job("vision/1"), job("vision/2"), job("product/1"), job("product/2"))
    assert play.arrive(job("speech/1")) in ([("vision/1", "speech/1")], [("vision/2", "speech/1")])


def test_a_lost_node_scales_guarantees() -> None:
    play = Play(4, 4, projects=[project("a", 4000), project("b", 4000)])
    play.arrive(*(job(f"a/{i}", 1000) for i in range(4)))
    play.arrive(*(job(f"b/{i}", 1000) for i in range(4)))
    play.world.nodes = tuple(replace(n, ready=n.name != "dgx1-2", usable=n.name != "dgx1-2") for n in play.world.nodes)
    play.arrive()
    assert play.world.allocated() == {"a": 2000, "b": 2000}


def test_at_its_limit_a_project_makes_way_for_its_own_higher_priority() -> None:
    play = Play(8, projects=[project("a", 2000, limit=4000)])
    play.arrive(job("a/one"), job("a/two", 2000), job("a/uno"))
    assert play.arrive(job("a/same", 2000)) == []
    assert play.arrive(job("a/high", 2000, priority=1)) == [("a/two", "a/high")]
    assert play.world.allocated() == {"a": 4000}
    assert len(play.arrive(job("a/top", 3000, priority=2))) == 2
    assert play.world.allocated() == {"a": 4000}
