"""The Job controller: pods of `batch/v1` Jobs, their counting, suspension, deadlines and ends.

A terminal condition waits until the last pod is gone: first `FailureTarget` or `SuccessCriteriaMet`, then `Failed` or
`Complete`. Pods deleted by a suspension or an end are not counted; pods deleted by anyone else are failures.

Source: pkg/controller/job/job_controller.go, Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gpuctl.adapters.embedded.bodies import Key, at, holds, key_of, put, terminal, with_condition
from gpuctl.adapters.embedded.controller import Desk
from gpuctl.adapters.embedded.indexes import (
    backoff_until,
    failures_of,
    forget_failures,
    note_failure,
    ranges,
    worker_index,
)
from gpuctl.adapters.embedded.podwork import TRACKING, Refusals, active, dismiss, new_pod, owned_pods, release, warn
from gpuctl.app.ports import WorldFault
from gpuctl.k8s import kinds
from gpuctl.k8s.names import WORKER_INDEX_LABEL
from gpuctl.k8s.objects import flag, instant, is_deleting, items, mapping, number, text, uid
from gpuctl.k8s.workloads import completed_indexes, failed_indexes
from gpuctl.model.state import Body
from gpuctl.model.units import Instant

_ENDED = "ended"
"""The fact about a pod: when it ended."""


class Jobs:
    """The controller."""

    name = "jobs"

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._refusals = Refusals()

    def concerns(self, key: Key, old: Body | None, new: Body | None) -> Iterable[Key]:
        """A changed Job, and the Job of a changed pod."""
        if key.kinds == kinds.JOB:
            return (key,) if new is not None else ()
        if key.kinds == kinds.POD:
            owners = items(new if new is not None else old or {}, "metadata", "ownerReferences")
            return [Key(*kinds.JOB, key.namespace, text(o, "name")) for o in owners if text(o, "kind") == "Job"]
        return self._refusals.woken_by(key)

    def sync(self, key: Key) -> None:
        """Count the pods that ended, then suspend, end or run the Job. For a Job that is being deleted, report what is
        left."""
        self._refusals.clear(key)
        job = self._desk.store.get(key)
        if job is None:
            return
        if is_deleting(job):
            left = self._tally(job, owned_pods(self._desk, job))
            if left.get("status") != job.get("status"):
                self._desk.api.replace(left)
            return
        if holds(job, "Complete") or holds(job, "Failed"):
            self._after_end(job)
            return
        before = job
        pods = owned_pods(self._desk, job)
        if self._gathers(job, pods):
            return
        job = self._count(job, pods)
        job = self._ending(job)
        pods = owned_pods(self._desk, job)
        if holds(job, "FailureTarget") or holds(job, "SuccessCriteriaMet"):
            job = self._end(job, pods)
        elif flag(job, "spec", "suspend"):
            job = self._suspend(job, pods)
        else:
            job = self._run(job, pods)
        job = self._tally(job, owned_pods(self._desk, job))
        if job.get("status") != before.get("status"):
            self._desk.api.replace(job)

    # counting

    def _gathers(self, job: Body, pods: Sequence[Body]) -> bool:
        """Whether a pod ended so lately that the Job waits for more pods to end before it counts them."""
        delay_ms, store = self._desk.timings.count_ms, self._desk.store
        due = []
        for pod in pods if delay_ms else ():
            if terminal(pod) and TRACKING in at(pod, "metadata", "finalizers", default=()):
                since = store.fact(uid(pod), _ENDED, self._desk.instant)
                store.set_fact(uid(pod), _ENDED, since)
                due.append(since + delay_ms)
        if not due or min(due) <= self._desk.instant:
            return False
        self._desk.again(self.name, key_of(job), min(due))
        return True

    def _count(self, job: Body, pods: Sequence[Body]) -> Body:
        """Add pods that ended and are not counted yet to succeeded, failed and the completed indexes.

        Indexes beyond the completions, which may have become fewer, no longer count.
        """
        ended = [pod for pod in pods if terminal(pod) and TRACKING in at(pod, "metadata", "finalizers", default=())]
        done = completed_indexes(job)
        for pod in ended:
            index = worker_index(pod)
            if index is not None and index >= number(job, "spec", "completions"):
                release(self._desk, pod)
                continue
            if text(pod, "status", "phase") == "Failed":
                job = self._count_failure(job, pod)
            elif index is None or index not in done:
                job = put(job, ("status", "succeeded"), number(job, "status", "succeeded") + 1)
                done |= set() if index is None else {index}
            release(self._desk, pod)
        if _indexed(job) and (ended or done):
            within = {index for index in done if index < number(job, "spec", "completions")}
            job = put(job, ("status", "completedIndexes"), ranges(within))
            job = put(job, ("status", "succeeded"), len(within)) if within != done else job
        return job

    def _count_failure(self, job: Body, pod: Body) -> Body:
        """Count a failure, which costs a retry unless the Job's policy says otherwise."""
        action = failure_action(job, pod)
        if action == "Ignore":
            return job
        job = note_failure(self._desk, job, worker_index(pod))
        if action != "FailJob":
            return job
        message = f"Pod {pod['metadata']['name']} failed in a way the policy ends the Job for"
        return self._condition(job, "FailureTarget", "PodFailurePolicy", message)

    def _tally(self, job: Body, pods: Sequence[Body]) -> Body:
        """The Job with the present counts of pods."""
        here = [pod for pod in pods if active(pod)]
        counts = {
            "active": len(here),
            "ready": sum(holds(pod, "Ready") for pod in here),
            "terminating": sum(is_deleting(pod) and not terminal(pod) for pod in pods),
        }
        status = {name: value for name, value in mapping(job, "status").items() if name not in counts}
        kept = {name: value for name, value in counts.items() if value or name != "active"}
        return put(job, ("status",), {**status, "uncountedTerminatedPods": {}, **kept})

    # ends

    def _ending(self, job: Body) -> Body:
        """The Job, with a condition that says why if it is to end now."""
        if holds(job, "FailureTarget") or holds(job, "SuccessCriteriaMet"):
            return job
        if self._succeeded(job):
            reached = "Reached expected number of succeeded pods"
            return self._condition(job, "SuccessCriteriaMet", "CompletionsReached", reached)
        if _meets_policy(job):
            matched = "Matched rules at index 0"
            return self._condition(job, "SuccessCriteriaMet", "SuccessPolicy", matched)
        if number(job, "status", "failed") > number(job, "spec", "backoffLimit", default=6):
            return self._condition(
                job, "FailureTarget", "BackoffLimitExceeded", "Job has reached the specified backoff limit"
            )
        spent, allowed = failed_indexes(job), at(job, "spec", "maxFailedIndexes")
        if allowed is not None and len(spent) > int(allowed):
            exceeded = "Job has exceeded the specified maximal number of failed indexes"
            return self._condition(job, "FailureTarget", "MaxFailedIndexesExceeded", exceeded)
        deadline = deadline_ms(job)
        if deadline is None or flag(job, "spec", "suspend"):
            return job
        if deadline > self._desk.instant:
            self._desk.again(self.name, key_of(job), deadline)
            return job
        return self._condition(
            job, "FailureTarget", "DeadlineExceeded", "Job was active longer than specified deadline"
        )

    def _succeeded(self, job: Body) -> bool:
        """Whether all completions succeeded; without a number of them, one pod did and none runs."""
        completions = at(job, "spec", "completions")
        succeeded = number(job, "status", "succeeded")
        if completions is not None:
            return succeeded >= int(completions)
        return succeeded > 0 and not any(active(pod) for pod in owned_pods(self._desk, job))

    def _end(self, job: Body, pods: Sequence[Body]) -> Body:
        """Delete the pods that still run; when none does, set Complete or Failed."""
        for pod in pods:
            if active(pod):
                dismiss(self._desk, pod)
        if any(not terminal(pod) for pod in owned_pods(self._desk, job)):
            return job
        target = "FailureTarget" if holds(job, "FailureTarget") else "SuccessCriteriaMet"
        cause = next(c for c in items(job, "status", "conditions") if c["type"] == target)
        if target == "FailureTarget":
            return self._condition(job, "Failed", cause["reason"], cause["message"])
        job = put(job, ("status", "completionTime"), self._desk.api.now)
        return self._condition(job, "Complete", cause["reason"], cause["message"])

    def _after_end(self, job: Body) -> None:
        """Remove a finished Job when its time to live is over."""
        ttl = at(job, "spec", "ttlSecondsAfterFinished")
        if ttl is None:
            return
        ended = next(c for c in items(job, "status", "conditions") if c["type"] in {"Complete", "Failed"})
        due = (instant(ended, "lastTransitionTime") or 0) + 1000 * int(ttl)
        if due <= self._desk.instant:
            self._desk.api.delete(key_of(job))
        else:
            self._desk.again(self.name, key_of(job), due)

    # suspended and running

    def _suspend(self, job: Body, pods: Sequence[Body]) -> Body:
        """Delete the pods and the start time: a deadline begins anew with the next start."""
        for pod in pods:
            if active(pod):
                dismiss(self._desk, pod)
        forget_failures(self._desk, job)
        status = {name: value for name, value in mapping(job, "status").items() if name != "startTime"}
        return self._condition(put(job, ("status",), status), "Suspended", "JobSuspended", "Job suspended")

    def _run(self, job: Body, pods: Sequence[Body]) -> Body:
        """Start the Job, with as many pods as its completions still need. Pods of indexes that are no longer wanted
        go."""
        if "startTime" not in mapping(job, "status"):
            job = put(job, ("status", "startTime"), self._desk.api.now)
            job = self._ending(job)
        if holds(job, "Suspended"):
            job = self._condition(job, "Suspended", "JobResumed", "Job resumed", status="False")
        for pod in pods if _indexed(job) else ():
            if active(pod) and (worker_index(pod) or 0) >= number(job, "spec", "completions"):
                dismiss(self._desk, pod)
        try:
            for index in self._missing(job, pods):
                due = backoff_until(self._desk, job, index)
                if due > self._desk.instant:
                    self._desk.again(self.name, key_of(job), due)
                else:
                    self._make(job, index)
        except WorldFault as fault:
            warn(self._desk, job, "FailedCreate", f"Error creating: {fault}")
            self._refusals.note(key_of(job))
        return job

    def _missing(self, job: Body, pods: Sequence[Body]) -> list[int | None]:
        """One entry for each pod to make: its index, or None where workers have none."""
        slow = text(job, "spec", "podReplacementPolicy") == "Failed"
        holding = [pod for pod in pods if not terminal(pod) and (slow or not is_deleting(pod))]
        completions = at(job, "spec", "completions")
        parallelism = number(job, "spec", "parallelism", default=1)
        if not _indexed(job):
            succeeded = number(job, "status", "succeeded")
            left = parallelism * (not succeeded) if completions is None else completions - succeeded
            return [None] * max(0, min(parallelism, left) - len(holding))
        taken = completed_indexes(job) | failed_indexes(job) | {worker_index(pod) for pod in holding}
        free = [index for index in range(completions) if index not in taken]
        return list(free[: max(0, parallelism - len(holding))])

    def _make(self, job: Body, index: int | None) -> None:
        name = str(job["metadata"]["name"])
        if index is None:
            new_pod(self._desk, job, name, {})
            return
        mark = {WORKER_INDEX_LABEL: str(index)}
        told = {**mark, **failures_of(self._desk, job, index)}
        extra: dict[str, Any] = {"labels": mark, "annotations": told, "spec": _indexed_spec(job, index)}
        new_pod(self._desk, job, f"{name}-{index}", extra)

    def _condition(self, job: Body, kind: str, reason: str, message: str, *, status: str = "True") -> Body:
        new = {"type": kind, "status": status, "reason": reason, "message": message}
        return with_condition(job, new, self._desk.instant)


def deadline_ms(job: Body) -> Instant | None:
    """The instant at which the Job has been active too long; None unless it has started and has a limit."""
    started, limit = instant(job, "status", "startTime"), at(job, "spec", "activeDeadlineSeconds")
    return None if started is None or limit is None else started + 1000 * int(limit)


def failure_action(job: Body, pod: Body) -> str:
    """The action for a failed pod by the Job's podFailurePolicy: Ignore, FailJob or Count."""
    for rule in items(job, "spec", "podFailurePolicy", "rules"):
        patterns = list(items(rule, "onPodConditions"))
        if any(
            condition["type"] == pattern["type"] and condition["status"] == pattern.get("status", "True")
            for condition in items(pod, "status", "conditions")
            for pattern in patterns
        ):
            return text(rule, "action")
        codes = [number(s, "state", "terminated", "exitCode") for s in items(pod, "status", "containerStatuses")]
        wanted = mapping(rule, "onExitCodes")
        within = text(wanted, "operator") == "In"
        if wanted and any(code and (code in wanted["values"]) is within for code in codes):
            return text(rule, "action")
    return "Count"


def _meets_policy(job: Body) -> bool:
    """Whether enough workers of a rule of the Job's successPolicy have succeeded."""
    done = completed_indexes(job)
    for rule in items(job, "spec", "successPolicy", "rules"):
        named = text(rule, "succeededIndexes")
        among = completed_indexes({"status": {"completedIndexes": named}}) if named else done
        enough = number(rule, "succeededCount") or len(among)
        if enough and len(done & among) >= enough:
            return True
    return False


def _indexed(job: Body) -> bool:
    return text(job, "spec", "completionMode") == "Indexed"


def _indexed_spec(job: Body, index: int) -> dict[str, Any]:
    """The fields of one indexed worker: its host name, and its index in the environment."""
    variable = {"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {
        "fieldPath": f"metadata.annotations['{WORKER_INDEX_LABEL}']"}}}  # fmt: skip
    containers = [
        {**container, "env": [*container.get("env", ()), variable]}
        for container in items(job, "spec", "template", "spec", "containers")
    ]
    return {"hostname": f"{job['metadata']['name']}-{index}", "containers": containers}
