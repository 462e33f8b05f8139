"""The PlanReport: the changes of jobs, objects and quotas, and the words that its forms share."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuctl.k8s.annotations import compact_json
from gpuctl.model.change import Action
from gpuctl.model.comparison import Comparison
from gpuctl.model.declared import WHOLE_CLUSTER
from gpuctl.model.effect import Effect, Ground, Refusals
from gpuctl.model.ids import DomainName, ObjectRef, ProjectName
from gpuctl.model.units import GpuMilli, count_gpus, format_gpus
from gpuctl.views import plan_breaches, plan_comparison, plan_effect
from gpuctl.views.plan_breaches import BreachChange

MARKS = {Action.CREATE: "+", Action.UPDATE: "~", Action.DELETE: "-"}
SHOWN_JOBS = 40
"""The most jobs that are listed with their effects; the JSON form has all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectChange:
    """One object that differs between base and head; `reason`: the declaration or the fields that differ.

    `replaced`: it is deleted because its job has a new run. `sweep`: the sweep of its job, if any.
    """

    action: Action
    ref: ObjectRef
    project: ProjectName | None
    reason: str
    replaced: bool = False
    sweep: str = ""


def told_objects(objects: Iterable[ObjectChange]) -> Iterator[tuple[ObjectChange, str]]:
    """The objects, each with its name. Of a sweep's objects with equal changes only the first, with the number of the
    others."""
    alike: dict[tuple[object, ...], list[ObjectChange]] = {}
    for each in objects:
        kind = (each.project, each.action, each.ref.kind, each.sweep, each.reason) if each.sweep else (each.ref,)
        alike.setdefault((each.action, *kind), []).append(each)
    for first, *others in alike.values():
        yield first, f"{first.ref} and {len(others)} more of sweep {first.sweep}" if others else str(first.ref)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaChange:
    """A project's quota, limit and weight in a quota domain before and after, in thousandths; None: it has none.

    `held`: what its jobs hold there without the change and with it. `capacity_milli`: all GPUs there. None: not known.
    """

    project: ProjectName
    domain: DomainName
    quota: tuple[GpuMilli | None, GpuMilli | None]
    limit: tuple[GpuMilli | None, GpuMilli | None]
    weight: tuple[int | None, int | None]
    held: tuple[GpuMilli, GpuMilli] | None = None
    capacity_milli: GpuMilli | None = None

    @property
    def is_below_held(self) -> bool:
        """Whether the change sets a limit below what is held without it."""
        was, now = self.limit
        return self.held is not None and now is not None and now != was and now < self.held[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChange:
    """A setting that no object shows, as text before and after; `of`: the job, project, department, pool or policy."""

    of: str
    setting: str
    change: tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DepartmentLimit:
    """A department whose limit is below what its projects hold without the change."""

    department: str
    domain: DomainName
    limit_milli: GpuMilli
    held_milli: GpuMilli


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A gate of `--fail-on` that the change fails, with the jobs or objects that cause it."""

    gate: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReport:
    """The difference between two revisions; objects by project, the cluster's own first.

    `effect`: the effect on jobs, from the state that `ground` describes; None if no such state is known. `version`:
    gpuctl's. `cluster`: the cluster's name. `owners`: those of each project that base declares.
    """

    compared: Comparison
    objects: tuple[ObjectChange, ...] = ()
    quotas: tuple[QuotaChange, ...] = ()
    settings: tuple[SettingChange, ...] = ()
    department_limits: tuple[DepartmentLimit, ...] = ()
    breaches: tuple[BreachChange, ...] = ()
    effect: Effect | None = None
    ground: Ground | None = None
    refusals: Refusals = field(default_factory=Refusals)
    failed: tuple[Failed, ...] = ()
    version: str = ""
    cluster: str = ""
    owners: Mapping[ProjectName, tuple[str, ...]] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """Whether nothing changes: no declaration differs, and no earlier refusal is confirmed."""
        return not (self.objects or self.quotas or self.settings or self.breaches or self.refusals.lifted)

    @property
    def refused(self) -> bool:
        """Whether a guard or a gate holds the change back."""
        return bool(self.refusals.new or self.failed)


def digest(report: PlanReport) -> str:
    """A digest of the changes alone, without the revisions and the state of the cluster."""
    return hashlib.sha256(compact_json(changes(report)).encode()).hexdigest()[:16]


def changes(report: PlanReport) -> dict[str, Any]:
    """The JSON form of the differences between the two revisions; `digest` is computed from it."""
    return {
        "objects": [
            {"action": o.action.value, "ref": _ref(o.ref), "project": o.project, "reason": o.reason}
            for o in report.objects
        ],
        "quotas": [_quota(q) for q in report.quotas],
        "settings": [
            {"of": s.of, "setting": s.setting, "before": s.change[0], "after": s.change[1]} for s in report.settings
        ],
        "breaches": [plan_breaches.document(each) for each in report.breaches],
    }


def identity(report: PlanReport) -> Iterator[str]:
    """What was compared by which version of gpuctl, and what is known of the cluster."""
    commits = plan_comparison.commits(report.compared)
    yield f"{commits}; gpuctl {report.version or 'of no version'}; changes {digest(report)}"
    if report.ground is not None and report.effect is not None and report.ground.live:
        yield plan_effect.state_text(report.ground, report.effect.at_ms, report.compared.base)


def counts(report: PlanReport) -> str:
    """`4 to create, 1 to change, 2 to delete; quotas of 1 project change`."""
    actions = [change.action for change in report.objects]
    verbs = ((Action.CREATE, "create"), (Action.UPDATE, "change"), (Action.DELETE, "delete"))
    objects = (
        ", ".join(f"{actions.count(action)} to {verb}" for action, verb in verbs) if actions else "no object changes"
    )
    touched, settings = len({change.project for change in report.quotas}), len(report.settings)
    said = [objects]
    said += [f"quotas of {touched} project{'s' if touched > 1 else ''} change"] if touched else []
    said += [f"{settings} settings change" if settings > 1 else "1 setting changes"] if settings else []
    said += plan_breaches.counts(report.breaches)
    return "; ".join(said)


def _ref(ref: ObjectRef) -> dict[str, str]:
    return {"apiVersion": ref.api_version, "kind": ref.kind, "namespace": ref.namespace, "name": ref.name}


def _quota(change: QuotaChange) -> dict[str, Any]:
    names = ("quotaGpuMilli", "limitGpuMilli", "overQuotaWeightMilli")
    pairs = (change.quota, change.limit, change.weight)
    held = None if change.held is None else {"before": change.held[0], "after": change.held[1]}
    return {
        "project": change.project,
        "domain": change.domain,
        **{name: {"before": before, "after": after} for name, (before, after) in zip(names, pairs, strict=True)},
        "allocatedGpuMilli": held,
        "capacityGpuMilli": change.capacity_milli,
        "limitBelowAllocated": change.is_below_held,
    }


def failed_names(failed: Failed) -> str:
    """The jobs or objects that make a gate fail."""
    shown = failed.names[:SHOWN_JOBS]
    more = len(failed.names) - len(shown)
    return ", ".join([*shown, f"and {more} more"] if more else shown)


def effect_remarks(report: PlanReport, effect: Effect) -> Sequence[str]:
    """Notes below the effects on jobs."""
    new, standing = report.refusals.new, report.refusals.standing
    confirmed = ("The effect assumes that refused changes are confirmed.",) if new else ()
    kept = ("What is refused already stays as it is.",) if standing else ()
    return (*confirmed, *kept, *plan_effect.remarks(effect))


def setting_lines(report: PlanReport) -> Iterator[str]:
    """A line for each setting."""
    for setting in report.settings:
        before, after = setting.change
        yield f"{setting.of}: {setting.setting} {before} -> {after}"


def quota_cells(quota: QuotaChange, *, bare: bool = False) -> tuple[str, ...]:
    """The project (with its pool where quotas are by pool) and the changes of quota, limit and weight."""
    where = "" if quota.domain == WHOLE_CLUSTER else f" on {quota.domain}"
    names = ("", "", "") if bare else ("quota ", "limit ", "weight ")
    pairs = (
        _arrow(quota.quota),
        _arrow(quota.limit),
        _arrow(quota.weight),
    )
    cells = (f"{name}{pair}" if pair else "" for name, pair in zip(names, pairs, strict=True))
    held = "" if quota.held is None else plan_effect.amounts(quota.held)
    capacity = "" if quota.capacity_milli is None else format_gpus(quota.capacity_milli)
    if not bare:
        held, capacity = held and f"holds {held}", capacity and f"of {capacity}"
    return (f"{quota.project}{where}", *cells, held, capacity)


def limit_notes(report: PlanReport) -> Iterator[str]:
    """A note for each limit that is set below what is held now."""
    for quota in report.quotas:
        if quota.is_below_held and quota.held is not None and quota.limit[1] is not None:
            held = count_gpus(quota.held[0])
            yield f"The limit of {quota.project}, {format_gpus(quota.limit[1])}, is below the {held} that it holds now."
    for each in report.department_limits:
        where = "" if each.domain == WHOLE_CLUSTER else f" on {each.domain}"
        limit, held = format_gpus(each.limit_milli), count_gpus(each.held_milli)
        yield f"The limit of department {each.department}{where}, {limit}, is below the {held} that it holds now."


def department_limit(each: DepartmentLimit) -> dict[str, Any]:
    """The JSON form."""
    return {
        "department": each.department,
        "domain": each.domain,
        "limitGpuMilli": each.limit_milli,
        "allocatedGpuMilli": each.held_milli,
    }


def _arrow(pair: tuple[int | None, int | None]) -> str:
    before, after = ("none" if milli is None else format_gpus(milli) for milli in pair)
    return "" if before == after else f"{before} -> {after}"
