"""The decisions that runs have by themselves: ended, suspended, lost, over a limit, given out twice."""

from __future__ import annotations

from dataclasses import replace

import pytest
from worlds import World, declared, job, live_nodes, pool, project

from gpuctl.engine.jobs.timing import going_record, latest_end_ms, limit_reached
from gpuctl.model.decision import (
    NOT_YET,
    SLOW_MS,
    Decision,
    Displace,
    Finished,
    JobState,
    Keep,
    Pending,
    Placement,
    Suspended,
    TimeOut,
    WorkerPlacement,
)
from gpuctl.model.declared import Declared
from gpuctl.model.ids import JobId, NodeName, ProjectName, RunDigest
from gpuctl.model.job import Job, JobType
from gpuctl.model.state import Run, RunPhase

PROJECTS = [project("a", 4000), project("b", 4000)]
POOLS = [pool(nodes=[4, 4])]


def at_rest(*jobs: Job) -> tuple[World, Declared]:
    world = World(nodes=live_nodes(POOLS))
    tree = declared(PROJECTS, jobs, POOLS)
    world.settle(tree)
    return world, tree


def decision(world: World, tree: Declared, name: str) -> Decision:
    return {str(d.job): d for d in world.cycle(tree).decisions}[name]


def kinds(world: World, tree: Declared) -> dict[str, str]:
    return {str(d.job): type(d).__name__ for d in world.cycle(tree).decisions}


@pytest.mark.parametrize("state", ["Succeeded", "Failed", "TimedOut"])
def test_a_run_that_ended_is_not_started_again(state: str) -> None:
    world, tree = at_rest(job("a/1"))
    world.end("a/1", state)
    made = decision(world, tree, "a/1")
    assert isinstance(made, Finished)
    assert made.state == JobState(state)


def test_the_object_of_an_ended_run_expires_once_the_ledger_has_its_end() -> None:
    world, tree = at_rest(replace(job("a/1"), ttl_ms=60_000))
    world.end("a/1")
    end_ms, key = world.now_ms, next(iter(world.finished))
    recorded = world.finished.pop(key)
    world.now_ms += 120_000
    told = decision(world, tree, "a/1")
    assert isinstance(told, Finished)
    assert (told.expires_at_ms, told.is_expired) == (None, False)  # only the object shows the end
    world.finished[key] = recorded
    for now_ms, is_expired in ((end_ms + 59_999, False), (end_ms + 60_000, True)):
        world.now_ms = now_ms
        made = decision(world, tree, "a/1")
        assert isinstance(made, Finished)
        assert (made.state, made.expires_at_ms, made.is_expired) == (JobState.SUCCEEDED, end_ms + 60_000, is_expired)
    world.runs.clear()
    gone = decision(world, tree, "a/1")
    assert isinstance(gone, Finished)
    assert (gone.state, gone.is_expired) == (JobState.SUCCEEDED, False)


def test_a_run_whose_object_somebody_removed_is_not_started_again() -> None:
    world, tree = at_rest(job("a/1"))
    world.runs.clear()
    made = decision(world, tree, "a/1")
    assert isinstance(made, Finished)
    assert made.state is JobState.DELETED


def test_a_changed_declaration_is_a_new_run_that_waits_for_the_old_one_to_leave() -> None:
    world, _ = at_rest(job("a/1", 4000), job("b/1", 4000))
    changed = declared(PROJECTS, [job("a/1", 4000, digest=RunDigest("00000002")), job("b/1", 4000)], POOLS)
    assert isinstance(decision(world, changed, "a/1"), Pending)
    world.settle(changed)
    assert world.running() == {"a/1", "b/1"}
    assert {run.digest for run in world.runs.values()} == {"00000001", "00000002"}


def test_suspended_work_is_stopped_and_resumes_with_what_it_ran_counted() -> None:
    world, tree = at_rest(job("a/1"))
    world.now_ms += 5000
    made = decision(world, replace(tree, jobs=(replace(tree.jobs[0], suspend=True),)), "a/1")
    assert isinstance(made, Suspended)
    assert made.record.ran_ms >= 5000
    world.settle(replace(tree, jobs=(replace(tree.jobs[0], suspend=True),)))
    assert world.running() == set()
    world.settle(tree)
    assert world.starts() == {"a/1": 2}


def test_what_ran_on_a_lost_node_starts_elsewhere_and_a_cordoned_one_keeps_its_work() -> None:
    world, tree = at_rest(job("a/1", 4000), job("b/1", 2000))
    lost = next(run.placement.workers[0].node for run in world.runs.values() if run.placement and run.gpu_milli == 2000)
    cordoned = tuple(replace(node, usable=node.name != lost) for node in world.nodes)
    world.nodes = cordoned
    assert isinstance(decision(world, tree, "b/1"), Keep)
    world.nodes = tuple(replace(node, ready=node.name != lost) for node in cordoned)
    made = decision(world, tree, "b/1")
    assert isinstance(made, Displace)
    assert dict(made.reason.params) == {"node": lost}


def test_what_a_displaced_run_held_is_claimed_by_its_project_until_it_waits() -> None:
    """Otherwise b's loan would be paused for `a/2`, and a's run would have no place when it can start."""
    tree = declared([project("a", 4000), project("b", 0)], [job("a/1", 3000), job("b/1", 4000)], POOLS)
    world = World(nodes=live_nodes(POOLS))
    world.settle(tree)
    lost = next(run.placement.nodes for run in world.runs.values() if run.placement and run.gpu_milli == 3000)
    world.nodes = tuple(replace(node, ready=node.name not in lost) for node in world.nodes)
    tree = replace(tree, jobs=(*tree.jobs[:1], job("a/2", 2000), tree.jobs[1]))
    world.runs[tree.jobs[1].id, tree.jobs[1].digest] = Run(
        job=tree.jobs[1].id, digest=tree.jobs[1].digest, phase=RunPhase.QUEUED, gpu_milli=2000
    )
    made = world.cycle(tree)
    assert {str(d.job): type(d).__name__ for d in made.decisions} == {
        "a/1": "Displace", "a/2": "Pending", "b/1": "Keep"
    }  # fmt: skip
    assert {row.project: row.allocated_milli for row in made.shares} == {"a": 0, "b": 4000}
    stopping = dict(world.runs)
    assert kinds(world, tree) == {"a/1": "Pending", "a/2": "Pending", "b/1": "Keep"}
    # If a user removes the job, its claim ends too.
    world.runs = stopping
    assert kinds(world, replace(tree, jobs=tree.jobs[1:]))["b/1"] == "Reclaim"


@pytest.mark.parametrize("one_of_two", [True, False])
@pytest.mark.parametrize("had_a_node", [False, True])
def test_what_was_to_be_on_gpus_that_others_pods_have_is_withdrawn(*, one_of_two: bool, had_a_node: bool) -> None:
    """kube-scheduler gave the GPUs to a pod of a higher PriorityClass. A run whose own pods are there keeps them."""
    world, tree = at_rest(job("a/1", 2000))
    ((key, run),) = world.runs.items()
    assert run.placement is not None
    ((node, gpus),) = ((worker.node, worker.gpus) for worker in run.placement.workers)
    starting = replace(run, phase=RunPhase.STARTING, unbound=(node,), unstarted=not had_a_node)
    taken = tuple(1000 if gpu in gpus[one_of_two:] else 0 for gpu in range(4))
    world.nodes = tuple(replace(each, foreign_gpu_milli=taken) if each.name == node else each for each in world.nodes)
    assert isinstance(decision(world, tree, "a/1"), Keep)
    world.runs[key] = starting
    made = decision(world, tree, "a/1")
    assert isinstance(made, Displace)
    assert (made.reason.code, made.reason.params) == ("GPU5035", (("node", node),))
    assert made.record.failed_starts == 0


@pytest.mark.parametrize("ready", [True, False])
@pytest.mark.parametrize("had_a_node", [False, True])
def test_what_was_to_be_at_a_node_that_takes_nothing_is_withdrawn(*, ready: bool, had_a_node: bool) -> None:
    """A run whose pods were never on a node keeps waiting as if it had not been started."""
    world, tree = at_rest(job("a/1", 2000))
    ((key, run),) = world.runs.items()
    assert run.placement is not None
    node = run.placement.workers[0].node
    starting = replace(run, phase=RunPhase.STARTING, unbound=(node,), unstarted=not had_a_node, ran_ms=7000)
    world.runs[key] = starting
    assert isinstance(decision(world, tree, "a/1"), Keep)
    world.runs[key] = starting
    world.now_ms += 5000
    world.nodes = tuple(replace(each, usable=False, ready=ready) if each.name == node else each for each in world.nodes)
    stopped_ms = world.now_ms
    made = decision(world, tree, "a/1")
    assert isinstance(made, Displace)
    assert (made.reason.code, made.reason.params) == ("GPU5036" if ready else "GPU5034", (("node", node),))
    assert (made.record.starts, made.record.queued_at_ms) == (
        (run.starts, stopped_ms) if had_a_node else (run.starts - 1, run.queued_at_ms)
    )
    assert (made.record.ran_ms > 7000) is had_a_node


def test_what_starts_beside_a_run_whose_device_is_there_no_more() -> None:
    """A node reports fewer GPUs than before while pods are on their way to it."""
    tree = declared([project("a", 8000)], [job("a/gang", workers=3), job("a/late", workers=2)], POOLS)
    world = World(nodes=live_nodes(POOLS))
    world.cycle(tree)
    gone, there = (WorkerPlacement(node=NodeName(node), gpus=(gpu,)) for node, gpu in (("dgx1-1", 9), ("dgx1-2", 0)))
    late = max(world.runs)
    world.runs[late] = replace(
        world.runs[late],
        phase=RunPhase.STARTING,
        placement=Placement(workers=(gone, there)),
        unbound=(gone.node,),
        started_at_ms=world.now_ms,
    )
    assert kinds(world, tree) == {"a/gang": "Pending", "a/late": "Keep"}


def test_a_run_that_waits_and_has_no_time_left_has_ended() -> None:
    world, tree = at_rest(job("a/1", max_duration_ms=60_000))
    ((key, run),) = world.runs.items()
    world.runs[key] = replace(run, phase=RunPhase.QUEUED, placement=None, started_at_ms=None, ran_ms=60_000)
    made = decision(world, tree, "a/1")
    assert isinstance(made, Finished)
    assert made.state is JobState.TIMED_OUT
    suspended = replace(tree, jobs=(job("a/1", max_duration_ms=60_000, suspend=True),))
    assert isinstance(decision(world, suspended, "a/1"), Suspended)  # Its limit may be raised before it goes on.


@pytest.mark.parametrize("kind", [JobType.INTERACTIVE, JobType.INFERENCE])
def test_limits_end_running_work(kind: JobType) -> None:
    world, tree = at_rest(job("a/1", kind=kind, max_duration_ms=60_000, idle_timeout_ms=30_000))
    key = tree.jobs[0].id, tree.jobs[0].digest
    assert isinstance(decision(world, tree, "a/1"), Keep)
    idle = world.runs[key]
    world.runs[key] = replace(idle, idle_since_ms=world.now_ms - 30_000)
    assert decision(world, tree, "a/1").reason.code == "GPU5042"
    world.runs[key] = replace(idle, ran_ms=59_000, started_at_ms=world.now_ms - 1000)
    made = decision(world, tree, "a/1")
    assert isinstance(made, TimeOut)
    assert made.reason.code == "GPU5041"


def test_a_device_given_out_twice_keeps_the_run_that_cannot_be_paused_then_the_first() -> None:
    world, tree = at_rest(job("a/1"), job("a/2"), job("a/shell", kind=JobType.INTERACTIVE))
    same = Placement(workers=(WorkerPlacement(node=NodeName("dgx1-1"), gpus=(0,)),))
    for key, run in world.runs.items():
        world.runs[key] = replace(run, placement=same)
    made = kinds(world, tree)
    assert made == {"a/1": "Displace", "a/2": "Displace", "a/shell": "Keep"}


def test_of_two_on_one_device_the_one_whose_pod_is_not_there_yet_moves_and_waits_as_before() -> None:
    world, tree = at_rest(job("a/1"), job("a/shell", kind=JobType.INTERACTIVE))
    same = Placement(workers=(WorkerPlacement(node=NodeName("dgx1-1"), gpus=(0,)),))
    for key, run in world.runs.items():
        world.runs[key] = replace(run, placement=same)
        if run.job.name == "shell":
            world.runs[key] = replace(
                world.runs[key], phase=RunPhase.STARTING, unbound=(NodeName("dgx1-1"),), unstarted=True
            )
    made = decision(world, tree, "a/shell")
    assert isinstance(made, Displace)
    assert (made.reason.code, made.record.starts) == ("GPU5035", 0)


def test_workers_that_have_ended_are_not_held_by_their_project() -> None:
    world, tree = at_rest(job("a/gang", workers=4))
    ((key, run),) = world.runs.items()
    assert run.placement is not None
    world.runs[key] = replace(run, ended=frozenset({0, 3}))
    (row,) = [row for row in world.cycle(tree).shares if row.project == "a"]
    assert row.allocated_milli == 2000


def test_runs_that_are_not_declared_still_hold_their_place() -> None:
    world, _ = at_rest(job("a/1", 4000))
    tree = declared([project("b", 8000)], [job("b/1", 4000), job("b/2", 4000)], POOLS)
    made = kinds(world, tree)
    assert sorted(made.values()) == ["Admit", "Pending"]


def test_a_clock_that_steps_back_stops_no_run() -> None:
    world, tree = at_rest(job("a/1", max_duration_ms=60_000))
    world.now_ms -= 3_600_000
    assert isinstance(decision(world, tree, "a/1"), Keep)


def test_projects_that_cannot_be_read_are_left_as_they_are() -> None:
    world, _ = at_rest(job("a/runs", 4000))
    tree = declared(
        PROJECTS, [job("a/runs", 4000, suspend=True), job("a/new"), job("b/1", 4000)], POOLS,
        pinned=frozenset({ProjectName("a")}),
    )  # fmt: skip
    made = kinds(world, tree)
    assert made == {"a/runs": "Keep", "a/new": "Pending", "b/1": "Admit"}
    assert not [job_id for job_id, _ in world.paused if job_id == JobId.parse("a/runs")]


def test_a_stopping_run_waits_for_its_own_pods() -> None:
    world, tree = at_rest(job("a/1"))
    key = tree.jobs[0].id, tree.jobs[0].digest
    world.runs[key] = replace(world.runs[key], phase=RunPhase.STOPPING, reason=None)
    made = decision(world, tree, "a/1")
    assert isinstance(made, Pending)
    assert made.reason.code == "GPU5020"


@pytest.mark.parametrize(
    ("started_ms", "ran_ms", "end_ms"),
    [(None, 0, 700), (None, 50, 650), (60, 0, 660), (60, 50, 610), (60, 700, -40), (150, 50, 650)],
    ids=["not started", "paused", "running", "running again", "over", "clock stepped back"],
)
def test_when_max_duration_ends_a_run_is_one_answer(started_ms: int | None, ran_ms: int, end_ms: int) -> None:
    limited = job("a/1", max_duration_ms=600)
    run = Run(
        job=limited.id, digest=limited.digest, phase=RunPhase.RUNNING, started_at_ms=started_ms, ran_ms=ran_ms
    )  # fmt: skip
    assert latest_end_ms(limited, run, 100) == end_ms
    assert (limit_reached(limited, run, 100) is not None) is (end_ms <= 100)
    assert latest_end_ms(limited, None, 100) == 700
    assert latest_end_ms(job("a/1"), run, 100) is None
    assert latest_end_ms(None, run, 100) is None


@pytest.mark.parametrize(
    ("begun", "later_ms", "told"),
    [(False, 0, NOT_YET), (False, 1_200_000, NOT_YET), (None, 0, NOT_YET), (None, 1_200_000, 0), (True, 0, 0)],
)
def test_a_start_that_takes_long_is_on_record(*, begun: bool | None, later_ms: int, told: int) -> None:
    """A run without pods that long after its start is not starting: its pods may have been evicted."""
    run = Run(job=JobId.parse("a/1"), digest=RunDigest("d"), phase=RunPhase.STARTING, let_go_at_ms=0, begun=begun)
    assert going_record(run, SLOW_MS + later_ms, 900_000).starting_ms == told
