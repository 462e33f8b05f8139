"""What is said of a job that waits: its place, what would start it, and when it starts."""

from __future__ import annotations

from dataclasses import replace

from worlds import World, declared, job, live_nodes, pool, project

from gpuctl.explain import explain
from gpuctl.model.declared import Declared, SchedulingPolicy
from gpuctl.model.explanation import Explanation, QueuePlace, RemedyKind
from gpuctl.model.ids import JobId
from gpuctl.model.job import Job
from gpuctl.schedule import Outlook, schedule
from gpuctl.views.explanation import document, explanation_text

HOUR_MS = 3_600_000


def settled(tree: Declared) -> World:
    world = World(nodes=live_nodes(tree.cluster.pools))
    world.settle(tree)
    return world


def told(tree: Declared, world: World, name: str) -> Explanation:
    state = world.state()
    outlook = Outlook()
    decided = schedule(tree, state, world.now_ms, outlook)
    explanation = explain(tree, state, decided, JobId.parse(name), outlook.vacancies())
    assert explanation is not None
    return explanation


def one_node(*jobs: Job, **quotas: int) -> Declared:
    return declared([project(name, quota) for name, quota in quotas.items()], jobs, [pool(nodes=(4,))])


def test_a_job_over_its_share_starts_with_the_quota_it_lacks_and_who_pays_is_named() -> None:
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
    assert explanation.decision == "Admit"
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
    assert text[0] == "It asks for 2 GPUs; free in dgx1 are 1.5, at most 1 whole on one node."
    assert text[1] == "a holds 6.5 GPUs; its fair share is 8, its quota 8, and it wants 8.5."
    form = document(explanation)
    assert form["free"] == [{"nodePool": "dgx1", "gpuMilli": 1500, "wholeGpusOnOneNode": 1, "gpuMilliOfOneGpu": 1000}]


def test_nothing_free_is_said_and_a_part_of_a_gpu_looks_at_one_gpu() -> None:
    full = declared([project("a", 2000)], [job("a/x", 2000), job("a/y", 1000)], [pool(nodes=(2,))])
    assert next(explanation_text(told(full, settled(full), "a/y"))) == "It asks for 1 GPU; none are free in dgx1."
    jobs = [job("a/x", 600, priority=1), job("a/y", 700, priority=1), job("a/z", 500)]
    parts = declared([project("a", 2000)], jobs, [pool(nodes=(2,))])
    said = next(explanation_text(told(parts, settled(parts), "a/z")))
    assert said == "It asks for 0.5 GPUs; free in dgx1 are 0.7, at most 0.4 of one GPU."


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
