"""What goes wrong while the loop runs, outside or in gpuctl itself: told, and never the end of it."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import PurePath

from gpuctl.app.metrics import Meters
from gpuctl.app.ports import Clock, WorldFault, WrongTime
from gpuctl.app.report import Entry, Journal, Level, of_fault
from gpuctl.diag.wording import message

Work = Callable[[], list[Entry]]
"""Does something, and gives what stands wrong afterwards."""


class Troubles:
    """Keeps what stands wrong, by area, in the journal and in the measurements."""

    def __init__(self, journal: Journal, meters: Meters, clock: Clock) -> None:
        self._journal = journal
        self._meters = meters
        self._clock = clock
        self._areas: frozenset[str] = frozenset()

    def guarded(self, area: str, work: Work) -> bool:
        """Do it; whether that went well. What it raises stands wrong."""
        problems, well = self.tried(work)
        self.stand(area, problems)
        return well

    def tried(self, work: Work) -> tuple[list[Entry], bool]:
        """Do it; what stands wrong then, and whether it went well: a fault of the source did not, nor what raised."""
        try:
            problems = work()
        except WorldFault as fault:
            return [of_fault("clock" if isinstance(fault, WrongTime) else "unreachable", fault)], False
        except Exception as error:  # noqa: BLE001 - a bug of one cycle must not end months of service
            return [_of_bug(error)], False
        return problems, not any(problem.event == "source" for problem in problems)

    def aside(self, name: str, work: Callable[[], None]) -> None:
        """Do what nothing depends on: what it raises is told, and holds nothing up."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - who measures or tells must not stop what is measured
            self.bug(name, error)
        else:
            self.bug(name, None)

    def bug(self, area: str, error: Exception | None) -> None:
        """A mistake of our own; None: there is none any more. Raises nothing."""
        with suppress(Exception):
            self.stand(f"bug: {area}", [] if error is None else [_of_bug(error)])

    def stand(self, area: str, problems: Sequence[Entry]) -> None:
        """All that is wrong in an area now."""
        if not problems and area not in self._areas:
            return
        self._areas = self._areas | {area} if problems else self._areas - {area}
        self._journal.stand(self._clock.now_ms(), area, problems)
        self._measure()

    def forget(self, *areas: str) -> None:
        """What stands there is another's business from now on."""
        self._areas -= set(areas)
        self._journal.forget(*areas)
        self._measure()

    def _measure(self) -> None:
        with suppress(Exception):
            self._meters.standing(self._journal.codes)


def _of_bug(error: Exception) -> Entry:
    """Our own mistake, with the line it was made in."""
    frames = traceback.extract_tb(error.__traceback__)[-1:]
    place = "".join(f" ({PurePath(frame.filename).name}:{frame.lineno})" for frame in frames)
    facts = {"code": "GPU9001", "message": message("GPU9001", {"what": f"{type(error).__name__}: {error}{place}"})}
    return Entry(event="bug", level=Level.ERROR, fields=facts)
