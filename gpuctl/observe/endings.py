"""Workers that have ended for good, by their pods: about a second before the Job's status reports it.

kube-scheduler and the kubelet count a GPU as free as soon as its pod's phase is Succeeded or Failed; they do not look
at single containers. The Job controller gathers the ends of pods for a second before it writes them to the Job. In
between, an ended worker holds nothing, and a run whose workers have all ended is STOPPING, with the outcome that its
Job will report. That the run has finished is still read from its Job, and so is everything that follows from it.

A GPU that a retry will need is never taken as free:

- A pod that succeeded is not created again; neither is one of a completed index, even if the pod is gone.
- A pod that failed is created again while its Job has retries left, so its worker holds its place until the Job says
  more. The worker has ended for good only if the Job allows no retry (`backoffLimit: 0`) and the failure counts: by the
  Job's `podFailurePolicy`, one that the cluster caused (`DisruptionTarget`) does not.
- The end of a pod that is being deleted is for its Job to report: a pause may have deleted it.
- A worker with a live pod has not ended, whatever other pods it had.

Security: a tenant of the namespace may add pods to a Job, and remove its own. A pod's own report is believed only as
far as the Job's status, which tenants can't write, has room for it:

- The status lists the pod as ended (`uncountedTerminatedPods`), or it still counts an active pod for which no live pod
  exists. If more pods claim to be such a one than the status counts, none is believed.
- A pod that was on no node, or asked for fewer GPUs, slices or claims than the Job's template, ends nothing. A live pod
  of that kind is no worker (see `pods`), but the status may count it as active.

Where a Job has a successPolicy, some of its workers need not succeed: how the run ends is for its Job to report. But a
Job that reports a failure has succeeded if workers that ended by themselves met the policy. Example: worker 0 succeeds,
and the Job controller stops worker 1. Before the controller has written that the criteria are met, somebody writes an
annotation of the Job, so its own write meets a conflict. It looks again, finds that worker 1 has failed, and checks for
failures first (Kubernetes 1.36, BackoffLimitExceeded). If worker 1 fails first, the controller stops worker 0: its pod
is being deleted, and ends nothing, though it exits with 0.

A Deployment creates each of its pods again, so its workers never end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from gpuctl.k8s.objects import items, mapping, number, text, texts
from gpuctl.k8s.workload_table import BUILT_IN
from gpuctl.k8s.workloads import completed_indexes, indexes_of
from gpuctl.model.state import Body, RunPhase
from gpuctl.observe.pods import Pod, template_devices


@dataclass(frozen=True, slots=True, kw_only=True)
class Endings:
    """The indexes of a run's workers that have ended for good. `ends_as`: how the run ends, once all of them have.
    `is_policy_met`: enough workers have succeeded to meet its successPolicy, even if its Job reports a failure."""

    workers: frozenset[int] = frozenset()
    ends_as: RunPhase | None = None
    is_policy_met: bool = False


NO_ENDINGS = Endings()


def endings_of(job: Body, pods: Sequence[Pod]) -> Endings:
    """Which workers of a Job have ended. `pods`: all pods that name it as their controller. Cost: O(pods)."""
    completed = completed_indexes(job)
    if not completed and all(pod.live for pod in pods):
        return NO_ENDINGS
    indexed = text(job, "spec", "completionMode") == "Indexed"
    workers = max(number(job, "spec", "parallelism", default=1), number(job, "spec", "completions", default=1))
    if workers > 1 and not indexed:
        return NO_ENDINGS
    final = number(job, "spec", "backoffLimit", default=1) == 0
    alive = {pod.index for pod in pods if pod.live}
    open_ = frozenset(range(workers)) - completed - alive
    over = [pod for pod in _as_made_by(job, pods) if pod.succeeded or (final and pod.failed and not pod.disrupted)]
    over = _believed(job, [pod for pod in over if pod.index in open_], pods)
    well = {pod.index for pod in over if pod.succeeded} | completed
    ended = frozenset(index for index in {pod.index for pod in over} | completed if index < workers) - alive
    rules = list(items(job, "spec", "successPolicy", "rules"))
    if rules:
        made = {pod.index for pod in _as_made_by(job, pods) if pod.succeeded}
        is_met = any(_is_met(rule, made & completed) for rule in rules)
        return Endings(workers=ended, is_policy_met=is_met) if ended or is_met else NO_ENDINGS
    if len(ended) < workers:
        return Endings(workers=ended) if ended else NO_ENDINGS
    return Endings(workers=ended, ends_as=RunPhase.SUCCEEDED if ended <= well else RunPhase.FAILED)


def _is_met(rule: Body, succeeded: AbstractSet[int]) -> bool:
    """Whether a rule of a successPolicy is met: by all indexes that it names, or by enough of these or of any."""
    named = indexes_of(text(rule, "succeededIndexes")) if "succeededIndexes" in rule else succeeded
    least = number(rule, "succeededCount", default=len(named))
    return 0 < least <= len(named & succeeded)


def _as_made_by(job: Body, pods: Iterable[Pod]) -> Iterator[Pod]:
    """The pods that were on a node, are not being deleted, and ask for all devices that the Job's template asks for."""
    asked = template_devices(job, BUILT_IN)
    return (pod for pod in pods if pod.bound and not pod.leaving and pod.asks.covers(asked))


def _believed(job: Body, ended: Sequence[Pod], pods: Iterable[Pod]) -> list[Pod]:
    """The ended pods for which the Job's status has room."""
    uncounted = mapping(job, "status", "uncountedTerminatedPods")
    told = {uid for outcome in ("succeeded", "failed") for uid in texts(uncounted, outcome)}
    missing = number(job, "status", "active") + number(job, "status", "terminating") - sum(pod.live for pod in pods)
    untold = {pod.index for pod in ended if pod.uid not in told}
    return [pod for pod in ended if pod.uid in told or len(untold) <= missing]
