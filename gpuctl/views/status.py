"""The reconciler's state, from facts to its form, and from the form to text at a glance."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from gpuctl.diag.codes import CODES
from gpuctl.diag.diagnostic import Diagnostic, Severity
from gpuctl.k8s.timestamps import format_timestamp, parse_timestamp
from gpuctl.model.declared import Declared
from gpuctl.model.freeze import Forbidden, Frozen, open_until
from gpuctl.model.ids import NO_REVISION, ProjectName, Revision
from gpuctl.model.state import Node
from gpuctl.model.turns import in_turns, whose
from gpuctl.model.units import Instant
from gpuctl.plan import CONFIRM_TRAILER, OWN, confirmation_of
from gpuctl.views.status_form import (
    CommitForm,
    CycleForm,
    FrozenForm,
    GitForm,
    HeldForm,
    PoolForm,
    PredictionForm,
    ProblemForm,
    RefusalForm,
    ReplicaForm,
    StatusV1,
)
from gpuctl.views.tables import age, table

MOST_BYTES = 262_144
"""The longest status, in JSON: a quarter of the size limit of the API server's objects."""
_MOST = (50, 10, 2)
"""The most entries of a list: the first of these numbers is used with which the status is short enough."""
_LONGEST = 400
"""The longest text of an entry, in bytes."""
_SHOWN_REVISION = 12
_OF_GUARDS = frozenset({"refused", "held"})
"""Events for a guard's words."""
_BACK = frozenset({"GPU8009", "GPU8010"})
"""Codes that say that a part is held back; the list of those parts says it too."""
NO_LEADER = "no replica leads"
_STATES = {"keptBack": "kept back"}
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusFacts:
    """The facts of the status. `head`: the newest commit that was read; `applied`: the last commit that was applied.

    `kept_back` maps a part to the commit it stays at, and `head_files` to its files in `head`, as in Desired.
    `standing`: all standing problems. `frozen`: the parts that people froze, without the windows of Git. Instants are
    None for what has not happened.
    """

    version: str
    now_ms: Instant
    replica: ReplicaForm
    branch: str = ""
    head: Revision = NO_REVISION
    applied: Revision = NO_REVISION
    applied_ms: Instant | None = None
    fetched_ms: Instant | None = None
    cycled_ms: Instant | None = None
    declared: Declared | None = None
    nodes: Sequence[Node] = ()
    kept_back: Mapping[ProjectName, Revision] = field(default_factory=dict)
    head_files: Mapping[ProjectName, Collection[str]] = field(default_factory=dict)
    diagnostics: Sequence[Diagnostic] = ()
    standing: Sequence[ProblemForm] = ()
    frozen: Sequence[Frozen] = ()
    predictions: Sequence[PredictionForm] = ()


def status_of(facts: StatusFacts) -> StatusV1:
    """The status, no longer than MOST_BYTES. Pure. Cost: linear in the standing problems, and in the nodes."""
    made = _made(facts, _MOST[0])
    for most in _MOST[1:]:
        if len(document(made)) > MOST_BYTES:
            made = _made(facts, most)
    return made


def document(status: StatusV1) -> bytes:
    """The form in JSON, as it is published."""
    return status.model_dump_json(by_alias=True).encode()


def _made(facts: StatusFacts, most: int) -> StatusV1:
    cut = _Cut(most)
    refused = [(found, problem) for problem in facts.standing if (found := _confirmation(problem))]
    held = [*_held(facts, cut)]
    told = {each.message for part in held for each in part.problems}
    problems = [
        (whose(each.place), _short(each))
        for each in sorted(facts.standing, key=lambda each: each.level)
        if not _confirmation(each) and each.code not in _BACK and _cut(each.message) not in told
    ]
    frozen = [*map(_frozen, facts.frozen), *_windows(facts)]
    made = StatusV1(
        api_version="gpuctl.dev/v1",
        kind="Status",
        cluster=None if facts.declared is None else facts.declared.cluster.name,
        version=facts.version,
        written_at=format_timestamp(facts.now_ms),
        ready=True,
        why_not=[],
        replica=facts.replica,
        commit=CommitForm(
            branch=facts.branch,
            head=facts.head or None,
            applied=facts.applied or None,
            applied_at=_time(facts.applied_ms),
        ),
        git=GitForm(last_good_fetch=_time(facts.fetched_ms)),
        cycle=CycleForm(last_good_cycle=_time(facts.cycled_ms)),
        held=cut(held),
        refusals=cut([
            RefusalForm(code=each.code, message=_cut(each.message), confirm=found) for found, each in refused
        ]),
        frozen=cut(frozen),
        pools=cut(list(_short_pools(facts, cut))),
        predictions=cut([
            each.model_copy(update={"differences": [_cut(text) for text in cut(each.differences)]})
            for each in facts.predictions
        ]),
        problems=sorted(cut(in_turns(problems, 1)), key=lambda each: each.level),
        left_out=cut.left_out,
    )
    why_not = [_cut(why) for why in _why_not(made)]
    return made.model_copy(update={"ready": not why_not, "why_not": why_not[:most]})


def _confirmation(problem: ProblemForm) -> str:
    """The line that lifts a guard's refusal; "" for any other problem."""
    digest = confirmation_of(problem.help) if problem.event in _OF_GUARDS else ""
    return f"{CONFIRM_TRAILER}: {digest}" if digest else ""


class _Cut:
    """Cuts lists to their longest, and counts what is left out."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.left_out = 0

    def __call__(self, entries: Sequence[T]) -> list[T]:
        self.left_out += max(0, len(entries) - self._most)
        return list(entries[: self._most])


def _held(facts: StatusFacts, cut: _Cut) -> Iterator[HeldForm]:
    for problem in facts.standing:
        if problem.event == "held":
            yield HeldForm(project=None, state="window", commit=facts.applied or None, problems=[_short(problem)])
    errors = [each for each in facts.diagnostics if each.severity is Severity.ERROR and each.code not in _BACK]
    pinned = frozenset[ProjectName]() if facts.declared is None else facts.declared.pinned
    owners = sorted({*facts.kept_back, *pinned})
    told: dict[str, list[Diagnostic]] = defaultdict(list)
    mistakes = ((owner, each) for owner in owners for each in mistakes_of(owner, errors, facts.head_files))
    for owner, mistake in cut(in_turns(((owner, (owner, mistake)) for owner, mistake in mistakes), 1)):
        told[owner].append(mistake)
    for owner in owners:
        yield HeldForm(
            project=None if owner == OWN else str(owner),
            state="keptBack" if owner in facts.kept_back else "pinned",
            commit=facts.kept_back.get(owner),
            problems=[problem_of(each) for each in told[owner]],
        )


def mistakes_of(
    owner: ProjectName, errors: Sequence[Diagnostic], files: Mapping[ProjectName, Collection[str]]
) -> Sequence[Diagnostic]:
    """The errors of the newest commit for which a part is held back: those in its `files` there, else in its folder,
    else all: the error that breaks it may be in another part's file."""
    own = [each for each in errors if each.span.file in files.get(owner, ())]
    return own or [each for each in errors if f"/projects/{owner}/" in f"/{each.span.file}"] or errors


def problem_of(found: Diagnostic) -> ProblemForm:
    """The form of a diagnostic."""
    return _short(
        ProblemForm(
            event="invalid",
            level="error" if found.severity is Severity.ERROR else "warning",
            code=found.code,
            message=found.message,
            place=str(found.span),
            help=found.help,
        )
    )


def _frozen(frozen: Frozen) -> FrozenForm:
    by, since = frozen.by or "a person without a name", _time(frozen.since_ms)
    return FrozenForm(project=frozen.project, by=_cut(by), reason=_cut(frozen.reason), since=since, until=None)


def _windows(facts: StatusFacts) -> Iterator[FrozenForm]:
    windows = () if facts.declared is None else facts.declared.cluster.freeze
    found = {open_until(windows, forbidden, facts.now_ms) for forbidden in Forbidden} if windows else set()
    for until_ms, reason in sorted(each for each in found if each is not None):
        yield FrozenForm(project=None, by="", reason=_cut(reason), since=None, until=format_timestamp(until_ms))


def _short_pools(facts: StatusFacts, cut: _Cut) -> Iterator[PoolForm]:
    usable = {node.name for node in facts.nodes if node.usable}
    for pool in () if facts.declared is None or facts.cycled_ms is None else facts.declared.cluster.pools:
        missing = sorted(node.name for node in pool.nodes if node.name not in usable)
        if missing:
            here = len(pool.nodes) - len(missing)
            yield PoolForm(pool=pool.name, declared=len(pool.nodes), usable=here, missing=[*map(str, cut(missing))])


def _why_not(status: StatusV1) -> Iterator[str]:
    """What keeps it from being ready, one sentence for each reason."""
    if status.replica.role == "standby":
        leader = status.replica.leader
        yield f"this replica waits; {leader} leads" if leader else NO_LEADER
    elif status.commit.applied is None and not status.problems:
        yield "no commit is applied yet"
    elif status.commit.head != status.commit.applied:
        yield f"commit {_brief(status.commit.head)} is not applied yet"
    for held in status.held:
        yield f"{_part(held)} is held back" + (f": {held.problems[0].message}" if held.problems else "")
    by_window = {each.message for held in status.held if held.state == "window" for each in held.problems}
    for refusal in status.refusals:
        if refusal.message not in by_window:
            yield f"{refusal.code}: {refusal.message}"
    for frozen in status.frozen:
        if frozen.by:
            yield f"{_whose(frozen.project, 'the cluster')} is frozen by {frozen.by}: {frozen.reason}"
    for problem in status.problems:
        if problem.level == "error":
            yield f"{problem.code}: {problem.message}"


def text_lines(status: StatusV1, now_ms: Instant, renewed_ms: Instant | None) -> Iterator[str]:
    """The status at a glance, each line with its end. `renewed_ms`: when the Lease was last renewed, if known."""
    yield f"{status.cluster or 'gpuctl'}: {'ready' if status.ready else 'not ready'}\n"
    for why in status.why_not:
        yield f"  {why}\n"
    commit, replica = status.commit, status.replica
    applied = f"{_brief(commit.applied)}, applied {_ago(commit.applied_at, now_ms)}" if commit.applied else "none"
    head = f"; the newest is {_brief(commit.head)}" if commit.head != commit.applied and commit.head else ""
    renewed = f", its Lease renewed {age(now_ms - renewed_ms)} ago" if renewed_ms is not None else ""
    leader = replica.leader or replica.identity
    if NO_LEADER in status.why_not:
        leader = f"none; the last one was {leader}"
    rows = [
        ("commit", f"{applied}{head}" + (f"  (branch {commit.branch})" if commit.branch else "")),
        *([("leader", f"{leader}{renewed}")] if leader else ()),
        ("git", f"last read well {_ago(status.git.last_good_fetch, now_ms)}"),
        ("cycle", f"last went well {_ago(status.cycle.last_good_cycle, now_ms)}"),
        ("written", f"{_ago(status.written_at, now_ms)} by gpuctl {status.version}; git and cycle are as of then"),
    ]
    yield from (f"{name:<8} {value}\n" for name, value in rows)
    yield from _tables(status, now_ms)
    if status.left_out:
        yield f"\n{status.left_out} more entries were left out.\n"


def _tables(status: StatusV1, now_ms: Instant) -> Iterator[str]:
    yield from _table(
        "Held back",
        ("PART", "STATE", "AT COMMIT", "CODE", "WHY"),
        [
            (_part(each), _STATES.get(each.state, each.state), _brief(each.commit), *_why(each.problems[:1]))
            for each in status.held
        ],
    )
    yield from _table(
        "Refused until a commit's message ends with the line",
        ("LINE", "CODE", "WHAT"),
        [(each.confirm, each.code, each.message) for each in status.refusals],
    )
    yield from _table(
        "Frozen",
        ("PART", "BY", "SINCE", "UNTIL", "REASON"),
        [
            (
                _whose(each.project, "the cluster"),
                each.by or "a window in Git",
                _ago(each.since, now_ms) if each.since else "-",
                each.until or "gpuctl unfreeze",
                each.reason,
            )
            for each in status.frozen
        ],
    )
    yield from _table(
        "Pools short of nodes",
        ("POOL", "USABLE", "MISSING"),
        [(each.pool, f"{each.usable}/{each.declared}", ", ".join(each.missing)) for each in status.pools],
    )
    yield from _table(
        "Not as predicted",
        ("COMMIT", "AT", "RESULT", "DIFFERENCE"),
        [(_brief(p.commit), p.at, p.result, "; ".join(p.differences[:1])) for p in status.predictions],
    )
    yield from _table(
        "Other problems",
        ("LEVEL", "CODE", "WHERE", "WHAT"),
        [(each.level, each.code, each.place, each.message) for each in status.problems],
    )
    yield from _table("What to do", ("CODE", "FIX"), sorted(_fixes(status).items()))


def _fixes(status: StatusV1) -> dict[str, str]:
    """What to do about each problem and each part held back, by code: the help of the first of them, else the code's
    fix."""
    told = [*(problem for held in status.held for problem in held.problems[:1]), *status.problems]
    fixes: dict[str, str] = {}
    for each in told:
        known = CODES[each.code].fix if each.code in CODES else ""
        if each.help or known:
            fixes.setdefault(each.code, each.help or known)
    return fixes


def _table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    if rows:
        yield f"\n{title}\n{table(header, rows)}"


def _why(problems: Iterable[ProblemForm]) -> tuple[str, str]:
    return next(((each.code, f"{each.place}: {each.message}" if each.place else each.message) for each in problems),
                ("-", "-"))  # fmt: skip


def _whose(project: str | None, other: str = "the cluster's own part") -> str:
    return other if project is None else f"project {project}"


def _part(held: HeldForm) -> str:
    return "the newest commit" if held.state == "window" else _whose(held.project)


def _short(problem: ProblemForm) -> ProblemForm:
    cut = {name: _cut(getattr(problem, name)) for name in ("message", "place", "help")}
    return problem.model_copy(update=cut)


def _cut(text: str) -> str:
    written = text.encode(errors="replace")
    return text if len(written) <= _LONGEST else written[: _LONGEST - 3].decode(errors="ignore") + "…"


def _brief(revision: str | None) -> str:
    return (revision or "-")[:_SHOWN_REVISION]


def _time(at_ms: Instant | None) -> str | None:
    return None if at_ms is None else format_timestamp(at_ms)


def _ago(time: str | None, now_ms: Instant) -> str:
    with suppress(ValueError):
        return "never" if time is None else f"{age(now_ms - parse_timestamp(time))} ago"
    return "at an unknown time"
