from __future__ import annotations

import json

from gpuctl.app.ports import SourceUnavailable
from gpuctl.app.report import Entry, Journal, Level, LogForm, of_diagnostic, of_fault, of_mistakes
from gpuctl.diag.diagnostic import Diagnostic, Severity
from gpuctl.diag.span import SourceSpan

AT_MS = 1_596_000_000_000


def test_a_line_is_text_or_json() -> None:
    entry = Entry(
        event="applied", fields={"writes": 3, "started": ("a/x", "b/y"), "message": 'say "hi"\nthere', "e": ""}
    )
    assert entry.line(AT_MS, LogForm.TEXT) == (
        '2020-07-29T05:20:00.000Z info applied writes=3 started="a/x, b/y" message="say \\"hi\\"\\nthere" e=""'
    )
    assert json.loads(entry.line(AT_MS, LogForm.JSON)) == {
        "at": "2020-07-29T05:20:00.000Z",
        "level": "info",
        "event": "applied",
        "writes": 3,
        "started": ["a/x", "b/y"],
        "message": 'say "hi"\nthere',
        "e": "",
    }


def test_what_is_wrong_is_told_when_it_begins_and_when_it_ends() -> None:
    lines: list[str] = []
    journal = Journal(lines.append)
    first, second = (of_fault("source", SourceUnavailable("GPU8001", text)) for text in ("one", "two"))
    other = of_fault("source", SourceUnavailable("GPU8002", "one"))
    journal.stand(AT_MS, "git", [first])
    journal.stand(AT_MS, "git", [first])
    assert len(lines) == 1
    assert journal.has_errors
    journal.stand(AT_MS, "git", [second])
    assert len(lines) == 1, "the same in other words"
    journal.stand(AT_MS, "git", [other])
    assert len(lines) == 3
    journal.stand(AT_MS, "git", [])
    assert lines[-1].endswith("info resolved was=source code=GPU8002")
    assert not journal.has_errors


def test_what_stands_with_other_facts_has_not_ended() -> None:
    lines: list[str] = []
    journal = Journal(lines.append, LogForm.JSON)
    for leader in ("", "other"):
        journal.stand(AT_MS, "leadership", [Entry(event="standby", fields={"leader": leader})])
    assert [json.loads(line)["event"] for line in lines] == ["standby", "standby"]
    journal.stand(AT_MS, "leadership", [])
    assert [json.loads(line)["event"] for line in lines] == ["standby", "standby", "resolved"]


def test_areas_stand_by_themselves_and_a_warning_is_no_error() -> None:
    lines: list[str] = []
    journal = Journal(lines.append)
    warning = Diagnostic(code="GPU8009", message="m", span=SourceSpan(file="f", line=2), severity=Severity.WARNING)
    journal.stand(AT_MS, "declarations", [of_diagnostic("invalid", warning)])
    journal.stand(AT_MS, "git", [])
    assert lines == ["2020-07-29T05:20:00.000Z warning invalid code=GPU8009 place=f:2:1 message=m"]
    assert not journal.has_errors
    journal.stand(AT_MS, "git", [Entry(event="bug", level=Level.ERROR)])
    assert journal.has_errors


def test_the_many_mistakes_of_one_project_hide_no_other_projects() -> None:
    """The first thousand in reading order were told, all of the project whose name comes first."""
    places = [SourceSpan(file=f"c/projects/a/{number}.yaml") for number in range(1000)]
    places += [SourceSpan(file="c/projects/b/j.yaml")]
    found = [Diagnostic(code="GPU2004", message="wrong", span=place, help="") for place in places]
    told = [*of_mistakes(found)]
    assert len(told) == 1001
    assert "c/projects/b/j.yaml:1:1" in {entry.fields.get("place") for entry in told}
