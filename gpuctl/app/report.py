"""The journal of the unattended loop: one line for each thing that happened, none while nothing does.

What is wrong stands until it is right: it is told when it begins and when it ends, not each time it is found again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum

from gpuctl.app.cycle import CycleReport
from gpuctl.app.fights import WRITES_IN_A_WINDOW, rival
from gpuctl.app.ports import WorldFault
from gpuctl.diag.diagnostic import Diagnostic, Severity, has_errors
from gpuctl.diag.escapes import json_text
from gpuctl.diag.wording import message
from gpuctl.k8s.timestamps import format_timestamp
from gpuctl.k8s.workloads import job_of
from gpuctl.model.change import Action, Change, OutcomeStatus
from gpuctl.model.decision import Admit, Decision, Finished, JobState, Move, Preempt, Reclaim, Resize
from gpuctl.model.ids import JobId, ObjectRef
from gpuctl.model.state import ClusterState
from gpuctl.model.units import Instant
from gpuctl.plan import Stage

_OVERTAKEN = "GPU7004"
"""Somebody changed the object at the same time: the next cycle looks again, and most times that is all."""
MOST_MISTAKES = 1000
"""What is told of one commit: a journal is no report, and the loop waits while lines are written."""
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
    """One line: what it is about in a word, and the facts."""

    event: str
    level: Level = Level.INFO
    fields: Mapping[str, FieldValue] = field(default_factory=dict)
    rewords: bool = False
    """Whether its message may change while it stands for the same problem: only the first is told."""

    @property
    def problem(self) -> str:
        """What two entries share that stand for the same."""
        facts = {key: value for key, value in self.fields.items() if not (self.rewords and key == "message")}
        return f"{self.event} {self.level} {facts}"

    @property
    def subject(self) -> tuple[tuple[str, FieldValue], ...]:
        """What it is about: the facts of the line that tells that it has ended."""
        told = ((name, self.fields[name]) for name in ("code", "place", "object") if name in self.fields)
        return ("was", self.event), *told

    def line(self, at_ms: Instant, form: LogForm) -> str:
        """The line, without its end."""
        at = format_timestamp(at_ms)
        if form is LogForm.JSON:
            facts = {key: list(v) if isinstance(v, tuple) else v for key, v in self.fields.items()}
            return json_text({"at": at, "level": self.level, "event": self.event, **facts})
        return " ".join([at, self.level, self.event, *(f"{key}={_plain(v)}" for key, v in self.fields.items())])


class Journal:
    """Writes lines and remembers what stands wrong, by area (Git, declarations, cluster)."""

    def __init__(self, write: Callable[[str], None], form: LogForm = LogForm.TEXT) -> None:
        self._write = write
        self._form = form
        self._standing: dict[str, dict[str, Entry]] = {}

    def tell(self, at_ms: Instant, entry: Entry) -> None:
        """Something happened. A line that can't be made or written is lost, and ends nothing."""
        with suppress(Exception):
            self._write(entry.line(at_ms, self._form))

    def stand(self, at_ms: Instant, area: str, problems: Iterable[Entry]) -> None:
        """All that is wrong in an area now. Tells what is new of it, and what was wrong and is no more.

        What is told anew with other facts has not ended: a replica that waits for another leader still waits.
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
        """What stands there is another's business from now on: nothing is told of it."""
        for area in areas:
            self._standing.pop(area, None)

    @property
    def codes(self) -> Mapping[str, int]:
        """How many problems of each code stand; those without one (a replica that waits) are no problems."""
        standing = (entry.fields.get("code") for area in self._standing.values() for entry in area.values())
        return Counter(str(code) for code in standing if code)

    @property
    def has_errors(self) -> bool:
        """Whether an error stands."""
        return any(entry.level is Level.ERROR for area in self._standing.values() for entry in area.values())


def of_fault(event: str, fault: WorldFault) -> Entry:
    """A fault of the world."""
    return Entry(event=event, level=Level.ERROR, fields={"code": fault.code, "message": str(fault)}, rewords=True)


def of_diagnostic(event: str, found: Diagnostic) -> Entry:
    """A diagnostic, with its place and its fix."""
    facts: dict[str, FieldValue] = {"code": found.code, "place": str(found.span), "message": found.message}
    if found.help:
        facts["help"] = found.help
    level = Level.ERROR if found.severity is Severity.ERROR else Level.WARNING
    return Entry(event=event, level=level, fields=facts)


def of_mistakes(found: Sequence[Diagnostic]) -> Iterator[Entry]:
    """What is wrong with the newest commit: first which parts of it are kept back; of a great many, the first."""
    told = sorted(found, key=lambda diagnostic: not diagnostic.code.startswith("GPU8"))
    for diagnostic in told[:MOST_MISTAKES]:
        yield of_diagnostic("invalid", diagnostic)
    more = told[MOST_MISTAKES:]
    if more:
        level = Level.ERROR if has_errors(more) else Level.WARNING
        yield Entry(event="invalid", level=level, fields={"more": len(more)})


def of_cycle(report: CycleReport, revision: str) -> Iterator[Entry]:
    """What a cycle did; nothing when it wrote nothing."""
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
    for decision in ended:
        if decision.state is JobState.DELETED:
            words = {"code": "GPU5053", "job": str(decision.job), "message": message("GPU5053", {})}
            yield Entry(event="deleted", level=Level.WARNING, fields=words)


def _newly_ended(report: CycleReport) -> list[Finished]:
    """The ends that no ledger tells of yet."""
    ended = [decision for decision in report.schedule.decisions if isinstance(decision, Finished)]
    told = {job for ledger in report.state.ledgers.values() for job, _ in ledger.finished} if ended else set[JobId]()
    return [decision for decision in ended if decision.job not in told]


def of_troubles(report: CycleReport) -> Iterator[Entry]:
    """What stands wrong after a cycle: refusals, writes that failed, and how nodes differ from what is declared."""
    for refusal in report.plan.refusals:
        yield of_diagnostic("refused", refusal)
    for notice in report.plan.notices:
        yield of_diagnostic("differs", notice)
    failed = {ref: found.error for ref, found in report.rejected.items()}
    for ref, error in sorted({**failed, **{o.change.ref: o.error for o in report.faults}}.items()):
        code, _, told = error.partition(": ")
        facts: dict[str, FieldValue] = {"code": code, "object": str(ref), "message": told}
        level = Level.WARNING if code == _OVERTAKEN else Level.ERROR
        yield Entry(event="failed", level=level, fields=facts, rewords=True)


def of_damage(report: CycleReport) -> Iterator[Entry]:
    """Records that can't be read whole. Their projects are left alone until somebody has looked."""
    for ref, part in report.state.damaged:
        text = message("GPU7008", {"ledger": ref.name, "part": part})
        yield Entry(
            event="damaged", level=Level.WARNING, fields={"code": "GPU7008", "object": str(ref), "message": text}
        )


def of_unreadable(state: ClusterState) -> Iterator[Entry]:
    """Objects of the cluster that can't be read, each by itself."""
    for ref, what in state.unreadable:
        text = message("GPU7009", {"object": str(ref), "what": what})
        facts = {"code": "GPU7009", "object": str(ref), "message": text}
        yield Entry(event="unreadable", level=Level.WARNING, fields=facts)


def of_fights(fought: Iterable[ObjectRef], state: ClusterState) -> Iterator[Entry]:
    """Objects that are left alone for a while because they were written too often, with who else writes them."""
    for ref in sorted(fought):
        other = rival(state.live.get(ref))
        who = f"{other} wrote it, too" if other else "no other client wrote it"
        text = message("GPU7007", {"object": str(ref), "times": WRITES_IN_A_WINDOW, "rival": who})
        facts = {"code": "GPU7007", "object": str(ref), "message": text}
        yield Entry(event="restless", level=Level.WARNING, fields=facts)


def _decided(report: CycleReport, applied: Iterable[Change], stage: Stage) -> list[Decision]:
    """The decisions whose write in that stage was made."""
    jobs = {job_of(change.body) for change in applied if change.stage == stage and change.body is not None}
    return [decision for decision in report.schedule.decisions if decision.job in jobs] if jobs else []


def _plain(value: FieldValue) -> str:
    """A value without spaces as it is, any other quoted."""
    text = value if isinstance(value, str) else str(value) if isinstance(value, int) else ", ".join(value)
    return text if text and text.isprintable() and not set(text) & set(' "=') else json_text(text)
