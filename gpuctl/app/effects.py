"""Computes for `plan` the effect of a change on jobs, and what the guards would refuse. Nothing is written.

It starts from the live objects of a cluster. Without a cluster it starts from the declared nodes, on which the jobs of
base have just been scheduled; there every job counts as having run for `minRuntime`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Protocol

from gpuctl.app.caches import CycleCaches
from gpuctl.app.cycle import CycleReport, foreseen
from gpuctl.app.foresight import foreseen_twice
from gpuctl.app.object_cache import ObjectCache
from gpuctl.app.ports import Cluster
from gpuctl.app.revisions import content_of
from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.diag.wording import all_of
from gpuctl.engine import EngineCache
from gpuctl.explain import at_rest, domains_of, effect_of
from gpuctl.explain.rest import Rest
from gpuctl.explain.stored_rest import restored, stored, with_forecasts
from gpuctl.k8s.kinds import CLAIM, NAMESPACE, OF_DEVICES, RENDERED
from gpuctl.k8s.makers import is_of_people
from gpuctl.k8s.objects import mapping, ref_of, text
from gpuctl.k8s.timestamps import parse_timestamp
from gpuctl.model.declared import Declared, MinRuntime, NodePool
from gpuctl.model.effect import Effect, Ground, Refusals, Stop
from gpuctl.model.ids import NO_REVISION, DomainName, ObjectRef, ProjectName
from gpuctl.model.state import Body, ClusterState, Ledger, Node, RawObjects, Run, RunPhase
from gpuctl.model.units import WHOLE_GPU, GpuMilli, Instant
from gpuctl.observe import observe
from gpuctl.plan import (
    CONFIRM_TRAILER,
    OWN,
    Cut,
    Doing,
    Obstacles,
    confirmation_of,
    cut_digest,
    frozen,
    is_confirmed,
    mass_stop,
    namespaces_left,
    obstacles,
    quota_cut,
    removal,
    removed,
    says_otherwise,
    void_confirmations,
)

Inventory = Callable[[Sequence[NodePool]], Sequence[Body]]
"""Makes the objects of the nodes that pools declare."""

_OF_ALL = frozenset({"GPU6007", "GPU6010", "GPU6013"})
"""Refusals whose confirmation is a digest of everything that a commit declares."""
_UNKNOWN = (
    f"the `{CONFIRM_TRAILER}:` line is made of what the merge declares, which is not known: resolve the conflicts "
    "(where git is older than 2.38, merge base into the branch), and `gpuctl plan` shows it"
)
_AT_MS: Instant = 0
"""The time where there is no cluster: only durations are shown then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """The effect, the state it starts from, and the changes that guards refuse.

    `in_the_way`: objects that can't be created, with the reason: an object of that name that gpuctl did not make, or a
    namespace that is being deleted.
    """

    effect: Effect
    ground: Ground
    refusals: Refusals
    in_the_way: Mapping[ObjectRef, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmed:
    """The confirmations in commits. `of_all`: with the change. `before`: those of base alone."""

    of_all: frozenset[str] = frozenset()
    before: frozenset[str] = frozenset()


NONE_CONFIRMED = Confirmed()


class Entry(Protocol):
    """Keeps the bytes of one value for later processes. It may forget them at any time, and never raises."""

    def get(self) -> bytes | None:
        """The kept bytes, if they are whole and the same version of gpuctl put them there."""
        ...

    def put(self, body: bytes) -> None:
        """Keep these bytes, if there is room."""
        ...


def on_inventory(  # noqa: PLR0913, PLR0917 - what it depends on
    base: Declared | None,
    head: Declared,
    inventory: Inventory,
    confirmed: frozenset[str] = frozenset(),
    now_ms: Instant = _AT_MS,
    entry: Entry | None = None,
) -> Foreseen:
    """The effect of a change on the declared nodes, on which all runs of base that fit are running.

    `now_ms`: the time at which freeze windows are open or not. `entry`: of this base, see `_base_at_rest`.
    """
    nodes = _nodes(head, inventory)
    before = None if base is None else _base_at_rest(base, inventory, entry)
    began = ClusterState(nodes=nodes) if before is None else replace(before.state, nodes=nodes)
    effect = effect_of(before, at_rest(_patient(head), began, _AT_MS))
    refused = (
        *_told(mass_stop(head, began, frozenset()).refusals, head),
        *(() if base is None else namespaces_left(base, head)),
        *_unconfirmed(base, head, effect),
        *_cuts(base, head, effect),
        *_told(_frozen(base, head, effect, now_ms), head),
    )
    return Foreseen(
        effect=effect, ground=_ground(head, nodes, live=False), refusals=_sorted_out(refused, (), confirmed)
    )


def _base_at_rest(base: Declared, inventory: Inventory, entry: Entry | None) -> Rest:
    """The declared nodes with the jobs of base on them. The result is kept in the entry, whose key covers all files of
    base and the version of gpuctl.

    Cost: for 10,000 jobs 0.1 s where it is kept, else 2 s. Measured: without it, a plan whose base was planned before
    takes 1.33x of CPU (`gpuctl bench review`).
    """
    declared, body = _patient(base), None if entry is None else entry.get()
    known = None if body is None else restored(body, declared)
    if known is not None:
        return known
    rest = at_rest(declared, _idle(base, inventory), _AT_MS)
    if entry is not None:
        rest = with_forecasts(rest)
        entry.put(stored(rest))
    return rest


def on_cluster(
    base: Declared | None, head: Declared, objects: RawObjects, now_ms: Instant, confirmed: Confirmed = NONE_CONFIRMED
) -> Foreseen:
    """The effect of a change on a cluster as it is now.

    Parts of base that are refused already stay as they are, until the change confirms them.

    Cost: a plan of base and one of head, whose schedules are the first of the effect; a second plan of head if
    something is refused.
    """
    caches = CycleCaches()
    old_caches = replace(caches, engine_cache=EngineCache())
    report = _enforced(head, objects, now_ms, frozenset(), caches)
    refused, state = report.plan.refusals, report.state
    old = None if base is None else _enforced(base, objects, now_ms, confirmed.before, old_caches)
    before = None if old is None else at_rest(old.declared, state, now_ms, old_caches.engine_cache)
    standing = () if old is None else old.plan.refusals
    sorted_out = _sorted_out(refused, standing, confirmed.of_all)
    if refused:
        assumed = confirmed.of_all | {confirmation_of(refusal.help) for refusal in sorted_out.new}
        report = _enforced(head, objects, now_ms, assumed, caches)
    after = at_rest(report.declared, state if before is None else before.state, now_ms, caches.engine_cache)
    effect = effect_of(before, after)
    held = _told(_frozen(base, head, effect, now_ms, sorted_out.lifted), head)
    refusals = _sorted_out([*_told(refused, head), *_cuts(base, head, effect), *held], standing, confirmed.of_all)
    ground, found = _live_ground(base, head, state), obstacles(head, state)
    return Foreseen(effect=effect, ground=ground, refusals=refusals, in_the_way=_in_the_way(head, found, state))


def _enforced(
    declared: Declared, objects: RawObjects, now_ms: Instant, confirmed: frozenset[str], caches: CycleCaches
) -> CycleReport:
    """The report of the next cycle, without its writes."""
    return foreseen_twice(lambda rejected: foreseen(declared, objects, now_ms, caches, rejected, confirmed))[0]


def _in_the_way(head: Declared, found: Obstacles, state: ClusterState) -> Mapping[ObjectRef, str]:
    until_gone = "once the object of that name is gone that gpuctl did not create"
    taken = dict.fromkeys(found.taken.values(), f"{until_gone} (GPU7057)")
    taken |= dict.fromkeys(_of_people(head, state), f"{until_gone} (GPU7060)")
    ending = {
        ObjectRef(*NAMESPACE, "", project.namespace): "once the namespace that is being deleted is gone (GPU7023)"
        for project in head.projects
        if project.name in found.ending
    }
    return {**taken, **ending}


def _of_people(head: Declared, state: ClusterState) -> Iterator[ObjectRef]:
    """Objects that gpuctl did not make, of a kind and in a namespace where one could stand in the place of gpuctl's
    own."""
    spaces = {"", *(project.namespace for project in head.projects)}
    for ref, live in state.live.items():
        if ref.namespace in spaces and (ref.api_version, ref.kind) in RENDERED and is_of_people(ref, live):
            yield ref


def _sorted_out(refused: Iterable[Diagnostic], standing: Iterable[Diagnostic], confirmed: frozenset[str]) -> Refusals:
    """Sort refusals: new by this change, confirmed by a commit, standing without the change, and lifted."""
    known = {(refusal.code, refusal.message) for refusal in standing}
    new, said, old = list[Diagnostic](), list[Diagnostic](), list[Diagnostic]()
    for refusal in refused:
        is_old = (refusal.code, refusal.message) in known
        (said if is_confirmed(refusal, confirmed) else old if is_old else new).append(refusal)
    lifted = (refusal for refusal in said if (refusal.code, refusal.message) in known)
    return Refusals(new=tuple(new), confirmed=tuple(said), standing=tuple(old), lifted=tuple(lifted))


def in_time(base: Declared | None, head: Declared, confirmed: frozenset[str], added: frozenset[str]) -> Confirmed:
    """The confirmations that count. A confirmation of an effect of this change must be in this change.

    `added`: the confirmations of the change. One from base confirmed an earlier change, which has been undone since.
    """
    if base is None:
        return Confirmed(of_all=confirmed)
    left = {project.name for project in head.projects}
    gone = [project.name for project in base.projects if project.name not in left]
    were = [Ledger(project=name, content=content_of(base, name)) for name in gone]
    cuts = {cut_digest(head, cut) for cut in _lowered(base, head, {})}
    is_same = base.project_contents == head.project_contents

    def since(ledger: Ledger | None) -> frozenset[str]:
        return confirmed if ledger is None and is_same else added

    counting = confirmed - void_confirmations(head, were, confirmed, since) - (cuts - added)
    return Confirmed(of_all=counting, before=confirmed - added)


def read_objects(cluster: Cluster) -> RawObjects:
    """Read what a cycle reads of a cluster. Raises ClusterUnavailable or Forbidden if it can't be read whole."""
    object_cache = ObjectCache(cluster)
    object_cache.refresh()
    object_cache.require({*OF_DEVICES, CLAIM})  # claims: those in use make gpuctl refuse a removal
    return object_cache.objects()


def newest_instant(objects: RawObjects, now_ms: Instant) -> Instant:
    """The newest timestamp in the objects, at most `now_ms`: they were read then or later. `now_ms` if they have
    none."""
    found = [at for body in objects.objects.values() for at in _instants(body)]
    return min(max(found, default=now_ms), now_ms)


def _instants(body: Body) -> Iterator[Instant]:
    told = [text(mapping(body, "metadata"), "creationTimestamp")]
    conditions = mapping(body, "status").get("conditions")
    for condition in conditions if isinstance(conditions, list) else ():
        if isinstance(condition, dict):
            told += [text(condition, "lastHeartbeatTime"), text(condition, "lastTransitionTime")]
    for word in filter(None, told):
        with suppress(ValueError):
            yield parse_timestamp(word)


def objects_of(bodies: Iterable[Body]) -> RawObjects:
    """The live objects by reference."""
    return RawObjects(objects={ref_of(body): body for body in bodies})


def _ground(declared: Declared, nodes: Sequence[Node], *, live: bool) -> Ground:
    domains = domains_of(declared, nodes)
    capacity: Counter[DomainName] = Counter()
    for node in nodes:
        if node.name in domains:
            capacity[domains[node.name]] += node.gpus * WHOLE_GPU
    return Ground(live=live, nodes=len(nodes), gpus=sum(node.gpus for node in nodes), capacity=dict(capacity))


def _live_ground(base: Declared | None, head: Declared, state: ClusterState) -> Ground:
    wanted = {} if base is None else base.project_contents
    enforced = {owner: ledger.content for owner, ledger in state.ledgers.items()}
    unlike = sorted(owner for owner in wanted.keys() | enforced.keys() if wanted.get(owner) != enforced.get(owner))
    own = state.ledgers.get(OWN)
    return replace(
        _ground(head, state.nodes, live=True),
        revision=NO_REVISION if own is None else own.revision,
        unlike_base=tuple(unlike) if wanted else None,
    )


def _idle(declared: Declared, inventory: Inventory) -> ClusterState:
    """The declared nodes, with a queued run of each job: its object is created, and it has not been admitted.

    Without runs the engine could only create them in its first cycle.
    """
    made = (Run(job=job.id, digest=job.digest, phase=RunPhase.QUEUED, queued_at_ms=_AT_MS) for job in declared.jobs)
    return ClusterState(nodes=_nodes(declared, inventory), runs=tuple(made))


def _nodes(declared: Declared, inventory: Inventory) -> tuple[Node, ...]:
    return observe(objects_of(inventory(declared.cluster.pools))).nodes


def _patient(declared: Declared) -> Declared:
    """The declarations with `minRuntime` 0: every run has run long enough to be paused."""
    policy = replace(declared.cluster.scheduling, min_runtime=MinRuntime.of_all(0))
    return replace(declared, cluster=replace(declared.cluster, scheduling=policy))


def _told(refusals: Iterable[Diagnostic], head: Declared) -> Iterator[Diagnostic]:
    """The refusals with their help. Without the contents of the merge, the confirmation line is not known."""
    for refusal in refusals:
        is_unknown = refusal.code in _OF_ALL and not head.project_contents
        yield replace(refusal, help=_UNKNOWN) if is_unknown else refusal


def _frozen(
    base: Declared | None, head: Declared, effect: Effect, now_ms: Instant, lifted: Iterable[Diagnostic] = ()
) -> Iterator[Diagnostic]:
    """The refusal if a freeze window of base is open and forbids the change. `lifted`: the refusals it confirms."""
    if base is None or not base.cluster.freeze:
        return
    ended = (each.job for each in effect.stopped if each.why is not Stop.REMOVED)
    anew = (each.job for each in effect.started if each.anew)
    moved = (each.job for each in effect.moved)
    pauses = {*(each.job for each in effect.paused), *moved, *ended, *anew}
    doing = Doing(
        pauses=tuple(sorted(pauses)),
        deletes=removed(base, head),
        changes=says_otherwise(base, head),
        lifts=tuple(refusal.code for refusal in lifted),
    )
    refusal = frozen(base, head, doing, now_ms)
    if refusal is not None:
        yield refusal


def _cuts(base: Declared | None, head: Declared, effect: Effect) -> Iterator[Diagnostic]:
    """A refusal for each quota that is cut below what the project's non-preemptible jobs hold."""
    fixed = {(each.project, each.domain): each.fixed[0] for each in (*effect.holdings, *effect.steady)}
    for cut in _lowered(base, head, fixed):
        if cut.quota[1] < cut.fixed_milli:
            yield quota_cut(head, cut)


def _lowered(
    base: Declared | None, head: Declared, fixed: Mapping[tuple[ProjectName, DomainName], GpuMilli]
) -> Iterator[Cut]:
    """The quotas that are lower than before, of projects that stay."""
    after = {project.name: project.allowances for project in head.projects}
    for project in base.projects if base is not None else ():
        for domain, allowance in project.allowances.items() if project.name in after else ():
            quota_milli = after[project.name][domain].quota_milli if domain in after[project.name] else 0
            if quota_milli < allowance.quota_milli:
                quota, held_milli = (allowance.quota_milli, quota_milli), fixed.get((project.name, domain), 0)
                yield Cut(project=project.name, domain=domain, quota=quota, fixed_milli=held_milli)


def _unconfirmed(base: Declared | None, head: Declared, effect: Effect) -> Iterator[Diagnostic]:
    """A refusal for each removed project with running jobs, or with more waiting jobs than one commit may remove."""
    left, most = {project.name for project in head.projects}, head.cluster.scheduling.delete_guard_jobs
    if base is None:
        return
    for project in base.projects:
        if project.name in left:
            continue
        running = [s.job.name for s in effect.stopped if s.job.project == project.name and s.why is Stop.REMOVED]
        jobs = [str(job.id) for job in base.jobs if job.id.project == project.name]
        told: tuple[str, Mapping[str, str | int]] | None = None
        if running:
            told = "GPU6002", {"what": all_of(running)}
        elif most is not None and len(jobs) > most:
            told = "GPU6010", {"jobs": len(jobs), "most": most, "what": all_of(jobs)}
        if told is not None:
            refusal = removal(head, project.name, content_of(base, project.name), *told)
            yield refusal if head.project_contents else replace(refusal, help=_UNKNOWN)
