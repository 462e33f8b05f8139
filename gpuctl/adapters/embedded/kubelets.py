"""The kubelets of all nodes: pods start a moment after they are bound, run, and end when asked to or when done.

How long a job's workers have run in all is a fact of the store beside the objects, so that a pause does not start them
over. A pod of a lost node neither progresses nor counts as ready. If its deletion is asked for, it is gone after
`fencing_ms`, as after a person has fenced the node. A pod whose node was removed fails at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gpuctl.adapters.embedded.bodies import Key, at, holds, key_of, put, terminal, with_condition
from gpuctl.adapters.embedded.controller import Desk
from gpuctl.adapters.embedded.nodebook import NodeBook, job_of
from gpuctl.adapters.embedded.podwork import disrupted
from gpuctl.k8s import kinds
from gpuctl.k8s.names import WORKER_INDEX_LABEL
from gpuctl.k8s.objects import annotations_of, is_deleting, items, number, text, uid
from gpuctl.model.checkpoint import work_since_checkpoint
from gpuctl.model.state import Body
from gpuctl.model.units import DurationMs

RUN_FOR = "run-for"
"""The fact about a declared job: how long its workers run in all."""

CHECKPOINT = "checkpoint"
"""The fact about a declared job: how often its workers write a checkpoint; without it they lose no work."""

STUCK = "stuck"
"""The fact about a declared job: the reason why the containers of its pods can't be started."""

_EXECUTING = "executing"
"""The fact about a pod: since when it has made progress."""


class Kubelets:
    """The controller."""

    name = "kubelets"

    def __init__(self, desk: Desk, book: NodeBook) -> None:
        self._desk = desk
        self._book = book

    def concerns(self, key: Key, old: Body | None, new: Body | None) -> Iterable[Key]:
        """A pod that has a node, and all pods of a node that changed."""
        if key.kinds == kinds.POD:
            return (key,) if text(new if new is not None else old or {}, "spec", "nodeName") else ()
        if key.kinds == kinds.NODE:
            return self._book.on(key.name)
        return ()

    def sync(self, key: Key) -> None:
        """Let one pod end, start or go on."""
        pod = self._desk.store.get(key)
        if pod is None:
            return
        if terminal(pod):
            self._reap(pod)
            return
        node = self._desk.store.get(Key(*kinds.NODE, "", text(pod, "spec", "nodeName")))
        if node is None:
            self._end(disrupted(pod, "DeletionByPodGC", self._desk.instant), "Failed", 137, "Error")
            return
        lost = not holds(node, "Ready")
        self._progress(pod, executing=text(pod, "status", "phase") == "Running" and not lost and not is_deleting(pod))
        if is_deleting(pod):
            timings = self._desk.timings
            self._when("asked", pod, timings.fencing_ms if lost else timings.termination_ms, self._killed)
        elif lost:
            self._ready(pod, ready=False)
        elif text(pod, "status", "phase") == "Pending" and (reason := self._stuck_for(pod)):
            self._wait(pod, reason)
        elif text(pod, "status", "phase") == "Pending":
            self._when("bound", pod, self._desk.timings.start_ms, self._started)
        else:
            self._ready(pod, ready=True)
            self._done(pod)

    def exit(self, pod: Body, code: int) -> None:
        """End the containers of a running pod by themselves; its restart policy may start them again."""
        policy = text(pod, "spec", "restartPolicy")
        if policy == "Always" or (policy == "OnFailure" and code):
            again = [
                {**status, "restartCount": number(status, "restartCount") + 1}
                for status in items(pod, "status", "containerStatuses")
            ]
            self._desk.api.replace(put(pod, ("status", "containerStatuses"), again))
            return
        self._progress(pod, executing=False)
        self._end(pod, "Failed" if code else "Succeeded", code, "Error" if code else "Completed")

    # time

    def _when(self, what: str, pod: Body, delay_ms: DurationMs, act: Any) -> None:
        """Act when `delay_ms` have passed since this was first seen."""
        since = self._desk.store.fact(uid(pod), what)
        if since is None:
            since = self._desk.instant
            self._desk.store.set_fact(uid(pod), what, since)
        if since + delay_ms <= self._desk.instant:
            self._desk.store.set_fact(uid(pod), what, None)
            act(pod)
        else:
            self._desk.again(self.name, key_of(pod), since + delay_ms)

    def _progress(self, pod: Body, *, executing: bool) -> None:
        """Keep the account of how long the worker has run."""
        store = self._desk.store
        since = store.fact(uid(pod), _EXECUTING)
        if executing and since is None:
            store.set_fact(uid(pod), _EXECUTING, self._desk.instant)
        if not executing and since is not None:
            store.set_fact(uid(pod), _EXECUTING, None)
            owner, worker = self._account(pod)
            ran_ms = self._desk.instant - since
            lost_ms = work_since_checkpoint(self._checkpoint_ms(pod), since, self._desk.instant) or 0
            store.set_fact(owner, worker, store.fact(owner, worker, 0) + ran_ms - lost_ms)

    def _checkpoint_ms(self, pod: Body) -> DurationMs | None:
        job = job_of(pod)
        every_ms: DurationMs | None = None if job is None else self._desk.store.fact(str(job), CHECKPOINT)
        return every_ms

    def _account(self, pod: Body) -> tuple[str, str]:
        """The place of the account of a worker's time: at its Job, for all the worker's pods, as long as the Job
        exists."""
        worker = f"ran/{annotations_of(pod).get(WORKER_INDEX_LABEL, '')}"
        for owner in items(pod, "metadata", "ownerReferences"):
            key = Key(text(owner, "apiVersion"), text(owner, "kind"), text(pod, "metadata", "namespace"), owner["name"])
            if uid(self._desk.store.get(key) or {}) == owner["uid"]:
                return owner["uid"], worker
        return uid(pod), worker

    def _done(self, pod: Body) -> None:
        """End a worker that has run its time."""
        job = job_of(pod)
        duration = None if job is None else self._desk.store.fact(str(job), RUN_FOR)
        since = self._desk.store.fact(uid(pod), _EXECUTING)
        if duration is None or since is None:
            return
        due = since + max(0, duration - self._desk.store.fact(*self._account(pod), default=0))
        if due <= self._desk.instant:
            self.exit(pod, 0)
        else:
            self._desk.again(self.name, key_of(pod), due)

    # states

    def _stuck_for(self, pod: Body) -> str:
        """The reason why the pod's containers can't be started; "" if they can."""
        job = job_of(pod)
        reason = None if job is None else self._desk.store.fact(str(job), STUCK)
        return str(reason) if reason else ""

    def _wait(self, pod: Body, reason: str) -> None:
        """Have the containers wait, with the reason in the status; nothing is then due by itself."""
        waiting = {"waiting": {"reason": reason, "message": f"{reason} of a container"}}
        crashed = {"terminated": {"exitCode": 1, "reason": "Error"}}
        last = {"lastState": crashed} if reason == "CrashLoopBackOff" else {}
        statuses = [
            {"name": c["name"], "image": c.get("image", ""), "ready": False, "started": False, "restartCount": 0,
             "state": waiting, **last}
            for c in items(pod, "spec", "containers")
        ]  # fmt: skip
        if list(items(pod, "status", "containerStatuses")) != statuses:
            self._desk.api.replace(put(pod, ("status", "containerStatuses"), statuses))

    def _started(self, pod: Body) -> None:
        running = put(pod, ("status", "phase"), "Running")
        running = put(running, ("status", "startTime"), self._desk.api.now)
        statuses = [
            {"name": c["name"], "image": c.get("image", ""), "ready": True, "started": True, "restartCount": 0,
             "state": {"running": {"startedAt": self._desk.api.now}}}
            for c in items(pod, "spec", "containers")
        ]  # fmt: skip
        self._ready(put(running, ("status", "containerStatuses"), statuses), ready=True)

    def _ready(self, pod: Body, *, ready: bool) -> None:
        status = "True" if ready else "False"
        for kind in ("ContainersReady", "Ready"):
            pod = with_condition(pod, {"type": kind, "status": status}, self._desk.instant)
        self._desk.api.replace(pod)

    def _killed(self, pod: Body) -> None:
        self._end(put(pod, ("metadata", "deletionGracePeriodSeconds"), 0), "Failed", 143, "Error")

    def _end(self, pod: Body, phase: str, code: int, reason: str) -> None:
        """End the containers; a pod whose deletion was asked for is then gone unless a finalizer holds it."""
        ended = put(pod, ("status", "phase"), phase)
        statuses = [
            {**status, "ready": False, "started": False, "state": {"terminated": {
                "exitCode": code, "reason": reason, "finishedAt": self._desk.api.now}}}
            for status in items(pod, "status", "containerStatuses")
        ]  # fmt: skip
        if statuses:
            ended = put(ended, ("status", "containerStatuses"), statuses)
        for kind in ("ContainersReady", "Ready"):
            ended = with_condition(ended, {"type": kind, "status": "False"}, self._desk.instant)
        for fact in ("bound", "asked", _EXECUTING):
            self._desk.store.set_fact(uid(pod), fact, None)
        self._desk.api.replace(ended)

    def _reap(self, pod: Body) -> None:
        """End the grace period of an ended pod whose deletion was asked for: it needs none."""
        if is_deleting(pod) and at(pod, "metadata", "deletionGracePeriodSeconds"):
            self._desk.api.replace(put(pod, ("metadata", "deletionGracePeriodSeconds"), 0))
