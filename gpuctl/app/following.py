"""Follows the branch: fetches, reads and compiles its newest commit in the background, beside the loop.

So a silent remote, a large tree or a slow compilation never delays the scheduling: the loop polls for a result, and
goes on with what it has. There are two background tasks: the first fetches and reads the newest commit; the second
composes the declarations to enforce. Between the two, the loop provides the current ledgers.
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
    """A fault while following the branch.

    `event` is "source" for the repository itself, "unreadable" or "unverified" for a commit of it.
    """

    event: str
    fault: SourceUnavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """The result of following the branch once. `desired` None: the earlier declarations stay in force.

    - `rewritten`: applied commits that `head`, the newest commit, does not contain.
    - `commits`: the log entries of the commits in force.
    - `standing`: what an earlier process enforced, where the newest commit declares or confirms something else and
      freeze windows may hold it. The confirmations that were in force then are not known.
    """

    desired: Desired | None = None
    standing: Desired | None = None
    head: Revision = NO_REVISION
    rewritten: tuple[Revision, ...] = ()
    commits: tuple[Commit, ...] = ()
    problem: Problem | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """The newest commit, not yet composed. `tree` None: the commit could not be read, and no other commit is known."""

    tree: SourceTree | None = None
    confirmations: frozenset[str] = frozenset()
    problem: Problem | None = None


@dataclass(frozen=True, slots=True)
class _Known:
    """What this process knows of the branch: the newest commit, whether any declarations that compile are known, and
    what the commits up to the newest one confirm."""

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
        """Start over like a new process. The result of a task that is under way is dropped."""
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

        Raises what `records` raises, and exceptions from gpuctl's own bugs: then the next `begin` starts anew.
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
    """Compose the declarations to enforce. Without a commit: the last good ones, of this process or an earlier one."""
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
    """The confirmations that came together with the change they confirm, or after it. May raise SourceUnavailable.

    The removal of a project without a folder of its own can't be found by its files. For it, the confirmations after
    the commit in its ledger count.
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
    """The log entries of the commits in force. Nothing depends on them."""
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
    """The commits in all ledgers, of any cluster: each was good when it was applied."""
    found = {ledger.revision for known in records.by_cluster.values() for ledger in known.ledgers.values()}
    return sorted(found - {NO_REVISION})


def _applied(before: Revision, desired: Desired, records: Records) -> list[Revision]:
    """The commits in force until now: the commit that this process applied, else the commits in the ledgers."""
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
