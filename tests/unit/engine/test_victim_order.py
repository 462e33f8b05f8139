"""The order of victims: which runs come first, whatever the order in which they are listed."""

from __future__ import annotations

from operator import attrgetter

from worlds import job, live_nodes, pool

from gpuctl.engine.capacity.fit import WorkerRequest
from gpuctl.engine.jobs.runs import Allocation
from gpuctl.engine.jobs.victim_order import Preference
from gpuctl.model.decision import Placement, WorkerPlacement
from gpuctl.model.state import Node, Run, RunPhase

NODE: Node = live_nodes([pool(nodes=(8,))])[0]


def allocation(name: str, started_at_ms: int | None, priority: int = 0, position: int = 0) -> Allocation:
    """A run of the job with that name, on one GPU."""
    declared = job(name, priority=priority, position=position)
    place = Placement(workers=(WorkerPlacement(node=NODE.name, gpus=(0,)),))
    run = Run(job=declared.id, digest=declared.digest, phase=RunPhase.RUNNING, started_at_ms=started_at_ms)
    return Allocation(run, declared, None, 1000, place, WorkerRequest(1000, 0, 0), leaving=False, preemptible=True)


def preference(each: Allocation) -> Preference:
    """The preference if only project `b` were above its share, and if all runs started after 9 s were young."""
    spared = int((each.run.started_at_ms or 0) > 9_000)
    return Preference(spared, -2000 if each.project == "b" else 0, each.order)


def test_share_comes_before_priority_and_priority_before_the_start() -> None:
    old, new, urgent = allocation("a/old", 1_000), allocation("a/new", 2_000), allocation("a/urgent", 3_000, priority=1)
    unstarted, over = allocation("a/unstarted", None), allocation("b/over", 1_000, priority=9)
    assert sorted([unstarted, new, old, urgent, over], key=preference) == [over, unstarted, new, old, urgent]


def test_of_equals_the_name_decides() -> None:
    one, two = allocation("a/one", 1_000), allocation("a/two", 1_000)
    assert sorted([two, one], key=attrgetter("order")) == [one, two]


def test_of_a_sweep_that_started_together_the_last_index_comes_first() -> None:
    late = allocation("a/train-1", 2_000, position=1)
    sweep = [allocation(f"a/train-{number}", 1_000, position=number) for number in (0, 2, 10)]
    assert sorted([*sweep, late], key=attrgetter("order")) == [late, sweep[2], sweep[1], sweep[0]]


def test_young_runs_come_last_whatever_their_project_and_priority() -> None:
    young, over = allocation("a/young", 10_000), allocation("b/over", 11_000)
    old, urgent = allocation("a/old", 1_000), allocation("a/urgent", 3_000, priority=1)
    assert sorted([young, old, urgent, over], key=preference) == [old, urgent, over, young]


def test_what_is_lost_does_not_depend_on_the_name() -> None:
    one, two = (preference(allocation(name, 1_000)) for name in ("a/one", "a/two"))
    assert one != two
    assert one.lost(5_000) == two.lost(5_000) == (0, 0, 0, 4_000)
    assert preference(allocation("a/unstarted", None)).lost(5_000) == (0, 0, 0, 0)
