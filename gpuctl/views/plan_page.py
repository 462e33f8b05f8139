"""The contents of a plan's comment as values: the text of each part in the order of the comment, not yet as Markdown.

A page is part of the JSON form of a plan. So a job with a token can write the comment of a plan that a job without one
has made (`gpuctl comment --plan`). Security: such a file may come from anybody. Its model bounds every text and every
list, and `plan_markdown` escapes every text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from operator import itemgetter
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic.alias_generators import to_camel

from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.diag.escapes import printable
from gpuctl.model.change import Action
from gpuctl.model.declared import WHOLE_CLUSTER
from gpuctl.model.effect import Effect
from gpuctl.model.ids import DomainName, JobId, ProjectName
from gpuctl.model.turns import in_turns
from gpuctl.model.units import GpuMilli, format_gpus
from gpuctl.views import plan_breaches, plan_comparison, plan_effect, plan_report
from gpuctl.views.plan_labels import Labelled, labels_of
from gpuctl.views.plan_report import MARKS, PlanReport

MOST_ROWS = 1000
"""The most rows that a page has of a table or list; their total is given beside them."""
TEXT_CHARS = 600
"""The longest text, without the mark that it was cut."""
_NAME_CHARS = 100
_DATA = frozenset({"Namespace", "PersistentVolumeClaim"})
"""Kinds whose deletion loses what people keep in them."""

Text = Annotated[str, StringConstraints(max_length=TEXT_CHARS + 1)]
CommitId = Annotated[str, StringConstraints(pattern="^([0-9a-f]{40}|[0-9a-f]{64})$")]


class Form(BaseModel):
    """What all parts of a plan's JSON form have in common: each field is always there."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        defer_build=True,
    )


class Lines(Form):
    """A list of which only the first lines are there."""

    total: int = Field(ge=0, description="How many lines there are.")
    shown: tuple[Text, ...] = Field(max_length=MOST_ROWS, description="The first of them.")


class JobRows(Form):
    """What happens to jobs, of which only the first are there."""

    total: int = Field(ge=0, description="How many rows there are.")
    shown: tuple[tuple[Text, Text, Text], ...] = Field(
        max_length=MOST_ROWS, description="Of each of the first: the job or object, its GPUs, what happens."
    )


class ProjectRows(Form):
    """What changes for projects, of which only the first are there."""

    total: int = Field(ge=0, description="How many rows there are.")
    shown: tuple[tuple[Text, Text, Text, Text, Text, Text, Text], ...] = Field(
        max_length=MOST_ROWS,
        description="Of each of the first: the project, quota, limit, weight, use, fair share, capacity; empty: none.",
    )


class Notice(Form):
    """What a guard says."""

    code: Text = Field(description="A code of `gpuctl explain`.")
    message: Text = Field(description="What is refused, in words.")
    help: Text = Field(description="What lifts the refusal.")


class Notices(Form):
    """What guards say, of which only the first are there."""

    total: int = Field(ge=0, description="How many there are.")
    shown: tuple[Notice, ...] = Field(max_length=MOST_ROWS, description="The first of them.")


class GateText(Form):
    """A gate of `--fail-on` that the change fails."""

    gate: Text = Field(description="The gate.")
    names: Text = Field(description="The jobs or objects because of which it fails.")


class PlanPage(Form):
    """What the comment says."""

    cluster: Text = Field(description="The cluster's name, and its folder where that has another name.")
    base: Text = Field(description="The revision that the change is merged into.")
    head: Text = Field(description="The revision with the change.")
    empty: bool = Field(description="Whether nothing changes.")
    verdict: tuple[Text, ...] = Field(max_length=2, description="The effect on jobs, and how many objects are deleted.")
    counts: Text = Field(description="How many objects, quotas and settings change.")
    remarks: tuple[Text, ...] = Field(max_length=4, description="What is to be known of the two revisions.")
    refused: Notices = Field(description="What guards refuse of the change.")
    confirmed: Notices = Field(description="What they would refuse, had no commit confirmed it.")
    refused_already: Notices = Field(description="What they refuse without the change as well.")
    failed: tuple[GateText, ...] = Field(max_length=5, description="The gates of --fail-on that the change fails.")
    losses: JobRows = Field(
        description="Runs that are paused, ended, restarted, moved or scaled; waiting jobs and data that are deleted."
    )
    owners: tuple[Text, ...] = Field(max_length=MOST_ROWS, description="The owners of projects that lose something.")
    projects: ProjectRows = Field(description="Projects with another quota, use or fair share.")
    starts: JobRows = Field(description="Jobs that start.")
    waits: JobRows = Field(description="Jobs that wait.")
    effect: Text = Field(description="The state that the effect is computed on, and what stays the same; empty: none.")
    limits: Lines = Field(description="Limits that are set below what is held.")
    settings: Lines = Field(description="Settings that change.")
    policies: Lines = Field(description="Declarations that start or cease to break a policy.")
    objects: Lines = Field(description="Objects that change, each with its sign in a diff.")
    identity: tuple[Text, ...] = Field(
        min_length=1, max_length=2, description="The commits, gpuctl's version, the digest; and the cluster's state."
    )
    labels: tuple[Labelled, ...] = Field(max_length=len(Labelled), description="What labels tell of it.")


class _Commits(BaseModel):
    """The commits that a plan compares, of its `merge`."""

    model_config = ConfigDict(strict=True, frozen=True, alias_generator=to_camel, defer_build=True)

    base_commit: CommitId | None
    head_commit: CommitId | None


class ReadPlan(BaseModel):
    """What is read of the JSON form of a plan: its page, and its commits. Other fields are passed over."""

    model_config = ConfigDict(strict=True, frozen=True, alias_generator=to_camel, defer_build=True)

    api_version: Literal["gpuctl.dev/v1"]
    kind: Literal["PlanReport"]
    merge: _Commits
    comment: PlanPage


def read_plan(data: bytes) -> ReadPlan | str:
    """The plan that `gpuctl plan -o json` has written, or why the data is none."""
    try:
        return ReadPlan.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"]))
        return _text(f"{place}: {first['msg']}" if place else first["msg"])


def page(report: PlanReport) -> PlanPage:
    """The page of a report's comment. Cost: linear in its rows and objects."""
    effect = report.effect
    rows = list(plan_effect.rows(effect)) if effect is not None else []
    restarted = {each.job for each in effect.started if each.anew} if effect is not None else set()
    losses = _losses(report, [row for row in rows if _is_loss(row, restarted)])
    others = [row for row in rows if not _is_loss(row, restarted)]
    return PlanPage(
        cluster=_text(_cluster(report)),
        base=_name(report.compared.base),
        head=_name(report.compared.head),
        empty=report.empty,
        verdict=tuple(map(_text, _verdict(report))),
        counts=_text(plan_report.counts(report)),
        remarks=tuple(map(_text, plan_comparison.remarks(report.compared))),
        refused=_notices(report.refusals.new),
        confirmed=_notices(report.refusals.confirmed),
        refused_already=_notices(report.refusals.standing),
        failed=tuple(
            GateText(gate=_text(each.gate), names=_text(plan_report.failed_names(each))) for each in report.failed
        ),
        losses=_job_rows(in_turns(losses)),
        owners=_owners(report, sorted({project for project, _ in losses})),
        projects=_project_rows(report),
        starts=_job_rows(in_turns((row.job.project, _cells(row)) for row in others if row.mark == "+")),
        waits=_job_rows(in_turns((row.job.project, _cells(row)) for row in others if not row.mark)),
        effect="" if effect is None else _text(_effect(report, effect)),
        limits=_lines([*plan_report.limit_notes(report)]),
        settings=_lines([*plan_report.setting_lines(report)]),
        policies=_lines([line for _, line in plan_breaches.lines(report.breaches)]),
        objects=_lines([_object(each, name) for each, name in plan_report.told_objects(report.objects)]),
        identity=tuple(map(_text, plan_report.identity(report))),
        labels=tuple(sorted(labels_of(report))),
    )


def _text(text: str) -> str:
    """A bounded text, without characters that a terminal or JSON can't have."""
    shown = printable(text[: TEXT_CHARS + 1])
    return shown if len(shown) <= TEXT_CHARS else f"{shown[:TEXT_CHARS]}…"


def _cluster(report: PlanReport) -> str:
    """The cluster's name, with its folder if that has another name.

    Two folders may name one cluster, and the comment of one must not replace the other's.
    """
    folder = report.compared.folder
    name = folder.rstrip("/").rpartition("/")[2]
    return report.cluster if name in {"", ".", report.cluster} else f"{report.cluster} ({folder})"


def _name(revision: str) -> str:
    return _text(revision if len(revision) <= _NAME_CHARS else f"{revision[:_NAME_CHARS]}…")


def _verdict(report: PlanReport) -> Iterator[str]:
    """What a reviewer has to know first, after the refusals."""
    if report.effect is not None:
        yield plan_effect.headline(report.effect)
    lost = sum(each.action is Action.DELETE and not each.replaced for each in report.objects)
    if lost:
        yield f"{lost} {'object is' if lost == 1 else 'objects are'} deleted"


def _effect(report: PlanReport, effect: Effect) -> str:
    ground = plan_effect.ground_text(report.ground).strip("()")
    remarks = plan_report.effect_remarks(report, effect)
    return " ".join([f"Computed on {ground}." if ground else "", *remarks]).strip() or "Computed on no cluster."


def _is_loss(row: plan_effect.Row, restarted: Collection[JobId]) -> bool:
    return row.mark in {"-", "~"} or row.job in restarted


def _losses(report: PlanReport, rows: Sequence[plan_effect.Row]) -> list[tuple[ProjectName, tuple[str, str, str]]]:
    """The effects on runs and deleted jobs, and the lost objects with their data, by project."""
    lost = [o for o in report.objects if o.action is Action.DELETE and o.ref.kind in _DATA and not o.replaced]
    found = [(row.job.project, _cells(row)) for row in rows]
    found += [(o.project or ProjectName(""), (str(o.ref), "", "is deleted with what is in it")) for o in lost]
    return sorted(found, key=lambda each: each[0])


def _owners(report: PlanReport, projects: Sequence[ProjectName]) -> tuple[str, ...]:
    """The owners of projects, each once; the first of each project before the second of any."""
    ranked = [(at, owner) for project in projects for at, owner in enumerate(report.owners.get(project, ()))]
    names = dict.fromkeys(owner for _, owner in sorted(ranked, key=itemgetter(0)))
    return tuple(map(_text, names))[:MOST_ROWS]


def _cells(row: plan_effect.Row) -> tuple[str, str, str]:
    return str(row.job), "" if row.gpu_milli is None else format_gpus(row.gpu_milli), row.text


def _job_rows(rows: Sequence[tuple[str, str, str]]) -> JobRows:
    return JobRows(total=len(rows), shown=tuple((_text(a), _text(b), _text(c)) for a, b, c in rows[:MOST_ROWS]))


def _lines(lines: Sequence[str]) -> Lines:
    return Lines(total=len(lines), shown=tuple(map(_text, lines[:MOST_ROWS])))


def _notices(refusals: Sequence[Diagnostic]) -> Notices:
    shown = (
        Notice(code=_text(each.code), message=_text(each.message), help=_text(each.help))
        for each in refusals[:MOST_ROWS]
    )
    return Notices(total=len(refusals), shown=tuple(shown))


def _object(change: plan_report.ObjectChange, name: str) -> str:
    sign = {"~": "!"}.get(MARKS[change.action], MARKS[change.action])
    return f"{sign} {name}  {change.reason}".rstrip()


def _project_rows(report: PlanReport) -> ProjectRows:
    """A row for each project whose quota, use or share changes."""
    quotas = {(each.project, each.domain): each for each in report.quotas}
    effect, capacity = report.effect, report.ground.capacity if report.ground is not None else {}
    every = () if effect is None else (*effect.holdings, *effect.steady)
    holdings = {(each.project, each.domain): each for each in every}
    changing = sorted({key for key, each in holdings.items() if each.changes} | quotas.keys())

    def row(project: ProjectName, domain: DomainName) -> Iterator[str]:
        quota, holding = quotas.get((project, domain)), holdings.get((project, domain))
        held = (quota.held if quota is not None else None) if holding is None else holding.held
        of: GpuMilli | None = capacity.get(domain)
        yield project if domain == WHOLE_CLUSTER else f"{project} on {domain}"
        yield from plan_report.quota_cells(quota, bare=True)[1:4] if quota is not None else ("", "", "")
        yield "" if held is None else plan_effect.amounts(held)
        yield "" if holding is None else plan_effect.amounts(holding.share)
        yield "" if of is None else format_gpus(of)

    shown = tuple(_seven(map(_text, row(*key))) for key in changing[:MOST_ROWS])
    return ProjectRows(total=len(changing), shown=shown)


_Seven = tuple[str, str, str, str, str, str, str]


def _seven(cells: Iterator[str]) -> _Seven:
    a, b, c, d, e, f, g = cells
    return a, b, c, d, e, f, g
