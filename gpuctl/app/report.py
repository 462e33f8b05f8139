"""The journal of the unattended loop: one line for each thing that happened, none while nothing happens.

A problem stands until it is resolved. It has one line when it begins and one when it ends, not one each time it is
found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum

from gpuctl.app.cycle import CycleReport
from gpuctl.app.fights import Fight, rival
from gpuctl.app.lost_claims import claims_made_anew
from gpuctl.app.ports import Forbidden, WorldFault
from gpuctl.app.rejections import is_of_tenant, that_are_sure
from gpuctl.compile import DeclaredSize
from gpuctl.diag.diagnostic import Diagnostic, Severity, has_errors
from gpuctl.diag.escapes import is_visible, json_text
from gpuctl.diag.wording import message
from gpuctl.k8s.kinds import Kind, in_words, is_declared
from gpuctl.k8s.timestamps import format_timestamp
from gpuctl.k8s.workloads import job_of
from gpuctl.model.change import Action, Change, OutcomeStatus
from gpuctl.model.decision import Admit, Decision, Finished, JobState, Move, Preempt, Reclaim, Resize
from gpuctl.model.ids import JobId, ObjectRef
from gpuctl.model.state import ClusterState
from gpuctl.model.turns import in_turns, whose
from gpuctl.model.units import Instant
from gpuctl.plan import Stage

_OVERTAKEN = "GPU7004"
"""GPU7004: another writer changed the object at the same time. The next cycle reads it again, which mostly resolves
it."""
MOST_MISTAKES = 1000
"""The most mistakes of one commit that are journaled: the loop waits while lines are written."""
FieldValue = str | int | Sequence[str]


class LogForm(StrEnum):
    """How a line is written."""

    TEXT = "text"
    JSON = "json"


class Level(StrEnum):
    """How much a line matters."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line: an event, in a word, and its fields."""

    event: str
    level: Level = Level.INFO
    fields: Mapping[str, FieldValue] = field(default_factory=dict)
    rewords: bool = False
    """Whether the message may change while the problem stays the same: only the first message is written."""

    @property
    def problem(self) -> str:
        """The key of the problem: two entries with the same key are the same problem."""
        facts = {key: value for key, value in self.fields.items() if not (self.rewords and key == "message")}
        return f"{self.event} {self.level} {facts}"

    @property
    def subject(self) -> tuple[tuple[str, FieldValue], ...]:
        """What the entry is about: the fields of the line that reports it as resolved."""
        told = ((name, self.fields[name]) for name in ("code", "place", "object") if name in self.fields)
        return ("was", self.event), *told

    def line(self, at_ms: Instant, form: LogForm) -> str:
        """The line, without its newline."""
        at = format_timestamp(at_ms)
        if form is LogForm.JSON:
            facts = {key: list(v) if isinstance(v, tuple) else v for key, v in self.fields.items()}
            return json_text({"at": at, "level": self.level, "event": self.event, **facts})
        return " ".join([at, self.level, self.event, *(f"{key}={_plain(v)}" for key, v in self.fields.items())])


class Journal:
    """Writes lines, and remembers the standing problems by area (Git, declarations, cluster)."""

    def __init__(self, write: Callable[[str], None], form: LogForm = LogForm.TEXT) -> None:
        self._write = write
        self._form = form
        self._standing: dict[str, dict[str, Entry]] = {}

    def tell(self, at_ms: Instant, entry: Entry) -> None:
        """Write an entry. A line that can't be formed or written is lost; nothing is raised."""
        with suppress(Exception):
            self._write(entry.line(at_ms, self._form))

    def stand(self, at_ms: Instant, area: str, problems: Iterable[Entry]) -> None:
        """Set all problems that stand in an area now. Writes the new and the resolved ones.

        A problem whose fields changed is not resolved: a replica that waits for another leader is still waiting.
        """
        before = self._standing.get(area, {})
        now = {entry.problem: entry for entry in problems}
        for key, entry in now.items():
            if key not in before:
                self.tell(at_ms, entry)
        still = {entry.subject for entry in now.values()}
        for entry in before.values():
            if entry.subject not in still:
                self.tell(at_ms, Entry(event="resolved", fields=dict(entry.subject)))
        self._standing[area] = now

    def forget(self, *areas: str) -> None:
        """Drop the problems of areas without a line: another replica reports them from now on."""
        for area in areas:
            self._standing.pop(area, None)

    @property
    def standing(self) -> tuple[Entry, ...]:
        """All problems that stand."""
        return tuple(entry for area in self._standing.values() for entry in area.values())

    @property
    def codes(self) -> Mapping[str, int]:
        """How many problems of each code stand. An entry without a code (a replica in standby) is no problem."""
        standing = (entry.fields.get("code") for area in self._standing.values() for entry in area.values())
        return Counter(str(code) for code in standing if code)

    @property
    def has_errors(self) -> bool:
        """Whether an error stands."""
        return any(entry.level is Level.ERROR for area in self._standing.values() for entry in area.values())


def of_fault(event: str, fault: WorldFault) -> Entry:
    """The entry for a fault of the outside world."""
    return Entry(event=event, level=Level.ERROR, fields={"code": fault.code, "message": str(fault)}, rewords=True)


def of_diagnostic(event: str, found: Diagnostic) -> Entry:
    """The entry of a diagnostic, with its place and its fix."""
    facts: dict[str, FieldValue] = {"code": found.code, "place": str(found.span), "message": found.message}
    if found.help:
        facts["help"] = found.help
    level = Level.ERROR if found.severity is Severity.ERROR else Level.WARNING
    return Entry(event=event, level=level, fields=facts)


def of_mistakes(found: Sequence[Diagnostic]) -> Iterator[Entry]:
    """The entries for the newest commit's diagnostics: first the parts that are kept back, then the mistakes. There is
    a bound; beyond it the projects take turns, so that no project's mistakes hide another's."""
    told = sorted(found, key=lambda diagnostic: not diagnostic.code.startswith("GPU8"))
    if len(told) > MOST_MISTAKES:
        told = in_turns((whose(each.span.file), each) for each in told)
    for diagnostic in told[:MOST_MISTAKES]:
        yield of_diagnostic("invalid", diagnostic)
    more = told[MOST_MISTAKES:]
    if more:
        level = Level.ERROR if has_errors(more) else Level.WARNING
        yield Entry(event="invalid", level=level, fields={"more": len(more)})


def of_cycle(report: CycleReport, revision: str) -> Iterator[Entry]:
    """The entries for what a cycle did; none if it wrote nothing."""
    applied = [o.change for o in report.result.outcomes if o.status is OutcomeStatus.APPLIED]
    if not applied:
        return
    facts: dict[str, FieldValue] = {"revision": revision[:12], "writes": len(applied)}
    for action in Action:
        count = sum(change.action is action for change in applied)
        if count:
            facts[f"{action}d"] = count
    told: dict[str, list[str]] = {
        "started": [str(d.job) for d in _decided(report, applied, Stage.ADMIT) if isinstance(d, Admit)],
        "paused": [
            f"{d.job} for {d.beneficiary}"
            for d in _decided(report, applied, Stage.PAUSE)
            if isinstance(d, Reclaim | Preempt)
        ],
        "moved": [
            f"{d.job} for {d.beneficiary}" for d in _decided(report, applied, Stage.PAUSE) if isinstance(d, Move)
        ],
    }
    told["resized"] = [
        f"{d.job} to {len(d.placement.workers)} workers" + (f" for {d.beneficiary}" if d.beneficiary else "")
        for stage in (Stage.PAUSE, Stage.ADMIT)
        for d in _decided(report, applied, stage)
        if isinstance(d, Resize)
    ]
    ended = _newly_ended(report)
    told["ended"] = [f"{d.job} {d.state}" for d in ended if d.state is not JobState.DELETED]
    facts |= {key: words for key, words in told.items() if words}
    yield Entry(event="applied", fields=facts)
    for _, claim, text in claims_made_anew(report):
        lost: dict[str, FieldValue] = {"code": "GPU7061", "object": str(claim), "message": text}
        yield Entry(event="emptied", level=Level.WARNING, fields=lost)
    for decision in ended:
        if decision.state is JobState.DELETED:
            words = {"code": "GPU5053", "job": str(decision.job), "message": message("GPU5053", {})}
            yield Entry(event="deleted", level=Level.WARNING, fields=words)


def _newly_ended(report: CycleReport) -> list[Finished]:
    """The finished jobs that no ledger records yet."""
    ended = [decision for decision in report.schedule.decisions if isinstance(decision, Finished)]
    told = {job for ledger in report.state.ledgers.values() for job, _ in ledger.finished} if ended else set[JobId]()
    return [decision for decision in ended if decision.job not in told]


def of_troubles(report: CycleReport) -> Iterator[Entry]:
    """The problems that stand after a cycle: refusals, failed writes, and mismatches of inventory and cluster."""
    for refusal in report.plan.refusals:
        yield of_diagnostic("refused", refusal)
    for notice in report.plan.notices:
        yield of_diagnostic("differs", notice)
    refused = {ref: found.error for ref, found in that_are_sure(report.rejected).items()}
    failed = {outcome.change.ref: outcome.error for outcome in report.faults if not outcome.refused}
    for ref, error in sorted({**refused, **failed}.items()):
        code, _, told = error.partition(": ")
        facts: dict[str, FieldValue] = {"code": code, "object": str(ref), "message": told}
        is_bounded = ref in refused and is_of_tenant(ref, error)
        level = Level.WARNING if code == _OVERTAKEN or is_bounded else Level.ERROR
        yield Entry(event="failed", level=level, fields=facts, rewords=True)


def of_lacking(absent: Iterable[Kind], refused: Iterable[Kind]) -> Iterator[Entry]:
    """The problems of kinds that a Cluster declares but the server lacks, or that gpuctl may not read."""
    for code, some in (("GPU7022", absent), ("GPU7021", refused)):
        for kind in sorted(filter(is_declared, some)):
            text = message(code, {"kind": in_words(kind)})
            yield Entry(event="lacking", level=Level.ERROR, fields={"code": code, "message": text})


def of_unread_kinds(unread: Mapping[Kind, WorldFault]) -> Iterator[Entry]:
    """The problems of kinds that the server can't read now, or that gpuctl lost the right to read."""
    for kind, fault in sorted(unread.items()):
        if not (isinstance(fault, Forbidden) and is_declared(kind)):  # GPU7021 reports those
            yield of_fault("unread", fault)


def of_damage(report: CycleReport) -> Iterator[Entry]:
    """The problems of damaged ledgers. Their projects are left alone until a person has repaired them."""
    for ref, part in report.state.damaged:
        text = message("GPU7008", {"ledger": ref.name, "part": part})
        yield Entry(
            event="damaged", level=Level.WARNING, fields={"code": "GPU7008", "object": str(ref), "message": text}
        )


def of_unreadable(state: ClusterState) -> Iterator[Entry]:
    """The problems of objects that can't be read, one each."""
    for ref, what in state.unreadable:
        text = message("GPU7009", {"object": str(ref), "what": what})
        facts = {"code": "GPU7009", "object": str(ref), "message": text}
        yield Entry(event="unreadable", level=Level.WARNING, fields=facts)


def of_size(size: DeclaredSize) -> Iterator[Entry]:
    """The problem that there is little memory left for more jobs."""
    words = size.nearly_full()
    if words is not None:
        facts = {"code": "GPU7097", "message": message("GPU7097", words)}
        yield Entry(event="full", level=Level.WARNING, fields=facts, rewords=True)


def of_fights(fought: Mapping[ObjectRef, Fight], state: ClusterState) -> Iterator[Entry]:
    """The problems of objects whose writes are slowed after many writes, with the other manager's name."""
    for ref, fight in sorted(fought.items()):
        other = rival(state.live.get(ref))
        who = f"{other} wrote it, too" if other else "no other client wrote it, so an admission policy or webhook may"
        text = message("GPU7007", {"object": str(ref), "times": fight.times, "what": fight.what, "rival": who})
        facts = {"code": "GPU7007", "object": str(ref), "message": text}
        yield Entry(event="restless", level=Level.WARNING, fields=facts, rewords=True)


def _decided(report: CycleReport, applied: Iterable[Change], stage: Stage) -> list[Decision]:
    """The decisions whose write was made in that stage."""
    jobs = {job_of(change.body) for change in applied if change.stage == stage and change.body is not None}
    return [decision for decision in report.schedule.decisions if decision.job in jobs] if jobs else []


def _plain(value: FieldValue) -> str:
    """A field's value as text: as it is if it has no spaces, else quoted."""
    text = value if isinstance(value, str) else str(value) if isinstance(value, int) else ", ".join(value)
    return text if text and is_visible(text) and not set(text) & set(' "=') else json_text(text)
