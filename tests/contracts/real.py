"""The lab on a real control plane of its own: the tests speak of one namespace and four nodes, and each gets them.

Every test has fresh namespaces: the names it uses get a suffix on the way to the server, and lose it on the way back.
"""

from __future__ import annotations

import json
import time
import urllib.error
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from controlplane.known import await_quotas, define
from controlplane.server import ControlPlane, pauses
from labs import EPOCH_MS, POOLS, SELECTED, Lab, body
from workloads.declarations import EVERY_KIND
from workloads.definitions import definition, plural_of

from gpuctl.adapters.kubernetes.cluster import KubernetesCluster
from gpuctl.adapters.kubernetes.connection import connect
from gpuctl.adapters.kubernetes.machines import played
from gpuctl.adapters.kubernetes.paths import collection, item
from gpuctl.app.ports import Conflict, ObjectList, R, T, WatchEvent
from gpuctl.k8s import kinds
from gpuctl.k8s.kinds import Kind
from gpuctl.k8s.objects import ref_of
from gpuctl.model.ids import ObjectRef
from gpuctl.model.state import Body
from gpuctl.wiring import blueprint

_MERGE = "application/merge-patch+json"
_NOT_FOUND, _CONFLICT = 404, 409
_WITHIN_S = 180.0
"""Controllers try again what a quota refused after ever longer waits: 20 s for the twelfth time."""
_LONG_ENOUGH_MS = 700
"""How long a test that lets time pass waits at most: controllers here answer within tens of milliseconds."""
_NUMBERS = count()
_WORKED_ON = (kinds.JOB, kinds.DEPLOYMENT, kinds.STATEFUL_SET, kinds.AUTOSCALER, kinds.RESOURCE_CLAIM)
"""What controllers go on working on, and what holds devices of a node."""
_QUIET_S = 2.0
"""A watch that has been silent for so long has told everything."""


def furnish(plane: ControlPlane) -> None:
    """Give a new control plane what every lab has: nodes with their devices, and volumes."""
    for made in blueprint(POOLS):
        plane.call("POST", collection((made["apiVersion"], made["kind"]), ""), played(made))
    plane.call("POST", "/apis/storage.k8s.io/v1/storageclasses", {
        "metadata": {"name": "test", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "kubernetes.io/no-provisioner", "allowVolumeExpansion": True})  # fmt: skip
    for index in range(20):
        plane.call("POST", "/api/v1/persistentvolumes", {
            "metadata": {"name": f"volume-{index}"},
            "spec": {"capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "test",
                     "hostPath": {"path": "/none"}}})  # fmt: skip


class Renamed:
    """The port, for a test: its namespaces are its own, whatever else is in the cluster."""

    def __init__(self, cluster: KubernetesCluster, suffix: str) -> None:
        self._cluster = cluster
        self._suffix = suffix

    def list(self, kind: Kind) -> ObjectList:
        listed = self._cluster.list(kind)
        mine = tuple(self._back(made) for made in listed.items if self._is_mine(made))
        return ObjectList(items=mine, resource_version=listed.resource_version)

    def watch(self, kind: Kind, resource_version: str, timeout_ms: int) -> Sequence[WatchEvent]:
        """Everything until the server has been silent for a while."""
        events: list[WatchEvent] = []
        until, version, waits = time.monotonic() + _QUIET_S, resource_version, pauses()
        while True:
            *news, bookmark = self._cluster.watch(kind, version, timeout_ms)
            version = bookmark.body["metadata"]["resourceVersion"]
            events += [WatchEvent(type=e.type, body=self._back(e.body)) for e in news if self._is_mine(e.body)]
            if news:
                until, waits = time.monotonic() + _QUIET_S, pauses()
            if time.monotonic() > until:
                return [*events, bookmark]
            time.sleep(next(waits))

    def apply(self, wanted: Body, *, is_new: bool = False) -> Body:
        return self._back(self._cluster.apply(self.forth(wanted), is_new=is_new))

    def check(self, wanted: Body) -> None:
        self._cluster.check(self.forth(wanted))

    def delete(self, ref: ObjectRef, uid: str, resource_version: str) -> Body | None:
        name = ref.name + self._suffix if ref.kind == "Namespace" else ref.name
        namespace = ref.namespace + self._suffix if ref.namespace else ""
        there = ObjectRef(ref.api_version, ref.kind, namespace, name)
        return self._cluster.delete(there, uid, resource_version)

    def each(self, work: Callable[[T], R], items: Sequence[T]) -> Sequence[R]:
        return self._cluster.each(work, items)

    def forth(self, wanted: Body) -> dict[str, Any]:
        meta = dict(wanted["metadata"])
        field = "name" if wanted["kind"] == "Namespace" else "namespace"
        if field in meta:
            meta[field] += self._suffix
        return {**wanted, "metadata": meta}

    def _back(self, live: Body) -> Body:
        text = json.dumps(live)
        renamed: Body = json.loads(text.replace(self._suffix, "")) if self._suffix in text else live
        return renamed

    def _is_mine(self, live: Body) -> bool:
        meta = live["metadata"]
        kind = (live["apiVersion"], live["kind"])
        inside = meta["name"] if kind == kinds.NAMESPACE else meta.get("namespace", self._suffix)
        return bool(inside.endswith(self._suffix))


class RealLab(Lab):
    """As the other labs; time passes by itself."""

    def __init__(self, plane: ControlPlane, number: int) -> None:
        self._plane = plane
        self._suffix = f"-x{number}x"
        self._connection = connect(str(plane.kubeconfig))
        self._real = KubernetesCluster(self._connection, scopes=SELECTED)
        self.cluster: Any = Renamed(self._real, self._suffix)
        self.namespace = "gpu-team-a"
        self.apply(body(kinds.NAMESPACE, self.namespace, namespace=None))
        # A controller gives each new namespace this one; a test that watches is to see nothing but its own.
        given = f"/api/v1/namespaces/{self.namespace}{self._suffix}/configmaps/kube-root-ca.crt"
        self.eventually(lambda: self._plane.refused("GET", given) is None)

    def close(self) -> None:
        """Leave the nodes empty and as they were. The namespaces stay, with what nothing works on: to empty one, its
        controller looks through seventy collections, which took more than half of the requests to this server."""
        for kind in _WORKED_ON:
            for made in self.cluster.list(kind).items:
                self._remove(made)
        self.eventually(lambda: not self._leftovers())
        for made in self._real.list(kinds.PRIORITY_CLASS).items:
            if not made["metadata"]["name"].startswith("system-"):
                self._remove(made)
        for made in self._real.list(kinds.NODE).items:
            if made["spec"].get("taints") or made["spec"].get("unschedulable"):
                away = {"spec": {"taints": None, "unschedulable": None}}
                self._plane.call("PATCH", item(ref_of(made)), away, media=_MERGE)
        self._real.close()
        self._connection.close()

    def serve(self, kind: Kind) -> None:
        """All kinds at once, with the definitions that their makers ship: a server takes a while to have new ones."""
        del kind
        made = [definition(each) for each in EVERY_KIND]
        define(self._plane, *({**each, "spec": {**each["spec"], "conversion": {"strategy": "None"}}} for each in made))

    def make(self, made: Body) -> Body:
        body = self.cluster.forth(made)
        ref = ref_of(body)
        path = collection((ref.api_version, ref.kind), ref.namespace)
        self._plane.call("POST", f"{path}?fieldManager=person", body)
        return self.there((ref.api_version, ref.kind), ref.name)

    def edit(self, changed: Body, manager: str) -> Body:
        kind = (changed["apiVersion"], changed["kind"])
        plural = plural_of(kind) if kinds.is_declared(kind) else ""
        path = f"{item(ref_of(self.cluster.forth(changed)), plural)}?fieldManager={manager}"
        try:
            edited: Body = self._plane.call("PUT", path, self.cluster.forth(changed))
        except urllib.error.HTTPError as error:
            error.close()
            if error.code != _CONFLICT:
                raise
            raise Conflict("GPU7004", str(error)) from error
        return edited

    def eventually(self, holds: Callable[[], object], within_ms: int = 60_000) -> None:
        del within_ms
        until, waits = time.monotonic() + _WITHIN_S, pauses()
        while not holds():
            assert time.monotonic() < until, "it did not come to hold in time"
            time.sleep(next(waits))

    def await_quotas(self) -> None:
        await_quotas(self._plane, f"{self.namespace}{self._suffix}")

    def later(self, ms: int) -> None:
        time.sleep(min(ms, _LONG_ENOUGH_MS) / 1000)

    def passes(self, ms: int) -> None:
        time.sleep(ms / 1000)

    def finish(self, job: str, exit_code: int = 0) -> None:
        note = "test/run-for" if exit_code == 0 else "test/fail-after"
        self.eventually(lambda: self.pods(job))
        for pod in self.pods(job):
            if pod["status"].get("phase") == "Running":
                path = item(ref_of(self.cluster.forth(pod)))
                notes = {note: "0s", "test/exit-code": str(exit_code)}
                self._plane.call("PATCH", path, {"metadata": {"annotations": notes}}, media=_MERGE)

    def _leftovers(self) -> list[Body]:
        pods = self.cluster.list(kinds.POD).items
        for pod in pods:
            if not pod["metadata"].get("deletionTimestamp"):
                self._remove(pod)
        return list(pods)

    def _remove(self, made: Body) -> None:
        path = item(ref_of(self.cluster.forth(made) if "namespace" in made["metadata"] else made))
        try:
            self._plane.call("DELETE", path, {"propagationPolicy": "Background", "gracePeriodSeconds": 0})
        except urllib.error.HTTPError as error:
            error.close()
            if error.code != _NOT_FOUND:
                raise


def real_labs(plane: ControlPlane) -> Callable[[], Iterator[Lab]]:
    """Makes labs on one control plane, one after the other."""

    def lab() -> Iterator[Lab]:
        made = RealLab(plane, next(_NUMBERS))
        yield made
        made.close()

    return lab
