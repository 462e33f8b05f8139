"""Adds levels up over time: a row for each time span in which they stayed the same, and one a minute. Also adds up what
runs used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gpuctl.model.history import ALL, MINUTE_MS, Amounts, Grain, Moment, Period, Work
from gpuctl.model.ids import ProjectName, RunKey
from gpuctl.model.units import DurationMs, Instant
from gpuctl.model.utilisation import RunUse

MOST_GAP_MS: DurationMs = 15 * MINUTE_MS
"""A longer time without a cycle was not observed: the process hung, or the clock jumped."""
_NOTHING = Amounts()
Rows = list[tuple[Grain, Period]]


class Levels:
    """The levels of the present minute. Give it every moment in order; it returns the rows that are complete."""

    def __init__(self) -> None:
        self._at_ms: Instant | None = None
        self._levels: Mapping[ProjectName, Amounts] = {}
        self._minute: dict[ProjectName, list[int]] = {}
        self._since: dict[ProjectName, tuple[Instant, Amounts]] = {}

    def add(self, moment: Moment) -> Rows:
        """The rows that ended by this moment. A moment that is not later than the last one begins anew."""
        rows: Rows = []
        if self._at_ms is not None and 0 < moment.at_ms - self._at_ms <= MOST_GAP_MS:
            at_ms = self._at_ms
            while at_ms < moment.at_ms:
                border_ms = at_ms - at_ms % MINUTE_MS + MINUTE_MS
                end_ms = min(border_ms, moment.at_ms)
                self._observe(end_ms - at_ms)
                at_ms = end_ms
                if end_ms == border_ms:
                    rows.extend(self._ended(border_ms))
        else:
            self._minute, self._since = {}, {}
        rows.extend((Grain.RAW, row) for row in self._changed(moment))
        self._at_ms, self._levels = moment.at_ms, moment.levels
        return rows

    def _observe(self, length_ms: DurationMs) -> None:
        """Add the present levels for this length of time."""
        for project, level in self._levels.items():
            sums = self._minute.setdefault(project, [0] * len(_amounts(level, 1)))
            for index, amount in enumerate(_amounts(level, length_ms)):
                sums[index] += amount

    def _ended(self, border_ms: Instant) -> Iterator[tuple[Grain, Period]]:
        """The rows of a minute that is over."""
        for project, (from_ms, level) in self._since.items():
            if border_ms > from_ms:
                yield Grain.RAW, _period(from_ms, project, _amounts(level, border_ms - from_ms))
            self._since[project] = (border_ms, level)
        for project, sums in self._minute.items():
            if any(sums[1:3]) or any(sums[5:]) or project == ALL:
                yield Grain.MINUTE, _period(border_ms - MINUTE_MS, project, sums)
        self._minute = {}

    def _changed(self, moment: Moment) -> Iterator[Period]:
        """The rows that end with this moment, because their projects have other levels from now on."""
        for project in {*self._since, *moment.levels}:
            level = moment.levels.get(project, _NOTHING)
            from_ms, before = self._since.get(project, (moment.at_ms, _NOTHING))
            if before != level:
                if before != _NOTHING and moment.at_ms > from_ms:
                    yield _period(from_ms, project, _amounts(before, moment.at_ms - from_ms))
                self._since[project] = (moment.at_ms, level)
            if level == _NOTHING:
                self._since.pop(project, None)


class Workings:
    """The use of GPUs by runs since it was last taken. Give it every moment in order."""

    def __init__(self) -> None:
        self._at_ms: Instant | None = None
        self._uses: Mapping[RunKey, RunUse] = {}
        self._sums: dict[RunKey, list[int]] = {}

    def add(self, at_ms: Instant, uses: Mapping[RunKey, RunUse]) -> None:
        """Count that until now runs used what was known at the moment before. Cost: linear in the runs that are
        measured."""
        if self._at_ms is not None and 0 < at_ms - self._at_ms <= MOST_GAP_MS:
            for key, use in self._uses.items():
                sums = self._sums.setdefault(key, [0, 0])
                sums[0] += use.held_milli * (at_ms - self._at_ms)
                sums[1] += use.busy_milli * (at_ms - self._at_ms)
        self._at_ms, self._uses = at_ms, uses

    def taken(self, keys: Iterable[RunKey] | None = None) -> list[Work]:
        """The use by these runs, or by all; counting then begins anew."""
        taken = ((key, self._sums.pop(key, None)) for key in (list(self._sums) if keys is None else keys))
        return [Work(*key, *(each // 1000 for each in sums)) for key, sums in taken if sums]


def _amounts(level: Amounts, length_ms: DurationMs) -> list[int]:
    """The sums in the order of `Period`, GPUs in milli-GPU-ms."""
    values = (
        level.held_milli, level.waiting_milli, level.share_milli, level.quota_milli, level.running, level.waiting,
        level.gpus_milli, level.idle_milli, level.measured_milli, level.busy_milli,
    )  # fmt: skip
    return [length_ms, *(value * length_ms for value in values)]


def _period(at_ms: Instant, project: ProjectName, sums: list[int]) -> Period:
    observed_ms, *gpus = sums[:5]
    more = sums[7:]
    return Period(
        at_ms, project, observed_ms, *(each // 1000 for each in gpus), *sums[5:7], *(each // 1000 for each in more)
    )
