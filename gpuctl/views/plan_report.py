"""The PlanReport: what a commit changes of objects and quotas, as JSON, as text and as Markdown for a pull request."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.k8s.annotations import compact_json
from gpuctl.model.change import Action
from gpuctl.model.declared import WHOLE_CLUSTER, DomainName
from gpuctl.model.ids import ObjectRef, ProjectName
from gpuctl.model.units import GpuMilli, format_gpus
from gpuctl.views.styled import Line, Segment

MARKS = {Action.CREATE: "+", Action.UPDATE: "~", Action.DELETE: "-"}
STYLES = {Action.CREATE: "good", Action.UPDATE: "warning", Action.DELETE: "bad"}
SHOWN_IN_COMMENT = 200
"""Objects listed in a pull request's comment; the JSON form has all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectChange:
    """One object that head wants differently from base; `reason` says which declaration makes it so."""

    action: Action
    ref: ObjectRef
    project: ProjectName | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaChange:
    """A project's claim on a quota domain before and after, all in milli-GPU; None: it has none there."""

    project: ProjectName
    domain: DomainName
    quota: tuple[GpuMilli | None, GpuMilli | None]
    limit: tuple[GpuMilli | None, GpuMilli | None]
    weight: tuple[int | None, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChange:
    """A setting that only the engine reads, before and after, in words; `of` is the job, project, pool or policy."""

    of: str
    setting: str
    change: tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReport:
    """The difference between two revisions; objects in the order of their projects, the cluster's own first."""

    base: str
    head: str
    objects: tuple[ObjectChange, ...] = ()
    quotas: tuple[QuotaChange, ...] = ()
    settings: tuple[SettingChange, ...] = ()
    refusals: tuple[Diagnostic, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether nothing changes."""
        return not self.objects and not self.quotas and not self.settings


def document(report: PlanReport) -> dict[str, Any]:
    """The JSON form. `digest` names exactly these changes, whatever the revisions are called."""
    changes = {
        "objects": [
            {"action": o.action.value, "ref": _ref(o.ref), "project": o.project, "reason": o.reason}
            for o in report.objects
        ],
        "quotas": [_quota(q) for q in report.quotas],
        "settings": [
            {"of": s.of, "setting": s.setting, "before": s.change[0], "after": s.change[1]} for s in report.settings
        ],
    }
    text = compact_json(changes)
    return {
        "apiVersion": "gpuctl.dev/v1",
        "kind": "PlanReport",
        "base": report.base,
        "head": report.head,
        **changes,
        "effect": None,
        "refusals": [{"code": d.code, "message": d.message, "help": d.help} for d in report.refusals],
        "digest": hashlib.sha256(text.encode()).hexdigest()[:16],
    }


def counts(report: PlanReport) -> str:
    """`4 to create, 1 to change, 2 to delete; quotas of 1 project change`."""
    actions = [change.action for change in report.objects]
    verbs = ((Action.CREATE, "create"), (Action.UPDATE, "change"), (Action.DELETE, "delete"))
    objects = ", ".join(f"{actions.count(action)} to {verb}" for action, verb in verbs)
    touched, settings = len({change.project for change in report.quotas}), len(report.settings)
    said = [objects]
    said += [f"quotas of {touched} project{'s' if touched > 1 else ''} change"] if touched else []
    said += [f"{settings} setting{'s' if settings > 1 else ''} change"] if settings else []
    return "; ".join(said)


def text(report: PlanReport) -> Iterator[Line]:
    """The report as styled lines."""
    if report.empty:
        yield (Segment("No changes. ", "strong"), Segment(f"{report.head} wants what {report.base} wants."))
        return
    yield (Segment("Plan: ", "strong"), Segment(f"{counts(report)}  ({report.base} -> {report.head})"))
    if report.quotas:
        yield ()
        yield (Segment("Quotas (GPUs)", "strong"),)
        rows = [_quota_cells(quota) for quota in report.quotas]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        for row in rows:
            yield (Segment("  " + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip()),)
    if report.settings:
        yield ()
        yield (Segment("Settings", "strong"),)
        for line in _setting_lines(report):
            yield (Segment(f"  {line}"),)
    for project, changes in groupby(report.objects, key=lambda change: change.project):
        yield ()
        yield (Segment(f"{project or 'cluster'}", "strong"),)
        for change in changes:
            mark = Segment(f"  {MARKS[change.action]} ", STYLES[change.action])
            yield (mark, Segment(str(change.ref)), Segment(f"  {change.reason}", "dim"))


def markdown(report: PlanReport) -> Iterator[str]:
    """The report for a pull request, in GitHub's Markdown."""
    if report.empty:
        yield f"**gpuctl plan**: no changes between `{report.base}` and `{report.head}`."
        return
    yield f"**gpuctl plan** `{report.base}` → `{report.head}`: {counts(report)}"
    if report.quotas:
        yield ""
        yield "| project | quota | limit | over-quota weight |"
        yield "|---|---|---|---|"
        for quota in report.quotas:
            yield "| " + " | ".join(_quota_cells(quota, bare=True)) + " |"
    if report.settings:
        yield ""
        for line in _setting_lines(report):
            yield f"- {line}"
    yield from _markdown_objects(report)


def _setting_lines(report: PlanReport) -> Iterator[str]:
    for setting in report.settings:
        before, after = setting.change
        yield f"{setting.of}: {setting.setting} {before} -> {after}"


def _markdown_objects(report: PlanReport) -> Iterator[str]:
    if not report.objects:
        return
    yield ""
    yield f"<details><summary>{len(report.objects)} objects</summary>"
    yield ""
    yield "```diff"
    for change in report.objects[:SHOWN_IN_COMMENT]:
        sign = {"~": "!"}.get(MARKS[change.action], MARKS[change.action])
        yield f"{sign} {change.ref}  {change.reason}".rstrip()
    yield "```"
    if len(report.objects) > SHOWN_IN_COMMENT:
        yield f"… and {len(report.objects) - SHOWN_IN_COMMENT} more."
    yield "</details>"


def _quota_cells(quota: QuotaChange, *, bare: bool = False) -> tuple[str, ...]:
    """The project (with its pool when quotas go by pool) and what changes of quota, limit and weight."""
    where = "" if quota.domain == WHOLE_CLUSTER else f" on {quota.domain}"
    names = ("", "", "") if bare else ("quota ", "limit ", "weight ")
    pairs = (
        _arrow(quota.quota),
        _arrow(quota.limit),
        _arrow(quota.weight),
    )
    cells = (f"{name}{pair}" if pair else "" for name, pair in zip(names, pairs, strict=True))
    return (f"{quota.project}{where}", *cells)


def _arrow(pair: tuple[int | None, int | None]) -> str:
    before, after = ("none" if milli is None else format_gpus(milli) for milli in pair)
    return "" if before == after else f"{before} -> {after}"


def _ref(ref: ObjectRef) -> dict[str, str]:
    return {"apiVersion": ref.api_version, "kind": ref.kind, "namespace": ref.namespace, "name": ref.name}


def _quota(change: QuotaChange) -> dict[str, Any]:
    names = ("quotaGpuMilli", "limitGpuMilli", "overQuotaWeightMilli")
    pairs = (change.quota, change.limit, change.weight)
    return {
        "project": change.project,
        "domain": change.domain,
        **{name: {"before": before, "after": after} for name, (before, after) in zip(names, pairs, strict=True)},
    }
