"""What is said of a job that waits: its place, what would start it, and when it starts."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

from worlds import World, declared, department, job, live_nodes, pool, project

from gpuctl import explain as explain_module
from gpuctl.engine import EngineCache, schedule
from gpuctl.explain import explain
from gpuctl.model.decision import Decision, Placement, TraceStep, WorkerPlacement
from gpuctl.model.declared import Declared, MinRuntime, SchedulingPolicy, Sharing
from gpuctl.model.explanation import DecisionKind, Explanation, QueuePlace, RemedyKind
from gpuctl.model.ids import JobId, NodeName, PoolName, ProjectName
from gpuctl.model.job import Job, JobType
from gpuctl.model.state import Run, RunPhase
from gpuctl.model.units import GpuMilli
from gpuctl.views.explanation import document, explanation_text, headline
from gpuctl.views.trace import step_text

HOUR_MS = 3_600_000


def settled(tree: Declared) -> World:
    world = World(nodes=live_nodes(tree.cluster.pools))
    world.settle(tree)
    return world


def told(tree: Declared, world: World, name: str) -> Explanation:
    state = world.state()
    cache = EngineCache()
    decided = schedule(tree, state, world.now_ms, cache)
    explanation = explain(tree, state, decided, JobId.parse(name), cache.vacancies())
    assert explanation is not None
    return explanation


def one_node(*jobs: Job, **quotas: int) -> Declared:
    return declared([project(name, quota) for name, quota in quotas.items()], jobs, [pool(nodes=(4,))])


def test_a_job_over_its_share_starts_with_the_quota_it_lacks_and_the_job_that_pays_is_named() -> None:
    world = settled(one_node(job("a/held", 4000), a=1000, b=1000))
    tree = one_node(job("a/held", 4000), job("b/wants", 3000), a=1000, b=1000)
    world.settle(tree)
    remedies = {remedy.kind: remedy for remedy in told(tree, world, "b/wants").remedies}
    assert remedies[RemedyKind.QUOTA].subject == "b"
    assert remedies[RemedyKind.QUOTA].milli == 3000
    assert remedies[RemedyKind.QUOTA].paused == (JobId.parse("a/held"),)
    assert remedies[RemedyKind.JOB_END].subject == "a/held"
    assert remedies[RemedyKind.ANOTHER_NODE].subject == "dgx1-1"


def test_what_is_said_to_start_a_job_starts_it() -> None:
    tree = one_node(job("a/held", 4000), job("b/wants", 3000), a=1000, b=1000)
    world = settled(tree)
    assert "b/wants" not in world.running()
    raised = one_node(job("a/held", 4000), job("b/wants", 3000), a=1000, b=3000)
    world.settle(raised)
    assert "b/wants" in world.running()


def test_a_quota_is_told_as_it_is_with_the_weight_that_follows_it() -> None:
    """With a quota of 1 `b` has a weight, too, by which its share is 2: `b/first` would start, and not `b/second`."""
    held = [job(f"a/{index}", 1000) for index in range(8)]
    waiting = [job("b/first", 2000), job("b/second", 1000)]

    def milli(**weight: int) -> GpuMilli | None:
        projects, pools = [project("a", 4000), project("b", 0, **weight)], [pool(nodes=(8,))]
        world, tree = settled(declared(projects, held, pools)), declared(projects, held + waiting, pools)
        world.now_ms += HOUR_MS
        world.settle(tree)
        remedies = {remedy.kind: remedy for remedy in told(tree, world, "b/second").remedies}
        return remedies[RemedyKind.QUOTA].milli if RemedyKind.QUOTA in remedies else None

    assert milli(weight=0) == 1000
    assert milli() is None


def test_a_quota_that_could_not_be_declared_is_no_way_out() -> None:
    tree = one_node(job("a/held", 4000), job("b/wants", 3000), a=2000, b=2000)
    kinds = {remedy.kind for remedy in told(tree, settled(tree), "b/wants").remedies}
    assert kinds == {RemedyKind.JOB_END, RemedyKind.ANOTHER_NODE}


def test_the_place_in_the_queue_is_the_order_in_which_the_engine_asks() -> None:
    waiting = [job(f"a/w{index}", 4000, priority=index) for index in range(3)]
    tree = one_node(job("a/held", 4000, priority=9), *waiting, a=4000)
    world = settled(tree)
    assert told(tree, world, "a/w2").place == QueuePlace(in_project=1, of_project=3, overall=1, of_all=3)
    assert told(tree, world, "a/w0").place == QueuePlace(in_project=3, of_project=3, overall=3, of_all=3)


def test_a_start_is_foreseen_at_the_limit_of_what_runs() -> None:
    tree = one_node(job("a/held", 4000, priority=1, max_duration_ms=HOUR_MS), job("a/next", 2000), a=4000)
    world = settled(tree)
    forecast = told(tree, world, "a/next").forecast
    assert forecast is not None
    started_ms = next(run.started_at_ms for run in world.runs.values() if run.job.name == "held")
    assert started_ms is not None
    assert forecast.start_ms == started_ms + HOUR_MS
    assert forecast.ends == (JobId.parse("a/held"),)
    assert forecast.endless == 0


def not_started(tree: Declared, name: str, world: World) -> World:
    """The world where the only start of a job has failed now."""
    broken = next(each for each in tree.jobs if str(each.id) == name)
    run = Run(job=broken.id, digest=broken.digest, phase=RunPhase.QUEUED, queued_at_ms=world.now_ms, failed_starts=1)
    return replace(world, runs=world.runs | {(run.job, run.digest): run})


def test_a_retry_is_foreseen_on_idle_gpus_else_when_its_rights_are_back() -> None:
    held, broken = job("a/held", 4000), job("a/broken", 2000, priority=1)
    tree = one_node(held, broken, a=4000)
    full = not_started(tree, "a/broken", settled(one_node(held, a=4000)))
    explanation = told(tree, full, "a/broken")
    assert explanation.forecast is not None
    assert explanation.forecast.start_ms == full.now_ms + 2 * HOUR_MS
    lines = list(explanation_text(explanation))
    assert "It is not in the queue: jobs that wait there come first, and no run makes way for it." in lines
    assert headline(explanation).startswith("a/broken waits. GPU5092: failed starts in a row: 1, the last by ")
    assert document(explanation)["reason"]["params"]["rights"] == full.now_ms + 2 * HOUR_MS
    alone = one_node(broken, a=4000)
    idle = not_started(alone, "a/broken", settled(one_node(a=4000)))
    explanation = told(alone, idle, "a/broken")
    assert explanation.forecast is not None
    assert explanation.forecast.start_ms == idle.now_ms + 60_000


def test_without_limits_nothing_is_foreseen_and_it_is_said_why() -> None:
    tree = one_node(job("a/held", 4000, priority=1), job("a/next", 2000), a=4000)
    explanation = told(tree, settled(tree), "a/next")
    assert explanation.forecast is not None
    assert explanation.forecast.start_ms is None
    assert explanation.forecast.endless == 1
    assert any("no maxDuration" in line for line in explanation_text(explanation))


def test_a_lost_node_is_named_when_its_return_starts_the_job() -> None:
    tree = declared([project("a", 8000)], [job("a/one", 4000), job("a/two", 4000)], [pool(nodes=(4, 4))])
    world = settled(tree)
    world.nodes = (world.nodes[0], replace(world.nodes[1], ready=False, usable=False))
    world.settle(tree)
    waits = next(name for name in ("a/one", "a/two") if name not in world.running())
    remedies = {remedy.kind: remedy.subject for remedy in told(tree, world, waits).remedies}
    assert remedies[RemedyKind.NODE] == "dgx1-2"


def test_a_job_that_runs_has_its_rule_and_numbers_and_nothing_of_waiting() -> None:
    tree = one_node(job("a/one", 4000), a=4000)
    state = World(nodes=live_nodes(tree.cluster.pools)).state()
    explanation = explain(tree, state, schedule(tree, state, 0), JobId.parse("a/one"))
    assert explanation is not None
    assert explanation.decision is DecisionKind.START
    assert [step.rule for step in explanation.steps] == ["start"]
    assert explanation.place is None
    assert explanation.remedies == ()


def test_the_numbers_that_bind_are_told_as_the_engine_has_them() -> None:
    jobs = [job("a/one", 3000), job("a/two", 3000), job("a/part", 500), job("a/wide", 2000)]
    tree = declared([project("a", 8000)], jobs, [pool(nodes=(4, 4))], policy=SchedulingPolicy(consolidation=False))
    explanation = told(tree, settled(tree), "a/wide")
    assert (explanation.workers, explanation.gpu_milli) == (1, 2000)
    (vacancy,) = explanation.vacancies
    assert (vacancy.free_milli, vacancy.whole, vacancy.part_milli) == (1500, 1, 1000)
    text = list(explanation_text(explanation))
    assert text[0] == "It requests 2 GPUs; dgx1 has 1.5 GPUs free, at most 1 whole GPU on one node."
    assert text[1] == "a holds 6.5 GPUs; its fair share is 8, its quota 8 and its demand 8.5."
    form = document(explanation)
    assert form["free"] == [{"nodePool": "dgx1", "gpuMilli": 1500, "wholeGpusOnOneNode": 1, "gpuMilliOfOneGpu": 1000}]


def test_nothing_free_is_said_and_a_part_of_a_gpu_looks_at_one_gpu() -> None:
    full = declared([project("a", 2000)], [job("a/x", 2000), job("a/y", 1000)], [pool(nodes=(2,))])
    assert next(explanation_text(told(full, settled(full), "a/y"))) == "It requests 1 GPU; dgx1 has no free GPUs."
    jobs = [job("a/x", 600, priority=1), job("a/y", 700, priority=1), job("a/z", 500)]
    parts = declared([project("a", 2000)], jobs, [pool(nodes=(2,))])
    said = next(explanation_text(told(parts, settled(parts), "a/z")))
    assert said == "It requests 0.5 GPUs; dgx1 has 0.7 GPUs free, at most 0.4 of one GPU."


def test_an_unknown_job_has_no_explanation() -> None:
    tree = one_node(a=4000)
    state = World(nodes=live_nodes(tree.cluster.pools)).state()
    assert explain(tree, state, schedule(tree, state, 0), JobId.parse("a/none")) is None


def test_the_document_says_what_the_text_says() -> None:
    tree = one_node(job("a/held", 4000, priority=1, max_duration_ms=HOUR_MS), job("a/next", 2000), a=4000)
    explanation = told(tree, settled(tree), "a/next")
    form = document(explanation)
    assert form["kind"] == "Explanation"
    assert form["queue"] == {"inProject": 1, "ofProject": 1, "overall": 1, "of": 1}
    assert form["forecast"]["after"] == ["a/held"]
    assert form["text"] == list(explanation_text(explanation))
    assert any(line.startswith("It starts by 2020-07-29T06:20") for line in form["text"])


def test_the_document_names_each_kind_of_decision_and_no_class() -> None:
    classes = get_args(Decision)
    assert {explain_module._KINDS[each] for each in classes} == set(DecisionKind)
    assert not {each.__name__ for each in classes} & {kind.value for kind in DecisionKind}


def with_jobs(tree: Declared, *more: Job) -> Declared:
    return replace(tree, jobs=tuple(sorted((*tree.jobs, *more), key=lambda each: each.id)))


def lines(tree: Declared, world: World, name: str) -> list[str]:
    explanation = told(tree, world, name)
    return [headline(explanation), *explanation_text(explanation)]


def test_an_elastic_run_that_regains_workers_says_when_it_grows_and_from_whom() -> None:
    pools = [pool(nodes=(4, 4), sharing=Sharing.DEVICE_PLUGIN)]
    jobs = [job("b/1", 2000), job("b/2", 4000), job("a/e", workers=6, min_workers=2)]
    world = World(nodes=live_nodes(pools))
    for count in (2, 3):
        world.settle(declared([project("a", 0), project("b", 6000)], jobs[:count], pools))
    tree = declared([project("a", 6000), project("b", 2000)], jobs, pools)
    first = lines(tree, world, "a/e")
    assert first[1] == "It requests 6 workers with 1 GPU each, at least 2."
    assert first[2] == "It is on dgx1-1 with 2 workers."
    assert "Engine: gets 2 more workers once other runs have stopped." in first
    gives = "Engine: releases 2 GPUs for a/e; before that, b held 6 GPUs, "
    assert f"{gives}with 2 GPUs guaranteed and a fair share of 4 GPUs." in lines(tree, world, "b/1")
    world.cycle(tree)
    assert "Paused or scaled down for it: b/1." in lines(tree, world, "a/e")
    assert "It joins the queue once its own pods are gone." in lines(tree, world, "b/1")
    world.cycle(tree)
    grows = lines(tree, world, "a/e")
    assert "Engine: scales up from 2 to 4 workers." in grows
    rest = "while it runs, its pods can use no other nodes; its next start is with all workers"
    assert f"Engine: has 4 of 6 workers: {rest}." in grows


def test_an_elastic_run_that_made_way_says_what_keeps_it_small() -> None:
    pools = [pool(nodes=(4, 4), sharing=Sharing.DEVICE_PLUGIN)]
    tree = declared([project("a", 4000), project("b", 4000)], [job("a/e", workers=8, min_workers=2)], pools)
    world = settled(tree)
    tree = with_jobs(tree, job("b/w", 4000))
    world.cycle(tree)
    gives = "Engine: releases 4 GPUs for b/w; before that, a held 8 GPUs, "
    assert f"{gives}with 4 GPUs guaranteed and a fair share of 4 GPUs." in lines(tree, world, "a/e")
    world.cycle(tree)
    assert "Engine: has 4 of 8 workers for now: another run starts or stops on nodes that its pods can use." in lines(
        tree, world, "a/e"
    )
    world.settle(tree)
    assert "Engine: has 4 of 8 workers for now: nodes that its pods can use have no more free GPUs." in lines(
        tree, world, "a/e"
    )


def test_what_can_never_run_says_so_and_which_limit_would_let_it() -> None:
    tree = declared([project("a", 2000, limit=4000)], [job("a/huge", 9000), job("a/more", 5000)])
    world = settled(tree)
    huge = lines(tree, world, "a/huge")
    assert huge[0].startswith("a/huge can't start. GPU5014: ")
    assert "It is not in the queue: the end of other jobs would not start it." in huge
    (limit,) = [each for each in told(tree, world, "a/more").remedies if each.kind is RemedyKind.LIMIT]
    assert (limit.subject, limit.milli) == ("a", 5000)


def test_a_departments_limit_is_raised_for_what_all_its_projects_hold() -> None:
    projects = [project("a", 4000, department="r"), project("b", 4000, department="r")]
    jobs = [job("a/x", 4000), job("b/y", 3000)]
    tree = declared(projects, jobs, departments=(department("r", 8000, limit=6000),))
    (limit,) = [r for r in told(tree, settled(tree), "a/x").remedies if r.kind is RemedyKind.LIMIT]
    assert (limit.subject, limit.milli) == ("r", 7000)


def test_a_quota_is_told_with_the_limit_and_the_departments_quota_that_must_go_up_with_it() -> None:
    """A limit below a quota is no declaration, nor is a department that divides more than it has."""
    full = [project("a", 2000, limit=2000, department="r"), project("b", 0)]
    tree = declared(
        full, [job("a/x", 3000), job("b/y", 2000)], [pool(nodes=(4,))], departments=(department("r", 2000, limit=9000),)
    )
    tree = replace(tree, departments=(*tree.departments, department("s", 0)))
    world = settled(one_node(job("b/y", 2000), a=0, b=0))
    world.settle(tree)
    held = told(tree, world, "a/x")
    assert [(r.kind, r.subject, r.milli) for r in held.remedies if r.kind is RemedyKind.LIMIT] == []
    (quota,) = [each for each in held.remedies if each.kind is RemedyKind.QUOTA]
    assert {(each.kind, each.subject, each.milli) for each in quota.also} == {
        (RemedyKind.LIMIT, "a", 3000), (RemedyKind.QUOTA, "r", 3000),
    }  # fmt: skip
    assert quota.paused == (JobId.parse("b/y"),)
    assert (
        "It would start with a quota of 3 for a, a limit of at least 3 for a and a quota of at least 3 for r, "
        "pausing b/y." in lines(tree, world, "a/x")
    )
    assert document(held)["remedies"][0]["also"][1] == {"kind": "quota", "subject": "r", "gpuMilli": 3000}
    sums = replace(tree, departments=tuple(replace(each, has_own_quota=False) for each in tree.departments))
    (quota,) = [each for each in told(sums, world, "a/x").remedies if each.kind is RemedyKind.QUOTA]
    assert [(each.kind, each.subject) for each in quota.also] == [(RemedyKind.LIMIT, "a")]


def test_whose_end_makes_room_under_a_limit_may_run_elsewhere() -> None:
    """What counts under a limit counts on all nodes: the one in the way is in another pool."""
    pools = [pool("dgx1", nodes=(4,)), pool("v100", nodes=(4,))]
    there = job("a/there", 3000, pools=(PoolName("v100"),))
    tree = declared([project("a", 3000, limit=3000)], [there, job("a/x", 2000)], pools)
    world = World(nodes=live_nodes(pools))
    world.settle(replace(tree, jobs=(there,)))
    world.settle(tree)
    ends = [each.subject for each in told(tree, world, "a/x").remedies if each.kind is RemedyKind.JOB_END]
    assert ends == ["a/there"]


def test_a_promise_that_would_not_be_kept_is_no_way_to_start() -> None:
    """A node that is back is promised to a job, and then given to the runs that were on it and have a right to it."""
    pools = [pool(nodes=(2, 8))]
    tree = declared([project("a", 4000), project("b", 4000)], [job("a/big", 8000), job("b/y", 3000)], pools)
    world = World(nodes=live_nodes(pools))
    world.settle(replace(tree, jobs=(job("b/y", 3000),)))
    world.settle(tree)
    world.nodes = (world.nodes[0], replace(world.nodes[1], ready=False, usable=False))
    world.cycle(tree)
    kinds = [each.kind for each in told(tree, world, "a/big").remedies]
    assert RemedyKind.NODE not in kinds


def test_a_moved_run_and_its_beneficiary_are_told_the_place_that_is_kept() -> None:
    tree = declared([project("a", 16000)], [job("a/x", 4000), job("a/y", 4000)])
    world = settled(tree)
    for key, node in zip(sorted(world.runs), ("dgx1-1", "dgx1-2"), strict=True):
        place = Placement(workers=(WorkerPlacement(node=NodeName(node), gpus=(0, 1, 2, 3)),))
        world.runs[key] = replace(world.runs[key], placement=place)
    tree = with_jobs(tree, job("a/w", 8000))
    world.cycle(tree)
    moved = lines(tree, world, "a/x")
    assert moved[0].startswith("a/x is moved. GPU5082: ")
    assert moved[2] == "It has a reservation on dgx1-2 (GPUs 4, 5, 6, 7)."
    assert lines(tree, world, "a/w")[2] == "It has a reservation on dgx1-1 (GPUs 0, 1, 2, 3, 4, 5, 6, 7)."
    world.cycle(tree)
    assert lines(tree, world, "a/x")[-1] == "It starts there once its own pods are gone."


def test_what_is_kept_for_another_is_not_said_to_be_free() -> None:
    policy = SchedulingPolicy(starvation_guard_ms=HOUR_MS // 6, consolidation=False)
    short = [job(f"a/s{index}", 4000, preemptible=False, max_duration_ms=HOUR_MS) for index in range(4)]
    tree = declared([project("a", 16000)], short, policy=policy)
    world = settled(tree)
    tree = with_jobs(tree, job("a/big", 8000))
    world.settle(tree)
    world.now_ms += HOUR_MS // 5
    world.settle(tree)
    world.end("a/s0")
    tree = with_jobs(tree, job("a/small", 2000))
    world.settle(tree)
    small = lines(tree, world, "a/small")
    assert small[1] == "It requests 2 GPUs; dgx1 has no free GPUs, not counting GPUs reserved for a/big."
    assert document(told(tree, world, "a/small"))["keptFor"] == ["a/big"]
    assert any(
        line.startswith("Engine: has a reservation of 8 GPUs in dgx1, to be filled")
        for line in lines(tree, world, "a/big")
    )
    assert any(", when a/s1, a/s2 and a/s3 reach their limits, " in line for line in small)


def test_limits_are_told_with_what_is_over_of_them() -> None:
    limits = {"idle_timeout_ms": HOUR_MS, "max_duration_ms": 8 * HOUR_MS}
    tree = declared([project("a", 8000)], [job("a/x", kind=JobType.INTERACTIVE, **limits)])
    world = settled(tree)
    (key,) = world.runs
    world.runs[key] = replace(world.runs[key], started_at_ms=world.now_ms, idle_since_ms=world.now_ms + HOUR_MS)
    world.now_ms += 3 * HOUR_MS
    ended = lines(tree, world, "a/x")
    assert ended[0].startswith("a/x has reached a time limit. GPU5042: ")
    assert ended[-2:] == [
        "It has run for 3h; its maxDuration is 8h.", "Its GPUs have been idle for 2h; its idleTimeout is 1h.",
    ]  # fmt: skip


def test_a_start_is_foreseen_when_runs_are_old_enough_to_be_paused() -> None:
    policy = SchedulingPolicy(min_runtime=MinRuntime.of_all(HOUR_MS))
    tree = declared(
        [project("a", 2000), project("b", 8000)], [job("a/h", 16000 // 2)], [pool(nodes=(8,))], policy=policy
    )
    world = settled(tree)
    tree = with_jobs(tree, job("b/w", 4000))
    world.cycle(tree)
    last = lines(tree, world, "b/w")[-1]
    assert ", when running jobs have reached minRuntime and may be paused, if nothing else changes" in last


def test_a_rule_that_is_not_known_is_shown_as_it_was_written_down() -> None:
    assert step_text(TraceStep(job=None, rule="new", numbers={"of": 3}), ProjectName("a")) == "new (of 3)"
    assert step_text(TraceStep(job=None, rule="grow", numbers={}), ProjectName("a")) == "grow"


def test_a_job_of_a_project_that_is_not_declared_is_explained_too() -> None:
    tree = declared([project("a", 8000)], [job("q/x")])
    said = lines(tree, settled(tree), "q/x")
    assert said[0] == "q/x can't start. GPU5022: can't run: project q is not declared."
    assert said[-1] == "It is not in the queue: the end of other jobs would not start it."


def test_a_job_without_gpus_is_told_its_node_alone() -> None:
    tree = declared([project("a", 8000)], [job("a/x", 0, cpu_milli=1000)])
    assert lines(tree, settled(tree), "a/x")[1:3] == ["It requests no GPU.", "It is on dgx1-1."]
