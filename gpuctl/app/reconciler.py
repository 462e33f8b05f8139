"""The steps of the loop: follow the branch, enforce its declarations, keep the object cache current.

Each step reports the problems that stand afterwards, in the journal and in the measurements. None ends the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from gpuctl.app.change_urgency import ChangeUrgency, urgency_of
from gpuctl.app.control import last_sync
from gpuctl.app.cycle import CycleContext, CycleReport, cycles, foreseen, until_calm
from gpuctl.app.fights import Fights
from gpuctl.app.following import Followed, Follower
from gpuctl.app.history import check_of, facts_of, unkept
from gpuctl.app.holding import Held, is_frozen, lost_kinds
from gpuctl.app.metrics import measure
from gpuctl.app.notes import notes_of
from gpuctl.app.object_cache import ObjectCache
from gpuctl.app.outside import Outside
from gpuctl.app.overview import OverviewBoard
from gpuctl.app.ports import Stop, WorldFault
from gpuctl.app.predictions import Checked, Predictions, causes_of, entry_of, note_on_ledger
from gpuctl.app.rejections import rest_ms
from gpuctl.app.report import (
    Entry,
    Journal,
    Level,
    of_cycle,
    of_damage,
    of_diagnostic,
    of_fault,
    of_fights,
    of_lacking,
    of_mistakes,
    of_size,
    of_troubles,
    of_unread_kinds,
    of_unreadable,
)
from gpuctl.app.revisions import Desired
from gpuctl.app.status import StatusBoard
from gpuctl.app.timekeeping import LAST_RETRY_MS, MOST_APART_MS, CheckedClock, retry_ms
from gpuctl.app.troubles import Troubles
from gpuctl.app.utilisation import UtilisationBoard
from gpuctl.app.viewing import Sight
from gpuctl.diag.wording import message
from gpuctl.k8s.kinds import OBSERVED, of_engine
from gpuctl.model.declared import Declared
from gpuctl.model.history import TakenUp
from gpuctl.model.ids import NO_REVISION
from gpuctl.model.state import ClusterState
from gpuctl.model.units import DurationMs, Instant
from gpuctl.observe import CONTROL, Records, read_ledgers

LOOK_AGAIN_MS: DurationMs = 500
"""How long after gpuctl's own writes the next cycle comes, if no change calls for an earlier one."""
LONG_FOLLOWING_MS: DurationMs = 180_000
"""A commit that is not read and compiled by then is reported: longer than the time limits of Git's commands allow."""
_PATIENCE_MS: Mapping[ChangeUrgency, DurationMs] = {
    ChangeUrgency.NONE: LAST_RETRY_MS,
    ChangeUrgency.SOON: LOOK_AGAIN_MS,
    ChangeUrgency.NOW: 0,
}
"""How long a cycle may wait for more changes, by the urgency of the last ones."""


class Reconciler:
    """Follows the branch and enforces it, each step when the loop calls it.

    It remembers only what it can read again, and forgets it after another replica has led, or a clock was put back: the
    last good commits are in the ledgers.
    """

    def __init__(self, outside: Outside, journal: Journal, stop: Stop) -> None:
        self._outside = outside
        self._journal = journal
        self._stop = stop
        self.troubles = Troubles(journal, outside.meters, outside.clock)
        more = () if outside.engine is None else of_engine(outside.engine)
        self._object_cache = ObjectCache(outside.cluster, (*OBSERVED, *more))
        self._time = CheckedClock(outside.clock, outside.reference)
        self._follower = Follower(outside.source, outside.background, outside.most_jobs)
        self._term: int | None = None
        self._began_ms = self._read_ms = self._latest_ms = self._now()
        self._blind, self._look_due = 0, self._now()
        self._board = StatusBoard(outside.publisher, outside.meters, outside.clock, outside.identity, outside.notifier)
        self._overview = OverviewBoard(outside.publish, outside.background, outside.clock)
        self._utilisation = UtilisationBoard(outside.utilisation, outside.background, outside.clock)
        self._begin()

    def _begin(self) -> None:
        """Start over like a new process, but keep the object cache."""
        self._fights = Fights()
        self._predictions = Predictions()
        cache, incidents = self._object_cache, self._outside.incidents
        self._context = CycleContext(
            object_cache=cache,
            clock=self._time,
            stop=self._is_over,
            rests=self._fights.rests,
            incidents=incidents,
            engine=self._outside.engine,
        )
        self._follower.forget()
        self._board.begin()
        self._overview.begin()
        self._utilisation.begin()
        self._asked: str | None = None
        self.has_followed = False
        """Whether the branch was read, or could not be read, at least once."""
        self._desired = Desired()
        """The declarations that are enforced."""
        self._newest: Desired | None = None
        """The declarations to enforce next, as soon as no freeze window holds them."""
        self._held = Held()
        self._provided: Desired | None = None
        self._before: CycleReport | None = None
        self._left: ClusterState | None = None
        """The state observed after the writes of the last cycle."""
        self.settled = True
        """Whether the last cycles ended because nothing was left to write."""
        self.calm = True
        """Whether the last cycles ended because nothing is left to write before something happens in the cluster."""
        self.unfinished = 0
        """How many cycles in a row had a failed write that may well succeed soon."""

    def beat(self) -> None:
        """Report to the measurements that the loop is alive."""
        self.troubles.aside("beat", self._outside.meters.beat)

    def leads(self) -> bool:
        """Whether this process may act. Reports each change of leadership."""
        leadership = self._outside.leadership
        before_ms, self._latest_ms = self._latest_ms, self._now()
        if self._latest_ms < before_ms - MOST_APART_MS:
            self._begin()  # else all that is to be tried again would wait for the time that was
        held, term = leadership.held(), leadership.term()
        if self._term not in {None, term}:
            self._begin()
            self.troubles.forget("git", "following", "declarations", "cluster", "utilisation")
        self._term = term
        waits = [] if held else [Entry(event="standby", fields={"leader": leadership.holder()})]
        fault = None if held else leadership.fault()
        self.troubles.stand("leadership", [*waits, *([of_fault("unreachable", fault)] if fault else [])])
        return held

    def stand_by(self) -> None:
        """Keep the object cache current while another replica leads, so that taking over takes no time."""
        if self.troubles.guarded("cluster", self._look):
            self.troubles.aside("synced", self._outside.meters.synced)

    def tell_status(self) -> None:
        """Publish the status if it may have changed, and show the cluster if somebody looks at it."""
        self.troubles.aside("status", self._tell_status)
        self.troubles.aside("shown", self._show)

    def _show(self) -> None:
        if self._object_cache.synced and self._outside.viewer.is_wanted():
            leader = None if self._outside.leadership.held() else self._outside.leadership.holder()
            objects = self._object_cache.objects()
            sight = Sight(
                at_ms=self._read_ms,
                objects=objects,
                leader=leader,
                revision=self._desired.revision,
                unread=tuple(map(str, self._object_cache.missed.values())),
            )
            self._outside.viewer.offer(sight)

    def _tell_status(self) -> None:
        leadership = self._outside.leadership
        if not leadership.held():
            self._board.stand_by(leadership.holder())
        elif self.has_followed:
            self._board.tell(lambda: self._journal.standing)

    def is_asked_for_git(self) -> bool:
        """Whether a person has asked, since the last call, that Git be read now."""
        before, self._asked = self._asked, last_sync(self._object_cache.get(CONTROL))
        return before is not None and self._asked != before and bool(self._asked)

    @property
    def is_following(self) -> bool:
        """Whether the newest commit is being read."""
        return self._follower.under_way

    def follow(self) -> bool | None:
        """Begin to fetch the newest commit, unless that is under way, and take its result.

        Returns None while there is no result yet, False if something could not be read.
        """
        came: list[Followed] = []
        problems, well = self.troubles.tried(lambda: self._ask(came))
        if well and not came:
            self.troubles.stand("following", list(self._of_long_following()))
            return None
        self.troubles.stand("following", [])
        self.troubles.stand("git", problems)
        self.has_followed = True
        self.troubles.aside("fetched", lambda: self._outside.meters.fetched(well=well))
        head = came[0].head if came else NO_REVISION
        self._board.fetched(well=well, branch=self._outside.source.branch, head=head)
        return well

    def enforce(self, done: Callable[[CycleReport], bool] = until_calm) -> bool:
        """Run cycles until one is done. Returns False if the cluster can't be read."""
        before = self._before
        well = self.troubles.guarded("cluster", lambda: self._enforce(done))
        self._board.cycled(self._before if well and self._before is not before else None, self._desired)
        return well

    def rest_ms(self, interval_ms: DurationMs) -> DurationMs:
        """How long to wait after the last cycles if nothing happens: no longer than a doubted write rests."""
        longest_ms = interval_ms if self.settled else LOOK_AGAIN_MS if self.calm else 0
        return rest_ms(self._context.rejected, self._now(), longest_ms)

    def patience_ms(self) -> DurationMs:
        """How long the next cycle may wait, by the urgency of the changes since the last one.

        If the changes can't be read, a cycle comes after a delay that doubles with each failure in a row. Until then
        they are not read again.
        """
        wait_ms = self._look_due - self._now()
        if 0 < wait_ms <= LAST_RETRY_MS:
            return wait_ms
        try:
            urgency = self.urgency()
        except Exception as error:  # noqa: BLE001 - one object that can't be read must not end the loop
            self._blind += 1
            self._look_due = self._now() + retry_ms(self._blind)
            self.troubles.bug("changes", error)
            return retry_ms(self._blind)
        self._blind = 0
        self.troubles.bug("changes", None)
        return _PATIENCE_MS[urgency]

    def urgency(self) -> ChangeUrgency:
        """How soon the changes since the last cycle need another one; NOW when the cluster can't be reached."""
        try:
            changes = self._object_cache.refresh()
        except WorldFault:
            return ChangeUrgency.NOW
        self._read_ms = self._now()
        if not changes:
            return ChangeUrgency.SOON if self._outside.incidents.has_news() else ChangeUrgency.NONE
        declared = self._desired.declared
        if self._object_cache.altered or declared is None or self._left is None:
            return ChangeUrgency.NOW
        return urgency_of(self._left, self._context.caches.state_of(self._object_cache.objects(), declared.tenancy))

    def _look(self) -> list[Entry]:
        self._object_cache.refresh()
        self._read_ms = self._now()
        return []

    def _ask(self, came: list[Followed]) -> list[Entry]:
        if not self.is_following:
            self._began_ms = self._now()
            self._follower.begin()
        followed = self._follower.take(self._records)
        if followed is None:
            return []
        came.append(followed)
        problem = followed.problem
        if problem is not None and self._stop.requested():
            return []
        self.troubles.aside("history", partial(self._outside.history.note, followed.commits))
        if followed.standing is not None and self._desired.declared is None:
            self._desired = followed.standing
        if followed.desired is not None:
            self._newest = followed.desired
            self.troubles.stand("declarations", list(of_mistakes(followed.desired.diagnostics)))
        for old in followed.rewritten:
            told = message("GPU8007", {"old": old[:12], "new": followed.head[:12]})
            facts = {"code": "GPU8007", "old": old, "new": followed.head, "message": told}
            self._journal.tell(self._now(), Entry(event="rewritten", level=Level.WARNING, fields=facts))
        return [] if problem is None else [of_fault(problem.event, problem.fault)]

    def _take_newest(self) -> list[Entry]:
        """Enforce the newest commit from now on, unless it is held. Returns why it is held."""
        newest, in_force = self._newest, self._desired.declared
        if newest is None:
            return []
        if in_force is not None and is_frozen(in_force, self._now()):
            self._object_cache.refresh()
            objects = self._object_cache.objects()
            refusal = self._held.refusal(self._desired, newest, objects, self._now())
            if refusal is not None:
                return [of_diagnostic("held", refusal)]
        if newest.declared is not None:
            records = self._records().of(newest.declared.cluster.name)
            lost = lost_kinds(newest.declared, records.ledgers.values())
            if lost is not None:
                return [of_diagnostic("held", lost)]
        self._take(newest)
        return []

    def _take(self, desired: Desired) -> None:
        self._desired, self._newest = desired, None
        if desired.revision:
            self._board.taking_up(desired.revision)
            facts = {"revision": desired.revision, "branch": self._outside.source.branch}
            self._journal.tell(self._now(), Entry(event="following", fields=facts))
            taken = TakenUp(revision=desired.revision, at_ms=self._now())
            self.troubles.aside("history", partial(self._outside.history.note, (taken,)))
            self.troubles.aside("revision", lambda: self._outside.meters.following(desired.revision, self._now()))

    def _of_long_following(self) -> Iterator[Entry]:
        took_ms = self._now() - self._began_ms
        if took_ms > LONG_FOLLOWING_MS:
            told = message("GPU8016", {"took": took_ms // 60_000 * 60_000})
            facts = {"code": "GPU8016", "message": told}
            yield Entry(event="slow", level=Level.WARNING, fields=facts, rewords=True)

    def _records(self) -> Records:
        """The ledgers as last read; read now if this process has read nothing yet."""
        if self._desired.declared is None:
            self._object_cache.refresh()
        return read_ledgers(self._object_cache.objects().objects)

    def _enforce(self, done: Callable[[CycleReport], bool]) -> list[Entry]:
        self._time.now_ms()  # raises before anything is decided or written by a clock that is wrong
        held = self._take_newest()
        declared = self._desired.declared
        if declared is None:
            why = "the newest commit has errors" if self._desired.diagnostics else "nothing could be read yet"
            told = message("GPU8012", {"why": why})
            return [Entry(event="idle", level=Level.ERROR, fields={"code": "GPU8012", "message": told})]
        if self._provided is not self._desired:
            self._outside.machines.provide(declared.cluster.pools)
            self._outside.machines.define(declared.cluster.workload_kinds)
            self._provided = self._desired
        self._object_cache.read_also(declared.cluster.workload_kinds)  # a prediction counts runs as a cycle does
        is_ours = self._outside.engine is None  # the decisions of another engine are not predicted
        if is_ours and not self._predictions.knows(declared, self._desired.confirmations):
            self._object_cache.refresh()
            self.troubles.aside("predicted", partial(self._predict, declared))
        self.troubles.guarded("utilisation", partial(self._utilisation.turn, self._left))
        context = replace(self._context, idle=self._utilisation.idle())
        report = self._cycled(declared, context, done)
        self._context = replace(self._context, rejected=report.rejected)
        self.settled, self.calm = report.settled, report.calm
        self._left = self._context.caches.state_of(self._object_cache.objects(), declared.tenancy)
        self.unfinished = self.unfinished + 1 if report.unwritten else 0
        self.troubles.aside("synced", self._outside.meters.synced)
        troubles = [*of_damage(report), *of_unreadable(report.state), *of_troubles(report)]
        cache = self._object_cache
        troubles += [*of_lacking(cache.absent, cache.refused), *of_unread_kinds(cache.missed)]
        held += [*unkept(self._outside.history), *of_size(self._desired.size)]
        return [*held, *troubles, *of_fights(self._fights.standing(self._now()), report.state)]

    def _cycled(self, declared: Declared, context: CycleContext, done: Callable[[CycleReport], bool]) -> CycleReport:
        """Run cycles until one is done, and journal each as soon as it is over. Returns the last report.

        Earlier reports are dropped: each holds the cluster as it was, so many cycles would hold as many copies of it.
        """
        last: CycleReport | None = None
        for report in cycles(declared, context, self._desired.confirmations, done):
            last = report
            self._read_ms = report.at_ms
            self.beat()
            self._fights.note(report)
            self.troubles.aside("told", partial(self._tell, report))
            self.troubles.aside("checked", partial(self._check, report))
            self.troubles.aside("forecast", self._overview.take_over)  # It may forecast starts of this cycle.
            self.troubles.aside("measured", partial(self._measure, report))
            facts = facts_of(report, self._desired, self._utilisation.known.runs)
            self.troubles.aside("history", partial(self._outside.history.offer, facts))
            self._before = report
        assert last is not None  # noqa: S101 - there is always a first cycle
        self.troubles.aside("published", partial(self._overview.offer, last))
        return last

    def _tell(self, report: CycleReport) -> None:
        for entry in of_cycle(report, self._desired.revision):
            self._journal.tell(report.at_ms, entry)
        self._outside.recorder.record(notes_of(report, self._before))

    def _predict(self, declared: Declared) -> None:
        """Predict the effect of new declarations on the cluster as it is before the first write."""
        context, confirmed = self._context, self._desired.confirmations
        first = foreseen(
            declared, self._object_cache.objects(), self._now(), context.caches, context.rejected, confirmed
        )
        for checked in self._predictions.take_up(declared, confirmed, self._desired.revision, first):
            self._end(checked, declared, first.state)

    def _check(self, report: CycleReport) -> None:
        checked = self._predictions.note(report, self._now())
        if checked is not None:
            self._end(checked, report.declared, report.state)

    def _end(self, checked: Checked, declared: Declared, state: ClusterState) -> None:
        """Report the end of a prediction in the journal, as an event and in the measurements."""
        self._journal.tell(checked.at_ms, entry_of(checked))
        self._board.predicted(checked)
        self.troubles.aside("history", partial(self._outside.history.note, (check_of(checked),)))
        self._outside.meters.predicted(checked.result.value, causes_of(checked))
        self._outside.recorder.record([note_on_ledger(checked, declared, state)])

    def _measure(self, report: CycleReport) -> None:
        measured = measure(report, self._before, self._now() - report.at_ms)
        uses = self._utilisation.known
        errors = self._overview.errors(report)
        measured = replace(measured, forecast_errors=errors, uses=uses.projects, used_at_ms=uses.at_ms)
        self._outside.meters.cycle(replace(measured, size=self._desired.size))

    def _is_over(self) -> bool:
        return self._stop.requested() or not self._outside.leadership.held()

    def _now(self) -> Instant:
        return self._outside.clock.now_ms()
