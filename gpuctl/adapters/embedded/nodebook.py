"""An index of the pods of each node with their sums, and of the pods without a node. It follows the store's writes."""

from __future__ import annotations

from collections.abc import Mapping

from gpuctl.adapters.embedded.amounts import pod_asks
from gpuctl.adapters.embedded.bodies import Key, terminal
from gpuctl.k8s import kinds, names
from gpuctl.k8s.objects import is_deleting, labels_of, text, uid
from gpuctl.model.ids import JobId, ProjectName
from gpuctl.model.state import Body


class NodeBook:
    """An index over pods. A pod that has ended holds nothing; one asked to end still does. Cost: O(1) a write."""

    def __init__(self) -> None:
        self._sums: dict[str, dict[str, int]] = {}
        self._pods: dict[str, dict[Key, None]] = {}
        self._pending: dict[Key, str] = {}
        self._workers: dict[JobId, dict[Key, None]] = {}

    def note(self, key: Key, old: Body | None, new: Body | None) -> None:
        """Take up a write."""
        if key.kinds != kinds.POD:
            return
        self._occupy(key, old, new)
        if new is not None and not text(new, "spec", "nodeName") and not terminal(new) and not is_deleting(new):
            self._pending[key] = uid(new)
        else:
            self._pending.pop(key, None)
        job = job_of(new if new is not None else old or {})
        if job is not None:
            workers = self._workers.setdefault(job, {})
            if new is None:
                workers.pop(key, None)
                if not workers:
                    del self._workers[job]
            else:
                workers[key] = None

    def on(self, node: str) -> tuple[Key, ...]:
        """Keys of the pods of a node that have not ended."""
        return tuple(self._pods.get(node, ()))

    def used(self, node: str) -> Mapping[str, int]:
        """The sum of what the pods of a node ask for, `pods` included."""
        return self._sums.get(node, {})

    def pending(self) -> tuple[Key, ...]:
        """Keys of the pods that need a node, in the order of their creation."""
        return tuple(sorted(self._pending, key=lambda key: self._pending[key]))

    def is_pending(self, key: Key) -> bool:
        """Whether a pod needs a node."""
        return key in self._pending

    def workers(self, job: JobId) -> tuple[Key, ...]:
        """Keys of a declared job's pods."""
        return tuple(sorted(self._workers.get(job, ())))

    def _occupy(self, key: Key, old: Body | None, new: Body | None) -> None:
        before, after = _place(old), _place(new)
        if before == after:
            return
        if before and old is not None:
            self._add(before, old, -1)
            del self._pods[before][key]
        if after and new is not None:
            self._add(after, new, 1)
            self._pods.setdefault(after, {})[key] = None

    def _add(self, node: str, pod: Body, sign: int) -> None:
        sums = self._sums.setdefault(node, {})
        for resource, value in {**pod_asks(pod), "pods": 1}.items():
            sums[resource] = sums.get(resource, 0) + sign * value


def job_of(body: Body) -> JobId | None:
    """The declared job that an object's labels name."""
    labels = labels_of(body)
    project, job = labels.get(names.PROJECT_LABEL), labels.get(names.JOB_LABEL)
    return JobId(ProjectName(str(project)), str(job)) if project and job else None


def _place(pod: Body | None) -> str:
    """The node whose room the pod takes; "" for none."""
    return "" if pod is None or terminal(pod) else text(pod, "spec", "nodeName")
