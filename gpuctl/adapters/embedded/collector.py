"""Garbage collection: dependents of an owner that is gone, and the content of namespaces that terminate."""

from __future__ import annotations

from collections.abc import Iterable

from gpuctl.adapters.embedded.bodies import Key, owner_uids
from gpuctl.adapters.embedded.controller import Desk
from gpuctl.adapters.embedded.podwork import release
from gpuctl.k8s import kinds
from gpuctl.k8s.objects import is_deleting, items, text, uid
from gpuctl.model.state import Body


class Collector:
    """The controller that deletes a dependent, in the background, when none of its owners exists any more."""

    name = "collector"

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def concerns(self, key: Key, old: Body | None, new: Body | None) -> Iterable[Key]:
        """The dependents of a removed object, and a new object with owners."""
        if new is None and old is not None:
            return self._desk.store.dependents(uid(old))
        return (key,) if old is None and new is not None and owner_uids(new) else ()

    def sync(self, key: Key) -> None:
        """Delete one dependent whose owners are gone."""
        body = self._desk.store.get(key)
        owners = items(body or {}, "metadata", "ownerReferences")
        if body is None or any(self._exists(owner, key.namespace) for owner in owners):
            return
        left = release(self._desk, body)
        if left is not None and not is_deleting(left):
            self._desk.api.delete(key)

    def end_dependents(self, owner: Body) -> None:
        """Delete what an object owns, while the object is there."""
        for key in sorted(self._desk.store.dependents(uid(owner))):
            body = self._desk.store.get(key)
            left = None if body is None else release(self._desk, body)
            if left is not None and not is_deleting(left):
                self.end_dependents(left)
                self._desk.api.delete(key)

    def _exists(self, owner: Body, namespace: str) -> bool:
        kind = (text(owner, "apiVersion"), text(owner, "kind"))
        place = "" if kind in kinds.CLUSTER_SCOPED else namespace
        found = self._desk.store.get(Key(*kind, place, text(owner, "name")))
        return found is not None and uid(found) == owner["uid"]


class Namespaces:
    """The controller of namespaces that terminate: it deletes everything in them, then they go themselves."""

    name = "namespaces"

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def concerns(self, key: Key, old: Body | None, new: Body | None) -> Iterable[Key]:
        """The namespace that changed, and the namespace of a removed object."""
        if key.kinds == kinds.NAMESPACE:
            return (key,) if new is not None else ()
        return (Key(*kinds.NAMESPACE, "", key.namespace),) if new is None and key.namespace else ()

    def sync(self, key: Key) -> None:
        """Delete the content of a terminating namespace; without content the namespace is gone."""
        namespace = self._desk.store.get(key)
        if namespace is None or not is_deleting(namespace):
            return
        content = self._desk.store.in_namespace(key.name)
        for inner in sorted(content, key=lambda k: (k.kinds != kinds.POD, k)):
            body = self._desk.store.get(inner)
            if body is not None and not is_deleting(body):
                self._desk.api.delete(inner)
        if not self._desk.store.in_namespace(key.name):
            self._desk.store.remove(key)
