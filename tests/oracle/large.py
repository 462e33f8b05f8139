"""Worlds too large to list all legal ways: what must hold in them, for any decisions.

Here searches reach their bounds: more runs could be paused than can be tried in all sets, and elastic runs have dozens
of workers. After each change the engine raises nothing and decides the same without its cache, the cluster comes to
rest, no device carries more than one device's worth, and every job that runs were paused for runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

from gpuctl.engine import EngineCache, schedule
from gpuctl.model.ids import JobId, NodeName
from gpuctl.model.state import ACTIVE

from .cluster import TinyCluster, start
from .histories import MINUTE_MS, overcommitted
from .worlds import JobSpec, OwnerSpec, PoolSpec, WorldSpec, declared

MOST_SCHEDULES = 40
WITHOUT_CACHE = 0.1
"""The part of the schedules that are also decided without the cache."""


def draw_large(seed: int) -> WorldSpec:
    """The world of a seed: 12 to 128 GPUs; one project's jobs ask for the most."""
    random = Random(f"large {seed}")
    size = random.choice((4, 8, 8))
    pools = tuple(
        PoolSpec(
            name=name, nodes=(size,) * random.randint(3, 8), fractions=random.random() < 0.6,
            spread=random.random() < 0.2,
        )
        for name in random.choice(("p", "p", "pq"))
    )  # fmt: skip
    milli = 1000 * sum(sum(pool.nodes) for pool in pools)
    departments = tuple(OwnerSpec(name=name, quotas=(milli // 2,)) for name in random.choice(((), (), ("d1", "d2"))))
    names = "abcef"[: random.randint(2, 5)]
    projects = tuple(
        OwnerSpec(
            name=name, quotas=(milli // len(names) // 1000 * 1000 if random.random() < 0.8 else 0,),
            limit=random.choice((None, None, None, milli // 2)), weight=random.choice((None, None, 1000, 0)),
            department=random.choice((None, *(each.name for each in departments))),
            priority=random.choice((0, 0, 1)),
        )
        for name in names
    )  # fmt: skip
    jobs = tuple(_draw_job(random, f"j{index:02}", pools, names) for index in range(random.randint(20, 60)))
    return WorldSpec(
        pools=pools, projects=projects, jobs=jobs, departments=departments, overcommit=True,
        consolidation=random.random() < 0.8, fair_runtime_s=random.choice((0, 60)),
    )  # fmt: skip


def _draw_job(random: Random, name: str, pools: tuple[PoolSpec, ...], projects: str) -> JobSpec:
    parts = (100, 250, 300, 500, 700) if all(pool.fractions for pool in pools) else ()
    workers = random.choice((1, 1, 1, 1, 2, 3, 4, 6, 10, 20, 40))
    every = tuple(pool.name for pool in pools)
    allowed = random.choice((every, every, every, *((pool,) for pool in every)))
    return JobSpec(
        project=projects[0] if random.random() < 0.4 else random.choice(projects), name=name,
        kind=random.choice(("training",) * 6 + ("interactive", "inference")),
        milli=random.choice((1000, 1000, 1000, 2000, 4000, 1000 * pools[0].nodes[0], *parts)), workers=workers,
        least=random.choice((workers, workers, 1, max(1, workers // 2))), priority=random.choice((0, 0, 0, 1, 2, 5)),
        preemptible=random.random() < 0.85, pools=allowed, in_order=len(allowed) > 1 and random.random() < 0.3,
    )  # fmt: skip


def live_large(seed: int) -> str:
    """Play a seed: half of the jobs exist at the start; with each of the others something else changes too. Returns the
    first thing that went wrong; "" if nothing did."""
    spec, random = draw_large(seed), Random(f"changes {seed}")
    order = random.sample(spec.jobs, len(spec.jobs))
    half = len(order) // 2
    spec = replace(spec, jobs=tuple(order[:half]))
    cluster = start(spec)
    for job in spec.jobs:
        cluster.add_waiting(JobId.parse(job.id))
    found = next(_wrong(spec, cluster, random), "")
    for job in order[half:] if not found else ():
        spec = _changed(spec, cluster, random)
        spec = replace(spec, jobs=(*spec.jobs, job))
        cluster.add_waiting(JobId.parse(job.id))
        found = next(_wrong(spec, cluster, random), "")
        if found:
            return f"{job.id}: {found}"
        cluster.now_ms += MINUTE_MS
    return found


def _changed(spec: WorldSpec, cluster: TinyCluster, random: Random) -> WorldSpec:
    """A run ends, a node is lost or comes back, a quota changes, or nothing does."""
    kind = random.choice(("none", "none", "end", "node", "quota"))
    running = sorted(job for job, run in cluster.runs.items() if run.phase in ACTIVE)
    if kind == "end" and running:
        cluster.end(random.choice(running))
    elif kind == "node":
        node = random.choice(cluster.nodes)
        cluster.set_ready(NodeName(node.name), ready=not node.ready)
    elif kind == "quota":
        chosen, quotas = random.choice(spec.projects), (random.choice((0, 2000, 8000)),)
        projects = (replace(each, quotas=quotas) if each is chosen else each for each in spec.projects)
        spec = replace(spec, projects=tuple(projects))
    return spec


def _wrong(spec: WorldSpec, cluster: TinyCluster, random: Random) -> Iterator[str]:
    """Let the cluster come to rest; yields what is wrong on the way or then."""
    tree = declared(spec)
    cluster.losses.clear()
    for _ in range(MOST_SCHEDULES):
        state, now_ms, made = cluster.state(), cluster.now_ms, cluster.decide(tree)
        if random.random() < WITHOUT_CACHE and schedule(tree, state, now_ms, EngineCache()) != made:
            yield "decided otherwise without the cache"
        is_changed = cluster.carry_out(tree, made)
        device = overcommitted(cluster)
        if device:
            yield device
        if not is_changed:
            break
    else:
        yield f"still changing after {MOST_SCHEDULES} schedules"
    yield from (tells for _, tells in cluster.in_vain())
