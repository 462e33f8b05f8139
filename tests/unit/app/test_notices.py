"""What receivers are told of a status: each thing once, and nothing again after another replica leads."""

from __future__ import annotations

from typing import Any

from gpuctl.app.notices import CommitNotice, Notice, Told, Verdict, notices_of, told_by
from gpuctl.model.ids import Revision
from gpuctl.views.status import StatusFacts, document, status_of
from gpuctl.views.status_form import HeldForm, ProblemForm, RefusalForm, ReplicaForm, StatusV1, parsed

OLD, NEW = "1" * 40, "2" * 40
REPLICA = ReplicaForm(identity="me", role="leader", leader="me")
EMPTY = status_of(StatusFacts(version="1", now_ms=0, replica=REPLICA))
WRONG = ProblemForm(
    event="invalid", level="error", code="GPU2007", message="no such \x1b[31mimage", place="c/a.yaml:3:5", help=""
)
HELD = HeldForm(project="a", state="keptBack", commit=OLD, problems=[WRONG])
REFUSED = RefusalForm(code="GPU6001", message="2 jobs run in it.", confirm="Gpuctl-Confirm: abc")


def status(head: str = NEW, applied: str | None = NEW, **fields: Any) -> StatusV1:
    commit = EMPTY.commit.model_copy(update={"head": head, "applied": applied})
    return EMPTY.model_copy(update={"cluster": "prod", "commit": commit, **fields})


def kinds(told: Told, now: StatusV1) -> list[str]:
    return [each.kind.value for each in notices_of(told, now)[0]]


def test_a_commit_that_is_applied_is_told_once() -> None:
    (notice,), told = notices_of(told_by(status(OLD, OLD)), status())
    assert (notice.kind.value, notice.message, notice.cluster) == ("applied", "commit 222222222222 is applied", "prod")
    assert told.commit == CommitNotice(commit=Revision(NEW), verdict=Verdict.SUCCESS, cluster="prod", message="applied")
    assert kinds(told, status()) == []


def test_a_project_that_is_held_back_and_recovers() -> None:
    notices, told = notices_of(told_by(status(OLD, OLD)), status(held=[HELD]))
    assert [each.kind.value for each in notices] == ["held", "applied"]
    assert isinstance(notices[0], Notice)
    assert notices[0].project == "a"
    assert "GPU2007 c/a.yaml:3:5" in notices[0].message
    assert "\x1b" not in notices[0].message
    assert told.commit is not None
    assert told.commit.verdict is Verdict.FAILURE
    assert kinds(told, status("3" * 40, "3" * 40, held=[HELD])) == ["applied"]
    assert kinds(told, status("3" * 40, "3" * 40)) == ["recovered", "applied"]


def test_a_refusal_is_told_once_with_the_line_that_confirms_it() -> None:
    (notice,), told = notices_of(told_by(status()), status(refusals=[REFUSED]))
    assert notice.kind.value == "refused"
    assert notice.message.endswith("Gpuctl-Confirm: abc")
    assert kinds(told, status(refusals=[REFUSED])) == []


def test_nothing_is_over_before_the_newest_commit_is_applied() -> None:
    """A new leader does not know yet what is held; nor is it known while a commit is taken up."""
    told = told_by(status(held=[HELD], refusals=[REFUSED]))
    for early in (status(NEW, None), status(NEW, OLD)):
        notices, after = notices_of(told, early)
        assert notices == ()
        assert after == told
    assert kinds(told, status()) == ["recovered"]


def test_a_new_leader_goes_on_from_what_was_published() -> None:
    last = status(held=[HELD], refusals=[REFUSED])
    assert kinds(told_by(parsed(document(last))), last) == []


def test_a_freeze_window_leaves_the_commit_pending() -> None:
    window = HeldForm(project=None, state="window", commit=OLD, problems=[])
    _, told = notices_of(told_by(status(OLD, OLD)), status(NEW, OLD, held=[window]))
    assert told.commit is not None
    assert told.commit.verdict is Verdict.PENDING


def test_a_commit_that_breaks_hundreds_of_projects_sends_few_messages() -> None:
    many = [HELD.model_copy(update={"project": f"p{number}"}) for number in range(200)]
    assert len(notices_of(Told(), status(held=many))[0]) == 20
