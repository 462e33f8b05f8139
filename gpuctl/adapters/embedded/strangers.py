"""Foreign pods: each requests a GPU of one node, as the work of others does on a shared cluster.

They are pods like any other: the scheduler binds them where they fit, and they take no GPU from other pods. They
request a GPU in the way of that node: by count, by a claim, or from HAMi.
"""

from __future__ import annotations

from itertools import count, islice
from typing import Any

from gpuctl.adapters.embedded.api import Api
from gpuctl.adapters.embedded.bodies import Key
from gpuctl.adapters.embedded.faults import not_found
from gpuctl.k8s import kinds, names
from gpuctl.k8s.objects import annotations_of, is_deleting, mapping, text
from gpuctl.model.ids import NodeName
from gpuctl.model.state import Body

NAMESPACE = "strangers"
_CLASS_OF = {names.DRA_DRIVER: names.DRA_DEVICE_CLASS, names.NVIDIA_DRIVER: names.NVIDIA_GPU_CLASS}


def set_strangers(api: Api, node: NodeName, gpus: int) -> None:
    """Have this many foreign pods on a node; further ones are deleted. Raises NotFound for a node that is not there.

    A foreign pod that is ending still holds its GPU, and is not counted.
    """
    machine = api.store.get(Key(*kinds.NODE, "", node))
    if machine is None:
        raise not_found(f'nodes "{node}" not found')
    _namespace(api)
    there = [pod for pod in api.store.list(kinds.POD) if _is_stranger_on(pod, node)]
    for pod in there[gpus:]:
        api.delete(Key(*kinds.POD, NAMESPACE, pod["metadata"]["name"]))
    taken = {pod["metadata"]["name"] for pod in api.store.list(kinds.POD)}
    free = (name for name in map(f"{node}.{{}}".format, count()) if name not in taken)
    for name in islice(free, max(0, gpus - len(there))):
        api.create(_pod(name, node, _template(api, machine), _scheduler(machine)))


def _namespace(api: Api) -> None:
    key = Key(*kinds.NAMESPACE, "", NAMESPACE)
    if api.store.get(key) is None:
        api.create({"apiVersion": key.api_version, "kind": key.kind, "metadata": {"name": NAMESPACE}})


def _is_stranger_on(pod: Body, node: NodeName) -> bool:
    meta = pod["metadata"]
    return meta.get("namespace") == NAMESPACE and meta["name"].startswith(f"{node}.") and not is_deleting(pod)


def _scheduler(node: Body) -> dict[str, str]:
    """The scheduler that places the pods, as HAMi's webhook sets it for its nodes."""
    return {"schedulerName": names.HAMI_SCHEDULER} if names.HAMI_REGISTER_ANNOTATION in annotations_of(node) else {}


def _template(api: Api, node: Body) -> str:
    """The template of claims for a node's GPUs; "" if GPUs are asked for by count."""
    if names.GPU_RESOURCE in mapping(node, "status", "allocatable"):
        return ""
    name = text(node, "metadata", "name")
    slices = (each for each in api.store.list(kinds.RESOURCE_SLICE) if text(each, "spec", "nodeName") == name)
    device_class = next((_CLASS_OF[text(each, "spec", "driver")] for each in slices), "")
    key = Key(*kinds.CLAIM_TEMPLATE, NAMESPACE, device_class)
    if device_class and api.store.get(key) is None:
        request = {"name": "gpu", "exactly": {"deviceClassName": device_class}}
        api.create(_body(kinds.CLAIM_TEMPLATE, device_class, {"spec": {"devices": {"requests": [request]}}}))
    return device_class


def _pod(name: str, node: NodeName, template: str, scheduler: dict[str, str]) -> Body:
    here = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": here}}}
    asks: dict[str, Any] = {"claims": [{"name": "gpu"}]} if template else {"limits": {names.GPU_RESOURCE: "1"}}
    spec: dict[str, Any] = {
        **scheduler,
        "affinity": affinity,
        "containers": [{"name": "main", "image": "somebody/else:1", "resources": asks}],
    }
    if template:
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": template}]
    return _body(kinds.POD, name, spec)


def _body(kind: tuple[str, str], name: str, spec: dict[str, Any]) -> Body:
    meta = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": kind[0], "kind": kind[1], "metadata": meta, "spec": spec}
