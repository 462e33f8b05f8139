"""The JobSet controller: a Job for each replica of each entry, suspended, resumed and begun anew together.

It plays the parts that gpuctl's own lives of a JobSet need: `suspend`, success of all or any,
`failurePolicy.maxRestarts`. It makes Jobs at once, whatever `startupPolicy` and `dependsOn` say, and makes no Service.

Source: pkg/controllers/jobset_controller.go, failure_policy.go, JobSet 0.12.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from gpuctl.adapters.embedded.bodies import Key, at, drop, holds, key_of, put, with_condition
from gpuctl.adapters.embedded.controller import Desk
from gpuctl.adapters.embedded.podwork import controller_reference
from gpuctl.k8s import kinds
from gpuctl.k8s.objects import flag, is_deleting, items, labels_of, mapping, number, text, uid
from gpuctl.model.state import Body

_DOMAIN = "jobset.sigs.k8s.io"
_ATTEMPT = f"{_DOMAIN}/restart-attempt"
_OF_A_RESUME = ("nodeSelector", "tolerations")


class JobSets:
    """The controller."""

    name = "jobsets"

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def concerns(self, key: Key, old: Body | None, new: Body | None) -> Iterable[Key]:
        """A changed JobSet, and the JobSet of a changed Job."""
        if key.kinds == kinds.JOB_SET:
            return (key,) if new is not None else ()
        if key.kinds != kinds.JOB:
            return ()
        owners = items(new if new is not None else old or {}, "metadata", "ownerReferences")
        return [Key(*kinds.JOB_SET, key.namespace, text(o, "name")) for o in owners if text(o, "kind") == "JobSet"]

    def sync(self, key: Key) -> None:
        """End the JobSet, begin it anew, or make, suspend and resume its Jobs."""
        body = self._desk.store.get(key)
        if body is None or is_deleting(body):
            return
        before, jobs = body, self._own_jobs(body)
        if holds(body, "Completed") or holds(body, "Failed"):
            self._remove([job for job in jobs if not _is_over(job)])
            return
        attempt = str(number(body, "status", "restarts"))
        self._remove([job for job in jobs if labels_of(job).get(_ATTEMPT) != attempt])
        jobs = [job for job in self._own_jobs(body) if labels_of(job).get(_ATTEMPT) == attempt]
        if any(holds(job, "Failed") for job in jobs):
            body = self._after_failure(body)
        elif _has_succeeded(body, jobs):
            body = self._condition(body, "Completed", "AllJobsCompleted", "jobset completed successfully")
        else:
            body = self._run(body, jobs, attempt)
        body = put(body, ("status", "replicatedJobsStatus"), list(_counts(body, self._own_jobs(body))))
        if body.get("status") != before.get("status"):
            self._desk.api.replace(body)

    def _own_jobs(self, body: Body) -> list[Body]:
        keys = sorted(key for key in self._desk.store.dependents(uid(body)) if key.kinds == kinds.JOB)
        found = (self._desk.store.get(key) for key in keys)
        return [job for job in found if job is not None and not is_deleting(job)]

    def _remove(self, jobs: Iterable[Body]) -> None:
        for job in jobs:
            self._desk.api.delete(key_of(job))

    def _after_failure(self, body: Body) -> Body:
        restarts = number(body, "status", "restarts")
        if restarts < number(body, "spec", "failurePolicy", "maxRestarts"):
            return put(body, ("status", "restarts"), restarts + 1)
        reason = "ReachedMaxRestarts" if mapping(body, "spec", "failurePolicy") else "FailedJobs"
        return self._condition(body, "Failed", reason, "jobset failed due to one or more job failures")

    def _run(self, body: Body, jobs: Sequence[Body], attempt: str) -> Body:
        suspended, there = flag(body, "spec", "suspend"), {job["metadata"]["name"]: job for job in jobs}
        for job in _wanted(body, attempt):
            live = there.get(job["metadata"]["name"])
            if live is None:
                if self._desk.store.get(key_of(job)) is None:  # a Job of the attempt before may still be leaving
                    self._desk.api.create(job)
            elif not _is_over(live) and flag(live, "spec", "suspend") is not suspended:
                self._desk.api.replace(put(live if suspended else _resumed(live, job), ("spec", "suspend"), suspended))
        if suspended:
            return self._condition(body, "Suspended", "SuspendedJobs", "jobset is suspended")
        if holds(body, "Suspended"):
            return self._condition(body, "Suspended", "ResumeJobs", "jobset is resumed", status="False")
        return body

    def _condition(self, body: Body, kind: str, reason: str, message: str, *, status: str = "True") -> Body:
        new = {"type": kind, "status": status, "reason": reason, "message": message}
        return with_condition(body, new, self._desk.instant)


def _is_over(job: Body) -> bool:
    return holds(job, "Complete") or holds(job, "Failed")


def _has_succeeded(body: Body, jobs: Sequence[Body]) -> bool:
    named = at(body, "spec", "successPolicy", "targetReplicatedJobs", default=())
    counted = [entry for entry in items(body, "spec", "replicatedJobs") if not named or entry["name"] in named]
    wanted = {job for entry in counted for job in _names(body, entry)}
    done = {job["metadata"]["name"] for job in jobs if holds(job, "Complete")} & wanted
    return bool(done) if text(body, "spec", "successPolicy", "operator") == "Any" else done == wanted


def _names(body: Body, entry: Body) -> list[str]:
    stem = f"{body['metadata']['name']}-{entry['name']}"
    return [f"{stem}-{index}" for index in range(number(entry, "replicas", default=1))]


def _wanted(body: Body, attempt: str) -> Iterator[dict[str, Any]]:
    """The Jobs of a JobSet as they are made."""
    for entry in items(body, "spec", "replicatedJobs"):
        for index, name in enumerate(_names(body, entry)):
            marks = {
                f"{_DOMAIN}/jobset-name": body["metadata"]["name"],
                f"{_DOMAIN}/replicatedjob-name": str(entry["name"]),
                f"{_DOMAIN}/job-index": str(index),
                _ATTEMPT: attempt,
            }
            spec = dict(mapping(entry, "template", "spec"))
            template = mapping(spec, "template")
            pod_labels = {**mapping(template, "metadata", "labels"), **marks}
            pod_notes = {**mapping(template, "metadata", "annotations"), **marks}
            meta = {**mapping(template, "metadata"), "labels": pod_labels, "annotations": pod_notes}
            pod = {**mapping(template, "spec"), "subdomain": body["metadata"]["name"]}
            yield {
                "apiVersion": kinds.JOB[0],
                "kind": kinds.JOB[1],
                "metadata": {
                    "name": name,
                    "namespace": body["metadata"]["namespace"],
                    "labels": {**mapping(entry, "template", "metadata", "labels"), **marks},
                    "annotations": {**mapping(entry, "template", "metadata", "annotations"), **marks},
                    "ownerReferences": [controller_reference(body)],
                },
                "spec": {**spec, "suspend": flag(body, "spec", "suspend"), "template": {"metadata": meta, "spec": pod}},
            }


def _resumed(live: Body, wanted: Mapping[str, Any]) -> Body:
    """A Job with the parts of its template that may have changed while its JobSet was suspended."""
    for part in ("labels", "annotations"):
        path = ("spec", "template", "metadata", part)
        live = put(live, path, {**at(live, *path, default={}), **at(wanted, *path, default={})})
    for field in _OF_A_RESUME:
        path = ("spec", "template", "spec", field)
        value = at(wanted, *path)
        live = drop(live, path) if value is None else put(live, path, value)
    return live


def _counts(body: Body, jobs: Sequence[Body]) -> Iterator[dict[str, Any]]:
    for entry in items(body, "spec", "replicatedJobs"):
        own = [job for job in jobs if job["metadata"]["name"] in _names(body, entry)]
        yield {
            "name": entry["name"],
            "active": sum(number(job, "status", "active") > 0 for job in own),
            "ready": sum(number(job, "status", "ready") > 0 for job in own),
            "succeeded": sum(holds(job, "Complete") for job in own),
            "failed": sum(holds(job, "Failed") for job in own),
            "suspended": sum(flag(job, "spec", "suspend") for job in own),
        }
