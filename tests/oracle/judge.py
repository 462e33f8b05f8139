"""The statement: a job that is added is made room for in that cycle if and only if it has a legal way, and as cheaply
as can be; and when the cluster rests no waiting job has a legal way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain

from gpuctl.model.decision import (
    Admit,
    Decision,
    Displace,
    Move,
    Pending,
    Placement,
    Preempt,
    Reclaim,
    Resize,
    Schedule,
    WorkerPlacement,
)
from gpuctl.model.declared import Declared
from gpuctl.model.ids import JobId, NodeName
from gpuctl.model.job import Job
from gpuctl.model.state import ACTIVE, ClusterState, Run, RunPhase

from .cluster import Loss as Lost
from .cluster import TinyCluster, start, workers_of
from .enumeration import Price, Seats, Way, cheapest, growth, seats, ways
from .families import Disagreement, Kind, Need, need_of, simplest
from .rules import (
    Claim,
    Loss,
    Right,
    broken_quota,
    may_move_others,
    may_stop,
    rights,
    within_ceilings,
    within_limits,
    within_share,
)
from .view import Held, View
from .worlds import WorldSpec, declared

HEAD_RESERVATION = "GPU5080"
"""A place that is kept as it empties, for the job that has waited longest: no room was made yet."""


@dataclass(slots=True)
class Findings:
    """What came of some worlds."""

    worlds: int = 0
    asked: int = 0
    with_a_way: int = 0
    served: int = 0
    found: list[Disagreement] = field(default_factory=list)

    def add(self, other: Findings) -> None:
        """Count another's too."""
        self.worlds += other.worlds
        self.asked += other.asked
        self.with_a_way += other.with_a_way
        self.served += other.served
        self.found += other.found


def examine(spec: WorldSpec) -> Findings:
    """Let the world rest without the wanted job, add that job, and compare what is decided with the oracle."""
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
        findings.found += _dear(spec, tree, before, after, made)
        findings.found += _waiting(spec, tree, after, findings)
    return findings


# At rest


def _settled(spec: WorldSpec, tree: Declared, cluster: TinyCluster) -> Iterator[Disagreement]:
    """Carry decisions out until the cluster rests, and say what went wrong on the way."""
    cluster.losses.clear()
    for _ in range(12):
        made, state, now_ms = cluster.decide(tree), cluster.state(), cluster.now_ms
        found = _share_first(spec, View(tree, state, now_ms), made)
        if found is not None:
            yield found
            return
        yield from illegal(spec, tree, cluster, made)
        if not cluster.carry_out(tree, made):
            break
    else:
        yield Disagreement(Kind.UNREST, "", spec, spec.wanted, "still changing after 12 cycles")
        return
    running = {job for job, run in cluster.runs.items() if run.phase in ACTIVE}
    for loss in cluster.losses:
        if loss.beneficiary is not None and loss.beneficiary not in running:
            tells = f"{loss.job} ({loss.kind}) for {loss.beneficiary}, which does not run"
            yield Disagreement(Kind.IN_VAIN, "", spec, str(loss.beneficiary), tells)
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
    found = []
    for job in view.waiting:
        findings.asked += 1
        way = _way(view, job)
        if way is not None:
            found.append((
                not within_share(way.claim),
                job.id,
                Disagreement(Kind.WAITS, need_of(way), spec, str(job.id), way.tells()),
            ))
    yield from (each for _, _, each in sorted(found, key=lambda f: f[:2])[:1])
    if not found:
        yield from _small(spec, view)


def _small(spec: WorldSpec, view: View) -> Iterator[Disagreement]:
    """The first elastic run that could have one worker more by the rules."""
    for held in view.held:
        way = simplest(growth(view, held))
        if way is not None:
            yield Disagreement(Kind.STAYS_SMALL, "", spec, str(held.job.id), way.tells())
            return


def _way(view: View, job: Job) -> Way | None:
    """The simplest legal way of a job."""
    return simplest(ways(view, job)) if view.most_workers(job) else None


def _share_first(spec: WorldSpec, view: View, made: Schedule) -> Disagreement | None:
    """DESIGN 4.3: a job above its project's share starts only when no job within share could use the GPUs."""
    starts = {d.job: d for d in made.decisions if isinstance(d, Admit)}
    placed = {d.job for d in made.decisions if place_of(d) is not None}
    jobs = {job.id: job for job in view.tree.jobs}
    new = [(jobs[d.job], len(d.placement.workers), d.placement) for d in starts.values()]
    seated = [(j, p) for j, _, p in new]
    reserved = [(jobs[d.job], d.reserved) for d in made.decisions if isinstance(d, Pending) and place_of(d) is not None]
    for above, workers, _ in new:
        if view.runs[above.id].placement is not None:
            continue  # It starts in the place that was made for it.
        domain = view.domain_for(above)
        mates = [(j, n) for j, n, _ in new if j.id.project == above.id.project and view.domain_for(j) == domain]
        with_mates = sum(j.gpu_milli * n for j, n in mates)
        if within_share(Claim(view, above, with_mates)):
            continue
        others = [(j, p) for j, p in seated if j.id != above.id] + [(j, p) for j, p in reserved if p is not None]
        for job in view.waiting:
            mates = [
                (j, len(p.workers))
                for j, p in others
                if j.id.project == job.id.project and view.domain_for(j) == view.domain_for(job)
            ]
            claim = Claim(view, job, sum(j.gpu_milli * n for j, n in [*mates, (job, job.min_workers)]))
            if job.id in placed or not view.most_workers(job) or not within_share(claim) or not within_ceilings(claim):
                continue
            if _fits_beside(view, job, others):
                tells = f"{above.id} ({workers}w) starts above its share, {job.id} waits within its own"
                return Disagreement(Kind.SHARE_FIRST, "", spec, str(job.id), tells)
    return None


def _fits_beside(view: View, job: Job, others: list[tuple[Job, Placement]]) -> bool:
    """Whether a job has a place in what is free beside others that are about to start."""
    runs = tuple(
        Run(job=j.id, digest=j.digest, phase=RunPhase.RUNNING, placement=p, gpu_milli=j.gpu_milli) for j, p in others
    )
    extra = [
        Held(j, r, view.domain_for(j), view.pool_of[p.workers[0].node], _workers(p))
        for (j, p), r in zip(others, runs, strict=True)
    ]
    beside = View.__new__(View)
    beside.__dict__ = view.__dict__ | {"held": view.held + extra}
    return seats(beside, job, job.min_workers, (), ()) is not None


def _workers(placement: Placement) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple((str(w.node), w.gpus) for w in placement.workers)


# The job that is added


def place_of(decision: Decision) -> Placement | None:
    """Where a job starts, or the place that is kept for it while others leave."""
    if isinstance(decision, Admit):
        return decision.placement
    is_kept = isinstance(decision, Pending) and decision.reason.code != HEAD_RESERVATION
    return decision.reserved if isinstance(decision, Pending) and is_kept else None


def _asked(
    spec: WorldSpec, tree: Declared, before: TinyCluster, made: Schedule, findings: Findings
) -> Iterator[Disagreement]:
    """Whether the job is made room for exactly when it has a legal way, and by a legal set."""
    job = next(job for job in tree.jobs if str(job.id) == spec.wanted)
    decisions = {d.job: d for d in made.decisions}
    placement = place_of(decisions[job.id])
    stopped = {d.job for d in made.decisions if isinstance(d, Reclaim | Preempt | Move)}
    others = [d.job for d in made.decisions if place_of(d) is not None and d.job not in stopped and d.job != job.id]
    findings.asked += 1
    findings.served += placement is not None
    way = _way(View(tree, before.state(), before.now_ms), job)
    findings.with_a_way += way is not None
    if placement is None:
        if way is not None and not others:
            yield Disagreement(Kind.MISSED, need_of(way), spec, str(job.id), way.tells())
        return


def illegal(spec: WorldSpec, tree: Declared, before: TinyCluster, made: Schedule) -> Iterator[Disagreement]:
    """Whether the one job that is given a place is given it by a legal set; not judged where there are several."""
    if any(run.phase is RunPhase.STOPPING for run in before.runs.values()):
        return
    if any(isinstance(d, Displace) for d in made.decisions):  # What they hold is neither held nor asked for by now.
        return
    if any(isinstance(d, Reclaim | Preempt) and d.reserved is not None for d in made.decisions):
        return  # What goes on elsewhere at once is as good as moved, and its project holds as much as before.
    if any(isinstance(d, Resize) and len(d.placement.workers) > workers_of(before.runs[d.job]) for d in made.decisions):
        return  # An elastic run takes GPUs too that were idle.
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
    taken = _taken(view, job, placement, made)
    unused = Way(Claim(view, job, taken.claim.milli), taken.workers, (), frozenset())
    removed = [run for run in before.runs.values() if run.job not in view.declared and run.phase in ACTIVE]
    if not taken.is_idle and unused.seats is not None and within_ceilings(unused.claim):
        need = "of a removed job" if removed else "idle"
        yield Disagreement(Kind.COMING, need, spec, str(name), taken.tells())
        return
    if removed:
        return  # DESIGN does not say whether they are held still.
    wrong = _is_wrong(view, job, placement, made)
    if wrong:
        yield Disagreement(Kind.ILLEGAL, wrong, spec, str(name), taken.tells())


def _taken(view: View, job: Job, placement: Placement, made: Schedule) -> Way:
    """The set that the engine takes for a job, as a way; its rights are not judged."""
    losses = tuple(loss for loss, beneficiary in _losses(view, made) if beneficiary == job.id)
    movers = {d.job for d in made.decisions if isinstance(d, Move) and d.beneficiary == job.id}
    moved = tuple(held for held in view.held if held.job.id in movers)
    claim = Claim(view, job, job.gpu_milli * len(placement.workers), losses)
    return Way(claim, len(placement.workers), moved, frozenset((rights(claim) or {}).values()))


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


def _losses(view: View, made: Schedule) -> Iterator[tuple[Loss, JobId | None]]:
    """What runs lose in a cycle, and for which job."""
    held = {each.job.id: each for each in view.held}
    for decision in made.decisions:
        if isinstance(decision, Reclaim | Preempt | Resize):
            each = held[decision.job]
            left = len(decision.placement.workers) if isinstance(decision, Resize) else 0
            if left < len(each.workers):
                yield Loss(each, len(each.workers) - left), decision.beneficiary


def _is_wrong(view: View, job: Job, placement: Placement, made: Schedule) -> str:
    """The rule that the engine's set breaks; "" if none."""
    way = _taken(view, job, placement, made)
    after_all = replace(way.claim, losses=tuple(loss for loss, _ in _losses(view, made)))
    if not within_ceilings(after_all):
        return "beyond a limit" if not within_limits(after_all) else f"beyond {broken_quota(after_all)}"
    if not all(
        may_stop(held, view) for held in (*(loss.held for loss in way.losses if not loss.is_surplus), *way.moved)
    ):
        return "work that may not stop"
    if rights(way.claim) is None:
        return "no right"
    return "moves" if way.moved and not may_move_others(way.claim, way.moved) else ""


# The price


def _dear(
    spec: WorldSpec, tree: Declared, before: TinyCluster, after: TinyCluster, made: Schedule
) -> Iterator[Disagreement]:
    """Whether a legal set costs less than what was taken and what followed, and nothing would follow from that set."""
    job = next(job for job in tree.jobs if str(job.id) == spec.wanted)
    placement = place_of({d.job: d for d in made.decisions}[job.id])
    if placement is None:
        return
    view = View(tree, before.state(), before.now_ms)
    taken = _taken(view, job, placement, made)
    paid = _paid(after, job.id, taken)
    if paid <= Price(straddles=False, milli=0, runs=0, moves=0):
        return
    may_move = bool(taken.moved) or paid.straddles
    cheaper = (way for way in sorted(ways(view, job), key=lambda way: way.price) if way.price[:3] < paid[:3])
    alike = (way for way in cheaper if way.workers == taken.workers and (may_move or not way.moved))
    alike = (way for way in alike if way.seats is not None)
    found: dict[str, Way] = {}
    for way in alike:
        need = _why_dear(way, taken, paid, placement)
        if need not in found and _is_closed(tree, before, way):
            found[need] = way
    if found:
        need = min(found, key=lambda need: (need in CHOICES, list(found).index(need)))
        tells = f"{found[need].tells()}, not {taken.tells()}; paid {paid.milli}"
        yield Disagreement(Kind.DEAR, need, spec, str(job.id), tells)


LATER_POOL = "a pool that is listed later"
FOLLOWS = "what follows"
ANOTHER = "another set"
STRADDLED = "a move spares a guarantee"
OWN_INSTEAD = "own work instead of a loan"
CHOICES = (LATER_POOL, OWN_INSTEAD)
"""Cheaper ways that DESIGN may not want: in another pool, or with own work of the beneficiary's
project where others hold more than they are guaranteed."""


def _why_dear(way: Way, taken: Way, paid: Price, placement: Placement) -> str:
    """What the cheaper way needs that the engine did not see."""
    if way.is_idle:
        return Need.IDLE
    pools, view = way.claim.job.pools, way.claim.view
    assert way.seats is not None
    pool, theirs = (view.pool_of[node] for node in (way.seats.workers[0][0], placement.workers[0].node))
    if pools.index(pool) > pools.index(theirs):
        return LATER_POOL
    if way.moved and not taken.moved:
        return STRADDLED
    if taken.price[:3] <= way.price[:3] and taken.price != paid:
        return FOLLOWS
    if Right.OWN in way.rights and Right.OWN not in taken.rights:
        return OWN_INSTEAD
    return Need.MIXED if need_of(way) is Need.MIXED else ANOTHER


def _paid(after: TinyCluster, job: JobId, taken: Way) -> Price:
    """What was lost until the cluster rested, for the job and for those that were paused for it.

    What an elastic job takes once it runs, for more workers than it started with, is no part of that.
    """
    losers: set[JobId | None] = set()
    lost: list[Lost] = []
    for loss in after.losses:
        if loss.beneficiary in losers or (loss.beneficiary == job and loss.cycle == 0):
            losers.add(loss.job)
            lost.append(loss)
    paused = [loss for loss in lost if loss.kind != "move"]
    milli, runs = sum(loss.milli for loss in paused), len({loss.job for loss in paused if loss.kind != "shrink"})
    return Price(taken.price.straddles, milli, runs, len(lost) - len(paused))


def _is_closed(tree: Declared, before: TinyCluster, way: Way) -> bool:
    """Whether nothing else would be paused once the way was gone: no job that waits then, and no elastic run that lacks
    workers, has anything to take. Jobs that have a place on idle GPUs take it first, one after another.
    """
    found = way.seats
    assert found is not None
    after = carried_out(before, way, found)
    while True:
        view = View(tree, after.state(), after.now_ms)
        waiting = sorted(view.waiting, key=lambda job: (-job.priority, job.id))
        of_jobs = (ways(view, job) for job in waiting if view.most_workers(job))
        of_runs = (growth(view, held) for held in view.held)
        best = [each for each in map(cheapest, chain(of_jobs, of_runs)) if each is not None]
        if not all(each.is_idle for each in best):
            return False
        start = next((each for each in best if each.reach is None), None)
        if start is None or start.seats is None:
            return True
        after = carried_out(after, start, start.seats)


def carried_out(before: TinyCluster, way: Way, found: Seats) -> TinyCluster:
    """The cluster once a way was gone: the job runs, its victims wait, moved runs are where they go."""
    after = before.copy()
    job = way.claim.job
    for loss in way.losses:
        run = loss.held.run
        if loss.is_surplus and run.placement is not None:
            kept = run.placement.workers[: workers_of(run) - loss.workers]
            after.runs[run.job] = replace(run, placement=Placement(workers=kept))
        else:
            after.runs[run.job] = replace(
                run,
                phase=RunPhase.QUEUED,
                placement=None,
                queued_at_ms=before.now_ms,
                started_at_ms=None,
                paused_for=job.id,
            )
    for held, workers in ((None, found.workers), *found.moved):
        placement = Placement(workers=tuple(WorkerPlacement(node=NodeName(n), gpus=g) for n, g in workers))
        run = after.runs[job.id] if held is None else held.run
        milli = job.gpu_milli if held is None else run.gpu_milli
        after.runs[run.job] = replace(
            run, phase=RunPhase.RUNNING, placement=placement, gpu_milli=milli, started_at_ms=before.now_ms
        )
    return after
