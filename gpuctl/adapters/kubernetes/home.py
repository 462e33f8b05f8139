"""gpuctl's own namespace on a server where `gpuctl install` was not applied: created if the account may create it."""

from __future__ import annotations

from contextlib import suppress

from gpuctl.adapters.kubernetes.paths import collection, with_query
from gpuctl.adapters.kubernetes.requests import Request, Requests, encoded
from gpuctl.app.ports import Conflict, Forbidden, WorldFault
from gpuctl.diag.wording import message
from gpuctl.k8s.kinds import NAMESPACE
from gpuctl.k8s.names import SYSTEM_NAMESPACE
from gpuctl.k8s.objects import items


def make_home(requests: Requests) -> bool:
    """Create the namespace if it does not exist. Returns whether it was created.

    Raises WorldFault GPU7085 if it is missing and the account may not create it; ClusterUnavailable. An account that
    may not look for it learns from its Lease.
    """
    query = {"fieldSelector": f"metadata.name={SYSTEM_NAMESPACE}"}
    path = collection(NAMESPACE)
    with suppress(Forbidden):
        looked = Request(verb="list", kind=NAMESPACE, path=with_query(path, query), what="look for gpuctl's namespace")
        if any(items(requests.send(looked), "items")):
            return False
        body = {"apiVersion": NAMESPACE[0], "kind": NAMESPACE[1], "metadata": {"name": SYSTEM_NAMESPACE}}
        what = f"create namespace {SYSTEM_NAMESPACE}"
        made = Request(verb="create", kind=NAMESPACE, method="POST", path=path, what=what, body=encoded(body))
        try:
            requests.send(made)
        except Conflict:
            return False
        except Forbidden as fault:
            params = {"namespace": SYSTEM_NAMESPACE, "why": str(fault)}
            raise WorldFault("GPU7085", message("GPU7085", params)) from fault
        return True
    return False
