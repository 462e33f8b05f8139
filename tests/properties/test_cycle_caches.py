"""CACHES: what a cycle keeps of the one before changes nothing but its cost, whatever happens in between."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import Story, stories

from gpuctl.app.caches import CycleCaches
from gpuctl.app.cycle import CycleContext, CycleReport, cycle, foresee
from gpuctl.app.object_cache import ObjectCache
from gpuctl.app.play import Sandbox
from gpuctl.k8s import kinds
from gpuctl.k8s.objects import resource_version, uid
from gpuctl.model.declared import Declared
from gpuctl.model.ids import ObjectRef
from gpuctl.model.memo import Memo, Sweep
from gpuctl.model.state import RunPhase
from gpuctl.simulate.scenario import EPOCH_MS
from gpuctl.wiring import sandbox

EVENTS = ("wait", "wait", "end", "fail", "delete", "lose a node", "find it", "restart", "shrink", "grow", "commit")
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


class Life:
    """A story's cluster and what happens to it, one event at a time, with a cycle after each."""

    def __init__(self, story: Story) -> None:
        self.here: Sandbox = sandbox(EPOCH_MS)
        self.here.machines.provide(story.tree.cluster.pools)
        self.whole = self.declared = story.tree
        self.context = CycleContext(
            object_cache=ObjectCache(self.here.cluster), clock=self.here.time, settle=self.here.world.settle
        )
        self.node = story.tree.cluster.pools[0].nodes[0].name

    def cycles(self, events: list[tuple[str, int]]) -> Iterator[tuple[CycleReport, CycleReport]]:
        """Each cycle as it is with the caches, and as it is with empty ones."""
        for event, which in (("", 0), ("", 0), *events):
            self.happen(event, which)
            for _ in range(2):
                fresh = foresee(self.declared, replace(self.context, caches=CycleCaches()))
                yield foresee(self.declared, self.context), fresh
                cycle(self.declared, self.context)
                self.here.world.settle()

    def happen(self, event: str, which: int) -> None:
        """What the event does; nothing, where there is nothing to do it to."""
        state = foresee(self.declared, self.context).state
        running = [run.job for run in state.runs if run.phase is RunPhase.RUNNING]
        owned = sorted(
            ref for ref in state.live if (ref.api_version, ref.kind) in {kinds.JOB, kinds.POD, kinds.SERVICE}
        )
        if event == "wait":
            self.here.time.advance_to(self.here.time.now_ms() + 700 * (1 + which))
        elif event in {"end", "fail"} and running:
            self.here.world.finish(running[which % len(running)], int(event == "fail"))
        elif event == "delete" and owned:
            self.delete(owned[which % len(owned)])
        elif event in {"lose a node", "find it"}:
            self.here.world.set_node_ready(self.node, ready=event == "find it")
        elif event == "restart":
            self.context = replace(self.context, caches=CycleCaches())
        else:
            self.declared = self.committed(event, which)
        self.here.world.settle()

    def committed(self, event: str, which: int) -> Declared:
        """Another commit: with fewer jobs, with all of them, or with the same in new objects."""
        jobs = {"shrink": self.whole.jobs[: 1 + which], "grow": self.whole.jobs}.get(event, self.declared.jobs)
        return replace(self.declared, jobs=tuple(replace(job) for job in jobs) if event == "commit" else jobs)

    def delete(self, ref: ObjectRef) -> None:
        """Somebody deletes an object by hand."""
        live = foresee(self.declared, self.context).state.live[ref]
        self.here.cluster.delete(ref, uid(live), resource_version(live))


@given(stories(most=8), st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 5)), max_size=6))
@settings(max_examples=25, suppress_health_check=SLOW)
def test_a_cycle_that_remembers_is_the_cycle_that_does_not(story: Story, events: list[tuple[str, int]]) -> None:
    for remembered, fresh in Life(story).cycles(events):
        assert remembered == fresh
        assert repr(remembered) == repr(fresh)


def test_a_memo_makes_nothing_twice_and_forgets_what_is_not_asked_for() -> None:
    memo: Memo[str, object] = Memo()
    body = {"a": 1}
    made = memo.get("x", (body,), object)
    memo.turn()
    assert memo.get("x", (body,), object) is made
    assert memo.get("x", ({"a": 2},), object) is not made
    memo.turn()
    assert len(memo) == 0
    memo.turn()
    assert memo.get("x", (body,), object) is not made


def test_a_sweep_makes_what_is_new_or_changed_at_its_place_and_nothing_else() -> None:
    known: Sweep[str, str] = Sweep()
    made: list[int] = []

    def over(keys: str, *columns: list[object]) -> list[str]:
        made.clear()

        def make(place: int) -> str:
            made.append(place)
            return keys[place] + "".join(str(column[place]) for column in columns)

        return known.over(keys, columns, make)

    assert (over("abc", [1, 2, 3], ["x", "x", "y"]), made) == (["a1x", "b2x", "c3y"], [0, 1, 2])
    assert (over("abc", [1, 2, 3], ["x", "z", "y"]), made) == (["a1x", "b2z", "c3y"], [1])
    assert (over("cda", [3, 9, 1], ["y", "y", "x"]), made) == (["c3y", "d9y", "a1x"], [1])
    assert (over("ca", [{3}, {1}], ["y", "x"]), made) == (["c{3}y", "a{1}x"], [0, 1])
    assert (over("ca", [{3}, {1}], ["y", "x"]), made) == (["c{3}y", "a{1}x"], [])
    assert over("", [], []) == []
    assert (over("a", [1], [None]), made) == (["a1None"], [0])
