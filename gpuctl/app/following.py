"""Follows the branch: fetches, reads and compiles its newest commit in the background, beside the loop.

So a silent remote, a large tree or a slow compilation never delays the scheduling: the loop polls for a result, and
goes on with what it has. There are two steps, each a task of its own: fetch and read the newest commit; then compose
what is to be enforced. The loop provides the current ledgers between the two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic

from gpuctl.app.ports import Background, R, Source, SourceUnavailable, Underway
from gpuctl.app.revisions import OWN, Desired, Revisions
from gpuctl.model.history import Commit
from gpuctl.model.ids import NO_REVISION, Revision
from gpuctl.model.source import SourceTree
from gpuctl.model.state import Ledger
from gpuctl.observe import Records
from gpuctl.plan import void_confirmations


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A fault while following.

    `event` is "source" for the repository itself, "unreadable" or "unverified" for a commit of it.
    """

    event: str
    fault: SourceUnavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """The result of following the branch once. `desired` None: what was good before stays in force.

    `rewritten` are applied commits that `head`, the newest one, does not contain. `commits`: what the log says of those
    in force. `standing`: what an earlier process enforced, where the newest commit declares or confirms something else
    and freeze windows may hold it. Which confirmations were in force then is not known.
    """

    desired: Desired | None = None
    standing: Desired | None = None
    head: Revision = NO_REVISION
    rewritten: tuple[Revision, ...] = ()
    commits: tuple[Commit, ...] = ()
    problem: Problem | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """The newest commit, not yet composed. `tree` None: it could not be read, and no other commit is known."""

    tree: SourceTree | None = None
    confirmations: frozenset[str] = frozenset()
    problem: Problem | None = None


@dataclass(frozen=True, slots=True)
class _Known:
    """What this process follows so far: the newest commit, whether anything that compiles is known, and what the
    commits up to there confirm."""

    head: Revision
    compiles: bool
    confirmations: frozenset[str]


class Follower:
    """Follows a branch. It remembers only what it can read again; call `forget` after another replica has led."""

    def __init__(self, source: Source, background: Background, most_jobs: int | None = None) -> None:
        self._source, self._most_jobs = source, most_jobs
        self._background = background
        self._underway: Underway[_Read | Followed] | None = None
        self.forget()

    def forget(self) -> None:
        """Start over like a new process. The result of a task that is under way will be dropped."""
        self._revisions = Revisions(self._source, self._most_jobs)
        self._head = NO_REVISION
        self._knows = False
        self._confirmations: frozenset[str] = frozenset()
        self._is_stale = self.under_way

    @property
    def under_way(self) -> bool:
        """Whether a task is under way."""
        return self._underway is not None

    def begin(self) -> None:
        """Begin to fetch the newest commit, unless a task is under way."""
        if self._underway is None:
            self._underway = self._background.start(partial(_read, self._source, self._head, knows=self._knows))

    def take(self, records: Callable[[], Records]) -> Followed | None:
        """Take the result; None while there is none yet. `records` reads the current ledgers.

        Raises what `records` raises, and gpuctl's own bugs: then the next `begin` starts anew.
        """
        while self._underway is not None and self._underway.done():
            ended, self._underway = self._underway, None
            if self._is_stale:
                self._is_stale = False
                continue
            found = ended.result()
            if isinstance(found, Followed):
                self._head = found.head or self._head
                if found.desired is not None:
                    self._knows = self._knows or found.desired.declared is not None
                    self._confirmations = found.desired.confirmations
                return found
            known = _Known(self._head, self._knows, self._confirmations)
            work = partial(_compose, self._source, self._revisions, found, records(), known)
            self._underway = self._background.start(work)
        return None


def _read(source: Source, known: Revision, *, knows: bool) -> _Read | Followed:
    """Read the newest commit, if it is not the known one."""
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


def _compose(source: Source, revisions: Revisions, found: _Read, records: Records, known: _Known) -> Followed:
    """Compose what is to be enforced; without a commit, what was last good, in this process or an earlier one."""
    tree, problem = found.tree, found.problem
    if tree is not None:
        try:
            source.verify([known.head] if known.head else _recorded(records), tree.revision)
        except SourceUnavailable as fault:
            tree, problem = None, Problem(event="unverified", fault=fault)
            if known.compiles:
                return Followed(problem=problem)
    desired = replace(revisions.compose(tree, records), confirmations=known.confirmations)
    if tree is None:
        return Followed(desired=desired, problem=problem)
    head = tree.revision
    try:
        gone = tuple(old for old in _applied(known.head, desired, records) if not source.follows(old, head))
        confirmations = _in_time(source, found.confirmations, desired, records)
    except SourceUnavailable as fault:
        return Followed(desired=desired, problem=Problem(event="unreadable", fault=fault))
    standing = None if known.compiles else _standing(Revisions(source, revisions.most_jobs), desired, records)
    return Followed(
        desired=replace(desired, confirmations=confirmations),
        standing=standing,
        head=head,
        rewritten=gone,
        commits=_commits(source, desired),
    )


def _in_time(source: Source, confirmations: frozenset[str], desired: Desired, records: Records) -> frozenset[str]:
    """The confirmations that came with the change that they are of, or after it. May raise SourceUnavailable.

    The removal of a project that has no folder of its own is not known by its files: then those count that came after
    the commit on record.
    """
    declared = desired.declared
    if declared is None or not confirmations:
        return confirmations
    ledgers, head = records.of(declared.cluster.name).ledgers.values(), desired.revision

    def since(ledger: Ledger | None) -> frozenset[str]:
        if ledger is None:
            return source.confirmations(NO_REVISION, head, "")
        return source.confirmations(ledger.revision, head, f"projects/{ledger.project}")

    return confirmations - void_confirmations(declared, ledgers, confirmations, since)


def _commits(source: Source, desired: Desired) -> tuple[Commit, ...]:
    """What the log says of the commits in force. Nothing depends on it."""
    revisions = {} if desired.declared is None else desired.declared.project_revisions
    try:
        return source.commits(sorted({desired.revision, *revisions.values()} - {NO_REVISION}))
    except SourceUnavailable:
        return ()


def _standing(anew: Revisions, desired: Desired, records: Records) -> Desired | None:
    """What the ledgers say is enforced, with no confirmation, if there may be freeze windows.

    Cost: where the newest commit declares something else, a compilation of each commit in the ledgers, at most once in
    a process.
    """
    declared = desired.declared
    ledgers = {} if declared is None else records.of(declared.cluster.name).ledgers
    recorded = {owner: ledger.content for owner, ledger in ledgers.items()}
    if declared is None or OWN not in recorded:
        return None
    if recorded == dict(declared.project_contents):
        return desired if declared.cluster.freeze else None
    has_windows = bool(declared.cluster.freeze) or recorded[OWN] != declared.project_contents.get(OWN)
    return anew.compose(None, records) if has_windows else None


def _recorded(records: Records) -> list[Revision]:
    """The commits in all ledgers, of whichever cluster: each was good when it was applied."""
    found = {ledger.revision for known in records.by_cluster.values() for ledger in known.ledgers.values()}
    return sorted(found - {NO_REVISION})


def _applied(before: Revision, desired: Desired, records: Records) -> list[Revision]:
    """The commits in force until now: the one this process applied, or else the ledgers' commits."""
    if before:
        return [before]
    ledgers = {} if desired.declared is None else records.of(desired.declared.cluster.name).ledgers
    return sorted({ledger.revision for ledger in ledgers.values()} - {NO_REVISION})


class AtOnce:
    """Implements the port Background by doing the work at once: for a single run, and where the order must be fixed."""

    def start(self, work: Callable[[], R]) -> Underway[R]:
        """Do the work now."""
        return _Done(work)


class _Done(Generic[R]):
    """Finished work, with its result or its exception."""

    def __init__(self, work: Callable[[], R]) -> None:
        self._error: Exception | None = None
        try:
            self._result = work()
        except Exception as error:  # noqa: BLE001 - raised again where the result is asked for
            self._error = error

    def done(self) -> bool:
        """Always true."""
        return True

    def result(self) -> R:
        """The result; raises what the work raised."""
        if self._error is not None:
            raise self._error
        return self._result
