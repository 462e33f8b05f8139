"""The PlanReport in GitHub's Markdown, for a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuctl.diag.escapes import markdown_code, markdown_text, printable
from gpuctl.model.effect import Effect, Ground
from gpuctl.model.units import format_gpus
from gpuctl.views import plan_comparison, plan_effect, plan_report
from gpuctl.views.plan_report import MARKS, SHOWN_JOBS, PlanReport

SHOWN_OBJECTS = 200
"""The most objects that are listed; the JSON form has all."""


def markdown(report: PlanReport) -> Iterator[str]:
    """The form for a pull request, in GitHub's Markdown."""
    base, head = markdown_code(report.compared.base), markdown_code(report.compared.head)
    if report.empty:
        yield f"**gpuctl plan**: no changes between {base} and {head}."
    else:
        yield f"**gpuctl plan** {base} → {head}: {plan_report.counts(report)}"
    for line in plan_comparison.remarks(report.compared):
        yield ""
        yield markdown_text(line)
    if not report.empty:
        yield from _changes(report)
    for line in plan_report.identity(report):
        yield ""
        yield f"<sub>{markdown_text(line)}</sub>"


def _changes(report: PlanReport) -> Iterator[str]:
    yield from _verdict(report)
    if report.effect is not None:
        yield from _effect(report.effect, report.ground, plan_report.effect_remarks(report, report.effect))
    if report.quotas:
        yield ""
        yield "| project | quota | limit | over-quota weight | GPUs held | of |"
        yield "|---|---|---|---|---|---|"
        for quota in report.quotas:
            yield _row(plan_report.quota_cells(quota, bare=True))
    for note in plan_report.limit_notes(report):
        yield ""
        yield markdown_text(note)
    if report.settings:
        yield ""
        for line in plan_report.setting_lines(report):
            yield f"- {markdown_text(line)}"
    if report.breaches:
        yield ""
        for _, line in plan_report.breach_lines(report):
            yield f"- {markdown_text(line)}"
    yield from _objects(report)


def _verdict(report: PlanReport) -> Iterator[str]:
    for refusal in report.refusals.new:
        yield ""
        yield f"> **refused** {refusal.code}: {markdown_text(refusal.message)}  "
        yield f"> {markdown_text(refusal.help)}"
    told = (("confirmed by a commit", report.refusals.confirmed), ("refused already", report.refusals.standing))
    for word, refusal in ((word, refusal) for word, refusals in told for refusal in refusals):
        yield ""
        yield f"> **{word}** {refusal.code}: {markdown_text(refusal.message)}"
    for each in report.failed:
        yield ""
        yield f"> **failed** {markdown_code(f'--fail-on {each.gate}')}: {markdown_text(plan_report.failed_names(each))}"


def _effect(effect: Effect, ground: Ground | None, remarks: Sequence[str]) -> Iterator[str]:
    yield ""
    yield f"**Effect**: {plan_effect.headline(effect)} {plan_effect.ground_text(ground)}"
    rows = list(plan_effect.rows(effect))
    if rows:
        yield ""
        yield "| | job | GPUs | |"
        yield "|---|---|---|---|"
    for row in rows[:SHOWN_JOBS]:
        gpus = "" if row.gpu_milli is None else format_gpus(row.gpu_milli)
        yield f"| {row.mark and f'`{row.mark}`'} {_row((str(row.job), gpus, row.text))}"
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
        yield _row(cells)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(markdown_text, cells))} |"


def _objects(report: PlanReport) -> Iterator[str]:
    if not report.objects:
        return
    yield ""
    count = len(report.objects)
    yield f"<details><summary>{count} {'object' if count == 1 else 'objects'}</summary>"
    yield ""
    yield "```diff"
    for change in report.objects[:SHOWN_OBJECTS]:
        sign = {"~": "!"}.get(MARKS[change.action], MARKS[change.action])
        yield printable(f"{sign} {change.ref}  {change.reason}".rstrip())
    yield "```"
    if len(report.objects) > SHOWN_OBJECTS:
        yield f"… and {len(report.objects) - SHOWN_OBJECTS} more."
    yield "</details>"
