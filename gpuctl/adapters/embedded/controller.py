"""The interface of all controllers: level-triggered, told which object to look at, writing through the API."""

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
        """The controller's name in tasks."""
        ...

    def concerns(self, key: Key, old: Body | None, new: Body | None) -> Iterable[Key]:
        """The keys to look at because of this write."""
        ...

    def sync(self, key: Key) -> None:
        """Bring everything that depends on this object to its state for now."""
        ...


class Desk:
    """The tools of a controller: the API, the agenda, and timings."""

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
        """The instant now."""
        return self.api.instant

    def again(self, controller: str, key: Key, due_ms: Instant) -> None:
        """Have the object looked at again at an instant."""
        self.agenda.at(due_ms, Task(controller, key))
