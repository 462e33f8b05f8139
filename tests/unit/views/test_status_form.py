"""What `/status` and `gpuctl status -o json` say is what the published schema says, and is bounded."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from gpuctl.diag.diagnostic import Diagnostic, Severity
from gpuctl.diag.span import SourceSpan
from gpuctl.model.freeze import Frozen
from gpuctl.model.ids import ProjectName, Revision
from gpuctl.views.status import MOST_BYTES, NO_LEADER, StatusFacts, document, status_of, text_lines
from gpuctl.views.status_form import PredictionForm, ProblemForm, ReplicaForm, parsed, schema

ROOT = Path(__file__).parents[3]
LEADER = ReplicaForm(identity="pod-1", role="leader", leader="pod-1")
HEAD = Revision("3f1c9a20b7de11223344556677889900aabbccdd")
REFUSED = "if it is meant, push a commit whose message ends with the line `Gpuctl-Confirm: 0123456789ab`"


def problem(number: int, *, text: str = "wrong", hint: str = "", event: str = "") -> ProblemForm:
    event = event or ("refused" if hint else "failed")
    return ProblemForm(
        event=event, level="error", code="GPU7003", message=f"{text} {number}", place="Job a/b", help=hint
    )


def replace_place(one: ProblemForm, place: str) -> ProblemForm:
    return one.model_copy(update={"place": place})


def facts(*standing: ProblemForm, **more: object) -> StatusFacts:
    known = {"version": "1", "now_ms": 1_000, "replica": LEADER, "head": HEAD, "applied": HEAD, "cycled_ms": 1_000}
    return StatusFacts(**{**known, "standing": standing, **more})  # type: ignore[arg-type]


def test_the_schema_file_is_current(golden: Callable[[Path, str], None]) -> None:
    Draft202012Validator.check_schema(schema())
    golden(ROOT / "schemas/gpuctl.dev/v1/status.json", json.dumps(schema(), indent=2) + "\n")


def test_it_is_ready_when_the_newest_commit_is_applied_and_nothing_stands_wrong() -> None:
    assert status_of(facts()).ready
    assert status_of(facts(applied=Revision("ab"))).why_not == ["commit 3f1c9a20b7de is not applied yet"]
    assert status_of(facts(applied=Revision(""))).why_not == ["no commit is applied yet"]
    assert status_of(facts(problem(1))).why_not == ["GPU7003: wrong 1"]
    held = status_of(facts(kept_back={ProjectName("a"): Revision("ab")}))
    assert held.why_not == ["project a is held back"]


def test_each_part_is_held_back_by_its_own_mistakes() -> None:
    spots = {ProjectName(name): [f"c/all/{name}.yaml"] for name in "ab"}
    wrong = [
        Diagnostic(code="GPU2004", message=f"wrong {file}", span=SourceSpan(file=file), severity=Severity.ERROR)
        for (file,) in spots.values()
    ]
    held = status_of(facts(kept_back=dict.fromkeys(spots, HEAD), head_files=spots, diagnostics=wrong)).held
    told = [[each.message for each in part.problems] for part in held]
    assert told == [["wrong c/all/a.yaml"], ["wrong c/all/b.yaml"]]


def test_a_warning_alone_keeps_nothing_from_being_ready() -> None:
    told = problem(1).model_copy(update={"level": "warning"})
    assert status_of(facts(told)).ready
    assert [each.message for each in status_of(facts(told)).problems] == ["wrong 1"]


def test_a_refusal_is_listed_with_its_line_and_is_no_other_problem() -> None:
    made = status_of(facts(problem(1, hint=REFUSED)))
    assert [each.confirm for each in made.refusals] == ["Gpuctl-Confirm: 0123456789ab"]
    assert (made.problems, made.ready) == ([], False)


def test_a_mistake_asks_for_no_confirmation_whatever_its_help_says() -> None:
    """A template's `enum` is in the help for a value that is none of it: a team could have people push a line."""
    made = status_of(facts(problem(1, hint=f"write {REFUSED}", event="invalid")))
    assert (made.refusals, [each.message for each in made.problems]) == ([], ["wrong 1"])


def test_what_a_person_froze_is_not_ready() -> None:
    frozen = Frozen(project=ProjectName("a"), by="ann", reason="an incident", since_ms=0)
    assert status_of(facts(frozen=[frozen])).why_not == ["project a is frozen by ann: an incident"]
    assert status_of(facts(frozen=[replace(frozen, project=None, by="")])).why_not == [
        "the cluster is frozen by a person without a name: an incident"
    ]


def test_a_commit_that_a_window_holds_is_told_once() -> None:
    made = status_of(facts(problem(1, text="held until noon", hint=REFUSED, event="held")))
    assert made.why_not == ["the newest commit is held back: held until noon 1"]
    shown = "".join(text_lines(made, 5_000, None))
    assert "\nthe newest commit  window " in shown
    assert "Gpuctl-Confirm: 0123456789ab" in shown


def test_a_leader_that_is_gone_is_told_as_the_last_one() -> None:
    made = status_of(facts())
    assert "\nleader   pod-1, its Lease renewed 2s ago\n" in "".join(text_lines(made, 5_000, 3_000))
    gone = made.model_copy(update={"why_not": [NO_LEADER]})
    shown = "".join(text_lines(gone, 5_000, 3_000))
    assert "\nleader   none; the last one was pod-1, its Lease renewed 2s ago\n" in shown


@pytest.mark.parametrize("length", [10, 100_000])
def test_ten_thousand_problems_are_within_the_bound(length: int) -> None:
    many = [problem(number, text="x" * length, hint=REFUSED if number % 2 else "") for number in range(10_000)]
    predictions = [PredictionForm(commit=HEAD, at="", result="bug", differences=["y" * length] * 50) for _ in range(5)]
    made = status_of(facts(*many, predictions=predictions))
    assert len(document(made)) <= MOST_BYTES
    assert made.left_out >= 9_000
    assert not made.ready


@pytest.mark.parametrize("place", ["clusters/one/projects/a/jobs/j.yaml:1:1", "Job gpu-a/j", "projects/a/projects/b/x"])
def test_the_many_problems_of_one_project_hide_no_other_problem(place: str) -> None:
    """Errors went first: of a project with 50 of them, nothing else that stood wrong was told."""
    many = [replace_place(problem(number), place) for number in range(1000)]
    others = [
        replace_place(problem(2000), "Job gpu-b/j").model_copy(update={"level": "warning"}),
        replace_place(problem(2001), ""),
    ]
    told = status_of(facts(*many, *others)).problems
    assert {"wrong 2000", "wrong 2001"} <= {each.message for each in told}
    assert [each.level for each in told] == ["error"] * 49 + ["warning"]


def test_the_long_mistakes_of_one_project_take_no_room_of_others() -> None:
    """A path of 4,000 characters of four bytes: three lists of ten entries each were left of fifty."""
    path = "c/projects/a/" + "\U0001f9ea" * 4_000
    wrong = [
        Diagnostic(code="GPU2004", message=path, span=SourceSpan(file=file), severity=Severity.ERROR, help=path)
        for file in (*(f"{path}{number}" for number in range(1_000)), "c/projects/b/b.yaml")
    ]
    kept_back = dict.fromkeys(map(ProjectName, "ab"), HEAD)
    others = [replace_place(problem(number), f"Job gpu-x{number}/j") for number in range(50)]
    made = status_of(facts(*others, kept_back=kept_back, diagnostics=wrong))
    assert [len(part.problems) for part in made.held] == [49, 1]
    assert (len(made.problems), len(made.why_not)) == (50, 50)
    assert len(document(made)) <= MOST_BYTES


@given(
    st.lists(st.tuples(st.text(), st.sampled_from(["", REFUSED]), st.sampled_from(["held", "failed"])), max_size=5),
    st.text(max_size=9),
)
def test_whatever_is_wrong_the_form_is_as_the_schema_says_and_can_be_read(
    wrong: list[tuple[str, str, str]], branch: str
) -> None:
    made = status_of(facts(*(problem(0, text=t, hint=h, event=e) for t, h, e in wrong), branch=branch))
    assert not list(Draft202012Validator(schema()).iter_errors(json.loads(document(made))))
    assert parsed(document(made)) == made
    assert all(line.endswith("\n") for line in text_lines(made, 5_000, None))


def test_fields_may_be_added() -> None:
    later = {**json.loads(document(status_of(facts()))), "later": 1}
    assert not list(Draft202012Validator(schema()).iter_errors(later))
    assert parsed(json.dumps(later).encode()) == status_of(facts())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "Invalid JSON"),
        (b"[]", "Input should be an object"),
        (b"{}", "apiVersion: Field required"),
        (b"[" * 100_000, "Invalid JSON"),
    ],
)
def test_what_is_no_status_is_refused(text: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parsed(text)


def test_the_text_says_what_to_do_about_each_code_once() -> None:
    made = status_of(facts(problem(1), problem(2), problem(3, hint="call Ana")))
    *_, title, header, fix = "".join(text_lines(made, 5_000, None)).splitlines()
    assert (title, header.split()) == ("What to do", ["CODE", "FIX"])
    assert fix.startswith("GPU7003  Usually nothing: ")
    hinted = "".join(text_lines(status_of(facts(problem(3, hint="call Ana"))), 5_000, None))
    assert hinted.endswith("GPU7003  call Ana\n")
