"""A local copy of the cluster, kept current by watches, so that a cycle over an unchanged cluster costs no reads.

Level-triggered: events only bring the copy up to date, what to do is decided from the whole of it. A watch that can't
be continued is answered by a new list, which replaces everything of its kind.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpuctl.app.ports import Cluster, Gone, NotFound
from gpuctl.k8s.names import OBSERVED_KINDS, Kind
from gpuctl.k8s.objects import ref_of, resource_version
from gpuctl.model.ids import ObjectRef
from gpuctl.model.state import Body, RawObjects


class Mirror:
    """The copy. Bodies in it are never changed, only replaced."""

    def __init__(self, cluster: Cluster, kinds: Iterable[Kind] = OBSERVED_KINDS) -> None:
        self.cluster = cluster
        self._objects: dict[Kind, dict[ObjectRef, Body]] = {kind: {} for kind in kinds}
        self._versions: dict[Kind, str] = {}

    def refresh(self) -> int:
        """Take in what happened since the last call, and say how many objects that were.

        Errors: ClusterUnavailable, Forbidden; what was taken in until then stays.
        Cost: a list a kind at first and after a 410; else a request a kind and the changes.
        """
        return sum(self._refresh_kind(kind) for kind in self._objects)

    def objects(self) -> RawObjects:
        """The copy as it is now; later refreshes do not change what this returned."""
        return RawObjects(objects={ref: body for of_kind in self._objects.values() for ref, body in of_kind.items()})

    def _refresh_kind(self, kind: Kind) -> int:
        version = self._versions.get(kind)
        if version is not None:
            try:
                return self._follow(kind, version)
            except Gone:
                del self._versions[kind]
        return self._relist(kind)

    def _follow(self, kind: Kind, version: str) -> int:
        events = self.cluster.watch(kind, version, 0)
        objects, changes = self._objects[kind], 0
        for event in events:
            version = resource_version(event.body) or version
            if event.type == "BOOKMARK":
                continue
            changes += 1
            if event.type == "DELETED":
                objects.pop(ref_of(event.body), None)
            else:
                objects[ref_of(event.body)] = event.body
        self._versions[kind] = version
        return changes

    def _relist(self, kind: Kind) -> int:
        try:
            listed = self.cluster.list(kind)
        except NotFound:
            return 0
        fresh = {ref_of(body): body for body in listed.items}
        old = self._objects[kind]
        changes = sum(old.get(ref) != body for ref, body in fresh.items()) + len(old.keys() - fresh.keys())
        self._objects[kind] = fresh
        self._versions[kind] = listed.resource_version
        return changes
