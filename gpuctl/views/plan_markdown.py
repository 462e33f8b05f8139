"""The PlanReport in the Markdown of GitHub and GitLab, for a pull or merge request.

The order is a reviewer's: the verdict, what is destroyed or paused with the owners of those projects, what changes for
each project, starts, waits, and the objects folded. A report that is too long loses objects first, then rows; totals
stay. Only `owners`, as base declares them, become mentions: a change can't make it mention others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from gpuctl.diag.escapes import markdown_code, markdown_text, printable
from gpuctl.diag.wording import all_of
from gpuctl.model.change import Action
from gpuctl.model.declared import WHOLE_CLUSTER, DomainName
from gpuctl.model.ids import JobId, ProjectName
from gpuctl.model.units import GpuMilli, format_gpus
from gpuctl.views import plan_comparison, plan_effect, plan_report
from gpuctl.views.plan_report import MARKS, PlanReport

GITHUB_CHARS = 65_536
"""The longest comment that GitHub takes; GitLab takes 1,000,000 characters."""
LEAST_CHARS = 16_384
"""Any report fits into that, without its rows."""
_TEXT_CHARS = 600
"""The longest text of a name or message, as it is escaped."""
_OWNERS = 30
_OWNER = re.compile(r"@[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)?")
_EVERYONE = frozenset({"@all", "@everyone", "@here", "@channel"})
_FIRST = re.compile(r"^(\d*)([!-/:-@^{}])")
_DATA = frozenset({"Namespace", "PersistentVolumeClaim"})
"""Kinds whose deletion loses what people keep in them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The most objects, and the most rows of each table or list."""

    objects: int
    rows: int


_STEPS = (
    *(Bounds(objects=objects, rows=1000) for objects in (1000, 200, 50, 0)),
    *(Bounds(objects=0, rows=rows) for rows in (200, 40, 10, 0)),
)


def marker(cluster: str) -> str:
    """The hidden line that a comment begins with, by which it is found again."""
    return f"<!-- gpuctl plan {re.sub('[^a-z0-9.-]', '-', cluster)[:253]} -->"


def markdown(report: PlanReport, most_chars: int = GITHUB_CHARS) -> str:
    """The comment, at most `most_chars` long; that is LEAST_CHARS or more, or ValueError.

    Cost: the report is written up to 8 times.
    """
    text = ""
    for bounds in _STEPS:
        text = "".join(f"{line}\n" for line in _lines(report, bounds))
        if len(text) <= most_chars:
            return text
    raise ValueError(f"{len(text)} characters without any row, {most_chars} wanted")


def _lines(report: PlanReport, bounds: Bounds) -> Iterator[str]:
    base, head = (markdown_code(_short(name)) for name in (report.compared.base, report.compared.head))
    yield marker(report.cluster)
    yield ""
    yield f"**gpuctl plan{report.cluster and f' of {_text(report.cluster)}'}**: {_verdict(report)}"
    yield ""
    yield f"{base} → {head}: {'no changes' if report.empty else plan_report.counts(report)}"
    for line in plan_comparison.remarks(report.compared):
        yield ""
        yield _line(line)
    if not report.empty:
        yield from _refusals(report, bounds)
        yield from _changes(report, bounds)
    for line in plan_report.identity(report):
        yield ""
        yield f"<sub>{_text(line)}</sub>"


def _verdict(report: PlanReport) -> str:
    """What a reviewer has to know first."""
    if report.empty:
        return "nothing changes"
    lost, effect = sum(each.action is Action.DELETE and not each.replaced for each in report.objects), report.effect
    said = [f"**refused** ({', '.join(sorted({each.code for each in report.refusals.new}))})"] * bool(
        report.refusals.new
    )
    said += [f"**fails** {markdown_code('--fail-on ' + ','.join(each.gate for each in report.failed))}"] * bool(
        report.failed
    )
    said += [plan_effect.headline(effect)] if effect is not None else []
    said += [f"{lost} {'object is' if lost == 1 else 'objects are'} deleted"] if lost else []
    return "; ".join(said) or "no effect on jobs is known"


def _refusals(report: PlanReport, bounds: Bounds) -> Iterator[str]:
    for refusal in report.refusals.new[: max(bounds.rows, 5)]:
        yield ""
        yield f"> **refused** {refusal.code}: {_text(refusal.message)}  "
        yield f"> {_line(refusal.help)}"
    told = (("confirmed by a commit", report.refusals.confirmed), ("refused already", report.refusals.standing))
    for word, refusal in ((word, refusal) for word, refusals in told for refusal in refusals[: bounds.rows]):
        yield ""
        yield f"> **{word}** {refusal.code}: {_text(refusal.message)}"
    for each in report.failed:
        yield ""
        yield f"> **failed** {markdown_code(f'--fail-on {each.gate}')}: {_text(plan_report.failed_names(each))}"
    left_out = sum(
        max(0, len(refusals) - most)
        for refusals, most in (
            (report.refusals.new, max(bounds.rows, 5)),
            (report.refusals.confirmed, bounds.rows),
            (report.refusals.standing, bounds.rows),
        )
    )
    yield from _more(left_out)


def _changes(report: PlanReport, bounds: Bounds) -> Iterator[str]:
    effect = report.effect
    rows = list(plan_effect.rows(effect)) if effect is not None else []
    restarted = {each.job for each in effect.started if each.anew} if effect is not None else set()
    losses = [row for row in rows if _is_loss(row, restarted)]
    rows = [row for row in rows if not _is_loss(row, restarted)]
    yield from _losses(report, losses, bounds)
    yield from _table("**Projects**, in GPUs", *_projects(report), bounds)
    for caption, mark in (("**Starts**", "+"), ("**Waits**", "")):
        some = [(str(row.job), _gpus(row.gpu_milli), row.text) for row in rows if row.mark == mark]
        yield from _table(caption, ("job", "GPUs", "what happens"), some, bounds)
    if effect is not None:
        yield ""
        ground = plan_effect.ground_text(report.ground).strip("()")
        remarks = plan_report.effect_remarks(report, effect)
        yield _line(
            " ".join([f"Computed on {ground}." if ground else "", *remarks]).strip() or "Computed on no cluster."
        )
    notes = [*plan_report.limit_notes(report)]
    yield from _list("**Limits**", notes, bounds)
    yield from _list("**Settings**", [*plan_report.setting_lines(report)], bounds)
    yield from _list("**Policies**", [line for _, line in plan_report.breach_lines(report)], bounds)
    yield from _objects(report, bounds)


def _is_loss(row: plan_effect.Row, restarted: Collection[JobId]) -> bool:
    return row.mark in {"-", "~"} or row.job in restarted


def _losses(report: PlanReport, rows: Sequence[plan_effect.Row], bounds: Bounds) -> Iterator[str]:
    """Runs that are paused, ended, restarted, moved or scaled, and lost objects with their data, by project."""
    lost = [o for o in report.objects if o.action is Action.DELETE and o.ref.kind in _DATA and not o.replaced]
    cells = [(row.job.project, (str(row.job), _gpus(row.gpu_milli), row.text)) for row in rows]
    cells += [(o.project or ProjectName(""), (str(o.ref), "", "is deleted with what is in it")) for o in lost]
    cells.sort(key=lambda each: each[0])
    headings = ("job or object", "GPUs", "what happens")
    yield from _table("**Paused, ended, restarted, moved or deleted**", headings, [each for _, each in cells], bounds)
    losers = sorted({project for project, _ in cells if report.owners.get(project)})
    if losers:
        yield ""
        yield f"Owners: {_owners(report, losers)}"


def _owners(report: PlanReport, projects: Sequence[ProjectName]) -> str:
    """The owners of projects, each once, as mentions where they are people or teams of the code host."""
    names = list(dict.fromkeys(owner for project in projects for owner in report.owners[project]))
    shown = [
        owner if _OWNER.fullmatch(owner) and len(owner) <= 253 and owner.lower() not in _EVERYONE else _text(owner)
        for owner in names[:_OWNERS]
    ]
    return all_of([*shown, f"{len(names) - _OWNERS} more"] if len(names) > _OWNERS else shown)


def _projects(report: PlanReport) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headings and a row for each project whose quota, use or share changes."""
    quotas = {(each.project, each.domain): each for each in report.quotas}
    effect, capacity = report.effect, report.ground.capacity if report.ground is not None else {}
    every = () if effect is None else (*effect.holdings, *effect.steady)
    holdings = {(each.project, each.domain): each for each in every}
    changing = {key for key, each in holdings.items() if each.changes} | quotas.keys()
    rows = []
    for project, domain in sorted(changing):
        quota, holding = quotas.get((project, domain)), holdings.get((project, domain))
        told = plan_report.quota_cells(quota, bare=True)[1:4] if quota is not None else ("", "", "")
        held = (quota.held if quota is not None else None) if holding is None else holding.held
        share = "" if holding is None else plan_effect.amounts(holding.share)
        of = capacity.get(domain)
        rows.append((
            _name(project, domain),
            *told,
            "" if held is None else plan_effect.amounts(held),
            share,
            "" if of is None else format_gpus(of),
        ))
    headings = ("project", "quota", "limit", "weight", "in use", "fair share", "capacity")
    kept = [at for at in range(len(headings)) if at == 0 or any(row[at] for row in rows)]
    return tuple(headings[at] for at in kept), [tuple(row[at] for at in kept) for row in rows]


def _name(project: ProjectName, domain: DomainName) -> str:
    return project if domain == WHOLE_CLUSTER else f"{project} on {domain}"


def _table(caption: str, headings: Sequence[str], rows: Sequence[tuple[str, ...]], bounds: Bounds) -> Iterator[str]:
    """A caption, with the number of all rows, and the table; nothing where there are no rows."""
    if not rows:
        return
    yield ""
    yield f"{caption} ({len(rows)})"
    shown = rows[: bounds.rows]
    if shown:
        yield ""
        yield f"| {' | '.join(headings)} |"
        yield f"|{'|'.join('---:' if _is_amount(heading) else '---' for heading in headings)}|"
    for cells in shown:
        yield f"| {' | '.join(map(_text, cells))} |"
    yield from _more(len(rows) - len(shown))


def _list(caption: str, lines: Sequence[str], bounds: Bounds) -> Iterator[str]:
    if not lines:
        return
    yield ""
    yield f"{caption} ({len(lines)})"
    yield ""
    for line in lines[: bounds.rows]:
        yield f"- {_line(line)}"
    yield from _more(len(lines) - len(lines[: bounds.rows]))


def _objects(report: PlanReport, bounds: Bounds) -> Iterator[str]:
    if not report.objects:
        return
    count, shown = len(report.objects), report.objects[: bounds.objects]
    yield ""
    yield f"<details><summary>{count} {'object' if count == 1 else 'objects'}</summary>"
    yield ""
    if shown:
        yield "```diff"
        for change in shown:
            sign = {"~": "!"}.get(MARKS[change.action], MARKS[change.action])
            yield _cut(f"{sign} {change.ref}  {change.reason}".rstrip(), printable)
        yield "```"
    yield from _more(count - len(shown))
    yield ""
    yield "</details>"


def _more(left_out: int) -> Iterator[str]:
    """What was cut off."""
    if left_out > 0:
        yield ""
        yield f"… and {left_out} more, left out here; `gpuctl plan -o json` has all."


def _is_amount(heading: str) -> bool:
    return heading in {"GPUs", "capacity"}


def _gpus(gpu_milli: GpuMilli | None) -> str:
    return "" if gpu_milli is None else format_gpus(gpu_milli)


def _text(text: str) -> str:
    """Text within a line, escaped and bounded."""
    return _cut(text, markdown_text)


def _line(text: str) -> str:
    """Text as a paragraph: what it begins with is no heading, list or quote, nor a command to GitLab."""
    return _FIRST.sub(r"\1\\\2", _text(text))


def _cut(text: str, escape: Callable[[str], str]) -> str:
    """The escaped text; of one that is too long, as much of its beginning as there is room for."""
    most = _TEXT_CHARS
    while len(escaped := escape(text[:most])) > _TEXT_CHARS:
        most //= 2
    return escaped if most >= len(text) else f"{escaped}…"


def _short(name: str) -> str:
    return name if len(name) <= 100 else f"{name[:100]}…"
