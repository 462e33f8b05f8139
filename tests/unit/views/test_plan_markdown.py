"""The Markdown of a plan, parsed as a code host does: its order, its tables, its bounds, and what names can't do."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hostile import TEXT
from hypothesis import example, given, settings
from markdown_it import MarkdownIt
from markdown_it.token import Token

from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.diag.span import SourceSpan
from gpuctl.model.change import Action
from gpuctl.model.comparison import Comparison
from gpuctl.model.declared import WHOLE_CLUSTER
from gpuctl.model.effect import Effect, Ground, Holding, Refusals, Stop, Stopped
from gpuctl.model.ids import JobId, ObjectRef, ProjectName
from gpuctl.views import plan_markdown, plan_text
from gpuctl.views.plan_form import document
from gpuctl.views.plan_markdown import GITHUB_CHARS, LEAST_CHARS, marker
from gpuctl.views.plan_page import ReadPlan, page, read_plan
from gpuctl.views.plan_report import Failed, ObjectChange, PlanReport, SettingChange

PARSER = MarkdownIt("gfm-like", {"linkify": False}).enable("table")
A, B = ProjectName("team-a"), ProjectName("team-b")
COMPARED = Comparison(base="main", head="feature", folder="clusters/prod")
GITHUB_WIDTH, WIDEST_WORD = 7, 60
"""The most columns of a table that fit side by side on GitHub; the longest word that a name brings."""
_OUR_HTML = re.compile(r"<!-- gpuctl plan [a-z0-9._-]* -->|<!-- -->|</?details>|</?summary>|</?sub>|</?span>")


def _report(jobs: int = 2, objects: int = 2, **changed: Any) -> PlanReport:
    effect = Effect(
        at_ms=0,
        stopped=tuple(
            Stopped(job=JobId(project=A, name=f"train-{n}"), gpu_milli=2000, why=Stop.REMOVED) for n in range(jobs)
        ),
        holdings=(Holding(project=A, domain=WHOLE_CLUSTER, held=(8000, 4000), share=(8000, 6000)),),
    )
    report = PlanReport(
        compared=COMPARED,
        cluster="prod",
        version="0.1.0",
        owners={A: ("@acme/vision", "ann@example.com"), B: ("@bob",)},
        objects=tuple(
            ObjectChange(
                action=Action.DELETE,
                ref=ObjectRef(api_version="batch/v1", kind="Job", namespace="gpu-team-a", name=f"train-{n}"),
                project=A,
                reason="no longer declared",
            )
            for n in range(objects)
        ),
        effect=effect,
        ground=Ground(live=False, nodes=2, gpus=16, capacity={WHOLE_CLUSTER: 16_000}),
    )
    return replace(report, **changed)


def markdown(report: PlanReport, most_chars: int = GITHUB_CHARS) -> str:
    return plan_markdown.markdown(page(report), most_chars)


def _inline(tokens: list[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from _inline(token.children or [])


def _tables(text: str) -> list[list[list[str]]]:
    """Every table: its rows, each with the source of its cells."""
    tables: list[list[list[str]]] = []
    for token in PARSER.parse(text):
        if token.type == "table_open":
            tables.append([])
        elif token.type == "tr_open":
            tables[-1].append([])
        elif token.type == "inline" and tables and token.level >= 4:
            tables[-1][-1].append(token.content)
    return tables


def _assert_harmless(text: str) -> None:
    """No markup but our own: no links, images, headings, quotes of others, HTML, or commands to GitLab."""
    tokens = list(_inline(PARSER.parse(text)))
    assert not {t.type for t in tokens} & {
        "link_open",
        "image",
        "heading_open",
        "hr",
        "code_block",
        "s_open",
        "em_open",
    }
    for token in tokens:
        if token.type in {"html_block", "html_inline"}:
            assert _OUR_HTML.sub("", token.content).strip(" 0123456789objects\n") == "", token.content
    assert all(c.isprintable() or c == "\n" for c in text)
    outside = re.sub(r"```.*?```|`[^`\n]*`|^<!--[^\n]*", "", text, flags=re.DOTALL | re.MULTILINE)
    assert not re.search(r"(?m)^\s*/", outside)
    assert not re.search(r"(?<!\\)https?://|(?i:www\.)", outside)
    assert not re.search(r"\$(?!</span>)", outside)
    assert not re.search(r"[@#!](?=\w)", re.sub(r"(?m)^Owners: .*$", "", outside))


def test_the_verdict_is_first_and_what_is_lost_second() -> None:
    text = markdown(_report())
    assert text.startswith(f"{marker('prod')}\n")
    visible = [line for line in text.splitlines() if line and not line.startswith("<!--")]
    assert visible[0] == "**gpuctl plan of prod**: 2 jobs end; 2 objects are deleted"
    captions = re.findall(r"(?m)^\*\*([A-Z]\w+)", text)
    assert captions == ["Paused", "Projects"]
    assert text.index("**Paused") < text.index("**Projects") < text.index("<details>")


def test_the_owners_of_those_that_lose_are_named_once_and_no_others() -> None:
    text = markdown(_report(jobs=3))
    assert text.count("@acme/vision") == 1
    assert "Owners: @acme/vision and ann@<!-- -->example.com" in text
    assert "@bob" not in text


def test_the_many_rows_of_one_project_hide_no_other() -> None:
    """Whoever makes the change may have any number of jobs end in a project of their own, and any number of owners."""
    report = _report(jobs=1500, owners={A: tuple(f"@own{n}" for n in range(40)), B: ("@bob",)})
    assert report.effect is not None
    lost = Stopped(job=JobId(project=B, name="theirs"), gpu_milli=8000, why=Stop.REMOVED)
    report = replace(report, effect=replace(report.effect, stopped=(*report.effect.stopped, lost)))
    lines = ["".join(part.text for part in line) for line in plan_text.text(report)]
    for told in (markdown(report, LEAST_CHARS), " ".join(lines)):
        assert "team-b/theirs" in told
    assert "Owners: @own0, @bob, @own1" in markdown(report)


@pytest.mark.parametrize("owner", ["@all", "@Everyone", "@a b", "@a/b/c", "@a<b>", "x@all", "@\u202eall"])
def test_an_owner_that_is_no_person_or_team_is_not_mentioned(owner: str) -> None:
    text = markdown(_report(owners={A: (owner,)}))
    assert not re.search(r"@(?=[A-Za-z])", text)


def test_one_table_has_quota_use_share_and_capacity() -> None:
    tables = _tables(markdown(_report()))
    assert tables[1] == [["project", "in use", "fair share", "capacity"], ["team-a", "8 -> 4", "8 -> 6", "16"]]


def test_tables_are_whole_and_no_wider_than_a_comment() -> None:
    for table in _tables(markdown(_report(jobs=30))):
        assert {len(row) for row in table} == {len(table[0])}
        assert len(table[0]) <= GITHUB_WIDTH
        assert max(len(word) for row in table for cell in row for word in cell.split()) <= WIDEST_WORD


def test_objects_are_folded() -> None:
    tokens = PARSER.parse(markdown(_report()))
    fence = next(token for token in tokens if token.type == "fence")
    assert (fence.info, fence.content.count("\n")) == ("diff", 2)
    blocks = [token.content for token in tokens if token.type == "html_block"]
    assert any(block.startswith("<details><summary>2 objects</summary>") for block in blocks)


@pytest.mark.parametrize("most", [GITHUB_CHARS, LEAST_CHARS])
@pytest.mark.parametrize(("jobs", "objects"), [(5, 5000), (5000, 5), (5000, 5000)])
def test_it_is_cut_by_objects_then_rows_never_totals(most: int, jobs: int, objects: int) -> None:
    text = markdown(_report(jobs=jobs, objects=objects), most)
    assert len(text) <= most
    assert len(text) > most - 300 or "and 4000 more" in text, "as much is there as fits, of the 1000 that a page has"
    assert f"{jobs} jobs end; {objects} objects are deleted" in text
    assert f"({jobs})" in text
    assert "left out here; `gpuctl plan -o json` has all." in text
    assert text.count("<details>") == text.count("</details>") == 1
    assert text.endswith("</sub>\n")
    if jobs == 5:
        assert text.count("\n| team-a/train-") == 5
    _assert_harmless(text)


def test_gitlab_has_room_for_more() -> None:
    report = _report(jobs=900, objects=900)
    assert len(markdown(report, 1_000_000)) > len(markdown(report)) > GITHUB_CHARS // 4


ATTACKS = [
    "a | b | c",
    "`x` ``` \n```\n",
    "</details><details open>",
    "--> <script>alert(1)</script>",
    "<!-- gpuctl plan prod -->",
    "@acme/everyone @all",
    "![x](https://evil.example.com/x.png)",
    "[click](javascript:alert(1))",
    "https://evil.example.com www.evil.example.com",
    "/approve",
    "\n/merge\n",
    "# heading",
    "- list",
    "1. list",
    "> quote",
    "#12 !7 GH-3 $5 ~bug %1.0",
    "a\u202eb\u200bc\ufeff",
    "&lt;b&gt; &#64;all",
    "\\`code\\`",
    "~~gone~~ **bold** _em_",
    "a@b.example",
    "$x%hidden$ $\\phantom{hidden}$ $$y$$ $`z`$",
    "=" * 10,
]


@pytest.mark.parametrize("attack", ATTACKS)
def test_attacks_are_text_wherever_they_stand(attack: str) -> None:
    _attack(attack)


@given(TEXT)
@settings(max_examples=50)
def test_so_is_any_text(text: str) -> None:
    _attack(text)


def _attack(attack: str) -> None:
    span = _refusal(attack)
    report = _report(
        compared=replace(COMPARED, base=attack, head=attack, base_moved_by=1),
        settings=(SettingChange(of=attack, setting=attack, change=(attack, attack)),),
        refusals=Refusals(new=(span,), standing=(span,)),
        cluster=attack,
    )
    text = markdown(report)
    _assert_harmless(text)
    assert text.count("<details>") == 1
    assert {len(table[0]) for table in _tables(text)} == {3, 4}


@pytest.mark.parametrize("attack", ["```", "> x\n\n@acme/admins", *ATTACKS])
def test_so_is_all_of_a_page_that_was_read(attack: str) -> None:
    report = _report(refusals=Refusals(new=(_refusal("x"),)), failed=(Failed(gate="deleted", names=("x",)),))
    form = document(report)
    form["comment"] = {**_attacked(form["comment"], attack), "labels": []}
    read = read_plan(json.dumps(form).encode())
    assert isinstance(read, ReadPlan), read
    text = plan_markdown.markdown(read.comment, origin="Read from a file.")
    _assert_harmless(text.replace("Owners: ", "Owners "))


def _attacked(node: Any, attack: str) -> Any:
    """The same with the attack in place of each text."""
    if isinstance(node, dict):
        return {key: _attacked(value, attack) for key, value in node.items()}
    if isinstance(node, list):
        return [_attacked(each, attack) for each in node]
    return attack if isinstance(node, str) else node


@given(TEXT)
def test_the_marker_is_one_comment_whatever_the_name(name: str) -> None:
    assert re.fullmatch(r"<!-- gpuctl plan [a-z0-9._-]* -->", marker(name))


@given(TEXT, TEXT)
@example("prod (clusters/eu-1)", "prod (clusters/eu_1)")
@example("prod (clusters/eu-1)", "prod (clusters/eu!1)")
def test_no_two_clusters_have_one_marker(one: str, other: str) -> None:
    """Else a folder that a change adds would have the comment of another cluster overwritten."""
    assert (marker(one) == marker(other)) == (one == other)


def _refusal(text: str) -> Diagnostic:
    return Diagnostic(code="GPU6002", message=text, span=SourceSpan(file="x"), help=text)
