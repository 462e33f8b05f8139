"""Histories of outside changes, with accounts of their own: what must hold after each change, for any decisions.

After a change at most three schedules decide something new before the cluster is at rest: usually a run loses its node,
a pause makes a place for it, and something follows from that. A start in a place that an earlier schedule reserved is
no new decision, but the end of a wait for pods. Then the beneficiary of every loss runs, no run was stopped twice, and
no job within guarantees at each level waits although preemptible work above quota could make room for it. No device
ever carries more than one device's worth.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from random import Random

from gpuctl.model.decision import Placement
from gpuctl.model.declared import Declared
from gpuctl.model.ids import JobId, NodeName
from gpuctl.model.state import ACTIVE, Run, RunPhase

from .cluster import TinyCluster, start
from .enumeration import Way, ways
from .families import Disagreement, Kind, need_of, simplest
from .judge import illegal
from .rules import Right
from .shrink import is_valid, reduced, smaller_worlds
from .view import View
from .worlds import JobSpec, WorldSpec, declared, draw, quotas_fit

MOST_SCHEDULES = 3
MINUTE_MS = 60_000
BY_GUARANTEE = frozenset((Right.GUARANTEE, Right.STRADDLE))


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One outside change. `kind`: add, remove, finish, quota, lose, return; `name`: of the job, project or node."""

    kind: str
    name: str
    job: JobSpec | None = None
    quotas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A world and the changes to it, a minute apart."""

    world: WorldSpec
    changes: tuple[Change, ...]


@dataclass(slots=True)
class Told:
    """The result of a history. `schedules`: how often so many schedules changed something after a change."""

    changes: int = 0
    schedules: Counter[int] = field(default_factory=Counter)
    found: list[tuple[History, Disagreement]] = field(default_factory=list)


def draw_history(seed: int) -> History:
    """The history of a seed."""
    world = draw(seed)
    random = Random(f"history {seed}")
    wanted = world.job(world.wanted)
    # Without minRuntime: time alone would be a change.
    spec = replace(world.without(world.wanted), wanted="", min_runtime_s=0, fair_runtime_s=0)
    changes = [Change(kind="add", name=wanted.id, job=wanted)]
    there = {job.id for job in spec.jobs} | {wanted.id}
    lost: list[str] = []
    nodes = [name for pool in spec.pools for name in pool.node_names()]
    for index in range(random.randint(3, 7)):
        kind = random.choice(("add", "add", "remove", "finish", "quota", "quota", "lose", "return"))
        if kind == "add":
            model = random.choice(world.jobs)
            job = replace(
                model, name=f"k{index}", project=random.choice(world.projects).name, priority=random.randint(0, 2)
            )
            changes.append(Change(kind=kind, name=job.id, job=job))
            there.add(job.id)
        elif kind in ("remove", "finish") and there:
            name = random.choice(sorted(there))
            there.discard(name)
            changes.append(Change(kind=kind, name=name))
        elif kind == "quota":
            project = random.choice(world.projects)
            quotas = tuple(random.choice((0, 1000, 2000, 3000)) for _ in project.quotas)
            changes.append(Change(kind=kind, name=project.name, quotas=quotas))
        elif kind == "lose" and not lost and len(nodes) > 1:
            lost.append(random.choice(nodes))
            changes.append(Change(kind=kind, name=lost[0]))
        elif kind == "return" and lost:
            changes.append(Change(kind=kind, name=lost.pop()))
    history = History(world=spec, changes=tuple(changes))
    return history if fits(history) else replace(history, world=replace(spec, overcommit=True))


def fits(history: History) -> bool:
    """Whether the compiler would accept the world, and the quotas after each change."""
    spec = history.world
    if not is_valid(spec):
        return False
    for change in history.changes:
        if change.kind == "quota":
            spec = with_quotas(spec, change)
            if not quotas_fit(spec):
                return False
    return True


def with_quotas(spec: WorldSpec, change: Change) -> WorldSpec:
    """The world with a project's new quotas."""
    return replace(
        spec, projects=tuple(replace(p, quotas=change.quotas) if p.name == change.name else p for p in spec.projects)
    )


def live(history: History) -> Told:
    """Play a history; it ends at the first thing that is wrong."""
    told = Told()
    spec = history.world
    cluster = start(spec)
    if cluster.settle(declared(spec)) is None:
        return told
    for index, change in enumerate(history.changes):
        spec = _apply(spec, cluster, change)
        told.changes += 1
        services = _services(spec, cluster, change)
        found = list(_after(spec, cluster, told))
        found += [
            Disagreement(Kind.REPLICAS, "", spec, str(loss.job), f"{change.name} was lost")
            for loss in cluster.losses
            if loss.kind == "displace" and loss.job in services
        ]
        if found:
            so_far = replace(history, changes=history.changes[: index + 1])
            told.found += [(so_far, each) for each in found]
            break
        cluster.now_ms += MINUTE_MS
    return told


def committed(spec: WorldSpec, change: Change) -> WorldSpec:
    """The declared world after a change."""
    if change.kind == "add" and change.job is not None:
        return replace(spec, jobs=(*spec.jobs, change.job))
    if change.kind == "remove":
        return replace(spec, jobs=tuple(job for job in spec.jobs if job.id != change.name))
    return with_quotas(spec, change) if change.kind == "quota" else spec


def _apply(spec: WorldSpec, cluster: TinyCluster, change: Change) -> WorldSpec:
    if change.kind == "add":
        cluster.add_waiting(JobId.parse(change.name))
    if change.kind == "finish":
        run = cluster.runs.get(JobId.parse(change.name))
        if run is not None and run.phase in ACTIVE:
            cluster.end(run.job)
    if change.kind in ("lose", "return"):
        cluster.set_ready(NodeName(change.name), ready=change.kind == "return")
    return committed(spec, change)


def _services(spec: WorldSpec, cluster: TinyCluster, change: Change) -> set[JobId]:
    """Services with enough workers besides those on a lost node."""
    found = set()
    for job in spec.jobs if change.kind == "lose" else ():
        run = cluster.runs.get(JobId.parse(job.id))
        if job.kind == "inference" and run is not None and run.phase in ACTIVE and run.placement is not None:
            left = sum(worker.node != change.name for worker in run.placement.workers)
            if job.least <= left < len(run.placement.workers):
                found.add(run.job)
    return found


def _after(spec: WorldSpec, cluster: TinyCluster, told: Told) -> Iterator[Disagreement]:
    """Let the cluster come to rest after a change; yields what is wrong then."""
    tree = declared(spec)
    cluster.losses.clear()
    cluster.decided = 0
    for _ in range(12):
        made = cluster.decide(tree)
        yield from illegal(spec, tree, cluster, made)
        is_changed = cluster.carry_out(tree, made)
        device = overcommitted(cluster)
        if device:
            yield Disagreement(Kind.OVERCOMMITTED, "", spec, "", device)
        if not is_changed:
            break
    else:
        yield Disagreement(Kind.UNREST, "never", spec, "", "still changing after 12 schedules")
        return
    told.schedules[cluster.decided] += 1
    if cluster.decided > MOST_SCHEDULES:
        yield Disagreement(Kind.UNREST, "late", spec, "", f"{cluster.decided} schedules decided something new")
    yield from _wasted(spec, cluster)
    yield from _unguaranteed(spec, tree, cluster)


def overcommitted(cluster: TinyCluster) -> str:
    """A device that carries too much; "" if there is none. Stopping runs still count."""
    used: Counter[tuple[str, int]] = Counter()
    for run in cluster.runs.values():
        for placement in _places(run):
            for worker in placement.workers:
                used.update({(worker.node, gpu): min(1000, run.gpu_milli) for gpu in worker.gpus})
    return next((f"{node}[{gpu}] carries {milli}" for (node, gpu), milli in sorted(used.items()) if milli > 1000), "")


def _places(run: Run) -> Iterator[Placement]:
    if run.phase in (*ACTIVE, RunPhase.STOPPING):
        yield from (placement for placement in (run.placement, run.leaving) if placement is not None)


def _wasted(spec: WorldSpec, cluster: TinyCluster) -> Iterator[Disagreement]:
    for job, tells in cluster.in_vain():
        yield Disagreement(Kind.IN_VAIN, "", spec, str(job), tells)
    stops = Counter(loss.job for loss in cluster.losses if loss.kind != "shrink")
    for job, count in stops.items():
        if count > 1:
            kinds = [loss.kind for loss in cluster.losses if loss.job == job and loss.kind != "shrink"]
            yield Disagreement(Kind.TWICE, "", spec, str(job), ", ".join(kinds))


def _unguaranteed(spec: WorldSpec, tree: Declared, cluster: TinyCluster) -> Iterator[Disagreement]:
    view = View(tree, cluster.state(), cluster.decided_ms)
    for job in view.waiting:
        if view.most_workers(job) == 0:
            continue
        way = simplest([way for way in ways(view, job) if _is_guarantee(way)])
        if way is not None:
            yield Disagreement(Kind.UNGUARANTEED, need_of(way), spec, str(job.id), way.tells())


def _is_guarantee(way: Way) -> bool:
    """Whether the job is within guarantees at each level, and only work above quota makes room for it."""
    claim = way.claim
    is_within = all(claim.covered(owner) <= claim.guarantee(owner) for owner in claim.chain)
    return is_within and not way.moved and way.rights <= BY_GUARANTEE


# Smaller histories


def shrink_history(history: History, is_same: Callable[[History], bool]) -> History:
    """The history after every step that keeps `is_same` true."""
    return reduced(history, _steps, lambda smaller: fits(smaller) and is_same(smaller))


def _steps(history: History) -> Iterator[History]:
    changes = history.changes
    for index in range(len(changes)):
        yield replace(history, changes=(*changes[:index], *changes[index + 1 :]))
    projects = {change.job.project for change in changes if change.job is not None}
    projects |= {change.name for change in changes if change.kind == "quota"}
    nodes = {change.name for change in changes if change.kind in ("lose", "return")}
    for smaller in smaller_worlds(history.world):
        keeps_projects = projects <= {project.name for project in smaller.projects}
        keeps_nodes = nodes <= {name for pool in smaller.pools for name in pool.node_names()}
        if keeps_projects and keeps_nodes and len(smaller.pools) == len(history.world.pools):
            yield replace(history, world=smaller)
