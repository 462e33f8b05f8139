"""The outside world of the loop, as ports, and stand-ins for ports that are not used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpuctl.app.following import AtOnce
from gpuctl.app.history import UNKEPT, HistoryKeeper
from gpuctl.app.incidents import NO_INCIDENTS, Incidents
from gpuctl.app.metrics import Meters, Unmeasured
from gpuctl.app.notes import Unrecorded
from gpuctl.app.notices import UNNOTIFIED, Notifier
from gpuctl.app.ports import Background, Clock, Cluster, Leadership, Machines, Recorder, Reference, Source
from gpuctl.app.status import UNPUBLISHED, Publisher
from gpuctl.app.timekeeping import NO_REFERENCE
from gpuctl.app.utilisation import UtilisationPorts
from gpuctl.app.viewing import UNVIEWED, Viewer
from gpuctl.model.state import Body
from gpuctl.targets import Engine


class Alone:
    """The leadership of a process that shares its cluster with no other."""

    def held(self) -> bool:
        """Always true."""
        return True

    def holder(self) -> str:
        """Unknown, and not needed."""
        return ""

    def term(self) -> int:
        """0, the only term."""
        return 0

    def fault(self) -> None:
        """None: nothing can go wrong."""


ALONE = Alone()
UNMEASURED = Unmeasured()
UNRECORDED = Unrecorded()
AT_ONCE = AtOnce()
UNREAD = UtilisationPorts()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """The outside world of the loop, as ports.

    - `reference`: the clock of the cluster's server, if it has one.
    - `identity`: the name of this process among the replicas; empty if it is the only one.
    - `publish` writes, from another thread, an object that all teams may read; None: nothing is published.
    - `engine`: the other engine that decides which jobs run there; None: gpuctl's own.
    - `most_jobs`: how many declared jobs this process has memory for; None: not known.
    """

    source: Source
    cluster: Cluster
    machines: Machines
    clock: Clock
    leadership: Leadership = ALONE
    meters: Meters = UNMEASURED
    recorder: Recorder = UNRECORDED
    background: Background = AT_ONCE
    reference: Reference = NO_REFERENCE
    publisher: Publisher = UNPUBLISHED
    incidents: Incidents = NO_INCIDENTS
    notifier: Notifier = UNNOTIFIED
    identity: str = ""
    publish: Callable[[Body], object] | None = None
    history: HistoryKeeper = UNKEPT
    viewer: Viewer = UNVIEWED
    utilisation: UtilisationPorts = UNREAD
    engine: Engine | None = None
    most_jobs: int | None = None
