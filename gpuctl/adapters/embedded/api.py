"""The API server's verbs on the store: admission, defaults, generations, finalizers, graceful deletion.

Clients and controllers both write through here, at `instant`. Nothing here acts by itself; the controllers do.
"""

from __future__ import annotations

import marshal
from typing import Any

from gpuctl.adapters.embedded import merge, quota, validation
from gpuctl.adapters.embedded.bodies import Key, at, drop, key_of, put, terminal
from gpuctl.adapters.embedded.defaults import filled
from gpuctl.adapters.embedded.faults import conflict, forbidden, invalid, not_found
from gpuctl.adapters.embedded.store import Store
from gpuctl.k8s import kinds
from gpuctl.k8s.crowding import BARE
from gpuctl.k8s.kinds import Kind
from gpuctl.k8s.objects import is_deleting, mapping, number, text, uid
from gpuctl.k8s.timestamps import format_seconds
from gpuctl.k8s.workload_table import BUILT_IN, Rows
from gpuctl.model.state import Body
from gpuctl.model.units import Instant

KINDS: frozenset[Kind] = frozenset({
    *kinds.OBSERVED, kinds.CORE_EVENT, kinds.SECRET, kinds.SERVICE_ACCOUNT, kinds.LEASE, *kinds.OF_ENGINES,
})  # fmt: skip
"""The kinds that this server serves; any other gets a 404."""

_GENERATIONS = frozenset({
    kinds.JOB, kinds.DEPLOYMENT, *kinds.OF_OTHERS, kinds.INGRESS, kinds.POD, kinds.RESOURCE_SLICE,
})  # fmt: skip
_MAX_BYTES = 3 * 512 * 1024


class Api:
    """One API server over one store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.instant: Instant = 0
        self.rows: Rows = BUILT_IN
        """The kinds of other controllers that the server serves."""

    @property
    def now(self) -> str:
        """The instant in the form objects carry."""
        return format_seconds(self.instant)

    def apply(self, wanted: Body, manager: str, *, force: bool = True, dry_run: bool = False) -> Body:
        """Server-side apply; `force` takes over fields that others own. An apply that changes nothing writes
        nothing."""
        wanted = _applicable(wanted)
        key = self._known(wanted)
        live = self.store.get(key)
        if live is None:
            _absent(wanted)
            body, owners = merge.applied(None, _unversioned(wanted), manager)
            return self.create(merge.with_owners(body, owners, None, self.instant), dry_run=dry_run)
        _preconditions(key, live, text(wanted, "metadata", "uid"), text(wanted, "metadata", "resourceVersion"))
        body, owners = merge.applied(live, _unversioned(wanted), manager, force=force)
        return self.replace(merge.with_owners(body, owners, live, self.instant), dry_run=dry_run)

    def uncrowd(self, wanted: Body) -> bool:
        """Remove everything that others can write in an object's metadata; False if the object is not there."""
        live = self.store.get(self._known(wanted))
        if live is None:
            return False
        self.replace({**live, "metadata": {**live["metadata"], **BARE}})
        return True

    def update(self, new: Body, manager: str) -> Body:
        """A plain update, by another manager, of an object that a client read: the manager owns what it changes."""
        key = self._known(new)
        live = self.find(key)
        _preconditions(key, live, text(new, "metadata", "uid"), text(new, "metadata", "resourceVersion"))
        owners = merge.updated(live, new, manager)
        return self.replace(merge.with_owners({**new, "status": live.get("status", {})}, owners, live, self.instant))

    def make(self, body: Body, manager: str) -> Body:
        """A plain create by a client: it owns all that it wrote."""
        return self.create(merge.with_owners(body, merge.made(body, manager), None, self.instant))

    def create(self, body: Body, *, dry_run: bool = False) -> Body:
        """Admit a new object and store it."""
        key = self._known(body)
        if self.store.get(key) is not None:
            raise conflict(f"{key} already exists")
        self._namespace_takes(key)
        meta = {**body["metadata"], "uid": self.store.new_uid(), "creationTimestamp": self.now}
        if key.kinds in _GENERATIONS or key.kinds in self.rows:
            meta["generation"] = 1
        if key.kinds == kinds.CLAIM:
            meta["finalizers"] = [*meta.get("finalizers", ()), "kubernetes.io/pvc-protection"]
        admitted = self._prioritised(key, filled({**body, "metadata": meta}))
        validation.check(admitted)
        _fits_storage(key, admitted)
        quota.admit(self.store, key, admitted)
        if dry_run:
            return admitted
        return self.store.write(admitted)

    def replace(self, new: Body, *, dry_run: bool = False) -> Body:
        """Store a changed object. Checks its generation and immutable fields, and ends an object that only waited for
        its finalizers."""
        key = key_of(new)
        live = self.find(key)
        new = filled(new)
        if new == live:
            return live
        if new.get("spec") != live.get("spec"):
            validation.check(new)
            validation.check_change(live, new)
            if key.kinds in _GENERATIONS:
                new = put(new, ("metadata", "generation"), number(live, "metadata", "generation") + 1)
        elif {**new, "status": 0} != {**live, "status": 0}:
            validation.check(new)
            validation.check_change(live, new)
        _fits_storage(key, new)
        if dry_run:
            return new
        stored = self.store.write(new)
        if is_deleting(stored) and _may_go(stored):
            self.store.remove(key)
        return stored

    def delete(self, key: Key, uid_wanted: str = "", version: str = "") -> None:
        """Ask for deletion. An object without finalizers, grace period and content is gone at once."""
        live = self.find(key)
        _preconditions(key, live, uid_wanted, version)
        if is_deleting(live):
            return
        grace = _grace_seconds(live)
        until = format_seconds(self.instant + 1000 * grace)
        marked = put(live, ("metadata", "deletionTimestamp"), until)
        marked = put(marked, ("metadata", "deletionGracePeriodSeconds"), grace)
        if key.kinds == kinds.NAMESPACE:
            self.store.write(put(marked, ("status", "phase"), "Terminating"))
        elif _may_go(marked):
            self.store.remove(key)
        else:
            self.store.write(marked)

    def _prioritised(self, key: Key, body: Body) -> Body:
        """A pod with the priority of the class it names. Raises Forbidden if there is no such class."""
        name = text(body, "spec", "priorityClassName")
        if key.kinds != kinds.POD or name.startswith("system-"):
            return body
        found = self.store.get(Key(*kinds.PRIORITY_CLASS, "", name)) if name else {}
        if found is None:
            raise forbidden(f"{key} is forbidden: no PriorityClass with name {name} was found")
        policy = text(found, "preemptionPolicy") or "PreemptLowerPriority"
        spec = {**body["spec"], "priority": number(found, "value"), "preemptionPolicy": policy}
        return {**body, "spec": spec}

    def find(self, key: Key) -> Body:
        """The object. Raises NotFound if there is none."""
        live = self.store.get(key)
        if live is None:
            raise not_found(f"{key} not found")
        return live

    def serves(self, kind: Kind) -> bool:
        """Whether the server has the kind: it was given the kind's definition, or has an object of it already."""
        return kind in KINDS or kind in self.rows or bool(self.store.list(kind))

    def _known(self, body: Body) -> Key:
        kind = (text(body, "apiVersion"), text(body, "kind"))
        if not self.serves(kind):
            raise not_found(f"the server has no {kind[1] or 'kind'} of {kind[0] or 'no apiVersion'}")
        if not text(body, "metadata", "name"):
            raise invalid(f"{kind[1]}: metadata.name: Required value")
        if kind not in kinds.CLUSTER_SCOPED and not text(body, "metadata", "namespace"):
            raise invalid(f"{kind[1]} {text(body, 'metadata', 'name')}: metadata.namespace: Required value")
        return key_of(body)

    def _namespace_takes(self, key: Key) -> None:
        if not key.namespace:
            return
        namespace = self.store.get(Key(*kinds.NAMESPACE, "", key.namespace))
        if namespace is None:
            raise not_found(f'namespaces "{key.namespace}" not found')
        if is_deleting(namespace):
            raise forbidden(
                f"{key} is forbidden: unable to create new content in namespace {key.namespace} "
                "because it is being terminated (NamespaceTerminating)"
            )


def _applicable(wanted: Body) -> dict[str, Any]:
    """The part of a client's body that apply takes: no status, no field ownership, no nulls."""
    body = {name: _dense(value) for name, value in wanted.items() if name != "status" and value is not None}
    return drop(body, ("metadata", "managedFields"))


def _dense(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _dense(inner) for name, inner in value.items() if inner is not None}
    if isinstance(value, list | tuple):
        return [_dense(inner) for inner in value]
    return value


def _unversioned(body: Body) -> dict[str, Any]:
    return drop(drop(body, ("metadata", "uid")), ("metadata", "resourceVersion"))


def _absent(wanted: Body) -> None:
    """Refuse a body with a uid or a version: its client means an object that it saw, which is gone."""
    meta = mapping(wanted, "metadata")
    if meta.get("uid") or meta.get("resourceVersion"):
        raise conflict(f"{key_of(wanted)}: uid or resourceVersion given, but there is no such object")


def _preconditions(key: Key, live: Body, uid_wanted: str, version: str) -> None:
    if uid_wanted and uid_wanted != uid(live):
        raise conflict(f"{key}: uid is {uid(live)}, not {uid_wanted}")
    if version and version != text(live, "metadata", "resourceVersion"):
        raise conflict(f"{key}: the object has been modified; it is at {text(live, 'metadata', 'resourceVersion')}")


def _fits_storage(key: Key, body: Body) -> None:
    # Cost: this stands in for the encoded size in a third of the time of encoding, since each write is checked.
    if len(marshal.dumps(dict(body), 0)) > _MAX_BYTES:
        raise invalid(f"{key}: etcdserver: request is too large")


def _grace_seconds(live: Body) -> int:
    """The seconds a pod has to end: none unless a node runs it."""
    if live["kind"] != "Pod" or terminal(live) or not text(live, "spec", "nodeName"):
        return 0
    return number(live, "spec", "terminationGracePeriodSeconds", default=30)


def _may_go(marked: Body) -> bool:
    """Whether nothing holds an object whose deletion was asked for."""
    meta = marked["metadata"]
    if marked["kind"] == "Namespace":
        return not at(marked, "spec", "finalizers") and not meta.get("finalizers")
    return not meta.get("finalizers") and not meta.get("deletionGracePeriodSeconds")
