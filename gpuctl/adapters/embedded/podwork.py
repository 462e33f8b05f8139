"""Making and removing a workload's pods: shared by the Job and Deployment controllers."""

from __future__ import annotations

from typing import Any

from gpuctl.adapters.embedded.bodies import Key, at, drop, key_of, put, terminal, with_condition
from gpuctl.adapters.embedded.controller import Desk
from gpuctl.k8s import kinds
from gpuctl.k8s.objects import is_deleting, mapping, text, uid
from gpuctl.model.state import Body
from gpuctl.model.units import Instant

TRACKING = "batch.kubernetes.io/job-tracking"
"""The finalizer that keeps a Job's pod until the Job has counted it."""

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


class Refusals:
    """Objects for which the server refused a pod or a claim; they are looked at again when the cause has changed.

    A real controller asks again and again; here nothing is due by itself that could not succeed.
    """

    def __init__(self) -> None:
        self._keys: dict[Key, None] = {}

    def note(self, key: Key) -> None:
        """Note an object that was refused."""
        self._keys[key] = None

    def clear(self, key: Key) -> None:
        """Forget an object that is being tried again."""
        self._keys.pop(key, None)

    def woken_by(self, key: Key) -> list[Key]:
        """The objects to try again after a write to a quota of their namespace or to a priority class."""
        if key.kinds == kinds.RESOURCE_QUOTA:
            return [refused for refused in self._keys if refused.namespace == key.namespace]
        return list(self._keys) if key.kinds == kinds.PRIORITY_CLASS else []


def suffix(serial: int) -> str:
    """Five letters as a server appends them to generated names, but made of a number instead of chance."""
    letters = []
    mixed = serial * 7_919_831 % 27**5
    for _ in range(5):
        mixed, digit = divmod(mixed, 27)
        letters.append(_ALPHABET[digit])
    return "".join(letters)


def owned_pods(desk: Desk, owner: Body) -> list[Body]:
    """The pods of a workload by name."""
    keys = sorted(key for key in desk.store.dependents(uid(owner)) if key.kinds == kinds.POD)
    return [pod for key in keys if (pod := desk.store.get(key)) is not None]


def active(pod: Body) -> bool:
    """Whether a pod has neither ended nor been asked to."""
    return not terminal(pod) and not is_deleting(pod)


def new_pod(desk: Desk, owner: Body, stem: str, extra: Body) -> Body:
    """Create a pod of the owner's template; `extra` has further labels and annotations. Raises as create does."""
    template = mapping(owner, "spec", "template")
    meta: dict[str, Any] = {
        "name": f"{stem}-{suffix(desk.store.serial + 1)}",
        "generateName": f"{stem}-",
        "namespace": text(owner, "metadata", "namespace"),
        "labels": {**mapping(template, "metadata", "labels"), **mapping(extra, "labels")},
        "annotations": {**mapping(template, "metadata", "annotations"), **mapping(extra, "annotations")},
        "ownerReferences": [controller_reference(owner)],
    }
    if owner["kind"] == "Job":
        meta["finalizers"] = [TRACKING]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {**template["spec"], **mapping(extra, "spec")}}
    return desk.api.create(pod)


def controller_reference(owner: Body) -> dict[str, Any]:
    """The ownerReference of an object that controls another."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": uid(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def release(desk: Desk, pod: Body) -> Body | None:
    """Let a Job's pod go uncounted: without the finalizer it is gone as soon as nothing else holds it."""
    finalizers = at(pod, "metadata", "finalizers", default=())
    if TRACKING not in finalizers:
        return pod
    rest = [name for name in finalizers if name != TRACKING]
    path = ("metadata", "finalizers")
    desk.api.replace(put(pod, path, rest) if rest else drop(pod, path))
    return desk.store.get(key_of(pod))


def dismiss(desk: Desk, pod: Body) -> None:
    """Delete a pod on the workload's behalf, so that its end counts for nothing."""
    left = release(desk, pod)
    if left is not None:
        desk.api.delete(key_of(left))


def disrupted(pod: Body, reason: str, now_ms: Instant) -> Body:
    """The pod with the mark that the cluster ended it, not the pod itself."""
    return with_condition(pod, {"type": "DisruptionTarget", "status": "True", "reason": reason}, now_ms)


def warn(desk: Desk, about: Body, reason: str, message: str) -> None:
    """Write a Warning event; a repetition raises its count and moves its time."""
    key = Key(*kinds.CORE_EVENT, text(about, "metadata", "namespace"), f"{about['metadata']['name']}.{reason.lower()}")
    old = desk.store.get(key)
    if old is not None:
        desk.api.replace({**old, "count": old["count"] + 1, "lastTimestamp": desk.api.now, "message": message})
        return
    desk.api.create({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": key.name, "namespace": key.namespace},
        "involvedObject": {"apiVersion": about["apiVersion"], "kind": about["kind"], "name": about["metadata"]["name"],
                           "namespace": key.namespace, "uid": uid(about)},
        "type": "Warning", "reason": reason, "message": message, "count": 1,
        "firstTimestamp": desk.api.now, "lastTimestamp": desk.api.now,
    })  # fmt: skip
