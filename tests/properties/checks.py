"""What must hold of any schedule, counted here anew from declarations, runs and decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from gpuctl.model.decision import (
    Admit,
    Decision,
    Displace,
    Finished,
    Keep,
    Move,
    Pending,
    Placement,
    Preempt,
    Reclaim,
    Resize,
    Schedule,
    Suspended,
    TimeOut,
    WorkerPlacement,
)
from gpuctl.model.declared import Declared, NodePool, Sharing
from gpuctl.model.ids import DomainName, JobId, NodeName, ProjectName
from gpuctl.model.job import Job, JobType
from gpuctl.model.state import ClusterState, Node, Run, RunPhase

ACTIVE = (RunPhase.STARTING, RunPhase.RUNNING)
BY_FAIRNESS = "GPU5031"
Room = tuple[list[int], int, int]
"""Free milli of each device, CPU and memory of a node."""


def pool_of(tree: Declared, node: Node) -> NodePool | None:
    """The first pool whose labels the node has."""
    for pool in tree.cluster.pools:
        if pool.match_labels.items() <= node.labels.items():
            return pool
    return None


def empty_rooms(tree: Declared, nodes: Iterable[Node]) -> dict[NodeName, Room]:
    """Usable nodes with nothing of gpuctl's on them."""
    rooms: dict[NodeName, Room] = {}
    for node in nodes:
        if node.ready and node.usable and pool_of(tree, node):
            foreign = (*node.foreign_gpu_milli, *([0] * node.gpus))
            free = [0 if i in node.lost_gpus else max(0, 1000 - foreign[i]) for i in range(node.gpus)]
            rooms[node.name] = (free, node.cpu_milli, node.mem_bytes)
    return rooms


def occupy(rooms: dict[NodeName, Room], placement: Placement | None, gpu: int, cpu: int, mem: int) -> None:
    """Take a placement off the rooms it is in."""
    for worker in placement.workers if placement else ():
        if worker.node in rooms:
            free, cpu_free, mem_free = rooms[worker.node]
            for index in worker.gpus:
                if 0 <= index < len(free):
                    free[index] -= -(-gpu // len(worker.gpus))
            rooms[worker.node] = (free, cpu_free - cpu, mem_free - mem)


def by_job(made: Schedule) -> dict[JobId, Decision]:
    """Decisions by job."""
    return {decision.job: decision for decision in made.decisions}


def is_guarded(decision: Decision) -> bool:
    """A place is kept for it, by the starvation guard, that others are in."""
    return isinstance(decision, Pending) and decision.reason.code == "GPU5080"


def place_of(decision: Decision) -> Placement | None:
    """The place a decision takes or holds. One that is only kept as it empties is neither."""
    if is_guarded(decision):
        return None
    match decision:
        case Admit(placement=placement) | Keep(placement=placement) | Resize(placement=placement):
            return placement
        case Pending() | Move() | Reclaim() | Preempt():
            return decision.reserved
        case Displace() | Suspended() | TimeOut() | Finished():
            return None


def domain_of(tree: Declared, nodes: Mapping[NodeName, Node], placement: Placement) -> DomainName | None:
    """The quota domain a placement is in."""
    for worker in placement.workers:
        node = nodes.get(worker.node)
        pool = pool_of(tree, node) if node else None
        if pool:
            return next((d.name for d in tree.domains if pool.name in d.pools), None)
    return None


def check_form(tree: Declared, made: Schedule) -> None:
    """One decision a job, in order; gangs whole; each worker on as many devices as it asks for."""
    assert [d.job for d in made.decisions] == sorted(job.id for job in tree.jobs)
    jobs = {job.id: job for job in tree.jobs}
    for decision in made.decisions:
        placement = place_of(decision)
        if isinstance(decision, Admit | Pending | Reclaim | Preempt) and placement is not None:
            job = jobs[decision.job]
            assert job.min_workers <= len(placement.workers) <= job.workers
            devices = job.gpu_milli // 1000 if job.gpu_milli % 1000 == 0 else 1
            assert all(len(set(w.gpus)) == len(w.gpus) == devices for w in placement.workers)


def check_room(tree: Declared, state: ClusterState, made: Schedule) -> None:
    """What starts fits beside all that is there now; what is reserved fits beside all that stays.

    A moved run has its new place reserved: others leave it at the same time, and it starts there once they have left.
    """
    decisions = by_job(made)
    jobs = {(job.id, job.digest): job for job in tree.jobs}
    now, soon = empty_rooms(tree, state.nodes), empty_rooms(tree, state.nodes)
    touched: set[NodeName] = set()
    for run in state.runs:
        decision = decisions[run.job] if (run.job, run.digest) in jobs else None
        stays = run.phase in ACTIVE and (
            _is_held_back(run, tree) if decision is None else isinstance(decision, Keep | Resize)
        )
        amounts = run.gpu_milli, run.cpu_milli, run.mem_bytes
        if run.phase in ACTIVE or run.phase is RunPhase.STOPPING:
            occupy(now, run.placement, *amounts)
            occupy(now, run.leaving, *amounts)
        if stays:
            occupy(soon, decision.placement if isinstance(decision, Resize) else run.placement, *amounts)
        if isinstance(decision, Resize) and run.placement is not None:
            then, before = decision.placement.workers, run.placement.workers
            grown = then[len(before) :]
            if jobs[run.job, run.digest].type is JobType.INFERENCE and not grown:  # it goes on with any replicas
                assert all(worker in before for worker in then)
            else:
                assert then[: len(before)] == before[: len(then)]
            occupy(now, Placement(workers=grown), *amounts)
            for name in {worker.node for worker in grown}:
                assert min(now[name][0]) >= 0
                assert min(now[name][1:]) >= 0
    for job in tree.jobs:
        decision = decisions[job.id]
        placement = place_of(decision)
        if not isinstance(decision, Admit | Pending | Move | Reclaim | Preempt) or placement is None:
            continue
        touched |= {w.node for w in placement.workers}
        assert {w.node for w in placement.workers} <= now.keys(), "only usable nodes"
        occupy(soon, placement, job.gpu_milli, job.cpu_milli, job.mem_bytes)
        if isinstance(decision, Admit):
            occupy(now, placement, job.gpu_milli, job.cpu_milli, job.mem_bytes)
    started = {w.node for d in made.decisions if isinstance(d, Admit) for w in _new_workers(d)}
    for rooms, nodes in ((now, started), (soon, touched)):
        for name in nodes:
            free, cpu, mem = rooms[name]
            used = {i for d in made.decisions for w in _new_workers(d) if w.node == name for i in w.gpus}
            assert all(free[i] >= 0 for i in used), f"{name} has a device given out twice"
            needs = [j for j in tree.jobs if name in {w.node for w in _new_workers(decisions[j.id])}]
            assert cpu >= 0 or not any(j.cpu_milli for j in needs)
            assert mem >= 0 or not any(j.mem_bytes for j in needs)


def _is_held_back(run: Run, tree: Declared) -> bool:
    """Whether a run that is not declared any more stays: its removal is held back, or has guards of its own."""
    is_declared = any(project.name == run.job.project for project in tree.projects)
    return not is_declared or run.job.project in tree.pinned or run.job in tree.blocked


def _new_workers(decision: Decision) -> tuple[WorkerPlacement, ...]:
    placement = None if isinstance(decision, Keep | Resize) else place_of(decision)
    return placement.workers if placement else ()


def check_ceilings(tree: Declared, state: ClusterState, made: Schedule) -> None:
    """Limits, and quota for what can't be paused, hold wherever something is started or reserved."""
    nodes = {node.name: node for node in state.nodes}
    jobs = {job.id: job for job in tree.jobs}
    held: Counter[tuple[DomainName, ProjectName]] = Counter()
    fixed: Counter[tuple[DomainName, ProjectName]] = Counter()
    added: set[tuple[DomainName, ProjectName]] = set()
    fixed_added: set[tuple[DomainName, ProjectName]] = set()
    for decision in made.decisions:
        placement = place_of(decision)
        if placement is None:
            continue
        job, domain = jobs[decision.job], domain_of(tree, nodes, placement)
        if domain is None:
            continue
        key = (domain, job.id.project)
        total = job.gpu_milli * len(placement.workers)
        held[key] += total
        fixed[key] += 0 if job.preemptible else total
        shrinks = isinstance(decision, Resize) and decision.beneficiary is not None
        if not isinstance(decision, Keep) and not shrinks and job.gpu_milli:
            added.add(key)
            if not job.preemptible:
                fixed_added.add(key)
    for domain, name in added:
        limit = tree.project(name).allowances[domain].limit_milli
        assert limit is None or held[domain, name] <= limit
    for domain, name in fixed_added:
        assert fixed[domain, name] <= tree.project(name).allowances[domain].quota_milli


def check_victims(tree: Declared, state: ClusterState, made: Schedule) -> None:
    """Every victim may be one, and its beneficiary gets a place."""
    decisions = by_job(made)
    jobs = {job.id: job for job in tree.jobs}
    runs = {run.job: run for run in state.runs if run.job in jobs and run.digest == jobs[run.job].digest}
    nodes = {node.name: node for node in state.nodes}
    shares = {(row.domain, row.project): row for row in made.shares}
    lost: dict[tuple[DomainName, ProjectName], list[int]] = {}
    for decision in made.decisions:
        if isinstance(decision, Resize) and decision.beneficiary is not None:
            assert len(decision.placement.workers) >= jobs[decision.job].min_workers
            assert place_of(decisions[decision.beneficiary]) is not None
        if not isinstance(decision, Reclaim | Preempt | Move):
            continue
        victim, gainer = jobs[decision.job], jobs[decision.beneficiary]
        run = runs[victim.id]
        assert victim.preemptible
        assert run.phase in ACTIVE
        assert made.at_ms - (run.started_at_ms or made.at_ms) >= _min_runtime_ms(tree, run, decision)
        assert place_of(decisions[gainer.id]) is not None
        if not isinstance(decisions[gainer.id], Admit | Pending | Reclaim | Preempt):
            assert runs[gainer.id].phase is RunPhase.RUNNING, "an elastic run that lacks workers"
            assert isinstance(decisions[gainer.id], Keep)
            assert isinstance(decision, Reclaim | Preempt)
            assert gainer.min_workers <= workers_of(runs[gainer.id]) < gainer.workers
        if isinstance(decision, Move):
            assert tree.cluster.scheduling.consolidation
            assert run.paused_for != gainer.id
        elif isinstance(decision, Preempt):
            assert victim.id.project == gainer.id.project
            assert _ranks_above(gainer, victim)
        else:
            assert victim.id.project != gainer.id.project
            domain = domain_of(tree, nodes, run.placement) if run.placement else None
            assert domain is not None
            held = run.gpu_milli * len(run.placement.workers if run.placement else ())
            lost.setdefault((domain, victim.id.project), []).append(held)
    for key, milli in lost.items():
        row = shares[key]
        before = _held_before(tree, state, key) + _started(tree, state, made, key)
        assert before - sum(milli) + max(milli) > min(row.quota_milli, row.share_milli)


def _min_runtime_ms(tree: Declared, run: Run, decision: Reclaim | Preempt | Move) -> int:
    least = tree.cluster.scheduling.min_runtime.after(run.starts)
    if isinstance(decision, Preempt):
        return least.least_ms
    if isinstance(decision, Move):
        return min(least.guarantee_ms, least.moves_ms)
    return least.fairness_ms if decision.reason.code == BY_FAIRNESS else least.guarantee_ms


def _ranks_above(gainer: Job, victim: Job) -> bool:
    people_first = victim.type.value == "training" and gainer.type.value != "training"
    return victim.priority < gainer.priority or people_first


def _started(tree: Declared, state: ClusterState, made: Schedule, key: tuple[DomainName, ProjectName]) -> int:
    nodes = {node.name: node for node in state.nodes}
    jobs = {job.id: job for job in tree.jobs}
    return sum(
        jobs[d.job].gpu_milli * len(d.placement.workers)
        for d in made.decisions
        if isinstance(d, Admit) and (domain_of(tree, nodes, d.placement), d.job.project) == key
    )


def _held_before(tree: Declared, state: ClusterState, key: tuple[DomainName, ProjectName]) -> int:
    nodes = {node.name: node for node in state.nodes}
    return sum(
        run.gpu_milli * len(run.placement.workers)
        for run in state.runs
        if run.phase in ACTIVE and run.placement and (domain_of(tree, nodes, run.placement), run.job.project) == key
    )


def workers_of(run: Run) -> int:
    """How many workers have a place."""
    return len(run.placement.workers) if run.placement else 0


def check_run_once(tree: Declared, state: ClusterState, made: Schedule) -> None:
    """What has ended, was removed or is suspended is not started; what is stopping isn't yet."""
    runs = {(run.job, run.digest): run for run in state.runs}
    decisions = by_job(made)
    for job in tree.jobs:
        ledger = state.ledgers.get(job.id.project)
        key = (job.id, job.digest)
        run = runs.get(key)
        gone = ledger is not None and (key in ledger.finished or (key in ledger.seen and run is None))
        if gone or job.suspend or (run is not None and run.phase is not RunPhase.QUEUED):
            assert not isinstance(decisions[job.id], Admit)


def check_schedule(tree: Declared, state: ClusterState, made: Schedule) -> None:
    """All of SAFETY."""
    check_form(tree, made)
    check_room(tree, state, made)
    check_ceilings(tree, state, made)
    check_victims(tree, state, made)
    check_run_once(tree, state, made)


def _department_has_room(
    tree: Declared, domain: DomainName, job: Job, fixed: Mapping[tuple[DomainName | None, ProjectName], int]
) -> bool:
    """Whether the quota of the project's department, if there is one, has room for a job that can't be paused."""
    name = tree.project(job.id.project).department
    allowances = next((each.allowances for each in tree.departments if each.name == name), {})
    if domain not in allowances:
        return True
    used = sum(fixed.get((domain, each.name), 0) for each in tree.projects if each.department == name)
    return used + job.total_gpu_milli <= allowances[domain].quota_milli


def could_start(tree: Declared, state: ClusterState, job: Job) -> bool:
    """The job, with its fewest workers, fits what is free and breaks no ceiling: GPUs would be wasted on its wait.

    Where quotas exceed what there is, work that can't be paused may have to wait beside other such work: how much of it
    is allowed depends on what all projects ask for, and is left to `tests/oracle`.
    """
    job = replace(job, workers=job.min_workers)
    rooms = empty_rooms(tree, state.nodes)
    there = {name: 1000 * len(free) for name, (free, _, _) in rooms.items()}
    names = {node.name: pool_of(tree, node) for node in state.nodes}
    held: Counter[tuple[DomainName | None, ProjectName]] = Counter()
    fixed: Counter[tuple[DomainName | None, ProjectName]] = Counter()
    live = {node.name: node for node in state.nodes}
    preemptible = {each.id: each.preemptible for each in tree.jobs}
    for run in state.runs:
        if run.phase in (*ACTIVE, RunPhase.STOPPING) and run.placement:
            occupy(rooms, run.placement, run.gpu_milli, run.cpu_milli, run.mem_bytes)
            key = (domain_of(tree, live, run.placement), run.job.project)
            held[key] += run.gpu_milli * len(run.placement.workers)
            fixed[key] += 0 if preemptible.get(run.job, True) else run.gpu_milli * len(run.placement.workers)
    for name in job.pools:
        pool = tree.cluster.pool(name)
        domain = next(d.name for d in tree.domains if name in d.pools)
        allowance = tree.project(job.id.project).allowances[domain]
        key = (domain, job.id.project)
        limit = allowance.limit_milli
        if limit is not None and job.gpu_milli and held[key] + job.total_gpu_milli > limit:
            continue
        if not job.preemptible and job.gpu_milli and fixed[key] + job.total_gpu_milli > allowance.quota_milli:
            continue
        if not job.preemptible and job.gpu_milli and not _department_has_room(tree, domain, job, fixed):
            continue
        quotas = sum(p.allowances[domain].quota_milli for p in tree.projects if domain in p.allowances)
        pools = {p for d in tree.domains if d.name == domain for p in d.pools}
        is_scaled = quotas > sum(there[n] for n in rooms if (p := names[n]) is not None and p.name in pools)
        others = any(milli for (of_domain, _), milli in fixed.items() if of_domain == domain)
        if not job.preemptible and job.gpu_milli and is_scaled and others:
            continue
        if job.gpu_milli % 1000 and pool.sharing is Sharing.DEVICE_PLUGIN:
            continue
        if sum(_workers_in(rooms[n], job) for n in rooms if names[n] is pool) >= job.workers:
            return True
    return False


def _workers_in(room: Room, job: Job) -> int:
    free, cpu, mem = room
    counts = [job.workers]
    if job.cpu_milli:
        counts.append(cpu // job.cpu_milli)
    if job.mem_bytes:
        counts.append(mem // job.mem_bytes)
    if job.gpu_milli % 1000:
        counts.append(sum(milli // job.gpu_milli for milli in free if milli > 0))
    elif job.gpu_milli:
        counts.append(sum(milli >= 1000 for milli in free) // (job.gpu_milli // 1000))
    return max(0, min(counts))
