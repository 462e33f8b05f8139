"""Clusters that refuse some writes, as a policy, a quota or a webhook of a real one does."""

from __future__ import annotations

from gpuctl.app.ports import Cluster, Invalid, WorldFault
from gpuctl.k8s.objects import mapping
from gpuctl.model.ids import ObjectRef
from gpuctl.model.state import Body


class Refusing:
    """A cluster that refuses every write of objects of a kind whose names begin so, while it is told to."""

    def __init__(self, cluster: Cluster, name: str, kind: str = "Job") -> None:
        self._cluster = cluster
        self._refused = kind, name
        self.strict = True
        self.fault: WorldFault = Invalid("GPU7006", "spec.template.spec: Invalid value")
        self.asked = 0
        self.list = cluster.list
        self.watch = cluster.watch
        self.each = cluster.each

    def _check(self, kind: str, name: str) -> None:
        if self.strict and kind == self._refused[0] and name.startswith(self._refused[1]):
            self.asked += 1
            raise self.fault

    def apply(self, body: Body, *, is_new: bool = False) -> Body:
        self._check(body["kind"], body["metadata"]["name"])
        return self._cluster.apply(body, is_new=is_new)

    def check(self, body: Body) -> None:
        self._check(body["kind"], body["metadata"]["name"])
        self._cluster.check(body)

    def delete(self, ref: ObjectRef, uid: str, resource_version: str) -> Body | None:
        self._check(ref.kind, ref.name)
        return self._cluster.delete(ref, uid, resource_version)


class RefusingStarts(Refusing):
    """As that, but of writes that let a Job go alone."""

    def apply(self, body: Body, *, is_new: bool = False) -> Body:
        if mapping(body, "spec").get("suspend") is False:
            self._check(body["kind"], body["metadata"]["name"])
        return self._cluster.apply(body, is_new=is_new)


class OnlyInEarnest(RefusingStarts):
    """As that, but a dry run is taken: its webhook asks about the real ones alone."""

    def check(self, body: Body) -> None:
        self._cluster.check(body)
