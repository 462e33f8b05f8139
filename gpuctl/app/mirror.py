"""A local copy of the cluster, kept current by watches, so that a cycle over an unchanged cluster costs no reads.

Level-triggered: events only bring the copy up to date, what to do is decided from the whole of it. A watch that can't
be continued is answered by a new list, which replaces everything of its kind.

Of each object only what a cycle reads is in it (`gpuctl/app/kept.py`), however large the object is.

What is written goes through the copy too and is in it at once: the next cycle never decides on a cluster as it was
before this one's writes, however late the watch tells of them. Versions decide which of two is newer: the API server
gives them out in ascending order (KEP-5504).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from gpuctl.app.kept import Keep
from gpuctl.app.ports import Cluster, Gone, NotFound, R, T
from gpuctl.app.stir import alters
from gpuctl.k8s.kinds import OBSERVED, Kind
from gpuctl.k8s.objects import ref_of, resource_version
from gpuctl.model.ids import ObjectRef
from gpuctl.model.state import Body, RawObjects


class Mirror:
    """The copy, and the way to write what is in it. Bodies in it are never changed, only replaced."""

    def __init__(
        self, cluster: Cluster, kinds: Iterable[Kind] = OBSERVED, keep: Callable[[Body], Body] | None = None
    ) -> None:
        """`keep` makes of a body what is kept of it; as `Keep` does, where nothing else is said."""
        self._cluster = cluster
        self._keep = keep or Keep()
        self._objects: dict[Kind, dict[ObjectRef, Body]] = {kind: {} for kind in kinds}
        self._versions: dict[Kind, str] = {}
        self._altered = False
        self._copy: RawObjects | None = None

    @property
    def altered(self) -> bool:
        """Whether the last refresh brought a change that matters by itself, whatever is observed of it."""
        return self._altered

    @property
    def synced(self) -> bool:
        """Whether every kind has been read at least once since it was last lost."""
        return len(self._versions) == len(self._objects)

    def refresh(self) -> int:
        """Take in what happened since the last call, and say how many objects that were; own writes don't count.

        Errors: ClusterUnavailable, Forbidden; what was taken in until then stays.
        Cost: a list a kind at first and after a 410; else a request a kind and the changes.
        """
        self._altered = False
        return sum(self._refresh_kind(kind) for kind in self._objects)

    def objects(self) -> RawObjects:
        """The copy as it is now, the same value until something changes; what was returned never does."""
        if self._copy is None:
            by_kind = {kind: dict(of_kind) for kind, of_kind in self._objects.items()}
            bodies: dict[ObjectRef, Body] = {}
            for of_kind in by_kind.values():
                bodies.update(of_kind)
            self._copy = RawObjects(objects=bodies, by_kind=by_kind)
        return self._copy

    def apply(self, body: Body) -> Body:
        """As the port's: and what was stored is in the copy."""
        stored = self._cluster.apply(body)
        self._take(ref_of(stored), stored)
        return stored

    def delete(self, ref: ObjectRef, uid: str, resource_version: str) -> Body | None:
        """As the port's: and what is gone is no more in the copy."""
        ending = self._cluster.delete(ref, uid, resource_version)
        if ending is not None:
            self._take(ref, ending)
        else:
            self._of_kind(ref).pop(ref, None)
            self._copy = None
        return ending

    def each(self, work: Callable[[T], R], items: Sequence[T]) -> Sequence[R]:
        """As the port's."""
        return self._cluster.each(work, items)

    def _of_kind(self, ref: ObjectRef) -> dict[ObjectRef, Body]:
        """Where an object belongs; nowhere that lasts, for a kind that is not followed."""
        return self._objects.get((ref.api_version, ref.kind), {})

    def _take(self, ref: ObjectRef, body: Body) -> bool:
        """Have what is kept of it, unless what is there is as new or newer. Whether it was news."""
        objects = self._of_kind(ref)
        if ref in objects and _age(objects[ref]) >= _age(body):
            return False
        objects[ref] = self._keep(body)
        self._copy = None
        return True

    def _refresh_kind(self, kind: Kind) -> int:
        version = self._versions.get(kind)
        if version is not None:
            try:
                return self._follow(kind, version)
            except Gone:
                del self._versions[kind]
        return self._relist(kind)

    def _follow(self, kind: Kind, version: str) -> int:
        changes = 0
        for event in self._cluster.watch(kind, version, 0):
            version = resource_version(event.body) or version
            if event.type == "BOOKMARK":
                continue
            ref = ref_of(event.body)
            old, gone = self._objects[kind].get(ref), event.type == "DELETED"
            if self._drop(event.body) if gone else self._take(ref, event.body):
                changes += 1
                self._altered = self._altered or alters(ref, old, self._objects[kind].get(ref))
        self._versions[kind] = version
        return changes

    def _drop(self, body: Body) -> bool:
        """Have it no more, unless it was made again since. Whether it was there."""
        ref = ref_of(body)
        objects = self._of_kind(ref)
        if ref not in objects or _age(objects[ref]) > _age(body):
            return False
        del objects[ref]
        self._copy = None
        return True

    def _relist(self, kind: Kind) -> int:
        """Read a kind anew. A list may be older than what was written since: that stays."""
        try:
            listed = self._cluster.list(kind)
        except NotFound:
            return 0
        old = self._objects[kind]
        until = int(listed.resource_version)
        fresh = {ref_of(body): self._keep(body) for body in listed.items}
        fresh |= {ref: body for ref, body in old.items() if _age(body) > until}
        changes = sum(old.get(ref) != body for ref, body in fresh.items()) + len(old.keys() - fresh.keys())
        self._altered = self._altered or changes > 0
        self._objects[kind] = fresh
        self._copy = None
        self._versions[kind] = listed.resource_version
        return changes


def _age(body: Body) -> int:
    """A version as a number; what has none is older than all."""
    version = resource_version(body)
    return int(version) if version.isdecimal() else -1
