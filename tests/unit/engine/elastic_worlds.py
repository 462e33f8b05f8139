"""Worlds with runs in given places, on nodes whose GPUs are asked for by count."""

from __future__ import annotations

from dataclasses import replace

from worlds import World, live_nodes

from gpuctl.engine import reasons, schedule
from gpuctl.model.decision import Decision, Placement, WorkerPlacement
from gpuctl.model.declared import Declared
from gpuctl.model.ids import JobId, NodeName
from gpuctl.model.state import Run, RunPhase

AGE_MS = 600_000


def at(*places: tuple[int, int]) -> Placement:
    """Workers with one GPU each: node n of the pool, GPU g."""
    return Placement(workers=tuple(WorkerPlacement(node=NodeName(f"dgx1-{node}"), gpus=(gpu,)) for node, gpu in places))


def world_of(tree: Declared, **there: Placement) -> World:
    """The world in which these jobs run and the others wait; `a_e` is the job a/e."""
    world = World(nodes=live_nodes(tree.cluster.pools))
    for job in tree.jobs:
        place = there.get(str(job.id).replace("/", "_"))
        run = Run(
            job=job.id, digest=job.digest, phase=RunPhase.QUEUED, gpu_milli=job.gpu_milli, cpu_milli=job.cpu_milli,
            mem_bytes=job.mem_bytes, queued_at_ms=world.now_ms - AGE_MS,
        )  # fmt: skip
        if place is not None:
            run = replace(
                run, phase=RunPhase.RUNNING, placement=place, made_with=place, started_at_ms=run.queued_at_ms, starts=1,
                reason=reasons.runs_in_quota(job.id.project),
            )  # fmt: skip
        world.runs[job.id, job.digest] = run
        world.seen.add((job.id, job.digest))
    return world


def decided(world: World, tree: Declared) -> dict[str, Decision]:
    return {str(d.job): d for d in schedule(tree, world.state(), world.now_ms).decisions}


def told(world: World, tree: Declared, name: str) -> dict[str, dict[str, str | int]]:
    """What the engine's trace has of a job, by rule."""
    trace = schedule(tree, world.state(), world.now_ms).trace
    return {step.rule: dict(step.numbers) for step in trace if step.job == JobId.parse(name)}


def workers(decision: Decision) -> int:
    """With how many workers the job goes on."""
    placement = getattr(decision, "placement", None)
    return len(placement.workers) if placement is not None else 0
