"""A cluster at rest that an earlier plan kept has the same effect, whatever changes; and its bytes run nothing."""

from __future__ import annotations

import os
import pickle

import pytest
from draws import among
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import declared, job, live_nodes, pool, project

from gpuctl.compile import CompileCache
from gpuctl.explain import at_rest, effect_of
from gpuctl.explain.forecast import forecasts
from gpuctl.explain.stored_rest import restored, stored, with_forecasts
from gpuctl.model.declared import Declared
from gpuctl.model.job import Job
from gpuctl.model.state import ClusterState
from gpuctl.model.stored import dumped, loaded

HOUR_MS = 3_600_000
NAMES = [f"{team}/{number}" for team in "ab" for number in range(5)]


@st.composite
def jobs_of(draw: st.DrawFn) -> tuple[Job, ...]:
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=3))
    return tuple(
        job(
            name,
            draw(among(500, 1000, 2000, 4000)),
            preemptible=draw(st.booleans()),
            max_duration_ms=draw(among(None, HOUR_MS, 2 * HOUR_MS)),
        )
        for name in sorted(names)
    )


def tree(jobs: tuple[Job, ...], quotas: tuple[int, int]) -> Declared:
    return declared([project("a", quotas[0]), project("b", quotas[1])], list(jobs), [pool(nodes=(4, 2))])


QUOTAS = st.tuples(st.sampled_from([0, 2000, 3000]), st.sampled_from([1000, 3000]))


@settings(max_examples=60, deadline=None)
@given(base=jobs_of(), head=jobs_of(), before=QUOTAS, after=QUOTAS)
def test_the_effect_is_the_same(
    base: tuple[Job, ...], head: tuple[Job, ...], before: tuple[int, int], after: tuple[int, int]
) -> None:
    old, new = tree(base, before), tree(head, after)
    state = ClusterState(nodes=live_nodes(old.cluster.pools))
    rest = at_rest(old, state, 0)
    known = restored(stored(with_forecasts(at_rest(old, state, 0))), old)
    assert known is not None
    assert (known.state, known.decided) == (rest.state, rest.decided)
    effects = [effect_of(each, at_rest(new, each.state, 0)) for each in (rest, known)]
    assert effects[0] == effects[1]


@settings(max_examples=60, deadline=None)
@given(jobs=jobs_of(), quotas=QUOTAS)
def test_a_forecast_is_of_one_job_whichever_others_are_asked_about(
    jobs: tuple[Job, ...], quotas: tuple[int, int]
) -> None:
    old = tree(jobs, quotas)
    rest = at_rest(old, ClusterState(nodes=live_nodes(old.cluster.pools)), 0)
    together = forecasts(rest, rest.waiting.keys())
    assert together == {name: forecasts(rest, {name})[name] for name in rest.waiting}


class Runs:
    def __init__(self, *call: object) -> None:
        self.call = call

    def __reduce__(self) -> tuple[object, ...]:
        return self.call[0], self.call[1:]


@pytest.mark.parametrize(
    "body",
    [
        b"", b"not a pickle", dumped([1, 2]), dumped({}), pickle.dumps(Runs(os.system, "exit 1")),
        b"cgpuctl.explain.rest\nRest\n.", b"cgpuctl.model.stored\n_Unpickler\n.", b"cgpuctl.model.stored\nloaded\n.",
        dumped([CompileCache().jobs] * 5 + [CompileCache()]),
    ],
)  # fmt: skip
def test_other_bytes_are_no_rest_and_call_nothing(body: bytes) -> None:
    assert restored(body, tree((), (0, 0))) is None


def test_only_the_packages_that_are_named_are_believed() -> None:
    name = job("a/1").id
    assert loaded(dumped(name), ("model",)) == name
    assert loaded(dumped(name), ("compile",)) is None
    assert loaded(dumped(job("a/1")), ("model",)) is None
    assert loaded(dumped(job("a/1")), ("model", "diag")) == job("a/1")
