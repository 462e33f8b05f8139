"""The PlanReport as styled lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from gpuctl.model.change import Action
from gpuctl.model.effect import Effect, Ground
from gpuctl.model.turns import in_turns
from gpuctl.model.units import count_gpus
from gpuctl.views import plan_breaches, plan_comparison, plan_effect, plan_report
from gpuctl.views.plan_report import MARKS, SHOWN_JOBS, PlanReport
from gpuctl.views.styled import Line, Segment

MARK_STYLES = {"+": "good", "~": "warning", "-": "bad", "": "dim"}
STYLES = {Action.CREATE: "good", Action.UPDATE: "warning", Action.DELETE: "bad"}


def text(report: PlanReport) -> Iterator[Line]:
    """The text form, as styled lines."""
    compared = report.compared
    if report.empty:
        yield (Segment("No changes: ", "strong"), Segment(plan_comparison.nothing(compared)))
    else:
        yield (
            Segment("Plan: ", "strong"),
            Segment(f"{plan_report.counts(report)}  ({compared.base} -> {compared.head})"),
        )
    for line in plan_comparison.remarks(compared):
        yield (Segment(f"  {line}", "dim"),)
    if not report.empty:
        yield from _change_lines(report)
        yield ()
    for line in plan_report.identity(report):
        yield (Segment(f"  {line}" if report.empty else line, "dim"),)


def _change_lines(report: PlanReport) -> Iterator[Line]:
    yield from _verdict_lines(report)
    if report.effect is not None:
        yield from _effect_lines(report.effect, report.ground, plan_report.effect_remarks(report, report.effect))
    if report.quotas:
        yield ()
        yield (Segment("Quotas (GPUs)", "strong"),)
        for cells in _aligned([plan_report.quota_cells(quota) for quota in report.quotas]):
            yield (Segment(f"  {cells}"),)
    notes = [*plan_report.limit_notes(report)]
    if notes and not report.quotas:
        yield ()
        yield (Segment("Limits", "strong"),)
    for note in notes:
        yield (Segment(f"  {note}", "warning"),)
    if report.settings:
        yield ()
        yield (Segment("Settings", "strong"),)
        for line in plan_report.setting_lines(report):
            yield (Segment(f"  {line}"),)
    if report.breaches:
        yield ()
        yield (Segment("Policies", "strong"),)
        for starts, line in plan_breaches.lines(report.breaches):
            yield (Segment(f"  {line}", "warning" if starts else "good"),)
    for project, changes in groupby(report.objects, key=lambda change: change.project):
        yield ()
        yield (Segment(f"{project or 'cluster'}", "strong"),)
        for change, name in plan_report.told_objects(changes):
            mark = Segment(f"  {MARKS[change.action]} ", STYLES[change.action])
            yield (mark, Segment(name), Segment(f"  {change.reason}", "dim"))


def _verdict_lines(report: PlanReport) -> Iterator[Line]:
    for refusal in report.refusals.new:
        yield (Segment("refused ", "bad"), Segment(f"{refusal.code}: {refusal.message}"))
        yield (Segment("help", "help"), Segment(f": {refusal.help}"))
    for refusal in report.refusals.confirmed:
        yield (Segment("confirmed ", "warning"), Segment(f"by a commit, {refusal.code}: {refusal.message}"))
    for refusal in report.refusals.standing:
        yield (Segment("refused already ", "dim"), Segment(f"{refusal.code}: {refusal.message}"))
        yield (Segment("help", "help"), Segment(f": {refusal.help}"))
    for each in report.failed:
        yield (Segment("failed ", "bad"), Segment(f"--fail-on {each.gate}: {plan_report.failed_names(each)}"))


def _effect_lines(effect: Effect, ground: Ground | None, remarks: Sequence[str]) -> Iterator[Line]:
    yield ()
    yield (
        Segment("Effect: ", "strong"),
        Segment(plan_effect.headline(effect)),
        Segment(f"  {plan_effect.ground_text(ground)}", "dim"),
    )
    rows = list(plan_effect.rows(effect))
    shown = rows if len(rows) <= SHOWN_JOBS else _most_telling(rows)
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


def _most_telling(rows: Sequence[plan_effect.Row]) -> list[plan_effect.Row]:
    """The rows to show if there are too many: first those that lose GPUs, and not all of one project."""
    losses_first = sorted(rows, key=lambda row: row.mark not in {"-", "~"})
    return in_turns((row.job.project, row) for row in losses_first)[:SHOWN_JOBS]


def _aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Each row as one line, with its cells in columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _gpus(row: plan_effect.Row) -> str:
    return "" if row.gpu_milli is None else count_gpus(row.gpu_milli)
