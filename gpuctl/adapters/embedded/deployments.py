"""The Deployment controller, without ReplicaSets: pods belong to the Deployment itself.

A changed template replaces all pods, the old ones leaving first, as on a real server with `Recreate`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from hashlib import sha256

from gpuctl.adapters.embedded.bodies import Key, holds, key_of, put, terminal, with_condition
from gpuctl.adapters.embedded.controller import Desk
from gpuctl.adapters.embedded.podwork import Refusals, active, new_pod, owned_pods, warn
from gpuctl.app.ports import WorldFault
from gpuctl.k8s import kinds
from gpuctl.k8s.objects import is_deleting, items, labels_of, mapping, number, text
from gpuctl.model.state import Body

_HASH_LABEL = "pod-template-hash"


class Deployments:
    """The controller."""

    name = "deployments"

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._refusals = Refusals()

    def concerns(self, key: Key, old: Body | None, new: Body | None) -> Iterable[Key]:
        """A changed Deployment, and the Deployment of a changed pod."""
        if key.kinds == kinds.DEPLOYMENT:
            return (key,) if new is not None else ()
        if key.kinds == kinds.POD:
            owners = items(new if new is not None else old or {}, "metadata", "ownerReferences")
            found = [text(owner, "name") for owner in owners if text(owner, "kind") == "Deployment"]
            return [Key(*kinds.DEPLOYMENT, key.namespace, name) for name in found]
        return self._refusals.woken_by(key)

    def sync(self, key: Key) -> None:
        """Bring the pods of this template to the number of replicas. For a Deployment that is being deleted it only
        reports what is left."""
        self._refusals.clear(key)
        body = self._desk.store.get(key)
        if body is None:
            return
        revision = _template_hash(body)
        if is_deleting(body):
            self._report(body, revision)
            return
        wanted = number(body, "spec", "replicas", default=1)
        current: list[Body] = []
        for pod in owned_pods(self._desk, body):
            if terminal(pod) or labels_of(pod).get(_HASH_LABEL) != revision:
                if not is_deleting(pod):
                    self._desk.api.delete(key_of(pod))
            elif active(pod):
                current.append(pod)
        for pod in sorted(current, key=lambda pod: (not holds(pod, "Ready"), pod["metadata"]["name"]))[wanted:]:
            self._desk.api.delete(key_of(pod))
        others = any(labels_of(pod).get(_HASH_LABEL) != revision for pod in owned_pods(self._desk, body))
        if not others:
            self._grow(body, revision, wanted - len(current))
        self._report(body, revision)

    def _grow(self, body: Body, revision: str, count: int) -> None:
        stem = f"{body['metadata']['name']}-{revision}"
        try:
            for _ in range(count):
                new_pod(self._desk, body, stem, {"labels": {_HASH_LABEL: revision}})
        except WorldFault as fault:
            warn(self._desk, body, "FailedCreate", f"Error creating: {fault}")
            self._refusals.note(key_of(body))

    def _report(self, body: Body, revision: str) -> None:
        pods = [pod for pod in owned_pods(self._desk, body) if active(pod)]
        ready = sum(holds(pod, "Ready") for pod in pods)
        wanted = number(body, "spec", "replicas", default=1)
        counts = {
            "replicas": len(pods),
            "updatedReplicas": sum(labels_of(pod).get(_HASH_LABEL) == revision for pod in pods),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "unavailableReplicas": max(0, wanted - ready),
        }
        generation = number(body, "metadata", "generation")
        kept = {"conditions": list(items(body, "status", "conditions")), "observedGeneration": generation}
        new = put(body, ("status",), {**kept, **{name: count for name, count in counts.items() if count}})
        available = {"type": "Available", "status": "True" if ready >= wanted else "False"}
        self._desk.api.replace(with_condition(new, available, self._desk.instant))


def _template_hash(body: Body) -> str:
    template = json.dumps(mapping(body, "spec", "template"), sort_keys=True)
    return sha256(template.encode()).hexdigest()[:10]
