"""What the branch says, brought to the loop: fetched, read and compiled beside it, one commit at a time.

A remote that is silent, a large tree or a slow compilation so never holds up what is scheduled: the loop asks now and
then whether something has come, and goes on with what it has. Two steps, each a piece of work of its own: to fetch and
read the newest commit, and to compose what is to be enforced of it. Between the two the loop says what the ledgers are
by then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Generic

from gpuctl.app.ports import Background, R, Source, SourceUnavailable, Underway
from gpuctl.app.revisions import Desired, Revisions
from gpuctl.model.ids import NO_REVISION, Revision
from gpuctl.model.source import SourceTree
from gpuctl.observe import Records


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What could not be read: the repository itself (`event` "source"), or a commit of it ("unreadable")."""

    event: str
    fault: SourceUnavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """What came of asking. `desired` None: what was good before stays in force.

    `confirmations` are those of the commits up to it; `rewritten` names commits that were applied and that the newest
    one, `head`, does not contain.
    """

    desired: Desired | None = None
    confirmations: frozenset[str] | None = None
    head: Revision = NO_REVISION
    rewritten: tuple[Revision, ...] = ()
    problem: Problem | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """The newest commit, not yet composed; `tree` None: it could not be read, and nothing else is known."""

    tree: SourceTree | None = None
    confirmations: frozenset[str] | None = None
    problem: Problem | None = None


class Follower:
    """Follows a branch. What it remembers is only what it can read again; `forget` it when another has led."""

    def __init__(self, source: Source, background: Background) -> None:
        self._source = source
        self._background = background
        self._underway: Underway[_Read | Followed] | None = None
        self.forget()

    def forget(self) -> None:
        """As a process that has just begun. What is under way ends when it ends, and nothing is made of it."""
        self._revisions = Revisions(self._source)
        self._head = NO_REVISION
        self._knows = False
        self._is_stale = self.under_way

    @property
    def under_way(self) -> bool:
        """Whether an answer is waited for."""
        return self._underway is not None

    def begin(self) -> None:
        """Ask for the newest commit, unless something is under way."""
        if self._underway is None:
            self._underway = self._background.start(partial(_read, self._source, self._head, knows=self._knows))

    def take(self, records: Callable[[], Records]) -> Followed | None:
        """What came of it; None as long as nothing did. `records` gives the ledgers as they are.

        Raises what `records` raises, and our own mistakes: then the next `begin` asks anew.
        """
        while self._underway is not None and self._underway.done():
            ended, self._underway = self._underway, None
            if self._is_stale:
                self._is_stale = False
                continue
            found = ended.result()
            if isinstance(found, Followed):
                self._head = found.head or self._head
                self._knows = self._knows or (found.desired is not None and found.desired.declared is not None)
                return found
            work = partial(_compose, self._source, self._revisions, found, records(), before=self._head)
            self._underway = self._background.start(work)
        return None


def _read(source: Source, known: Revision, *, knows: bool) -> _Read | Followed:
    """The newest commit, if it is another than is known."""
    event = "source"
    try:
        head = source.head()
        if head == known:
            return Followed()
        event = "unreadable"
        return _Read(tree=source.tree(head), confirmations=source.confirmations(NO_REVISION, head))
    except SourceUnavailable as fault:
        problem = Problem(event=event, fault=fault)
        return Followed(problem=problem) if knows else _Read(problem=problem)


def _compose(source: Source, revisions: Revisions, found: _Read, records: Records, *, before: Revision) -> Followed:
    """What is to be enforced; without a commit, what was good before, in this process or in one before it."""
    desired = revisions.compose(found.tree, records)
    if found.tree is None:
        return Followed(desired=desired, problem=found.problem)
    head = found.tree.revision
    try:
        gone = tuple(old for old in _applied(before, desired, records) if not source.follows(old, head))
    except SourceUnavailable as fault:
        return Followed(desired=desired, problem=Problem(event="unreadable", fault=fault))
    return Followed(desired=desired, confirmations=found.confirmations, head=head, rewritten=gone)


def _applied(before: Revision, desired: Desired, records: Records) -> list[Revision]:
    """The commits in force until now: by this process, or else by the ledgers."""
    if before:
        return [before]
    ledgers = {} if desired.declared is None else records.of(desired.declared.cluster.name).ledgers
    return sorted({ledger.revision for ledger in ledgers.values()} - {NO_REVISION})


class AtOnce:
    """Does work while it is waited for: where one does nothing else meanwhile, or the order has to be the same."""

    def start(self, work: Callable[[], R]) -> Underway[R]:
        """Do it now."""
        return _Done(work)


class _Done(Generic[R]):
    """Work that was done, with what it came to or what it raised."""

    def __init__(self, work: Callable[[], R]) -> None:
        self._error: Exception | None = None
        try:
            self._result = work()
        except Exception as error:  # noqa: BLE001 - raised again where the result is asked for
            self._error = error

    def done(self) -> bool:
        """Always."""
        return True

    def result(self) -> R:
        """What it came to, or raises what it raised."""
        if self._error is not None:
            raise self._error
        return self._result
