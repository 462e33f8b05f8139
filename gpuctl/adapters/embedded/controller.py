"""What every controller is: level-triggered, told where to look, writing through the API."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from gpuctl.adapters.embedded.agenda import Agenda, Task
from gpuctl.adapters.embedded.api import Api
from gpuctl.adapters.embedded.bodies import Key
from gpuctl.adapters.embedded.store import Store
from gpuctl.adapters.embedded.timings import EmbeddedTimings
from gpuctl.model.state import Body
from gpuctl.model.units import Instant


class Controller(Protocol):
    """`concerns` names the objects to look at after a write; `sync` looks at one and does what is due."""

    @property
    def name(self) -> str:
        """Its name in tasks."""
        ...

    def concerns(self, key: Key, old: Body | None, new: Body | None) -> Iterable[Key]:
        """Keys to look at because of this write."""
        ...

    def sync(self, key: Key) -> None:
        """Bring what depends on this object to where it should be now."""
        ...


class Desk:
    """What a controller works with."""

    def __init__(self, api: Api, agenda: Agenda, timings: EmbeddedTimings) -> None:
        self.api = api
        self.agenda = agenda
        self.timings = timings

    @property
    def store(self) -> Store:
        """The objects, for reading."""
        return self.api.store

    @property
    def instant(self) -> Instant:
        """Now."""
        return self.api.instant

    def again(self, controller: str, key: Key, due_ms: Instant) -> None:
        """Look at it again then."""
        self.agenda.at(due_ms, Task(controller, key))
