"""Reports faults while the loop runs, of the outside or of gpuctl itself. A fault never ends the loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from gpuctl.app.metrics import Meters
from gpuctl.app.ports import Clock, WorldFault, WrongTime
from gpuctl.app.report import Entry, Journal, Level, of_fault
from gpuctl.diag.bug import told_bug
from gpuctl.diag.wording import message

Work = Callable[[], list[Entry]]
"""A piece of work; it returns the problems that stand afterwards."""


class Troubles:
    """Keeps the standing problems, by area, in the journal and in the measurements."""

    def __init__(self, journal: Journal, meters: Meters, clock: Clock) -> None:
        self._journal = journal
        self._meters = meters
        self._clock = clock
        self._areas: frozenset[str] = frozenset()

    def guarded(self, area: str, work: Work) -> bool:
        """Do the work. Returns whether it succeeded; an exception becomes a standing problem."""
        problems, well = self.tried(work)
        self.stand(area, problems)
        return well

    def tried(self, work: Work) -> tuple[list[Entry], bool]:
        """Do the work. Returns its problems and whether it succeeded: not if it raised or reports a fault of the
        source."""
        try:
            problems = work()
        except WorldFault as fault:
            return [of_fault("clock" if isinstance(fault, WrongTime) else "unreachable", fault)], False
        except Exception as error:  # noqa: BLE001 - a bug of one cycle must not end months of service
            return [_of_bug(error)], False
        return problems, not any(problem.event == "source" for problem in problems)

    def aside(self, name: str, work: Callable[[], None]) -> None:
        """Do work that nothing depends on: an exception is reported, and stops nothing else."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - measuring and reporting must not stop what they are about
            self.bug(name, error)
        else:
            self.bug(name, None)

    def bug(self, area: str, error: Exception | None) -> None:
        """Report a bug of gpuctl in an area; None: it is gone. Never raises."""
        with suppress(Exception):
            self.stand(f"bug: {area}", [] if error is None else [_of_bug(error)])

    def stand(self, area: str, problems: Sequence[Entry]) -> None:
        """Set all problems that stand in an area now."""
        if not problems and area not in self._areas:
            return
        self._areas = self._areas | {area} if problems else self._areas - {area}
        self._journal.stand(self._clock.now_ms(), area, problems)
        self._measure()

    def forget(self, *areas: str) -> None:
        """Drop the problems of areas, unresolved: another replica reports them from now on."""
        self._areas -= set(areas)
        self._journal.forget(*areas)
        self._measure()

    def _measure(self) -> None:
        with suppress(Exception):
            self._meters.standing(self._journal.codes)


def _of_bug(error: Exception) -> Entry:
    """A bug of gpuctl, with the line that raised."""
    facts = {"code": "GPU9001", "message": message("GPU9001", {"what": told_bug(error)})}
    return Entry(event="bug", level=Level.ERROR, fields=facts)
