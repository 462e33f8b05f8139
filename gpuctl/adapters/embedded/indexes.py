"""Failures of a Job's workers: how many, of which index, and when the next pod may be made.

With `backoffLimitPerIndex` each index has its own count and delay, from each start of the Job on; without it the delay
is the Job's. Source: pkg/controller/job/{backoff_utils,indexed_job_utils}.go, Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpuctl.adapters.embedded.bodies import at, put
from gpuctl.adapters.embedded.controller import Desk
from gpuctl.k8s.names import INDEX_FAILURES_ANNOTATION, WORKER_INDEX_LABEL
from gpuctl.k8s.objects import annotations_of, number, uid
from gpuctl.k8s.workloads import failed_indexes
from gpuctl.model.state import Body
from gpuctl.model.units import Instant

_FAILED = "failed"
"""The fact about a Job: when a pod of it last failed."""


def worker_index(pod: Body) -> int | None:
    """The completion index of an Indexed Job's pod."""
    index = annotations_of(pod).get(WORKER_INDEX_LABEL)
    return None if index is None else int(index)


def ranges(indexes: Iterable[int]) -> str:
    """The indexes in the form of `status.completedIndexes`: "0,2-4"."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and runs[-1][1] == index - 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def note_failure(desk: Desk, job: Body, index: int | None) -> Body:
    """The Job with one more failure. An index without failures left is among the failed ones."""
    job = put(job, ("status", "failed"), number(job, "status", "failed") + 1)
    limit = at(job, "spec", "backoffLimitPerIndex")
    if limit is None or index is None:
        desk.store.set_fact(uid(job), _FAILED, desk.instant)
        return job
    known = _counts(desk, job)
    failures = known.get(str(index), (0, 0))[0] + 1
    desk.store.set_fact(uid(job), _FAILED, {**known, str(index): (failures, desk.instant)})
    if failures <= int(limit):
        return job
    return put(job, ("status", "failedIndexes"), ranges(failed_indexes(job) | {index}))


def failures_of(desk: Desk, job: Body, index: int) -> dict[str, str]:
    """The annotation of a new pod with the number of its index's failures."""
    if at(job, "spec", "backoffLimitPerIndex") is None:
        return {}
    return {INDEX_FAILURES_ANNOTATION: str(_counts(desk, job).get(str(index), (0, 0))[0])}


def forget_failures(desk: Desk, job: Body) -> None:
    """Forget the failures of single indexes: the pods that told of them are gone."""
    if at(job, "spec", "backoffLimitPerIndex") is not None:
        desk.store.set_fact(uid(job), _FAILED, None)


def backoff_until(desk: Desk, job: Body, index: int | None) -> Instant:
    """The instant from which the next pod may be made after failures: the delay doubles with each."""
    if at(job, "spec", "backoffLimitPerIndex") is None:
        failures, last = number(job, "status", "failed"), desk.store.fact(uid(job), _FAILED)
    else:
        failures, last = _counts(desk, job).get(str(index), (0, None))
    if not failures or last is None:
        return 0
    return int(last) + min(desk.timings.backoff_ms << min(failures - 1, 16), desk.timings.backoff_limit_ms)


def _counts(desk: Desk, job: Body) -> dict[str, tuple[int, Instant]]:
    """For each index the number of its failures since the Job's start, and the instant of the last."""
    return dict(desk.store.fact(uid(job), _FAILED, {}))
