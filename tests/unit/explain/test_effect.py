"""What a change does to jobs, against what would have happened without it."""

from __future__ import annotations

from dataclasses import replace

from worlds import World, declared, job, live_nodes, pool, project

from gpuctl.explain import at_rest, effect_of
from gpuctl.explain.forecast import forecasts
from gpuctl.model.declared import Declared, MinRuntime, SchedulingPolicy
from gpuctl.model.effect import Effect, Stop
from gpuctl.model.ids import JobId, RunDigest
from gpuctl.model.job import Job
from gpuctl.model.state import ClusterState, RunPhase

NOW_MS = 1_000_000
HOUR_MS = 3_600_000


def cluster(*jobs: Job, nodes: tuple[int, ...] = (4,), **quotas: int) -> Declared:
    return declared([project(name, quota) for name, quota in quotas.items()], jobs, [pool(nodes=nodes)])


def effect(base: Declared | None, head: Declared) -> Effect:
    """Where base has come to rest on its nodes; those of head are there then."""
    nodes = live_nodes(head.cluster.pools)
    if base is None:
        return effect_of(None, at_rest(head, ClusterState(nodes=nodes), NOW_MS))
    before = at_rest(base, ClusterState(nodes=live_nodes(base.cluster.pools)), NOW_MS)
    return effect_of(before, at_rest(head, replace(before.state, nodes=nodes), NOW_MS))


def test_a_forecast_goes_on_from_where_all_stand() -> None:
    ending = job("a/ends", 4000, max_duration_ms=HOUR_MS)
    tree = cluster(ending, *(job(f"a/waits-{number}", 4000) for number in range(50)), job("a/next", 4000), a=4000)
    tree = replace(tree, jobs=tuple(sorted(tree.jobs, key=lambda each: each.id)))
    rest = at_rest(tree, ClusterState(nodes=live_nodes(tree.cluster.pools)), NOW_MS)
    waiting = job("a/next").id
    assert rest.starts.keys() == {ending.id}
    assert forecasts(rest, {waiting})[waiting].start_ms == NOW_MS + HOUR_MS
    assert rest.engine_cache.counters.read == 1


def names(jobs: object) -> list[str]:
    return [str(each.job) for each in jobs]  # type: ignore[attr-defined]


def test_a_new_job_within_quota_starts_and_the_job_that_pays_is_named() -> None:
    told = effect(
        cluster(job("a/held", 4000), a=1000, b=3000), cluster(job("a/held", 4000), job("b/new", 3000), a=1000, b=3000)
    )
    (start,), (pause,) = told.started, told.paused
    assert (str(start.job), start.reason.code, names_of(start.pauses)) == ("b/new", "GPU5001", ["a/held"])
    assert (str(pause.job), str(pause.beneficiary), pause.gpu_milli) == ("a/held", "b/new", 4000)
    assert names(told.waits) == ["a/held"]
    assert told.waits[0].before is None
    assert [(h.project, h.held) for h in told.holdings] == [("a", (4000, 0)), ("b", (0, 3000))]
    assert told.unaffected == 0


def lost(saving: Job, ran_ms: int, said_ms: int | None = None) -> int | None:
    """What a pause for a job of another project loses, of one that has run for so long."""
    base = cluster(saving, a=1000, b=3000)
    before = at_rest(base, ClusterState(nodes=live_nodes(base.cluster.pools)), NOW_MS)
    (run,) = before.state.runs
    seen = replace(run, started_at_ms=NOW_MS - ran_ms, checkpointed_at_ms=said_ms)
    before = replace(before, state=replace(before.state, runs=(seen,)))
    head = cluster(saving, job("b/new", 3000), a=1000, b=3000)
    (pause,) = effect_of(before, at_rest(head, before.state, NOW_MS)).paused
    return pause.lost_ms


def test_what_a_pause_loses_is_what_was_done_since_the_last_checkpoint() -> None:
    saving = job("a/held", 4000, checkpoint_ms=400)
    assert [lost(saving, ran_ms) for ran_ms in (0, 300, 400, 900)] == [400, 300, 0, 100]
    assert lost(job("a/held", 4000), 900) is None


def test_a_job_that_says_when_it_wrote_a_checkpoint_loses_no_more_than_what_came_after_it() -> None:
    saving = job("a/held", 4000, checkpoint_ms=400)
    assert lost(saving, 900, NOW_MS - 20) == 20
    assert lost(saving, 900, NOW_MS - 300) == 100
    assert lost(saving, 900, NOW_MS - 2000) == 100, "of an earlier start"
    assert lost(saving, 900, NOW_MS + 2000) == 0, "in the future"
    assert lost(job("a/held", 4000), 900, NOW_MS - 20) == 20


def names_of(jobs: tuple[JobId, ...]) -> list[str]:
    return [str(each) for each in jobs]


def test_what_would_happen_anyway_is_no_effect() -> None:
    tree = cluster(job("a/one", 1000), job("a/two", 4000, priority=1), a=4000)
    told = effect(tree, tree)
    assert (told.started, told.paused, told.moved, told.stopped, told.holdings) == ((), (), (), (), ())
    assert told.unaffected == 1
    assert [(str(w.job), w.news) for w in told.waits] == [("a/one", False)]


def test_a_quota_that_is_cut_pauses_whom_the_engine_would_pause() -> None:
    jobs = (job("a/x", 2000), job("a/y", 2000), job("b/z", 2000))
    told = effect(cluster(*jobs, a=4000, b=0), cluster(*jobs, a=2000, b=2000))
    assert names(told.started) == ["b/z"]
    (pause,) = told.paused
    assert str(pause.beneficiary) == "b/z"
    assert pause.job.project == "a"


def test_a_job_that_is_removed_makes_room_and_one_that_changes_is_another_run() -> None:
    base = cluster(job("a/gone", 2000, priority=1), job("a/same", 2000, priority=1), job("a/next", 2000), a=4000)
    changed = job("a/same", 1000, priority=1, digest=RunDigest("00000002"))
    told = effect(base, cluster(changed, job("a/next", 2000), a=4000))
    assert [(str(s.job), s.why) for s in told.stopped] == [("a/gone", Stop.REMOVED)]
    assert [(str(s.job), s.anew) for s in told.started] == [("a/next", False), ("a/same", True)]


def test_a_changed_run_that_has_no_place_any_more_has_ended_and_waits() -> None:
    base = cluster(job("a/x", 2000), job("a/y", 2000), a=2000, b=2000)
    grown = job("a/x", 8000, digest=RunDigest("00000002"))
    told = effect(base, cluster(grown, job("a/y", 2000), a=2000, b=2000))
    assert [(str(s.job), s.why) for s in told.stopped] == [("a/x", Stop.CHANGED)]
    assert [(str(w.job), w.reason.code) for w in told.waits] == [("a/x", "GPU5014")]


def test_a_person_s_pause_is_an_end() -> None:
    told = effect(cluster(job("a/x"), a=1000), cluster(job("a/x", suspend=True), a=1000))
    assert [(str(s.job), s.why) for s in told.stopped] == [("a/x", Stop.SUSPENDED)]
    assert told.waits == ()


def test_a_waiting_job_that_is_removed_or_suspended_leaves_the_queue_and_is_no_pause() -> None:
    waiting = [job(f"a/{name}", 3000) for name in ("changed", "gone", "held", "stays")]
    changed = replace(waiting[0], digest=RunDigest("other"))
    head = cluster(job("a/a-runs", 4000), changed, replace(waiting[2], suspend=True), waiting[3], a=4000)
    told = effect(cluster(job("a/a-runs", 4000), *waiting, a=4000), head)
    assert [(str(each.job), each.gpu_milli, each.suspended) for each in told.dequeued] == [
        ("a/gone", 3000, False),
        ("a/held", 3000, True),
    ]
    assert (told.paused, told.stopped, names(told.waits)) == ((), (), ["a/changed", "a/stays"])


def test_a_node_that_is_removed_moves_some_and_pauses_others() -> None:
    jobs = (job("a/fixed", 2000, preemptible=False), job("a/x", 2000), job("a/y", 2000))
    base, head = cluster(*jobs, nodes=(2, 4), a=6000), cluster(*jobs, nodes=(2,), a=6000)
    told = effect(base, head)
    gone = {"dgx1-2"}
    assert names(told.moved) + names(told.paused) != []
    assert all({w.node for w in move.before.workers} == gone for move in told.moved)
    assert len(told.paused) + len(told.moved) + told.unaffected == 3
    assert sum(h.held[1] for h in told.holdings) == 2000


def test_an_elastic_job_gives_workers_up_for_another() -> None:
    elastic = job("a/wide", 1000, workers=4, min_workers=1)
    told = effect(cluster(elastic, a=1000, b=3000), cluster(elastic, job("b/new", 2000), a=1000, b=3000))
    (size,) = told.resized
    assert (str(size.job), size.before, size.after, str(size.beneficiary)) == ("a/wide", 4, 2, "b/new")
    assert names(told.started) == ["b/new"]
    assert told.paused == ()


def test_a_start_that_comes_later_is_told_with_what_it_was() -> None:
    long, short = job("a/held", 4000, max_duration_ms=4 * HOUR_MS), job("a/held", 4000, max_duration_ms=HOUR_MS)
    first = replace(short, priority=1)
    told = effect(
        cluster(first, job("a/next", 4000), a=4000),
        cluster(replace(long, priority=1), job("a/next", 4000), a=4000),
    )
    (wait,) = told.waits
    assert wait.before is not None
    assert wait.news
    assert (wait.before.forecast.start_ms, wait.now.forecast.start_ms) == (NOW_MS + HOUR_MS, NOW_MS + 4 * HOUR_MS)


def test_a_priority_moves_a_job_forward_in_the_queue() -> None:
    held, one, two = job("a/held", 4000, priority=9), job("a/one", 4000), job("a/two", 4000)
    told = effect(cluster(held, one, two, a=4000), cluster(held, one, replace(two, priority=5), a=4000))
    assert {str(w.job): w.advance for w in told.waits} == {"a/one": -1, "a/two": 1}
    assert not any(w.news for w in told.waits)


def test_a_new_cluster_starts_all_it_can() -> None:
    told = effect(None, cluster(job("a/x", 4000, priority=1), job("a/y", 4000), a=4000))
    assert names(told.started) == ["a/x"]
    assert names(told.waits) == ["a/y"]
    assert told.waits[0].before is None


def test_what_has_run_too_short_is_paused_when_it_may_be() -> None:
    policy = SchedulingPolicy(min_runtime=MinRuntime.of_all(HOUR_MS))
    projects = [project("a", 0), project("b", 4000)]
    base = declared(projects, [job("a/held", 4000)], [pool(nodes=(4,))], policy=policy)
    head = declared(projects, [job("a/held", 4000), job("b/new", 4000)], [pool(nodes=(4,))], policy=policy)
    told = effect(base, head)
    assert told.started == ()
    (wait,) = told.waits
    assert str(wait.job) == "b/new"
    assert wait.now.forecast.start_ms == NOW_MS + HOUR_MS


def test_what_is_under_way_has_come_to_its_end() -> None:
    tree = cluster(job("a/x", 4000), a=4000)
    world = World(nodes=live_nodes(tree.cluster.pools))
    world.settle(tree)
    (run,) = world.state().runs
    gone = replace(run, job=JobId.parse("a/gone"), phase=RunPhase.STOPPING)
    state = replace(world.state(), runs=(gone,), ledgers={})
    rest = at_rest(tree, state, NOW_MS).state
    assert [(str(r.job), r.phase) for r in rest.runs] == [("a/x", RunPhase.RUNNING)]
    stopping = replace(world.state(), runs=(replace(run, phase=RunPhase.STOPPING, reserved=None),))
    assert [r.phase for r in at_rest(tree, stopping, NOW_MS).state.runs] == [RunPhase.RUNNING]
