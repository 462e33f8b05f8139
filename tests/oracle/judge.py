"""The statement: the engine makes room for an added job in that cycle if and only if it has a legal way, and as cheaply
as possible; and once the cluster is at rest, no waiting job has a legal way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from gpuctl.model.decision import (
    Admit,
    Displace,
    Move,
    Pending,
    Placement,
    Preempt,
    Reclaim,
    Resize,
    Schedule,
)
from gpuctl.model.declared import Declared
from gpuctl.model.ids import JobId
from gpuctl.model.job import Job
from gpuctl.model.state import ACTIVE, ClusterState, Run, RunPhase

from .cluster import TinyCluster, start, workers_of
from .enumeration import Way, carried_out, growth, seats, ways
from .families import Disagreement, Kind, need_of, simplest
from .price import dear
from .rules import (
    Claim,
    broken_quota,
    may_move_others,
    may_stop,
    rights,
    within_ceilings,
    within_limits,
    within_share,
)
from .taken import losses_of, others_placed, place_of, taken_for
from .view import Held, View, rank
from .worlds import WorldSpec, declared

UNDONE = "GPU5028"
"""The engine's reason that other jobs would take a job's place again: the oracle checks it."""


@dataclass(slots=True)
class Findings:
    """The results of some worlds."""

    worlds: int = 0
    asked: int = 0
    with_a_way: int = 0
    served: int = 0
    found: list[Disagreement] = field(default_factory=list)

    def add(self, other: Findings) -> None:
        """Add the counts of others."""
        self.worlds += other.worlds
        self.asked += other.asked
        self.with_a_way += other.with_a_way
        self.served += other.served
        self.found += other.found


def examine(spec: WorldSpec) -> Findings:
    """Let the world come to rest without the wanted job, add that job, and compare the decisions with the oracle."""
    findings = Findings(worlds=1)
    base = spec.without(spec.wanted) if spec.wanted else spec
    cluster = start(base)
    findings.found += _settled(spec, declared(base), cluster)
    if findings.found:
        return findings
    findings.found += _waiting(spec, declared(base), cluster, findings)
    if findings.found or not spec.wanted:
        return findings
    tree = declared(spec)
    before = cluster.copy()
    before.add_waiting(JobId.parse(spec.wanted))
    after = before.copy()
    made = after.decide(tree)
    findings.found += _asked(spec, tree, before, made, findings)
    findings.found += _settled(spec, tree, after)
    if not findings.found:
        findings.found += dear(spec, tree, before, after, made)
        findings.found += _waiting(spec, tree, after, findings)
    return findings


# At rest


def _settled(spec: WorldSpec, tree: Declared, cluster: TinyCluster) -> Iterator[Disagreement]:
    """Carry decisions out until the cluster is at rest; yields what went wrong on the way."""
    cluster.losses.clear()
    for _ in range(12):
        made, state, now_ms = cluster.decide(tree), cluster.state(), cluster.now_ms
        view = View(tree, state, now_ms)
        found = _share_first(spec, view, made) or _starts_small(spec, view, made)
        if found is not None:
            yield found
            return
        yield from illegal(spec, tree, cluster, made)
        if not cluster.carry_out(tree, made):
            break
    else:
        yield Disagreement(Kind.UNREST, "", spec, spec.wanted, "still changing after 12 cycles")
        return
    for job, tells in cluster.in_vain():
        yield Disagreement(Kind.IN_VAIN, "", spec, str(job), tells)
        return
    stops = Counter(loss.job for loss in cluster.losses if loss.kind != "shrink")
    for job, count in stops.items():
        if count > 1:
            told = ", ".join(f"{loss.kind} for {loss.beneficiary}" for loss in cluster.losses if loss.job == job)
            yield Disagreement(Kind.TWICE, "", spec, str(job), told)
            return


def _waiting(spec: WorldSpec, tree: Declared, cluster: TinyCluster, findings: Findings) -> Iterator[Disagreement]:
    """The jobs that wait in a cluster at rest and have a legal way; those within their share first."""
    view = View(tree, cluster.state(), cluster.decided_ms)
    reasons = {decision.job: decision.reason.code for decision in cluster.decide(tree).decisions}
    found = []
    for job in view.waiting:
        findings.asked += 1
        way = _way(view, job)
        if way is not None and not (reasons[job.id] == UNDONE and _is_undone(tree, cluster, way)):
            found.append((
                not within_share(way.claim),
                job.id,
                Disagreement(Kind.WAITS, need_of(way), spec, str(job.id), way.tells()),
            ))
    yield from (each for _, _, each in sorted(found, key=lambda f: f[:2])[:1])
    if not found:
        yield from _small(spec, view)


def _small(spec: WorldSpec, view: View) -> Iterator[Disagreement]:
    """The first elastic run that the rules would allow one more worker."""
    for held in view.held:
        way = simplest(growth(view, held))
        if way is not None:
            yield Disagreement(Kind.STAYS_SMALL, "", spec, str(held.job.id), way.tells())
            return


def _way(view: View, job: Job) -> Way | None:
    """The simplest legal way of a job."""
    return simplest(ways(view, job)) if view.most_workers(job) else None


def _is_undone(tree: Declared, before: TinyCluster, way: Way) -> bool:
    """Whether a job would lose its place again by the engine's decisions after its way was carried out."""
    if way.seats is None:
        return False
    after = carried_out(before, way, way.seats)
    after.settle(tree)
    run = after.runs.get(way.claim.job.id)
    return run is None or run.phase not in ACTIVE


def _share_first(spec: WorldSpec, view: View, made: Schedule) -> Disagreement | None:
    """DESIGN 4.3: a job above its project's share starts only if no job within its share could use the GPUs."""
    jobs = {job.id: job for job in view.tree.jobs}
    new = [(jobs[d.job], d.placement) for d in made.decisions if isinstance(d, Admit)]
    reserved = [(jobs[d.job], d.reserved) for d in made.decisions if isinstance(d, Pending) and place_of(d) is not None]
    placed = new + [(job, place) for job, place in reserved if place is not None]
    made_for = {job.id for job, _ in new if view.runs[job.id].placement is not None}  # They start where room was made.
    for above, workers in _above(view, [(job, place) for job, place in new if job.id not in made_for], made):
        beside = _beside(view, [(job, place) for job, place in placed if job.id != above.id])
        for job in view.waiting:
            claim = Claim(beside, job, job.gpu_milli * job.min_workers)
            if any(job.id == each.id for each, _ in placed) or not view.most_workers(job):
                continue
            if within_share(claim) and within_ceilings(claim) and seats(beside, job, job.min_workers, (), ()):
                tells = f"{above.id} ({workers}w) starts above its share, {job.id} waits within its own"
                return Disagreement(Kind.SHARE_FIRST, "", spec, str(job.id), tells)
    return None


def _starts_small(spec: WorldSpec, view: View, made: Schedule) -> Disagreement | None:
    """An elastic job starts with as many workers as have a place, beside everything placed in the same cycle.

    Of a list of pools the first with room is taken, even if another has room for more workers.
    """
    if any(isinstance(d, Resize | Displace) for d in made.decisions):
        return None  # The view does not have what they hold.
    if any(len(held.workers) < held.job.workers for held in view.held):
        return None  # Idle GPUs may be kept for a run that scales up once others have started.
    jobs = {job.id: job for job in view.tree.jobs}
    new = {d.job: d.placement for d in made.decisions if isinstance(d, Admit)}
    makes_way = Preempt | Reclaim | Move
    kept = {d.job: d.reserved for d in made.decisions if isinstance(d, Pending | makes_way) and d.reserved}
    for job in (jobs[name] for name in new):
        workers = len(new[job.id].workers) + 1
        beside = _beside(view, [(jobs[name], place) for name, place in (new | kept).items() if name != job.id])
        claim = Claim(beside, job, job.gpu_milli * workers)
        pool = view.pool_of[new[job.id].workers[0].node]
        able = replace(job, pools=(pool,)) if job.pools_in_order else job
        if workers <= job.workers and within_ceilings(claim) and seats(beside, able, workers, (), ()):
            return Disagreement(Kind.STARTS_SMALL, "", spec, str(job.id), f"{workers - 1}w of {job.workers}w")
    return None


def _above(view: View, new: list[tuple[Job, Placement]], made: Schedule) -> Iterator[tuple[Job, int]]:
    """The jobs that start above their projects' shares once the leaving runs have left, beside earlier ones within."""
    losses = tuple(loss for loss, _ in losses_of(view, made))
    within: list[tuple[Job, Placement]] = []
    for job, place in sorted(new, key=lambda each: rank(each[0], view.runs[each[0].id])):
        if within_share(Claim(_beside(view, within), job, job.gpu_milli * len(place.workers), losses)):
            within.append((job, place))
        else:
            yield job, len(place.workers)


def _beside(view: View, others: list[tuple[Job, Placement]]) -> View:
    """The view with other jobs in their new places."""
    beside = View.__new__(View)
    beside.__dict__ = view.__dict__ | {"held": list(view.held), "holds": view.holds.copy(), "fixed": view.fixed.copy()}
    for job, place in others:
        run = Run(job=job.id, digest=job.digest, phase=RunPhase.RUNNING, placement=place, gpu_milli=job.gpu_milli)
        workers = _workers(place)
        pool = view.pool_of[workers[0][0]]
        held = Held(job, run, view.domain_of[pool], pool, workers)
        beside.held.append(held)
        for owner in view.chains[job.id.project]:
            beside.holds[held.domain, owner] += held.milli
            beside.fixed[held.domain, owner] += 0 if job.preemptible else held.milli
    return beside


def _workers(placement: Placement) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple((str(w.node), w.gpus) for w in placement.workers)


# The job that is added


def _asked(
    spec: WorldSpec, tree: Declared, before: TinyCluster, made: Schedule, findings: Findings
) -> Iterator[Disagreement]:
    """Whether room is made for the job exactly if it has a legal way, and by a legal set."""
    job = next(job for job in tree.jobs if str(job.id) == spec.wanted)
    decisions = {d.job: d for d in made.decisions}
    placement = place_of(decisions[job.id])
    findings.asked += 1
    findings.served += placement is not None
    way = _way(View(tree, before.state(), before.now_ms), job)
    findings.with_a_way += way is not None
    if placement is None:
        is_undone = decisions[job.id].reason.code == UNDONE and way is not None and _is_undone(tree, before, way)
        if way is not None and not others_placed(made, job.id) and not is_undone:
            yield Disagreement(Kind.MISSED, need_of(way), spec, str(job.id), way.tells())
        return


def illegal(spec: WorldSpec, tree: Declared, before: TinyCluster, made: Schedule) -> Iterator[Disagreement]:
    """Whether the only job that gets a place gets it by a legal set; not judged if several jobs get places."""
    if any(run.phase is RunPhase.STOPPING for run in before.runs.values()):
        return
    if any(isinstance(d, Displace) for d in made.decisions):  # Their GPUs are neither held nor requested now.
        return
    there = {node.name for node in before.nodes if node.ready}
    moves = (before.runs[d.job].placement for d in made.decisions if isinstance(d, Move))
    if not all(place is None or place.nodes <= there for place in moves):
        return  # A run that has lost workers with a node moves with the others.
    if any(isinstance(d, Reclaim | Preempt) and d.reserved is not None for d in made.decisions):
        return  # A run that goes on elsewhere at once is as good as moved, and its project holds as much as before.
    if any(isinstance(d, Resize) and len(d.placement.workers) > workers_of(before.runs[d.job]) for d in made.decisions):
        return  # An elastic run also takes GPUs that were idle.
    stopped = {d.job for d in made.decisions if isinstance(d, Reclaim | Preempt | Move)}
    placed = {d.job: place for d in made.decisions if (place := place_of(d)) is not None and d.job not in stopped}
    if len(placed) != 1:
        return
    (name, placement), *_ = placed.items()
    run = before.runs.get(name)
    if run is None or run.phase is not RunPhase.QUEUED or run.placement is not None:
        return
    job = next(job for job in tree.jobs if job.id == name)
    view = View(tree, _without_lost(before.state(), made), before.now_ms)
    taken = taken_for(view, job, placement, made)
    unused = Way(Claim(view, job, taken.claim.milli), taken.workers, (), frozenset())
    removed = [run for run in before.runs.values() if run.job not in view.declared and run.phase in ACTIVE]
    # A moved run that lacks workers also takes idle GPUs once it goes on: GPUs the job does not get may be for these.
    lack = any(len(held.workers) < held.job.workers for held in taken.moved)
    if not taken.is_idle and not lack and unused.seats is not None and within_ceilings(unused.claim):
        need = "of a removed job" if removed else "idle"
        yield Disagreement(Kind.COMING, need, spec, str(name), taken.tells())
        return
    if removed:
        return  # DESIGN does not say whether their GPUs still count as held.
    wrong = _is_wrong(view, job, placement, made)
    if wrong:
        yield Disagreement(Kind.ILLEGAL, wrong, spec, str(name), taken.tells())


def _without_lost(state: ClusterState, made: Schedule) -> ClusterState:
    """The state without workers that were lost with a node."""
    lost = {d.job: d for d in made.decisions if isinstance(d, Resize) and d.beneficiary is None}
    runs = (
        replace(run, placement=lost[run.job].placement)
        if run.job in lost and len(lost[run.job].placement.workers) < workers_of(run)
        else run
        for run in state.runs
    )
    return replace(state, runs=tuple(runs))


def _is_wrong(view: View, job: Job, placement: Placement, made: Schedule) -> str:
    """The rule that the engine's set breaks; "" if none."""
    way = taken_for(view, job, placement, made)
    after_all = replace(way.claim, losses=tuple(loss for loss, _ in losses_of(view, made)))
    if not within_ceilings(after_all):
        return "beyond a limit" if not within_limits(after_all) else f"beyond {broken_quota(after_all)}"
    if not all(
        may_stop(held, view) for held in (*(loss.held for loss in way.losses if not loss.is_surplus), *way.moved)
    ):
        return "work that may not stop"
    if rights(way.claim) is None:
        return "no right"
    return "moves" if way.moved and not may_move_others(way.claim, way.moved) else ""
