"""Makes a Service without a selector lead to the leading replica, by an EndpointSlice that this replica writes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address
from threading import Event, Thread

from gpuctl.adapters.kubernetes.requests import APPLY, Requests, patching
from gpuctl.app.ports import WorldFault
from gpuctl.k8s import kinds
from gpuctl.k8s.names import DASHBOARD_SERVICE, SYSTEM_NAMESPACE
from gpuctl.model.ids import ObjectRef
from gpuctl.model.state import Body

_LOOK_S = 1.0
"""How often this replica checks whether it leads: the Lease is renewed elsewhere, so that costs no request."""
_LOOKS_AGAIN = 30
"""It writes again after this many checks: another client may have changed the object."""
_REF = ObjectRef(*kinds.ENDPOINT_SLICE, SYSTEM_NAMESPACE, DASHBOARD_SERVICE)


class LeaderAddress:
    """While `leads`, Service DASHBOARD_SERVICE leads to `address`, with a port of the same name. `close` ends that.

    Invariant: what the last leader wrote stands until the next one writes, some seconds after it leads.
    """

    def __init__(self, requests: Requests, leads: Callable[[], bool], address: str, port: int) -> None:
        self._requests = requests
        self._leads = leads
        self._body = _slice(address, port)
        self._closing = Event()
        self._thread = Thread(target=self._run, name="leader-address", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread; a request under way is waited for."""
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        looks_left = 0
        while not self._closing.wait(_LOOK_S):
            looks_left = max(0, looks_left - 1) if self._leads() else 0
            if looks_left or not self._leads():
                continue
            with suppress(WorldFault):  # the loop reports a server that is away; the write is tried again
                self._requests.send(patching(_REF, self._body, APPLY), self._leads)
                looks_left = _LOOKS_AGAIN


def _slice(address: str, port: int) -> Body:
    """The EndpointSlice, named as its Service, as there is no other one. Raises ValueError for anything but an IP
    address."""
    labels = {"kubernetes.io/service-name": _REF.name, "endpointslice.kubernetes.io/managed-by": "gpuctl"}
    return {
        "apiVersion": _REF.api_version,
        "kind": _REF.kind,
        "metadata": {"name": _REF.name, "namespace": _REF.namespace, "labels": labels},
        "addressType": f"IPv{ip_address(address).version}",
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
        "ports": [{"name": "dashboard", "port": port, "protocol": "TCP"}],
    }
