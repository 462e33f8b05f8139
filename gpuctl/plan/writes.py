"""Turns the difference of one object into writes: none, one or two."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter

from gpuctl.k8s import kinds
from gpuctl.k8s.ledger import encode_ledger, ledger_ref, shard_refs, shards_of
from gpuctl.k8s.makers import is_foreign, tells_its_maker
from gpuctl.k8s.objects import is_deleting, mapping, resource_version, uid
from gpuctl.k8s.suspension import is_let_go
from gpuctl.k8s.workload_table import BUILT_IN, Rows
from gpuctl.k8s.workloads import is_of_manifest, is_workload
from gpuctl.model.change import Action, Change
from gpuctl.model.decision import JobState
from gpuctl.model.ids import ObjectRef, ProjectName, RunKey
from gpuctl.model.manifest import Manifest
from gpuctl.model.state import Body, ClusterState, Ledger, RunPhase
from gpuctl.plan.admission import as_made, born, permitted
from gpuctl.plan.cache import PlanCache
from gpuctl.plan.diff import drift
from gpuctl.plan.inventory import OWN, shard_owner
from gpuctl.plan.object_diff import ObjectDiff
from gpuctl.plan.order import Stage, stage_of

TAKEN = "left as it is: gpuctl did not create it"
"""Why a foreign object in the place of a wanted one is not changed. Its creation is requested, and refused."""
_WORDS = {Stage.PAUSE: "paused", Stage.ADMIT: "admitted"}
_SHOWN_PATHS = 3
_OWN_MATTERS = frozenset({"spec.backoffLimit", "spec.progressDeadlineSeconds", "spec.revisionHistoryLimit"})
"""Fields of a run's object that change nothing for other runs."""
_IN_SPEC = re.compile(r"spec\.").match


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """Computes the writes of each object from the live objects, the runs `seen` before, and the phases of runs.

    `recorded`: the runs that the ledgers of this plan record as seen, before anything else is written. `ending`:
    namespaces that are being deleted; the server accepts no new object in them. `remade`: the runs whose object is
    recreated. `over`: runs that stop and whose outcome is certain; their objects are left to end as they are. `admits`
    False: another engine decides whether a run goes on, and nothing is held back from it. `rows`: other controllers'
    kinds.
    """

    state: ClusterState
    seen: frozenset[RunKey]
    recorded: frozenset[RunKey]
    phases: Mapping[RunKey | None, RunPhase]
    ending: frozenset[str]
    remade: frozenset[RunKey] = frozenset()
    over: frozenset[RunKey] = frozenset()
    admits: bool = True
    rows: Rows = field(default_factory=lambda: BUILT_IN)

    def writes(self, diffs: Iterable[ObjectDiff], cache: PlanCache) -> list[Change]:
        """The writes for the differences, from the cache where nothing has changed that they depend on."""
        found: list[Change] = []
        for diff in diffs:
            run = diff.run
            facts = (
                diff.item.ref in self.state.own,
                diff.item.ref.namespace in self.ending,
                run in self.remade,
                run in self.over,
                run in self.seen,
                run in self.recorded,
                self.phases.get(run),
            )
            found += cache.writes(diff, facts, self._writes)
        return found

    def _writes(self, diff: ObjectDiff) -> Iterator[Change]:
        item, live = diff.item, diff.live
        if item.ref.namespace in self.ending or (live is not None and is_deleting(live)):
            return
        if live is not None and is_workload(item.ref) and item.ref not in self.state.own:
            return
        if live is not None and tells_its_maker(item.ref) and is_foreign(item.body, live):
            yield self._apply(item, item.body, None, TAKEN)
            return
        if live is not None and is_workload(item.ref) and diff.run in self.over:
            return
        if live is not None and is_workload(item.ref) and diff.run in self.remade:
            yield delete(item.ref, live, item.project, "recreated", stage=Stage.RELEASE)
            made = self._apply(item, born(item.body, self.rows), None, "recreated: spec.template")
            yield replace(made, stage=Stage.ADMIT)
            return
        body = self._writable(diff)
        if body is None:
            return
        if live is None:
            made = self._apply(item, body, None, "missing")
            waits = is_workload(item.ref) and not is_let_go(item.body, self.rows)
            yield replace(made, stage=Stage.QUEUE) if waits else made
            return
        paths = diff.paths if body is item.body else drift(body, live)
        if not paths:
            return
        if (item.ref.api_version, item.ref.kind) != kinds.CLAIM_TEMPLATE:
            word = _WORDS.get(stage_of(item.ref, body, live, self.rows), "drift")
            made = self._apply(item, _pinned(body, uid=uid(live)), live, f"{word}: {shown(paths)}")
            frees = is_workload(item.ref) and is_let_go(live, self.rows) and _takes_back(made, paths)
            yield replace(made, may_rest=_may_rest(item.ref, paths), frees=frees)
        elif self._is_queued(diff.run):
            yield delete(item.ref, live, item.project, "recreated", stage=Stage.RELEASE)
            yield self._apply(item, body, None, f"recreated: {shown(paths)}")

    def _writable(self, diff: ObjectDiff) -> Body | None:
        item, live, run = diff.item, diff.live, diff.run
        if not is_workload(item.ref):
            return item.body
        if live is None and run in self.seen:
            return None
        if not self.admits:
            return item.body if live is None else as_made(item.body, live)
        ready = run in self.recorded and self.phases.get(run) is RunPhase.QUEUED
        return permitted(item.body, live, self.rows, ready=ready, is_stray=diff.is_stray)

    def _is_queued(self, run: RunKey | None) -> bool:
        """Whether the run has no pod."""
        return run is not None and self.phases.get(run, RunPhase.QUEUED) is RunPhase.QUEUED

    def _apply(self, item: Manifest, body: Body, live: Body | None, reason: str) -> Change:
        return Change(
            action=Action.CREATE if live is None else Action.UPDATE,
            ref=item.ref,
            body=body,
            uid="" if live is None else uid(live),
            resource_version="" if live is None else resource_version(live),
            project=item.project,
            stage=stage_of(item.ref, body, live, self.rows),
            reason=reason,
        )


def writer_of(
    state: ClusterState,
    spaces: Mapping[ObjectRef, Body],
    ledgers: Iterable[Ledger],
    recorded: Iterable[frozenset[RunKey]],
    anew: frozenset[RunKey],
) -> Writer:
    """The writer of one plan. `spaces`: the live namespaces."""
    keys = map(attrgetter("job", "digest"), state.runs)
    return Writer(
        state=state,
        seen=frozenset[RunKey]().union(*(runs for ledger in ledgers for runs in (ledger.seen, ledger.finished))),
        recorded=frozenset[RunKey]().union(*recorded),
        phases=dict(zip(keys, map(attrgetter("phase"), state.runs), strict=True)),
        ending=frozenset(ref.name for ref, live in spaces.items() if is_deleting(live)),
        remade=anew,
        over=frozenset((run.job, run.digest) for run in state.runs if run.ends_as is not None),
    )


def remade(diffs: Iterable[ObjectDiff], state: ClusterState) -> frozenset[RunKey]:
    """The queued runs to recreate with another pod template: runs that were never released and whose Job was created
    with another template than is wanted now; and runs of other controllers' kinds, released before or not, that go on
    with another one.

    They are taken off the ledger before their objects are recreated, so that a crash in between loses none. The
    template that gpuctl sent is compared: what an admission webhook changes does not count.
    """
    otherwise = {diff.run: diff.item.ref for diff in diffs if diff.is_made_otherwise and diff.run is not None}
    if not otherwise:
        return frozenset()
    queued = [run for run in state.runs if run.phase is RunPhase.QUEUED and (run.job, run.digest) in otherwise]
    again = {run for run, ref in otherwise.items() if is_of_manifest(ref)}
    return frozenset(key for run in queued if (key := (run.job, run.digest)) in again or not run.starts)


def book(cluster: str, old: Ledger, ledger: Ledger, state: ClusterState, *, closing: bool) -> Iterator[Change]:
    """The writes of a ledger, where it differs. `closing`: its project is gone, so an empty ledger is deleted.

    An unchanged large ledger is not encoded: that takes a second for 100,000 runs. A shard that the live head counts is
    never deleted: a crash in between would leave a ledger with a part missing. Facts that no other write of this plan
    depends on are recorded last, so that no job waits for them to get a GPU.
    """
    ref = ledger_ref(cluster, ledger.project)
    head = state.live.get(ref)
    project = None if ledger.project == OWN else ledger.project
    counted = set(shard_refs(cluster, ledger.project, shards_of(head)))
    if closing and not ledger.inventory:
        if head is not None:
            yield delete(ref, head, project, "no longer needed")
    elif not (counted and ledger == old and counted <= state.live.keys()):
        wanted = encode_ledger(cluster, ledger, shards_of(head))
        late = head is not None and counted == wanted.shards.keys() and _only_ends(old, ledger)
        counted.update(wanted.shards)
        for shard, body in wanted.shards.items():
            yield from _recorded(shard, body, state.live.get(shard), project, Stage.RECORD if late else Stage.SHARD)
        yield from _recorded(ref, wanted.head, head, project, Stage.RECORD if late else Stage.LEDGER)
    for shard in state.shards:
        if shard_owner(shard) == ledger.project and shard not in counted:
            yield delete(shard, state.live[shard], project, "no longer needed")


def _only_ends(old: Ledger, new: Ledger) -> bool:
    """Whether a ledger only records that runs were seen to end, and drops what is gone.

    Not if gpuctl ends the runs: then nothing else says that they ended.
    """
    added = [run for key, run in new.finished.items() if key not in old.finished]
    return (
        replace(new, finished=old.finished, inventory=old.inventory, runs=old.runs) == old
        and new.inventory <= old.inventory
        and not any(run.state == JobState.TIMED_OUT for run in added)
        and len(new.finished) == len(old.finished) + len(added)
        and all(entry == old.runs.get(run) or run in new.finished for run, entry in new.runs.items())
    )


def _recorded(
    ref: ObjectRef, body: Body, live: Body | None, project: ProjectName | None, stage: Stage
) -> Iterator[Change]:
    if live is None:
        yield Change(action=Action.CREATE, ref=ref, body=body, project=project, stage=stage, reason="missing")
        return
    paths = drift(body, live)
    if paths:
        yield Change(
            action=Action.UPDATE,
            ref=ref,
            body=_pinned(body, uid=uid(live), resourceVersion=resource_version(live)),
            uid=uid(live),
            resource_version=resource_version(live),
            project=project,
            stage=stage,
            reason=f"recorded: {shown(paths)}",
        )


_AS_OBSERVED = frozenset({kinds.NAMESPACE, kinds.CONFIG_MAP, kinds.CLAIM})
"""Kinds whose objects are deleted only at the observed version, because their contents can't be restored."""


def _may_rest(ref: ObjectRef, paths: tuple[str, ...]) -> bool:
    """Whether the differing fields matter to no other team: they neither affect which pods exist, nor tell gpuctl of a
    run.

    A tenant could change such other fields again and again, and have more GPUs until they are corrected.
    """
    if is_workload(ref):
        return _OWN_MATTERS.issuperset(paths)
    return (ref.api_version, ref.kind) != kinds.AUTOSCALER


def _takes_back(change: Change, paths: tuple[str, ...]) -> bool:
    """Whether a write to a released run's object pauses the run, or changes its number of pods."""
    return change.stage == Stage.PAUSE or (change.stage != Stage.ADMIT and any(map(_IN_SPEC, paths)))


def delete(
    ref: ObjectRef, live: Body, project: ProjectName | None, reason: str, *, stage: Stage = Stage.PRUNE
) -> Change:
    """The deletion of the very object that was observed: by its uid, and also by its version if it will be recreated or
    is of `_AS_OBSERVED`.

    Security: if every deletion required the version, a tenant could keep an object, and the GPUs of a removed job, by
    writing to it some ten times a second.
    """
    is_exact = stage is not Stage.PRUNE or (ref.api_version, ref.kind) in _AS_OBSERVED
    return Change(
        action=Action.DELETE,
        ref=ref,
        uid=uid(live),
        resource_version=resource_version(live) if is_exact else "",
        project=project,
        stage=stage,
        reason=reason,
        frees=stage is Stage.PRUNE and is_workload(ref),
    )


def shown(paths: tuple[str, ...]) -> str:
    """A list of a few paths, then how many more there are."""
    more = len(paths) - _SHOWN_PATHS
    return ", ".join(paths[:_SHOWN_PATHS]) + (f" and {more} more" if more > 0 else "")


def _pinned(body: Body, **identity: str) -> Body:
    """The body with the uid of the live object: if that was deleted meanwhile, the apply must not create a new
    object."""
    return {**body, "metadata": {**mapping(body, "metadata"), **identity}}
