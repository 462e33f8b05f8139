"""KEPT: a cycle on what is kept of the objects decides and writes what it would on all of them."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import Story, stories
from test_cycle_caches import EVENTS, Life

from gpuctl.app.caches import CycleCaches
from gpuctl.app.cycle import CycleReport, cycle, foresee
from gpuctl.app.kept import Keep
from gpuctl.app.object_cache import ObjectCache

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


def found(report: CycleReport) -> tuple[object, ...]:
    """What a cycle sees, decides and would write."""
    return (replace(report.state, live={}), report.schedule, report.manifests, report.plan)


@given(stories(most=8), st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 5)), max_size=6))
@settings(max_examples=25, suppress_health_check=SLOW)
def test_a_cycle_on_what_is_kept_is_the_cycle_on_all_there_is(story: Story, events: list[tuple[str, int]]) -> None:
    life, keep = Life(story), Keep()
    for event, which in (("", 0), ("", 0), *events):
        life.happen(event, which)
        for _ in range(2):
            whole = ObjectCache(life.here.cluster, keep=lambda body: body)
            kept = foresee(life.declared, life.context)
            assert found(kept) == found(
                foresee(life.declared, replace(life.context, object_cache=whole, caches=CycleCaches()))
            )
            bodies = whole.objects().objects
            assert kept.state.live == {ref: keep(body) for ref, body in bodies.items()}
            assert all(keep(body) is body for body in kept.state.live.values())
            cycle(life.declared, life.context)
            life.here.world.settle()
