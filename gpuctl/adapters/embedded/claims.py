"""The claim controllers: a ResourceClaim for each pod from its template, and volumes for PersistentVolumeClaims.

A pod's ResourceClaim goes with the pod, or as soon as the pod has ended. A PersistentVolumeClaim is bound at once. If
its deletion is asked for, it stays until no pod with a node mounts it.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpuctl.adapters.embedded.bodies import Key, drop, key_of, put, terminal
from gpuctl.adapters.embedded.controller import Desk
from gpuctl.adapters.embedded.nodebook import NodeBook
from gpuctl.adapters.embedded.podwork import Refusals, controller_reference, suffix, warn
from gpuctl.app.ports import WorldFault
from gpuctl.k8s import kinds
from gpuctl.k8s.objects import is_deleting, items, mapping, text
from gpuctl.model.state import Body


class DeviceClaims:
    """The controller of ResourceClaims made from templates."""

    name = "device-claims"

    def __init__(self, desk: Desk, book: NodeBook) -> None:
        self._desk = desk
        self._book = book
        self._refusals = Refusals()

    def concerns(self, key: Key, old: Body | None, new: Body | None) -> Iterable[Key]:
        """A pod with claims, and the pending pods of a template's namespace."""
        if key.kinds == kinds.POD:
            return (key,) if new is not None and any(items(new, "spec", "resourceClaims")) else ()
        if key.kinds == kinds.CLAIM_TEMPLATE and old is None:
            return [pod for pod in self._book.pending() if pod.namespace == key.namespace]
        return self._refusals.woken_by(key)

    def sync(self, key: Key) -> None:
        """Make the pod's missing claims; remove the claims of a pod that has ended."""
        self._refusals.clear(key)
        pod = self._desk.store.get(key)
        if pod is None:
            return
        if terminal(pod):
            for claim in claim_keys(pod):
                if self._desk.store.get(claim) is not None:
                    self._desk.api.delete(claim)
            return
        made = {text(entry, "name") for entry in items(pod, "status", "resourceClaimStatuses")}
        for entry in items(pod, "spec", "resourceClaims"):
            template = text(entry, "resourceClaimTemplateName")
            if template and text(entry, "name") not in made and not is_deleting(pod):
                pod = self._make(pod, text(entry, "name"), Key(*kinds.CLAIM_TEMPLATE, key.namespace, template))

    def _make(self, pod: Body, entry: str, template_key: Key) -> Body:
        template = self._desk.store.get(template_key)
        if template is None:
            warn(self._desk, pod, "FailedResourceClaimCreation", f"{template_key} not found")
            return pod
        name = f"{pod['metadata']['name']}-{entry}-{suffix(self._desk.store.serial + 1)}"
        claim = {
            "apiVersion": kinds.RESOURCE_CLAIM[0], "kind": kinds.RESOURCE_CLAIM[1],
            "metadata": {
                "name": name, "namespace": template_key.namespace, "ownerReferences": [controller_reference(pod)],
                "labels": dict(mapping(template, "spec", "metadata", "labels")),
                "annotations": {"resource.kubernetes.io/pod-claim-name": entry},
            },
            "spec": mapping(template, "spec", "spec"), "status": {},
        }  # fmt: skip
        try:
            self._desk.api.create(claim)
        except WorldFault as fault:
            warn(self._desk, pod, "FailedResourceClaimCreation", str(fault))
            self._refusals.note(key_of(pod))
            return pod
        statuses = [*items(pod, "status", "resourceClaimStatuses"), {"name": entry, "resourceClaimName": name}]
        return self._desk.api.replace(put(pod, ("status", "resourceClaimStatuses"), statuses))


def claim_keys(pod: Body) -> list[Key]:
    """The ResourceClaims made for a pod."""
    namespace = text(pod, "metadata", "namespace")
    made = items(pod, "status", "resourceClaimStatuses")
    return [Key(*kinds.RESOURCE_CLAIM, namespace, text(entry, "resourceClaimName")) for entry in made]


class Volumes:
    """The controller of PersistentVolumeClaims."""

    name = "volumes"

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def concerns(self, key: Key, old: Body | None, new: Body | None) -> Iterable[Key]:
        """The claim that changed, and the claims of a pod that is gone."""
        if key.kinds == kinds.CLAIM:
            return (key,) if new is not None else ()
        if key.kinds == kinds.POD and old is not None and new is None:
            return [Key(*kinds.CLAIM, key.namespace, name) for name in volume_claims(old)]
        return ()

    def sync(self, key: Key) -> None:
        """Bind a new claim; release one that no pod uses any more."""
        claim = self._desk.store.get(key)
        if claim is None:
            return
        if is_deleting(claim):
            if not self._used(key):
                self._desk.api.replace(drop(claim, ("metadata", "finalizers")))
        elif text(claim, "status", "phase") == "Pending":
            bound = put(claim, ("spec", "volumeName"), f"pvc-{claim['metadata']['uid']}")
            capacity = {"storage": mapping(claim, "spec", "resources", "requests").get("storage", "0")}
            status = {"phase": "Bound", "capacity": capacity, "accessModes": claim["spec"].get("accessModes", [])}
            self._desk.api.replace(put(bound, ("status",), status))

    def _used(self, key: Key) -> bool:
        """Whether a pod that had a node still exists, ended or not."""
        pods = (self._desk.store.get(pod) for pod in self._desk.store.in_namespace(key.namespace, kinds.POD))
        return any(pod is not None and text(pod, "spec", "nodeName") and key.name in volume_claims(pod) for pod in pods)


def volume_claims(pod: Body) -> list[str]:
    """The PersistentVolumeClaims that a pod mounts."""
    claims = (text(volume, "persistentVolumeClaim", "claimName") for volume in items(pod, "spec", "volumes"))
    return [name for name in claims if name]
