"""A cluster that only benchmarks use: their actions beyond gpuctl's own reads and writes."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence

import urllib3

from gpuctl.adapters.kubernetes.cluster import KubernetesCluster
from gpuctl.adapters.kubernetes.paths import collection, with_query
from gpuctl.adapters.kubernetes.requests import Request, encoded
from gpuctl.app.ports import ClusterUnavailable, Conflict, NotFound
from gpuctl.diag.wording import message
from gpuctl.k8s.kinds import CONFIG_MAP, JOB, LEASE, NAMESPACE, POD, Kind
from gpuctl.k8s.names import LEASE_NAME, SYSTEM_NAMESPACE, ledger_owner
from gpuctl.k8s.objects import ref_of, uid
from gpuctl.model.state import Body
from gpuctl.model.units import DurationMs

_CPU = re.compile(r"^process_cpu_seconds_total (\S+)", re.MULTILINE)
_POLL_S = 0.2
_GONE_WITHIN_S = 3_600


class KubernetesGround:
    """Implements the port Ground. `name`: the declared cluster whose ledgers are the benchmark's; `prefix`: of its
    namespaces."""

    def __init__(self, cluster: KubernetesCluster, name: str, prefix: str) -> None:
        self.cluster = cluster
        self._name = name
        self._prefix = prefix

    def create(self, body: Body) -> None:
        """Create an object by POST, as any client would. It is no error if the object exists."""
        ref = ref_of(body)
        path = collection((ref.api_version, ref.kind), ref.namespace)
        request = Request(
            verb="create",
            kind=(ref.api_version, ref.kind),
            method="POST",
            path=path,
            what=f"create {ref}",
            body=encoded(body),
        )
        try:
            self.cluster.requests.send(request)
        except Conflict:
            return

    def clear(self) -> None:
        """Remove the benchmark's namespaces and ledgers, wait until they are gone, and leave a Lease without holder."""
        namespaces = self._namespaces()
        self._empty([ref_of(namespace).name for namespace in namespaces])
        for namespace in namespaces:
            self._delete(namespace)
        for body in self.cluster.list(CONFIG_MAP).items:
            owner = ledger_owner(ref_of(body).name)
            if owner is not None and owner[0] == self._name:
                self._delete(body)
        _await_none("removing namespaces", self._namespaces)
        self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM_NAMESPACE}})
        self.create({
            "apiVersion": LEASE[0],
            "kind": LEASE[1],
            "metadata": {"namespace": SYSTEM_NAMESPACE, "name": LEASE_NAME},
        })

    def server_cpu_ms(self) -> DurationMs:
        """The CPU time that GET /metrics reports of the API server's process."""
        requests = self.cluster.requests
        answer = requests.stream(Request(verb="get", kind=("", "metrics"), path="/metrics", what="read the metrics"))
        try:
            found = _CPU.search(answer.read().decode())
        except urllib3.exceptions.HTTPError as error:
            raise ClusterUnavailable("GPU7001", str(error)) from error
        finally:
            answer.close()
        return int(float(found[1]) * 1000) if found else 0

    def _empty(self, namespaces: Sequence[str]) -> None:
        """Remove the Jobs of namespaces, and wait until their pods are gone. Otherwise the namespace controller would
        find ending pods, and look again only 5 to 15 s later, through seventy collections."""
        for namespace in namespaces:
            self._delete_all(JOB, namespace, {"propagationPolicy": "Background"})

        def left() -> Collection[str]:
            with_pods = [namespace for namespace in namespaces if self._has_pods(namespace)]
            for namespace in with_pods:
                self._delete_all(POD, namespace, {"gracePeriodSeconds": "0"})
            return with_pods

        _await_none("removing pods", left)

    def _has_pods(self, namespace: str) -> bool:
        path = with_query(collection(POD, namespace), {"limit": "1"})
        listed = self.cluster.requests.send(Request(verb="list", kind=POD, path=path, what=f"list Pod in {namespace}"))
        return bool(listed["items"])

    def _delete_all(self, kind: Kind, namespace: str, query: Mapping[str, str]) -> None:
        path = with_query(collection(kind, namespace), query)
        what = f"delete all {kind[1]} in {namespace}"
        self.cluster.requests.send(Request(verb="deletecollection", kind=kind, method="DELETE", path=path, what=what))

    def _namespaces(self) -> list[Body]:
        return [body for body in self.cluster.list(NAMESPACE).items if ref_of(body).name.startswith(self._prefix)]

    def _delete(self, body: Body) -> None:
        try:
            self.cluster.delete(ref_of(body), uid(body), "")
        except (Conflict, NotFound):
            return


def _await_none(what: str, left: Callable[[], Collection[object]]) -> None:
    """Check repeatedly until nothing is left. Raises ClusterUnavailable GPU7091."""
    until = time.monotonic() + _GONE_WITHIN_S
    while left():
        if time.monotonic() > until:
            raise ClusterUnavailable("GPU7091", message("GPU7091", {"what": what, "seconds": _GONE_WITHIN_S}))
        time.sleep(_POLL_S)
