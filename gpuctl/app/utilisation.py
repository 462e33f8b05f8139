"""The port that reads how GPUs are used, and what the loop knows from it: which runs are idle, and each GPU's use.

Only the leader reads, beside the loop. A failing source makes no run idle: after MOST_GAP_MS the last values are too
old, and nothing is known from then on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from gpuctl.app.ports import Background, Clock, Underway
from gpuctl.app.report import Entry, Level
from gpuctl.app.status import UNPUBLISHED, Publisher
from gpuctl.diag.wording import message
from gpuctl.k8s.utilisation import decode_utilisation, encode_utilisation, mark_of, resumed
from gpuctl.model.ids import RunKey
from gpuctl.model.state import ClusterState, RunPhase
from gpuctl.model.units import DurationMs, Instant
from gpuctl.model.utilisation import IDLE_AFTER_MS, DeviceUse, Sample, Utilisation
from gpuctl.observe import device_uses, forgotten, next_utilisation

READ_MS: DurationMs = 30_000
"""How often the source is read: as often as exporters measure by default."""
PUBLISH_MS, REPEAT_MS = 60_000, 120_000
"""The shortest and the longest time between two publications: readers leave out values older than MOST_GAP_MS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The result of one reading. `lacking`: why a part of it is missing; empty if none is."""

    samples: Sequence[Sample]
    lacking: str = ""


class Unread(Exception):
    """Nothing could be read. The message says why, without anything secret."""


class UtilisationSource(Protocol):
    """Reads how GPUs are used. Bounded in time and size."""

    def read(self, now_ms: Instant) -> Reading:
        """The samples of some time up to now. Raises Unread. Called from another thread."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class UtilisationPorts:
    """The ports of utilisation. `source` None: nothing is measured or published."""

    source: UtilisationSource | None = None
    publisher: Publisher = UNPUBLISHED


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    devices: tuple[DeviceUse, ...]
    lacking: str


class UtilisationBoard:
    """Has the source read when due, takes the result, and publishes changes."""

    def __init__(self, ports: UtilisationPorts, background: Background, clock: Clock) -> None:
        self._source = ports.source
        self._publisher = ports.publisher
        self._background = background
        self._clock = clock
        self.begin()

    def begin(self) -> None:
        """Forget everything: another replica may have led."""
        self._known = Utilisation()
        self._underway: Underway[_Read] | None = None
        self._due_ms = self._clock.now_ms()
        self._published_ms: Instant | None = None
        self._mark = ""
        self._resumed = False
        self._unmeasured_ms: Instant | None = None
        self._problems: list[Entry] = []

    @property
    def known(self) -> Utilisation:
        """The use of GPUs as known now."""
        return self._known

    def idle(self) -> Mapping[RunKey, Instant] | None:
        """Since when each idle run is idle; None: nothing measures that."""
        return None if self._source is None else self._known.idle(self._clock.now_ms())

    def turn(self, state: ClusterState | None) -> list[Entry]:
        """Take the last reading, start another when due, and publish. Returns the problems that stand.

        `state`: as last observed. Cost: linear in devices and runs when something was read.
        """
        if self._source is None or state is None:
            return []
        now_ms = self._clock.now_ms()
        self._take(state, now_ms)
        if self._underway is None and not 0 < self._due_ms - now_ms <= READ_MS:
            self._due_ms = now_ms + READ_MS
            self._underway = self._background.start(partial(_read, self._source, now_ms))
            self._take(state, now_ms)
        self._known = forgotten(self._known, now_ms)
        return self._problems

    def _take(self, state: ClusterState, now_ms: Instant) -> None:
        if self._underway is None or not self._underway.done():
            return
        ended, self._underway = self._underway, None
        try:
            read = ended.result()
        except Unread as fault:
            self._problems = [_unmeasured("GPU7110", why=str(fault))]
            return
        if not self._resumed:
            self._resumed = True
            published = self._publisher.now()
            if published is not None:
                self._known = resumed(decode_utilisation(published), state)
        self._known = next_utilisation(self._known, read.devices, state, now_ms)
        lacking = [_unmeasured("GPU7110", why=read.lacking)] if read.lacking else []
        self._problems = [*lacking, *self._nothing_known(state, now_ms)]
        self._publish(state, now_ms)

    def _publish(self, state: ClusterState, now_ms: Instant) -> None:
        since_ms = REPEAT_MS if self._published_ms is None else now_ms - self._published_ms
        if 0 <= since_ms < PUBLISH_MS:
            return
        mark = mark_of(self._known)
        if mark != self._mark or not 0 <= since_ms < REPEAT_MS:
            self._mark, self._published_ms = mark, now_ms
            self._publisher.publish(encode_utilisation(self._known, state))

    def _nothing_known(self, state: ClusterState, now_ms: Instant) -> list[Entry]:
        """The problem that the source knows none of the running runs, once that has lasted for IDLE_AFTER_MS."""
        running = any(run.phase is RunPhase.RUNNING and run.gpu_milli for run in state.runs)
        if self._known.runs or not running:
            self._unmeasured_ms = None
            return []
        self._unmeasured_ms = now_ms if self._unmeasured_ms is None else self._unmeasured_ms
        if now_ms - self._unmeasured_ms < IDLE_AFTER_MS:
            return []
        return [_unmeasured("GPU7111")]


def _unmeasured(code: str, **params: str) -> Entry:
    facts = {"code": code, "message": message(code, params)}
    return Entry(event="unmeasured", level=Level.WARNING, fields=facts, rewords=True)


def _read(source: UtilisationSource, now_ms: Instant) -> _Read:
    reading = source.read(now_ms)
    return _Read(devices=device_uses(reading.samples, now_ms), lacking=reading.lacking)
