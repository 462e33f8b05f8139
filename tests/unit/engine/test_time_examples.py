"""What time changes: a start that waits long for a node; a run that has stopped, and does not wait like others then."""

from __future__ import annotations

from dataclasses import replace

import pytest
from elastic_worlds import at, decided, world_of
from worlds import declared, job, pool, project

from gpuctl.model.decision import NOT_YET, Admit, Pending
from gpuctl.model.declared import Sharing
from gpuctl.model.ids import JobId, NodeName
from gpuctl.model.state import RunPhase


@pytest.mark.parametrize(("since_s", "is_slow"), [(10, False), (60, False), (61, True), (600, True)])
def test_a_pod_that_finds_no_node_for_a_minute_is_not_waited_for(since_s: int, *, is_slow: bool) -> None:
    jobs = [job("a/stuck"), job("a/gang", workers=3)]
    tree = declared([project("a", 4000)], jobs, [pool(nodes=[2, 2], sharing=Sharing.DEVICE_PLUGIN)])
    world = world_of(tree, a_stuck=at((1, 0)))
    stuck = (JobId.parse("a/stuck"), jobs[0].digest)
    world.runs[stuck] = replace(
        world.runs[stuck],
        phase=RunPhase.STARTING,
        unbound=(NodeName("dgx1-1"),),
        unstarted=True,
        let_go_at_ms=world.now_ms - 1000 * since_s,
        started_at_ms=world.now_ms - 1000 * since_s,
        starting_ms=NOT_YET if is_slow else 0,
    )
    decision = decided(world, tree)["a/gang"]
    if since_s < 60:
        assert isinstance(decision, Pending)
        assert decision.reason.code == "GPU5023"
    else:
        assert isinstance(decision, Admit)
