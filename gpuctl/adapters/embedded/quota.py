"""ResourceQuota admission: an object is refused if a quota of its namespace has no room for what it would add.

Source: pkg/quota/v1, plugin/pkg/admission/resourcequota.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpuctl.adapters.embedded.amounts import amount, amounts, pod_asks, total
from gpuctl.adapters.embedded.bodies import Key, terminal
from gpuctl.adapters.embedded.faults import forbidden
from gpuctl.adapters.embedded.scopes import is_about
from gpuctl.adapters.embedded.store import Store
from gpuctl.k8s import kinds
from gpuctl.k8s.objects import items, mapping, number, text
from gpuctl.k8s.quantity import format_bytes, format_cpu
from gpuctl.model.state import Body

COUNTED: Mapping[kinds.Kind, str] = {
    kind: ".".join(filter(None, (info.plural, kinds.group_of(kind))))
    for kind, info in kinds.KINDS.items()
    if info.namespaced and kind not in {kinds.EVENT, kinds.CORE_EVENT}
}
"""The kinds that quotas count, with their name there: everything in a namespace but events."""
_PLAIN: Mapping[str, kinds.Kind] = {f"count/{name}": kind for kind, name in COUNTED.items()}
"""The resources that simply count the objects of a kind."""
_SHORT = frozenset(name.partition(".")[0] for name in COUNTED.values())
_BY_NAME: Mapping[str, tuple[kinds.Kind, ...]] = {
    **{name: (kind,) for name, kind in _PLAIN.items()},
    **{short: tuple(kind for kind, name in COUNTED.items() if name.partition(".")[0] == short) for short in _SHORT},
}
"""The kinds by each name of their count."""
_MUST_ASK = ("cpu", "memory")


def admit(store: Store, key: Key, body: Body) -> None:
    """Raises Forbidden if a quota of the namespace has no room for a new object, or needs an amount that it does not
    state."""
    adds = None
    for quota_key in store.in_namespace(key.namespace, kinds.RESOURCE_QUOTA) if key.namespace else ():
        quota = store.get(quota_key)
        if quota is None or not is_about(quota, body):
            continue
        adds = use_of(body) if adds is None else adds
        hard = mapping(quota, "spec", "hard")
        unsaid = [name for name in hard if key.kinds == kinds.POD and name not in adds and _of_compute(name)]
        if unsaid:
            raise forbidden(f"{key} is forbidden: failed quota: {quota_key.name}: must specify {', '.join(unsaid)}")
        used = usage(store, quota, [name for name in hard if name in adds])
        for name, now in used.items():
            if adds[name] and now + adds[name] > amount(name, hard[name]):
                raise forbidden(
                    f"{key} is forbidden: exceeded quota: {quota_key.name}, "
                    f"requested: {name}={written(name, adds[name])}, "
                    f"used: {name}={written(name, now)}, limited: {name}={hard[name]}"
                )


def usage(store: Store, quota: Body, resources: Iterable[str]) -> dict[str, int]:
    """The namespace's use of these resources. Cost: O(its objects of the kinds that have amounts of them).

    Objects that are merely counted are not read.
    """
    wanted, namespace = list(resources), text(quota, "metadata", "namespace")
    every = not mapping(quota, "spec", "scopeSelector")
    plain = {name: _PLAIN[name] for name in wanted if every and name in _PLAIN}
    others = {kind for name in wanted if name not in plain for kind in _counted_as(name)}
    bodies = (store.get(key) for kind in sorted(others) for key in store.in_namespace(namespace, kind))
    used = total(use_of(body) for body in bodies if body is not None and (every or is_about(quota, body)))
    counts = {name: len(store.in_namespace(namespace, kind)) for name, kind in plain.items()}
    return {name: used.get(name, 0) for name in wanted} | counts


def use_of(body: Body) -> dict[str, int]:
    """What one object counts for, under every name a quota may use. A pod that has ended counts for nothing."""
    kind = (body["apiVersion"], body["kind"])
    if kind not in COUNTED or (kind == kinds.POD and terminal(body)):
        return {}
    plural = COUNTED[kind]
    use = {f"count/{plural}": 1, plural.partition(".")[0]: 1}
    if kind == kinds.POD:
        requests = pod_asks(body)
        use |= {f"requests.{name}": value for name, value in requests.items()}
        use |= {name: requests[name] for name in _MUST_ASK if name in requests}
        use |= {f"limits.{name}": value for name, value in pod_asks(body, "limits").items()}
    elif kind == kinds.CLAIM:
        size = amounts(mapping(body, "spec", "resources", "requests")).get("storage", 0)
        use["requests.storage"] = size
        storage_class = text(body, "spec", "storageClassName")
        if storage_class:
            use[f"{storage_class}.storageclass.storage.k8s.io/requests.storage"] = size
            use[f"{storage_class}.storageclass.storage.k8s.io/persistentvolumeclaims"] = 1
    elif kind == kinds.RESOURCE_CLAIM:
        asked = [mapping(request, "exactly") for request in items(body, "spec", "devices", "requests")]
        use |= total({_devices(text(r, "deviceClassName")): number(r, "count", default=1)} for r in asked)
    return use


def written(name: str, value: int) -> str:
    """An amount as a quantity."""
    return format_cpu(value) if name.rpartition(".")[2] == "cpu" else format_bytes(value)


def _devices(device_class: str) -> str:
    return f"{device_class}.deviceclass.resource.k8s.io/devices"


def _of_compute(name: str) -> bool:
    """Whether a pod must say how much it asks of this resource."""
    return name in _MUST_ASK or name in {f"{side}.{r}" for side in ("requests", "limits") for r in _MUST_ASK}


def _counted_as(name: str) -> tuple[kinds.Kind, ...]:
    """The kinds whose objects can count for a resource."""
    if name in _BY_NAME:
        return _BY_NAME[name]
    if ".storageclass.storage.k8s.io/" in name or name == "requests.storage":
        return (kinds.CLAIM,)
    if name.endswith(".deviceclass.resource.k8s.io/devices"):
        return (kinds.RESOURCE_CLAIM,)
    return (kinds.POD,) if name in _MUST_ASK or name.startswith(("requests.", "limits.")) else ()
