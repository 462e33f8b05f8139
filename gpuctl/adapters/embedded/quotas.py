"""The controller that keeps the use of a ResourceQuota's namespace in its status."""

from __future__ import annotations

from collections.abc import Iterable

from gpuctl.adapters.embedded.bodies import Key, put, terminal
from gpuctl.adapters.embedded.controller import Desk
from gpuctl.adapters.embedded.quota import COUNTED, usage, written
from gpuctl.adapters.embedded.scopes import is_about
from gpuctl.k8s import kinds
from gpuctl.k8s.objects import is_deleting, mapping
from gpuctl.model.state import Body


class Quotas:
    """The controller that keeps `status.used`."""

    name = "quotas"

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def concerns(self, key: Key, old: Body | None, new: Body | None) -> Iterable[Key]:
        """A quota, and the quotas about an object in their namespace that began or ceased to count."""
        if key.kinds == kinds.RESOURCE_QUOTA:
            return (key,) if new is not None else ()
        if not key.namespace or key.kinds not in COUNTED:
            return ()
        ended = old is not None and new is not None and terminal(new) and not terminal(old)
        body = new if old is None else old
        if body is not None and (old is None or new is None or ended):
            quotas = self._desk.store.in_namespace(key.namespace, kinds.RESOURCE_QUOTA)
            return [quota for quota in quotas if is_about(self._desk.store.get(quota) or {}, body)]
        return ()

    def sync(self, key: Key) -> None:
        """Write the present use."""
        quota = self._desk.store.get(key)
        if quota is None or is_deleting(quota):
            return
        hard = mapping(quota, "spec", "hard")
        used = {name: written(name, value) for name, value in usage(self._desk.store, quota, hard).items()}
        self._desk.api.replace(put(quota, ("status",), {"hard": dict(hard), "used": used}))
