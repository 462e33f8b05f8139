"""Objects with versions: the role of etcd and the watch cache in a real server. The store does not know what objects
mean.

One counter gives every write its resource version. Each kind keeps its last events for watches; a watch from before
them is Gone. Every write also goes to the journal, so that a store that is opened again equals the store that was
closed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from gpuctl.adapters.embedded.bodies import Key, key_of, owner_uids, put
from gpuctl.adapters.embedded.faults import gone, unavailable
from gpuctl.adapters.embedded.selecting import Selects, selected
from gpuctl.app.ports import WatchEvent
from gpuctl.k8s.kinds import Kind
from gpuctl.k8s.objects import uid
from gpuctl.model.state import Body
from gpuctl.model.units import Instant

HISTORY = 20_000
"""Events a kind keeps for watches."""


class Journal(Protocol):
    """Makes writes last. `commit` makes all writes since the last commit durable at once."""

    def load(self) -> Restored:
        """Everything that was kept."""
        ...

    def put_object(self, key: Key, body: Body) -> None:
        """Keep an object as it is now."""
        ...

    def remove_object(self, key: Key) -> None:
        """Keep an object no longer."""
        ...

    def put_fact(self, about: str, name: str, value: Any) -> None:
        """Keep a fact; None forgets it."""
        ...

    def commit(self, counters: Mapping[str, int]) -> None:
        """Make the writes durable, with the counters as they are. Raises ClusterUnavailable; the next commit tries
        again."""
        ...

    def close(self) -> None:
        """Free what the journal holds, such as a file."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """The content of a journal."""

    objects: tuple[Body, ...] = ()
    facts: tuple[tuple[str, str, Any], ...] = ()
    counters: Mapping[str, int] = field(default_factory=dict)


class Memory:
    """The journal of a store that need not last; it may begin with another journal's content."""

    def __init__(self, kept: Restored | None = None) -> None:
        self._kept = kept or Restored()

    def load(self) -> Restored:
        """The content the journal began with."""
        return self._kept

    def put_object(self, key: Key, body: Body) -> None:
        """Do nothing: the store alone keeps the object."""

    def remove_object(self, key: Key) -> None:
        """Do nothing: the store alone keeps objects."""

    def put_fact(self, about: str, name: str, value: Any) -> None:
        """Do nothing: the store alone keeps the fact."""

    def commit(self, counters: Mapping[str, int]) -> None:
        """Do nothing: there is nothing to make durable."""

    def close(self) -> None:
        """Do nothing: there is nothing to free."""


Listener = Callable[[Key, "Body | None", "Body | None"], None]
"""Called after a write with the key, the body before and the body after."""


class Store:
    """All objects. Cost: a write is O(1) beside the indexes; a list is O(1) until the kind changes, then O(n log n)."""

    def __init__(self, journal: Journal, history: int = HISTORY, selects: Mapping[Kind, Selects] | None = None) -> None:
        """`selects`: the test of the objects that lists and watches of a kind report; without one, they report all."""
        kept = journal.load()
        self._selects = selects or {}
        self._journal = journal
        self._history = history
        self._objects: dict[Kind, dict[tuple[str, str], Body]] = {}
        self._listed: dict[Kind, tuple[Body, ...]] = {}
        self._dependents: dict[str, dict[Key, None]] = {}
        self._spaces: dict[str, dict[Kind, dict[Key, None]]] = {}
        self._log: dict[Kind, deque[tuple[int, WatchEvent]]] = {}
        self._horizon: dict[Kind, int] = {}
        self.version = kept.counters.get("version", 0)
        self.closed_ms = kept.counters.get("instant", 0)
        self._born = self.version
        self._facts: dict[str, dict[str, Any]] = {}
        for about, name, value in kept.facts:
            self._facts.setdefault(about, {})[name] = value
        self._uids = kept.counters.get("uids", 0)
        self.listeners: list[Listener] = []
        self._dirty = False
        for body in sorted(kept.objects, key=uid):  # in the order of creation, which is the order of a store
            self._index(key_of(body), None, body)

    # reading

    def get(self, key: Key) -> Body | None:
        """The object, if there is one."""
        return self._objects.get(key.kinds, {}).get((key.namespace, key.name))

    def listed(self, kind: Kind) -> tuple[Body, ...]:
        """The selected objects of a kind by namespace and name."""
        selects = self._selects.get(kind)
        return self.list(kind) if selects is None else tuple(filter(selects, self.list(kind)))

    def list(self, kind: Kind) -> tuple[Body, ...]:
        """All objects of a kind by namespace and name."""
        if kind not in self._listed:
            self._listed[kind] = tuple(body for _, body in sorted(self._objects.get(kind, {}).items(), key=_name))
        return self._listed[kind]

    def dependents(self, uid: str) -> tuple[Key, ...]:
        """Keys of the objects that name this uid as an owner."""
        return tuple(self._dependents.get(uid, ()))

    def in_namespace(self, namespace: str, kind: Kind | None = None) -> tuple[Key, ...]:
        """Keys of a namespace's objects, of one kind or of all."""
        kinds = self._spaces.get(namespace, {})
        if kind is not None:
            return tuple(kinds.get(kind, ()))
        return tuple(key for keys in kinds.values() for key in keys)

    def all(self) -> Iterable[tuple[Key, Body]]:
        """Every object, for rebuilding what is derived."""
        return tuple((key_of(body), body) for objects in self._objects.values() for body in objects.values())

    def events(self, kind: Kind, version: int) -> tuple[WatchEvent, ...]:
        """The events of a kind after a version, or of its selected objects. Raises Gone."""
        if version > self.version:
            raise unavailable(f"Too large resource version: {version}, current: {self.version}")
        if version < self._horizon.get(kind, self._born):
            raise gone(f"too old resource version: {version} ({self._horizon.get(kind, self._born)})")
        log = self._log.get(kind, ())
        found: list[WatchEvent] = []
        for at_version, event in reversed(log):
            if at_version <= version:
                break
            found.append(event)
        return tuple(reversed(found))

    # writing

    def new_uid(self) -> str:
        """A uid that no other object of this store has or had."""
        self._uids += 1
        return f"{self._uids:08x}-0000-4000-8000-{self._uids:012x}"

    @property
    def serial(self) -> int:
        """The number of uids given out: it differs for every new object."""
        return self._uids

    def write(self, body: Body) -> Body:
        """Store a body at a new version."""
        self.version += 1
        stored = put(body, ("metadata", "resourceVersion"), str(self.version))
        key = key_of(stored)
        old = self.get(key)
        self._index(key, old, stored)
        self._record(key.kinds, WatchEvent(type="MODIFIED" if old is not None else "ADDED", body=stored), old)
        self._journal.put_object(key, stored)
        self._tell(key, old, stored)
        return stored

    def remove(self, key: Key) -> None:
        """Remove an existing object; its last state is in the event, at the version of the removal."""
        old = self._objects[key.kinds][key.namespace, key.name]
        self.version += 1
        self._index(key, old, None)
        last = put(old, ("metadata", "resourceVersion"), str(self.version))
        self._record(key.kinds, WatchEvent(type="DELETED", body=last), old)
        self._journal.remove_object(key)
        for name in tuple(self._facts.get(uid(old), ())):
            self.set_fact(uid(old), name, None)
        self._tell(key, old, None)

    def fact(self, about: str, name: str, default: Any = None) -> Any:
        """A value that is remembered about an object's uid, or about something else, outside objects."""
        return self._facts.get(about, {}).get(name, default)

    def set_fact(self, about: str, name: str, value: Any) -> None:
        """Remember a fact; None forgets it. Facts about an object's uid go with the object."""
        if self.fact(about, name) == value:
            return
        known = self._facts.setdefault(about, {})
        known[name] = value
        if value is None:
            del known[name]
        if not known:
            del self._facts[about]
        self._dirty = True
        self._journal.put_fact(about, name, value)

    def commit(self, instant: Instant) -> None:
        """Make everything since the last commit durable as one. When the store is opened again, `closed_ms` is this
        instant."""
        if self._dirty:
            self._journal.commit({"version": self.version, "uids": self._uids, "instant": instant})
            self._dirty = False

    def close(self) -> None:
        """Close the journal."""
        self._journal.close()

    def _tell(self, key: Key, old: Body | None, new: Body | None) -> None:
        self._dirty = True
        for listener in self.listeners:
            listener(key, old, new)

    def _record(self, kind: Kind, event: WatchEvent, before: Body | None) -> None:
        selects = self._selects.get(kind)
        told = event if selects is None else selected(event, before, selects)
        if told is None:
            return
        log = self._log.setdefault(kind, deque())
        log.append((self.version, told))
        if len(log) > self._history:
            self._horizon[kind] = log.popleft()[0]

    def _index(self, key: Key, old: Body | None, new: Body | None) -> None:
        self._listed.pop(key.kinds, None)
        objects = self._objects.setdefault(key.kinds, {})
        if new is None:
            del objects[key.namespace, key.name]
        else:
            objects[key.namespace, key.name] = new
        before = owner_uids(old) if old is not None else ()
        after = owner_uids(new) if new is not None else ()
        if before != after:
            for uid in before:
                self._dependents[uid].pop(key, None)
                if not self._dependents[uid]:
                    del self._dependents[uid]
            for uid in after:
                self._dependents.setdefault(uid, {})[key] = None
        if key.namespace and (old is None or new is None):
            space = self._spaces.setdefault(key.namespace, {}).setdefault(key.kinds, {})
            if new is None:
                space.pop(key, None)
            else:
                space[key] = None


def _name(entry: tuple[tuple[str, str], Body]) -> tuple[str, str]:
    return entry[0]
