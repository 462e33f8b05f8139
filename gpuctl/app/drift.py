"""`diff`: what the next cycle would write, without writing it."""

from __future__ import annotations

from dataclasses import replace

from gpuctl.app.cycle import CycleContext, CycleReport, foresee
from gpuctl.app.foresight import foreseen_twice
from gpuctl.app.object_cache import ObjectCache
from gpuctl.app.other_engine import deciding_engine
from gpuctl.app.ports import Clock, Cluster, Taken
from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.k8s import kinds
from gpuctl.k8s.ledger import is_ledger
from gpuctl.k8s.workloads import kind_of
from gpuctl.model.change import Action, Change
from gpuctl.model.declared import Declared
from gpuctl.model.ids import ObjectRef
from gpuctl.plan import differences
from gpuctl.views.drift import DriftReport, FieldDrift, ObjectDrift

_NAMING = frozenset({"apiVersion", "kind"})


def drift_report(declared: Declared, cluster: Cluster, clock: Clock) -> DriftReport:
    """Compare a cluster with declarations. Raises ClusterUnavailable or Forbidden if that is not possible.

    Where another engine decides, its objects are compared, and whether a job runs is no difference. gpuctl's own
    ledgers are left out, because their changes follow from the others. Kinds that can't be read are left out too, as
    all their objects would seem missing; the report names each such kind that has, or should have, objects.
    """
    engine = deciding_engine(cluster, declared.cluster.name)
    more = () if engine is None else kinds.of_engine(engine)
    cache = ObjectCache(cluster, (*kinds.OBSERVED, *more))
    context = CycleContext(object_cache=cache, clock=clock, engine=engine)
    foreseen, refused = foreseen_twice(lambda rejected: foresee(declared, replace(context, rejected=rejected)))
    sources = {item.ref: item.span for item in foreseen.manifests.items}
    ledgers = foreseen.state.ledgers.values()
    refs = {*sources, *frozenset[ObjectRef]().union(*(ledger.inventory for ledger in ledgers))}
    taken = frozenset(outcome.change.ref for outcome in refused.outcomes)
    met = {(ref.api_version, ref.kind) for ref in refs} | {kind_of(job) for job in declared.jobs}
    return DriftReport(
        objects=tuple(
            ObjectDrift(
                action=change.action,
                ref=change.ref,
                project=change.project,
                reason=change.reason,
                source=f"{span.file}:{span.line}" if (span := sources.get(change.ref)) is not None else "",
                fields=_fields(change, foreseen),
            )
            for change in foreseen.plan.changes
            if change.ref not in taken
            and not (is_ledger(change.ref) or (change.ref.api_version, change.ref.kind) in cache.faults)
        ),
        unchanged=foreseen.plan.unchanged,
        refusals=(
            *foreseen.plan.refusals,
            *(
                Diagnostic(code=Taken.CODE, message=str(Taken(ref)), span=sources[ref] or declared.cluster.span)
                for ref in sorted(taken)
            ),
        ),
        unread=tuple(f"{fault.code}: {fault}" for kind, fault in sorted(cache.faults.items()) if kind in met),
    )


def _fields(change: Change, foreseen: CycleReport) -> tuple[FieldDrift, ...]:
    """The fields of an update that differ, all fields of an object to create, no field of one to delete."""
    live = foreseen.state.live.get(change.ref)
    if change.body is None:
        return ()
    if change.action is Action.CREATE or live is None:
        return tuple(FieldDrift(key, None, value) for key, value in change.body.items() if key not in _NAMING)
    return tuple(FieldDrift(found.path, found.live, found.wanted) for found in differences(change.body, live))
