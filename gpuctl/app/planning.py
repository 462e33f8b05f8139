"""`render` and `plan`: the objects of declarations, and how they differ between two revisions.

No cluster is read for this: every job is rendered as it is created, waiting. `effects` computes the effect on jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpuctl.app.effects import Foreseen
from gpuctl.app.other_engine import waiting_manifests
from gpuctl.app.settings import setting_changes, written_changes
from gpuctl.compile import Written, fields_of_a_new_run
from gpuctl.diag.codes import CODES
from gpuctl.diag.diagnostic import Diagnostic, Severity
from gpuctl.diag.span import SourceSpan
from gpuctl.diag.wording import message
from gpuctl.k8s import names
from gpuctl.k8s.kinds import NAMESPACE, RESOURCE_QUOTA
from gpuctl.k8s.objects import labels_of
from gpuctl.k8s.workloads import run_of
from gpuctl.model.change import Action
from gpuctl.model.comparison import Comparison
from gpuctl.model.declared import Allowance, Declared, Project
from gpuctl.model.effect import Refusals
from gpuctl.model.ids import DomainName, JobId, ObjectRef, ProjectName
from gpuctl.model.job import Job
from gpuctl.model.manifest import Manifest
from gpuctl.render import RenderCache
from gpuctl.views.ceilings import ceiling_changes, in_words
from gpuctl.views.plan_breaches import BreachChange
from gpuctl.views.plan_report import DepartmentLimit, ObjectChange, PlanReport, QuotaChange

SHOWN_FIELDS = 3
"""How many changed fields are named; the rest are counted."""
_CEILINGS = "spec.hard."

_TOLD_ELSEWHERE = names.PROVENANCE_ANNOTATIONS | {
    names.QUOTA_ANNOTATION, names.DEPARTMENT_ANNOTATION, names.PREEMPTIBLE_ANNOTATION,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A revision: its values, what its files say, and where they break a policy."""

    declared: Declared
    written: tuple[Written, ...] = ()
    breaches: tuple[Diagnostic, ...] = ()


def plan_report(
    before: Side | None, after: Side | None, compared: Comparison, foreseen: Foreseen | None = None
) -> PlanReport:
    """The differences between base and head. `compared`: where the two come from. None: no cluster is declared."""
    base, head = (None if side is None else side.declared for side in (before, after))
    stay = _changed_fields(base, head)
    old, new = _differing(base, head)
    cache = RenderCache()
    in_the_way = foreseen.in_the_way if foreseen is not None else {}
    changes = _object_changes(_by_ref(old, cache), _by_ref(new, cache), stay, in_the_way)
    settings = list(setting_changes(base, head))
    if before is not None and after is not None:
        settings += written_changes(before.written, after.written)
    return PlanReport(
        compared=compared,
        objects=tuple(sorted(changes, key=_in_reading_order)),
        quotas=tuple(_quota_changes(base, head, foreseen)),
        settings=tuple(settings),
        department_limits=tuple(_department_limits(base, head, foreseen)),
        breaches=tuple(_breach_changes(before, after)),
        effect=foreseen.effect if foreseen is not None else None,
        ground=foreseen.ground if foreseen is not None else None,
        refusals=foreseen.refusals if foreseen is not None else _of_no_folder(before, compared),
        cluster=next((side.cluster.name for side in (head, base) if side is not None), ""),
        owners={each.name: each.owners for each in base.projects if each.owners} if base is not None else {},
    )


def _of_no_folder(before: Side | None, compared: Comparison) -> Refusals:
    """The refusal where the cluster's folder is gone, or has another name: the controller then deletes and creates
    nothing."""
    if before is None:
        return Refusals()
    told = message("GPU8003", {"path": compared.folder, "revision": compared.head})
    span = SourceSpan(file=compared.folder)
    return Refusals(new=(Diagnostic(code="GPU8003", message=told, span=span, help=CODES["GPU8003"].fix),))


def _department_limits(
    base: Declared | None, head: Declared | None, foreseen: Foreseen | None
) -> Iterator[DepartmentLimit]:
    """Departments whose room below their limit shrank, and is too little for what their projects hold."""
    if head is None or foreseen is None:
        return
    before = _room(base, foreseen) if base is not None else {}
    for (name, domain), (limit, held) in sorted(_room(head, foreseen).items()):
        was = before.get((name, domain))
        if limit < held and (was is None or limit - held < was[0] - was[1]):
            yield DepartmentLimit(department=name, domain=domain, limit_milli=limit, held_milli=held)


def _room(declared: Declared, foreseen: Foreseen) -> Mapping[tuple[str, DomainName], tuple[int, int]]:
    """Each limit of a department, with what the projects below it hold without the change."""
    above = {department.name: department.parent for department in declared.departments}
    departments = {project.name: project.department for project in declared.projects}
    held: Counter[tuple[str, DomainName]] = Counter()
    for holding in (*foreseen.effect.holdings, *foreseen.effect.steady):
        department = departments.get(holding.project)
        while department is not None:
            held[department, holding.domain] += holding.held[0]
            department = above.get(department)
    return {
        (department.name, domain): (allowance.limit_milli, held[department.name, domain])
        for department in declared.departments
        for domain, allowance in department.allowances.items()
        if allowance.limit_milli is not None
    }


def _breach_changes(before: Side | None, after: Side | None) -> Iterator[BreachChange]:
    """Declarations that start or cease to break a policy, or break it at another severity.

    A declaration that has moved within its file, or breaks the policy by another value, counts as the same.
    """
    old, new = (Counter(map(_breach, () if side is None else side.breaches)) for side in (before, after))
    started, ceased = tuple(_of(after, new - old)), list(_of(before, old - new))
    were: dict[tuple[str, str, str], list[Diagnostic]] = {}
    for breach in ceased:
        were.setdefault(_broken(breach), []).append(breach)
    for breach in started:
        same = were.get(_broken(breach))
        if same:
            gone = same.pop(0)
            ceased.remove(gone)
            yield BreachChange(starts=True, breach=breach, was=gone.severity)
        else:
            yield BreachChange(starts=True, breach=breach)
    yield from (BreachChange(starts=False, breach=breach) for breach in ceased)


def _of(side: Side | None, missing: Counter[tuple[str, str, Severity]]) -> Iterator[Diagnostic]:
    """The breaches of one side that the other side has less often."""
    for breach in () if side is None else side.breaches:
        if missing[_breach(breach)] > 0:
            missing[_breach(breach)] -= 1
            yield breach


def _breach(breach: Diagnostic) -> tuple[str, str, Severity]:
    return breach.span.file, breach.policy, breach.severity


def _broken(breach: Diagnostic) -> tuple[str, str, str]:
    return breach.span.file, breach.policy, breach.message


def _differing(base: Declared | None, head: Declared | None) -> tuple[Declared | None, Declared | None]:
    """Both revisions without the projects that are equal in both, including jobs: their objects are equal as well."""
    if base is None or head is None or (base.cluster, base.domains) != (head.cluster, head.domains):
        return base, head
    before, after = _by_project(base), _by_project(head)
    same = {name for name, said in before.items() if after.get(name) == said}
    return _without(base, same), _without(head, same)


def _by_project(declared: Declared) -> Mapping[ProjectName, list[Project | Job]]:
    """Each project with its jobs."""
    said: dict[ProjectName, list[Project | Job]] = {project.name: [project] for project in declared.projects}
    for job in declared.jobs:
        said[job.id.project].append(job)
    return said


def _without(declared: Declared, projects: Collection[ProjectName]) -> Declared:
    return replace(
        declared,
        projects=tuple(project for project in declared.projects if project.name not in projects),
        jobs=tuple(job for job in declared.jobs if job.id.project not in projects),
    )


def _by_ref(declared: Declared | None, cache: RenderCache) -> Mapping[ObjectRef, Manifest]:
    return {item.ref: item for item in waiting_manifests(declared, cache).items} if declared is not None else {}


def _changed_fields(base: Declared | None, head: Declared | None) -> Mapping[JobId, str]:
    """Jobs in both revisions that changed, each with the fields that require a new run. Identical objects are left
    out."""
    before = {job.id: job for job in base.jobs} if base is not None else {}
    jobs = head.jobs if head is not None else ()
    changed = ((before[job.id], job) for job in jobs if before.get(job.id, job) is not job)
    return {job.id: _named(list(fields_of_a_new_run(old, job))) for old, job in changed}


def _in_reading_order(change: ObjectChange) -> tuple[str, ObjectRef, str]:
    return (change.project or "", change.ref, change.action.value)


def _object_changes(
    base: Mapping[ObjectRef, Manifest],
    head: Mapping[ObjectRef, Manifest],
    stay: Mapping[JobId, str],
    in_the_way: Mapping[ObjectRef, str],
) -> Iterable[ObjectChange]:
    """The changes from base to head. `stay`: jobs in both revisions, with their changed fields. `in_the_way`: what has
    to happen before certain objects can be created."""
    for ref in base.keys() | head.keys():
        before, after = base.get(ref), head.get(ref)
        if before is None and after is not None:
            fields = _changed_of(after, stay)
            reason = f"a new run: {fields} changed" if fields else "declared"
            space = ref if (ref.api_version, ref.kind) == NAMESPACE else ObjectRef(*NAMESPACE, "", ref.namespace)
            reason = ", ".join(filter(None, (reason, in_the_way.get(ref) or in_the_way.get(space))))
            yield ObjectChange(
                action=Action.CREATE, ref=ref, project=after.project, reason=reason, sweep=_sweep_of(after)
            )
        elif before is not None and after is None:
            fields = _changed_of(before, stay)
            reason = f"{fields} changed" if fields else "no longer declared"
            yield ObjectChange(
                action=Action.DELETE,
                ref=ref,
                project=before.project,
                reason=reason,
                replaced=bool(fields),
                sweep=_sweep_of(before),
            )
        elif before is not None and after is not None and before is not after:
            reason = _changed_words(ref, _lasting(before.body), _lasting(after.body))
            if reason:
                yield ObjectChange(
                    action=Action.UPDATE, ref=ref, project=after.project, reason=reason, sweep=_sweep_of(after)
                )


def _sweep_of(manifest: Manifest) -> str:
    return str(labels_of(manifest.body).get(names.SWEEP_LABEL, ""))


def _changed_words(ref: ObjectRef, before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """The fields that differ between two bodies of an object; for a ResourceQuota, its ceilings in words."""
    if (ref.api_version, ref.kind) != RESOURCE_QUOTA:
        return _named(sorted(_differences(before, after, "")))
    ceilings = [*ceiling_changes(before, after)]
    fields = [in_words(path) for path in sorted(_differences(before, after, "")) if not path.startswith(_CEILINGS)]
    return ", ".join(filter(None, (f"at most {_named(ceilings)}" if ceilings else "", _named(fields))))


def _changed_of(manifest: Manifest, stay: Mapping[JobId, str]) -> str:
    """The changed fields of the job whose run the object belongs to."""
    run = run_of(manifest.body)
    return "" if run is None else stay.get(run[0], "")


def _lasting(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """An object without annotations that the plan reports elsewhere: the place of its declaration, quotas and
    settings."""
    metadata = body.get("metadata", {})
    annotations = metadata.get("annotations", {})
    kept = {key: value for key, value in annotations.items() if key not in _TOLD_ELSEWHERE}
    return {**body, "metadata": {**metadata, "annotations": kept}}


def _differences(before: Any, after: Any, path: str) -> Iterable[str]:
    """The paths of the values that differ."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in before.keys() | after.keys():
            yield from _differences(before.get(key), after.get(key), f"{path}.{key}" if path else str(key))
    elif before != after:
        yield path


def _named(paths: list[str]) -> str:
    shown = ", ".join(paths[:SHOWN_FIELDS])
    return shown if len(paths) <= SHOWN_FIELDS else f"{shown} and {len(paths) - SHOWN_FIELDS} more"


def _quota_changes(base: Declared | None, head: Declared | None, foreseen: Foreseen | None) -> Iterator[QuotaChange]:
    before, after = _allowances(base), _allowances(head)
    holdings = (*foreseen.effect.holdings, *foreseen.effect.steady) if foreseen is not None else ()
    held = {(each.project, each.domain): each.held for each in holdings}
    for project, domain in sorted(before.keys() | after.keys()):
        old, new = before.get((project, domain)), after.get((project, domain))
        if old != new:
            yield QuotaChange(
                project=project,
                domain=domain,
                quota=(old.quota_milli if old else None, new.quota_milli if new else None),
                limit=(old.limit_milli if old else None, new.limit_milli if new else None),
                weight=(old.weight if old else None, new.weight if new else None),
                held=held.get((project, domain)),
                capacity_milli=None if foreseen is None else foreseen.ground.capacity.get(domain, 0),
            )


def _allowances(declared: Declared | None) -> Mapping[tuple[ProjectName, DomainName], Allowance]:
    projects = declared.projects if declared is not None else ()
    return {
        (project.name, domain): allowance for project in projects for domain, allowance in project.allowances.items()
    }
