"""The PlanReport: the changes of jobs, objects and quotas, as JSON, text, and Markdown for a pull request."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.diag.escapes import markdown_code, markdown_text, printable
from gpuctl.k8s.annotations import compact_json
from gpuctl.model.change import Action
from gpuctl.model.comparison import Comparison
from gpuctl.model.declared import WHOLE_CLUSTER, DomainName
from gpuctl.model.effect import Effect, Ground
from gpuctl.model.ids import ObjectRef, ProjectName
from gpuctl.model.units import GpuMilli, count_gpus, format_gpus
from gpuctl.views import plan_comparison, plan_effect
from gpuctl.views.styled import Line, Segment

MARKS = {Action.CREATE: "+", Action.UPDATE: "~", Action.DELETE: "-"}
MARK_STYLES = {"+": "good", "~": "warning", "-": "bad", "": "dim"}
STYLES = {Action.CREATE: "good", Action.UPDATE: "warning", Action.DELETE: "bad"}
SHOWN_IN_COMMENT = 200
"""The most objects listed in a pull request's comment; the JSON form has all."""
SHOWN_JOBS = 40
"""The most jobs listed with what happens to them; the JSON form has all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectChange:
    """One object that differs between base and head; `reason`: the declaration or the fields that differ."""

    action: Action
    ref: ObjectRef
    project: ProjectName | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaChange:
    """A project's quota, limit and weight in a quota domain before and after, in thousandths; None: it has none."""

    project: ProjectName
    domain: DomainName
    quota: tuple[GpuMilli | None, GpuMilli | None]
    limit: tuple[GpuMilli | None, GpuMilli | None]
    weight: tuple[int | None, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChange:
    """A setting that only the engine reads, as text before and after; `of`: the job, project, pool or policy."""

    of: str
    setting: str
    change: tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReport:
    """The difference between two revisions; objects by project, the cluster's own first.

    `effect`: what it does to jobs, from the state that `ground` describes; None where no such state is known.
    """

    compared: Comparison
    objects: tuple[ObjectChange, ...] = ()
    quotas: tuple[QuotaChange, ...] = ()
    settings: tuple[SettingChange, ...] = ()
    effect: Effect | None = None
    ground: Ground | None = None
    refusals: tuple[Diagnostic, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether nothing changes."""
        return not self.objects and not self.quotas and not self.settings


def document(report: PlanReport) -> dict[str, Any]:
    """The JSON form. `digest` is over the changes alone, not over revisions or the state of the cluster."""
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
        "base": report.compared.base,
        "head": report.compared.head,
        "merge": plan_comparison.document(report.compared),
        **changes,
        "effect": None if report.effect is None else plan_effect.document(report.effect, report.ground),
        "refusals": [{"code": d.code, "message": d.message, "help": d.help} for d in report.refusals],
        "digest": hashlib.sha256(text.encode()).hexdigest()[:16],
    }


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
    return "; ".join(said)


def text(report: PlanReport) -> Iterator[Line]:
    """The text form, as styled lines."""
    compared = report.compared
    if report.empty:
        yield (Segment("No changes: ", "strong"), Segment(plan_comparison.nothing(compared)))
    else:
        yield (Segment("Plan: ", "strong"), Segment(f"{counts(report)}  ({compared.base} -> {compared.head})"))
    for line in plan_comparison.remarks(compared):
        yield (Segment(f"  {line}", "dim"),)
    if report.empty:
        return
    for refusal in report.refusals:
        yield (Segment("refused ", "bad"), Segment(f"{refusal.code}: {refusal.message}"))
        yield (Segment("help", "help"), Segment(f": {refusal.help}"))
    if report.effect is not None:
        yield from _effect_lines(report.effect, report.ground, _remarks(report, report.effect))
    if report.quotas:
        yield ()
        yield (Segment("Quotas (GPUs)", "strong"),)
        for cells in _aligned([_quota_cells(quota) for quota in report.quotas]):
            yield (Segment(f"  {cells}"),)
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


def _effect_lines(effect: Effect, ground: Ground | None, remarks: Sequence[str]) -> Iterator[Line]:
    yield ()
    yield (
        Segment("Effect: ", "strong"),
        Segment(plan_effect.headline(effect)),
        Segment(f"  {plan_effect.ground_text(ground)}", "dim"),
    )
    rows = list(plan_effect.rows(effect))
    shown = rows[:SHOWN_JOBS]
    for row, cells in zip(shown, _aligned([(str(row.job), _gpus(row), row.text) for row in shown]), strict=True):
        yield (Segment(f"  {row.mark or '.'} ", MARK_STYLES[row.mark]), Segment(cells))
    if len(rows) > SHOWN_JOBS:
        yield (Segment(f"  ... and {len(rows) - SHOWN_JOBS} more; -o json has all"),)
    for line in remarks:
        yield (Segment(f"  {line}", "dim"),)
    holdings = [
        (project, f"holds {held}", f"fair share {share}") for project, held, share in plan_effect.holding_rows(effect)
    ]
    if holdings:
        yield ()
        yield (Segment("Projects (GPUs)", "strong"),)
        for cells in _aligned(holdings):
            yield (Segment(f"  {cells}"),)


def _remarks(report: PlanReport, effect: Effect) -> Sequence[str]:
    confirmed = ("The effect assumes that refused changes are confirmed.",) if report.refusals else ()
    return (*confirmed, *plan_effect.remarks(effect))


def _gpus(row: plan_effect.Row) -> str:
    return "" if row.gpu_milli is None else count_gpus(row.gpu_milli)


def _aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Each row as one line, with its cells in columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def markdown(report: PlanReport) -> Iterator[str]:
    """The form for a pull request, in GitHub's Markdown."""
    base, head = markdown_code(report.compared.base), markdown_code(report.compared.head)
    if report.empty:
        yield f"**gpuctl plan**: no changes between {base} and {head}."
    else:
        yield f"**gpuctl plan** {base} → {head}: {counts(report)}"
    for line in plan_comparison.remarks(report.compared):
        yield ""
        yield markdown_text(line)
    if report.empty:
        return
    for refusal in report.refusals:
        yield ""
        yield f"> **refused** {refusal.code}: {markdown_text(refusal.message)}  "
        yield f"> {markdown_text(refusal.help)}"
    if report.effect is not None:
        yield from _markdown_effect(report.effect, report.ground, _remarks(report, report.effect))
    if report.quotas:
        yield ""
        yield "| project | quota | limit | over-quota weight |"
        yield "|---|---|---|---|"
        for quota in report.quotas:
            yield _markdown_row(_quota_cells(quota, bare=True))
    if report.settings:
        yield ""
        for line in _setting_lines(report):
            yield f"- {markdown_text(line)}"
    yield from _markdown_objects(report)


def _markdown_effect(effect: Effect, ground: Ground | None, remarks: Sequence[str]) -> Iterator[str]:
    yield ""
    yield f"**Effect**: {plan_effect.headline(effect)} {plan_effect.ground_text(ground)}"
    rows = list(plan_effect.rows(effect))
    if rows:
        yield ""
        yield "| | job | GPUs | |"
        yield "|---|---|---|---|"
    for row in rows[:SHOWN_JOBS]:
        gpus = "" if row.gpu_milli is None else format_gpus(row.gpu_milli)
        yield f"| {row.mark and f'`{row.mark}`'} {_markdown_row((str(row.job), gpus, row.text))}"
    yield ""
    if len(rows) > SHOWN_JOBS:
        yield f"… and {len(rows) - SHOWN_JOBS} more."
    yield markdown_text(" ".join(remarks))
    holdings = list(plan_effect.holding_rows(effect))
    if holdings:
        yield ""
        yield "| project | GPUs held | fair share |"
        yield "|---|---|---|"
    for cells in holdings:
        yield _markdown_row(cells)


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(markdown_text, cells))} |"


def _setting_lines(report: PlanReport) -> Iterator[str]:
    for setting in report.settings:
        before, after = setting.change
        yield f"{setting.of}: {setting.setting} {before} -> {after}"


def _markdown_objects(report: PlanReport) -> Iterator[str]:
    if not report.objects:
        return
    yield ""
    count = len(report.objects)
    yield f"<details><summary>{count} {'object' if count == 1 else 'objects'}</summary>"
    yield ""
    yield "```diff"
    for change in report.objects[:SHOWN_IN_COMMENT]:
        sign = {"~": "!"}.get(MARKS[change.action], MARKS[change.action])
        yield printable(f"{sign} {change.ref}  {change.reason}".rstrip())
    yield "```"
    if len(report.objects) > SHOWN_IN_COMMENT:
        yield f"… and {len(report.objects) - SHOWN_IN_COMMENT} more."
    yield "</details>"


def _quota_cells(quota: QuotaChange, *, bare: bool = False) -> tuple[str, ...]:
    """The project (with its pool where quotas are by pool) and the changes of quota, limit and weight."""
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
