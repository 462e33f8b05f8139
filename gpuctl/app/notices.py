"""Notices for receivers outside about the reconciler's state: parts held back and recovered, refusals, applied commits.

Notices are made by comparing statuses, each thing once: a new leader goes on from the status that the last one
published.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from gpuctl.diag.escapes import printable
from gpuctl.model.ids import NO_REVISION, Revision
from gpuctl.views.status_form import HeldForm, StatusV1

MOST_AT_ONCE = 20
"""The most notices at once: a commit may break hundreds of projects."""
_SHOWN_REVISION = 12


class NoticeKind(StrEnum):
    """The kind of change that a notice reports."""

    HELD = "held"
    RECOVERED = "recovered"
    REFUSED = "refused"
    APPLIED = "applied"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One thing that changed, in a printable sentence. `project`: the project concerned; "": the whole cluster."""

    kind: NoticeKind
    cluster: str
    commit: Revision
    message: str
    at: str
    project: str = ""


class Verdict(StrEnum):
    """The state of a commit, as code hosts show it beside the commit."""

    SUCCESS = "success"
    FAILURE = "failure"
    PENDING = "pending"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitNotice:
    """The state of the followed commit in a cluster, in a printable sentence."""

    commit: Revision
    verdict: Verdict
    cluster: str
    message: str


class Notifier(Protocol):
    """Tells receivers outside. Nothing depends on it."""

    def notify(self, notices: Sequence[Notice], commit: CommitNotice | None) -> None:
        """Notify the receivers soon, as far as possible. Returns at once, never raises."""
        ...


class Unnotified:
    """Implements the port Notifier where there are no receivers."""

    def notify(self, notices: Sequence[Notice], commit: CommitNotice | None) -> None:
        """Drop them."""


UNNOTIFIED = Unnotified()


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What receivers know: the applied commit, the parts held back, the refusals, and the state of the commit."""

    applied: Revision = NO_REVISION
    held: frozenset[tuple[str, str]] = frozenset()
    refused: frozenset[str] = frozenset()
    commit: CommitNotice | None = None


def told_by(status: StatusV1) -> Told:
    """The knowledge of receivers that were told of a status."""
    return Told(
        applied=Revision(status.commit.applied or ""),
        held=frozenset(map(_key, status.held)),
        refused=frozenset(refusal.confirm for refusal in status.refusals),
        commit=commit_notice(status),
    )


def notices_of(told: Told, status: StatusV1) -> tuple[tuple[Notice, ...], Told]:
    """The notices that a status adds to what was told, and what receivers know afterwards.

    The end of a problem is told only once the newest commit is applied as far as it can be: before that, a new leader
    may not yet know what is held back.
    """
    now, is_settled = told_by(status), _is_settled(status)
    made = [*_begun(told, status), *(_over(told, now, status) if is_settled else ())]
    known = replace(
        now,
        applied=now.applied if is_settled else told.applied,
        held=now.held if is_settled else now.held | told.held,
        refused=now.refused if is_settled else now.refused | told.refused,
        commit=now.commit or told.commit,
    )
    return tuple(made[:MOST_AT_ONCE]), known


def _begun(told: Told, status: StatusV1) -> Iterator[Notice]:
    for held in status.held:
        if _key(held) not in told.held:
            yield _notice(status, NoticeKind.HELD, _held_text(held), held.project or "")
    for refusal in status.refusals:
        if refusal.confirm not in told.refused:
            text = f"{refusal.code}: {refusal.message} A commit confirms it whose message ends with: {refusal.confirm}"
            yield _notice(status, NoticeKind.REFUSED, text)


def _over(told: Told, now: Told, status: StatusV1) -> Iterator[Notice]:
    for project, _ in sorted(told.held - now.held):
        yield _notice(status, NoticeKind.RECOVERED, f"{_whose(project)} follows the branch again", project)
    if now.applied != told.applied:
        yield _notice(status, NoticeKind.APPLIED, f"commit {now.applied[:_SHOWN_REVISION]} is applied")


def commit_notice(status: StatusV1) -> CommitNotice | None:
    """The state of the newest commit; None while that is not certain."""
    head, problems = status.commit.head, [*status.held, *status.refusals]
    window = next((held for held in status.held if held.state == "window"), None)
    if head is None or not (window or _is_settled(status)):
        return None
    if not problems:
        verdict, message = Verdict.SUCCESS, "applied"
    elif window is not None:
        verdict, message = Verdict.PENDING, _held_text(window)
    else:
        first = _held_text(status.held[0]) if status.held else f"{status.refusals[0].code}: refused"
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        verdict, message = Verdict.FAILURE, f"{first}{more}"
    return CommitNotice(
        commit=Revision(head), verdict=verdict, cluster=printable(status.cluster or ""), message=printable(message)
    )


def _is_settled(status: StatusV1) -> bool:
    return status.commit.applied is not None and status.commit.applied == status.commit.head


def _notice(status: StatusV1, kind: NoticeKind, text: str, project: str = "") -> Notice:
    return Notice(
        kind=kind,
        cluster=printable(status.cluster or ""),
        commit=Revision(status.commit.head or ""),
        message=printable(text),
        at=status.written_at,
        project=printable(project),
    )


def _key(held: HeldForm) -> tuple[str, str]:
    return held.project or "", held.state


def _whose(project: str) -> str:
    return f"project {project}" if project else "the cluster's own part"


def _held_text(held: HeldForm) -> str:
    whose = "the commit" if held.state == "window" else _whose(held.project or "")
    at = f" at commit {held.commit[:_SHOWN_REVISION]}" if held.commit else ""
    why = next((f": {each.code} {each.place} {each.message}" for each in held.problems), "")
    return f"{whose} is held back{at}{why}"
