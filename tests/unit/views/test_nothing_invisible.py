"""Whatever others wrote, nothing that drives a terminal or can't be seen leaves gpuctl: every view in every form."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hostile import JSON, TEXT, invisible, of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuctl.app.bench.cluster_bare import compiled
from gpuctl.app.bench.cluster_tree import SMALL, ground_files
from gpuctl.app.cycle import CycleContext, CycleReport, cycle
from gpuctl.app.notes import notes_of
from gpuctl.app.object_cache import ObjectCache
from gpuctl.app.rejections import with_new
from gpuctl.app.report import Entry, FieldValue, Level, LogForm
from gpuctl.cli.failures import Failure
from gpuctl.cli.output import print_json, print_yaml
from gpuctl.cli.storyboard import Storyboard
from gpuctl.cli.terminal import say, show, show_diagnostics
from gpuctl.cli.validate import FORMS
from gpuctl.diag.codes import CODES
from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.diag.escapes import json_text, markdown_text, printable, yaml_text
from gpuctl.diag.wording import reason_text
from gpuctl.model.change import ApplyResult, Outcome, OutcomeStatus
from gpuctl.model.decision import Reason, TraceStep
from gpuctl.model.explanation import Explanation
from gpuctl.model.ids import ProjectName
from gpuctl.simulate.report import SimulationReport
from gpuctl.simulate.report import document as simulation_document
from gpuctl.simulate.scenario import EPOCH_MS
from gpuctl.views import (
    drift,
    explain,
    explanation,
    listing,
    nodes,
    plan_form,
    plan_markdown,
    plan_page,
    plan_report,
    plan_text,
    projects,
)
from gpuctl.views.chart import svg_chart, svg_sheet, text_chart
from gpuctl.views.events import EventView, event_table, event_views
from gpuctl.views.jobs import JobView
from gpuctl.views.replay import ModeRow, mode_table
from gpuctl.views.story import Moment, News
from gpuctl.views.styled import Segment
from gpuctl.views.tables import table
from gpuctl.views.trace import step_text
from gpuctl.views.yamltext import yaml_document
from gpuctl.wiring import sandbox

NOW_MS = 1_596_000_000_000
Held = dict[ProjectName, list[int]]


def _jobs(views: Sequence[JobView]) -> None:
    show(listing.job_table(views, NOW_MS, wide=True))
    show(listing.name_lines(views))
    print_json({"jobs": [listing.job_form(view) for view in views]})
    print_yaml({"jobs": [listing.job_form(view) for view in views]})
    for view in views:
        show(listing.job_text(view, NOW_MS))
        for line in explain.explain_job(view, NOW_MS):
            say(line)


def _nodes(views: Sequence[nodes.NodeView]) -> None:
    show(nodes.node_table(views, wide=True))
    show(nodes.device_table(views, wide=True))
    print_json([nodes.node_form(view) for view in views])
    print_yaml({"nodes": [nodes.node_form(view) for view in views]})


def _projects(views: Sequence[projects.ProjectView]) -> None:
    show(projects.project_table(views, wide=True))
    print_json([projects.project_form(view) for view in views])
    print_yaml({"projects": [projects.project_form(view) for view in views]})


def _drift(report: drift.DriftReport) -> None:
    print_json(drift.document(report))
    for line in drift.text(report):
        say(*line)


def _plan(report: plan_report.PlanReport) -> None:
    print_json(plan_form.document(report))
    for line in plan_text.text(report):
        say(*line)
    show(plan_markdown.markdown(plan_page.page(report)))


def _explanation(told: Explanation) -> None:
    print_json(explanation.document(told))
    say(explanation.headline(told))
    for line in explanation.explanation_text(told):
        say(line)


def _diagnostics(found: Sequence[Diagnostic]) -> None:
    for form in FORMS.values():
        form(found)
    show_diagnostics(found, err=True)


def _simulation(report: SimulationReport) -> None:
    print_json(simulation_document(report))


def _story(told: tuple[str, Moment, tuple[News, ...]]) -> None:
    title, moment, news = told
    board = Storyboard(10)
    board.open(title)
    board.show(title, moment, news)


def _charts(told: tuple[Held, str, str]) -> None:
    held, begin, end = told
    for line in text_chart(held, 8000, begin, end):
        say(*line)
    show(svg_chart(held, 8000, begin, end))
    show(svg_sheet({name: svg_chart(held, 8000, begin, end) for name in held}))


def _events(views: tuple[EventView, ...]) -> None:
    show(event_table(views, NOW_MS))


def _bodies(bodies: Sequence[Any]) -> None:
    show(event_table(event_views([body for body in bodies if isinstance(body, dict)]), NOW_MS))
    for body in bodies:
        print_yaml({"body": body})
        show(json_text(body, indent=2) + "\n")


def _journal(entry: Entry) -> None:
    for form in LogForm:
        line = entry.line(NOW_MS, form)
        assert "\n" not in line
        say(line)
        assert not invisible(line)


def _failure(told: tuple[str, str]) -> None:
    Failure("GPU9002", told[0], hint=told[1]).show()


def _trace(told: tuple[TraceStep, ProjectName]) -> None:
    say(step_text(*told))


def _modes(rows: tuple[ModeRow, ...]) -> None:
    show(mode_table(rows))


def _consistent(report: plan_report.PlanReport) -> plan_report.PlanReport:
    """The report with its effect as plans have it: a run that is paused waits from then on."""
    if report.effect is None:
        return report
    waiting = {wait.job for wait in report.effect.waits}
    paused = tuple(pause for pause in report.effect.paused if pause.job in waiting)
    return replace(report, effect=replace(report.effect, paused=paused))


ENTRIES = st.builds(  # the words are ours, the values are not
    Entry,
    event=st.just("declarations"),
    level=of(Level),
    fields=st.dictionaries(st.sampled_from(["code", "message", "object"]), of(FieldValue)),
)
CASES: dict[str, tuple[Any, Callable[[Any], None]]] = {
    "jobs": (tuple[JobView, ...], _jobs),
    "nodes": (tuple[nodes.NodeView, ...], _nodes),
    "projects": (tuple[projects.ProjectView, ...], _projects),
    "drift": (drift.DriftReport, _drift),
    "plan": (of(plan_report.PlanReport).map(_consistent), _plan),
    "explanation": (Explanation, _explanation),
    "diagnostics": (list[Diagnostic], _diagnostics),
    "simulation": (SimulationReport, _simulation),
    "story": (tuple[str, Moment, tuple[News, ...]], _story),
    "charts": (st.tuples(st.dictionaries(TEXT, st.just([1000, 8000, 0]), max_size=3), TEXT, TEXT), _charts),
    "events": (tuple[EventView, ...], _events),
    "objects": (list[Any], _bodies),
    "journal": (ENTRIES, _journal),
    "failure": (tuple[str, str], _failure),
    "trace": (tuple[TraceStep, ProjectName], _trace),
    "modes": (tuple[ModeRow, ...], _modes),
}


def printed(tell: Callable[[Any], None], value: Any) -> str:
    """Everything that is printed of a value, on both streams."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        tell(value)
    return out.getvalue()


@pytest.mark.parametrize("case", CASES)
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_no_view_prints_what_can_not_be_seen(case: str, data: st.DataObject) -> None:
    kind, tell = CASES[case]
    text = printed(tell, data.draw(kind if isinstance(kind, st.SearchStrategy) else of(kind)))
    assert not invisible(text)
    text.encode()


@settings(max_examples=300)
@given(st.lists(st.one_of(TEXT, TEXT.map(lambda text: Segment(text, "bad"))), max_size=4))
def test_parts_of_a_line_are_no_command_together(parts: list[str | Segment]) -> None:
    line = printed(lambda them: say(*them), parts)
    assert not invisible(line)
    assert not line.lstrip().startswith("::")


@settings(max_examples=200)
@given(st.lists(st.tuples(TEXT, TEXT), max_size=4))
def test_no_cell_ends_its_line(rows: list[tuple[str, str]]) -> None:
    assert table(("A", "B"), rows).count("\n") == 1 + len(rows)
    assert printed(lambda text: say(*text), [text for row in rows for text in row]).count("\n") == 1


@settings(max_examples=200)
@given(JSON)
def test_programs_read_what_was_there(value: Any) -> None:
    assert json.loads(json_text(value)) == value
    written = yaml.safe_load(yaml_document({"value": value}))
    if "\udc80" not in json.dumps(value, ensure_ascii=False):  # YAML has no way to say half a character
        assert written == {"value": value}


def test_yaml_says_characters_beyond_the_basic_plane_in_one_escape() -> None:
    assert yaml_text('a: "\U000e0041\u202e"\n') == 'a: "\\U000e0041\\u202e"\n'


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("team-a/a-1-g: 4 -> 8 GPUs", "team-a/a-1-g: 4 -> 8 GPUs"),
        ("a|b", "a\\|b"),
        ("<img src=x>", "\\<img src=x>"),
        ("&lt;b&gt;", "\\&lt;b\\&gt;"),
        ("[a](https://x)", "\\[a\\](https\\://x)"),
        ("http://x www.x", "http\\://x www\\.x"),
        ("@acme/team #12", "@<!-- -->acme/team #<!-- -->12"),
        ("$x%y$ $5", "<span>$</span>x%<!-- -->y<span>$</span> <span>$</span>5"),
        ("*a* _b_ ~c~ `d`", "\\*a\\* \\_b\\_ \\~c\\~ \\`d\\`"),
        ("a\nb\x1b", "a\\\\nb\\\\x1b"),
    ],
)
def test_markdown_shows_text_as_it_is(text: str, shown: str) -> None:
    assert markdown_text(text) == shown


@settings(max_examples=300)
@given(TEXT)
def test_nothing_of_a_text_is_markup(text: str) -> None:
    shown = markdown_text(text).replace("<!-- -->", "").replace("<span>$</span>", "$")
    plain = printable(text)
    assert shown.count("\n") == 0
    for mark in "<|`[]*_":
        assert shown.count(f"\\{mark}") >= plain.count(mark)


@settings(max_examples=300)
@given(of(Reason), st.sampled_from(sorted(CODES)))
def test_reasons_of_others_are_told_in_one_line(reason: Reason, code: str) -> None:
    for told in (reason, Reason(code=code, params=reason.params)):
        text = reason_text(told)
        assert not invisible(printed(say, text))
        assert printed(say, text).count("\n") == 1


@pytest.fixture(scope="module")
def report() -> CycleReport:
    here = sandbox(EPOCH_MS)
    context = CycleContext(object_cache=ObjectCache(here.cluster), clock=here.time, settle=here.world.settle)
    return cycle(compiled(dict(ground_files(SMALL, {"team": 8}))), context)


@settings(max_examples=100)
@given(error=TEXT)
def test_what_the_server_says_is_one_line_of_an_event(report: CycleReport, error: str) -> None:
    change = report.result.outcomes[0].change
    refused = Outcome(change=change, status=OutcomeStatus.FAILED, error=error, refused=True)
    result = ApplyResult(outcomes=(refused,))
    rejected = with_new({}, result, report.declared, report.state, report.at_ms)
    (note,) = notes_of(replace(report, result=result, rejected=rejected))
    assert note.message.isprintable()
    note.message.encode()
