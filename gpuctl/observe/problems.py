"""Why a pod does not run: read from its status, as the kubelet and kube-scheduler write it.

It decides only how a run that does not start is called. Reasons that are no words of letters and digits are left out,
and messages are cut, as both come from outside.

Source: pkg/kubelet/images and pkg/kubelet/kuberuntime (reasons of waiting containers), Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, islice
from typing import Any

from gpuctl.k8s.objects import condition, instant, is_deleting, items, mapping, number, text
from gpuctl.k8s.suspension import is_suspended
from gpuctl.k8s.workload_table import OF_JOB
from gpuctl.model.pod_problem import FAILED_CREATE, NO_POD, TERMINATING, PodProblem
from gpuctl.model.state import Body
from gpuctl.model.units import Instant

LONGEST_MESSAGE = 500
_CUT = " [...] "
_SHOWN_END = 150
"""How much is kept of the end of a cut message: a webhook puts its reason there."""
_LONGEST_REASON = 64
_MOST_CONTAINERS = 32
_ORDINARY = frozenset({"", "ContainerCreating", "PodInitializing"})
"""Reasons of containers that are starting normally."""
UNSCHEDULABLE = "Unschedulable"
_WORST_FIRST = (
    FAILED_CREATE, NO_POD, "UnexpectedAdmissionError", "CreateContainerConfigError", "CreateContainerError",
    "InvalidImageName", "ErrImageNeverPull", "ImagePullBackOff", "ErrImagePull", "RunContainerError", "OOMKilled",
    "CrashLoopBackOff", UNSCHEDULABLE, "SchedulingGated", "Error",
)  # fmt: skip
_RANK = {reason: rank for rank, reason in enumerate(_WORST_FIRST)}
_SCHEDULED, _READY = "PodScheduled", "Ready"
DISRUPTED = "DisruptionTarget"
"""The condition of a pod that the cluster ends: evicted, preempted, or on a node that is gone."""
REPLICA_FAILURE = "ReplicaFailure"
"""The condition of a Deployment for which the server refuses a pod."""


def problem_of(body: Body) -> PodProblem | None:
    """The worst problem of one pod; None for a pod that runs or is starting normally. Cost: O(containers), bounded.

    For a pod that was stopped from outside, that is the problem: its containers' exit codes are those of the signal.
    """
    name = text(body, "metadata", "name")
    found = worst(chain(_of_pod(name, body), _of_containers(name, body)))
    if found is None or not found.container or text(body, "status", "phase") != "Failed":
        return found
    disrupted = condition(body, DISRUPTED)
    if _is_word(text(disrupted, "reason")):
        said = one_line(text(disrupted, "message"))
        return replace(found, reason=text(disrupted, "reason"), message=said, exit_code=None)
    return replace(found, reason=TERMINATING, message="deleted", exit_code=None) if is_deleting(body) else found


def worst(problems: Iterable[PodProblem | None]) -> PodProblem | None:
    """The problem to report of several: first those that waiting does not solve; of equal ones the first by pod."""
    known = [problem for problem in problems if problem is not None]
    return min(known, key=lambda p: (_RANK.get(p.reason, 0), p.pod, p.container), default=None)


def of_refused_pods(workload: Body) -> PodProblem | None:
    """The problem of a released Job or Deployment that has no pod because the server refuses it.

    A Deployment has the server's message in a condition; for a Job only its events have it. Without the message it is
    not known that pods are refused: the Job controller replaces a lost pod only after ten seconds or more.
    """
    words = refusal_of(workload)
    if words:
        return PodProblem(reason=FAILED_CREATE, message=words)
    is_let_go = workload.get("kind") == "Job" and not is_suspended(OF_JOB, workload)
    if not is_let_go or not instant(workload, "status", "startTime"):
        return None
    status = mapping(workload, "status")
    uncounted = mapping(status, "uncountedTerminatedPods")
    counted = number(status, "active") or number(status, "terminating") or any(uncounted.values())
    only_resumed = all(entry.get("type") == "Suspended" for entry in items(status, "conditions"))
    return PodProblem(reason=NO_POD) if only_resumed and not counted else None


def refusal_of(deployment: Body) -> str:
    """The server's message for refusing a Deployment's pods, cut; "" if it refuses none."""
    return one_line(text(condition(deployment, REPLICA_FAILURE), "message"))


def unready_since_ms(body: Body) -> Instant | None:
    """Since when a running pod is not ready though one of its containers has started; None if it is ready.

    A container whose `startup` probe has not succeeded yet has not started. Cost: O(containers), bounded.
    """
    if text(body, "status", "phase") != "Running" or not any(map(_is_unready, _containers(body))):
        return None
    return next((instant(entry, "lastTransitionTime") for entry in _unready(body)), None)


def _containers(body: Body) -> Iterator[Mapping[str, Any]]:
    for key in ("initContainerStatuses", "containerStatuses"):
        yield from islice(items(body, "status", key), _MOST_CONTAINERS)


def _is_unready(status: Mapping[str, Any]) -> bool:
    has_started = status.get("started") is not False
    return has_started and status.get("ready") is False and "running" in mapping(status, "state")


def _unready(body: Body) -> Iterator[Mapping[str, Any]]:
    conditions = items(body, "status", "conditions")
    return (entry for entry in conditions if entry.get("type") == _READY and entry.get("status") == "False")


def kept_status(body: Body) -> dict[str, Any]:
    """The parts of a pod's status that `problem_of` and `unready_since_ms` read, and how often its containers were
    restarted.

    Empty for a healthy pod. Applying it to its own result changes nothing.
    """
    unready = unready_since_ms(body) is not None
    again = any(
        number(each, "restartCount") for each in islice(items(body, "status", "containerStatuses"), _MOST_CONTAINERS)
    )
    is_wrong = again or unready or bool(condition(body, DISRUPTED))
    if not is_wrong and not any(True for _ in chain(_of_pod("", body), _of_containers("", body))):
        return {}
    kept: dict[str, Any] = {}
    for entry in items(body, "status", "conditions"):
        if entry.get("type") == DISRUPTED and entry.get("status") == "True":
            told = {key: one_line(text(entry, key)) for key in ("reason", "message")}
            kept.setdefault("conditions", []).append({"type": DISRUPTED, "status": "True", **told})
        if entry.get("type") == _SCHEDULED and entry.get("status") == "False":
            told = {key: one_line(text(entry, key)) for key in ("reason", "message")}
            kept.setdefault("conditions", []).append({"type": _SCHEDULED, "status": "False", **told})
    for entry in _unready(body) if unready else ():
        since = text(entry, "lastTransitionTime")
        kept.setdefault("conditions", []).append({"type": _READY, "status": "False", "lastTransitionTime": since})
    for key in ("reason", "message"):
        if text(body, "status", key):
            kept[key] = one_line(text(body, "status", key))
    for key in ("initContainerStatuses", "containerStatuses"):
        found = [_kept_container(each) for each in islice(items(body, "status", key), _MOST_CONTAINERS)]
        if any(found):
            kept[key] = found
    return kept


def _of_pod(name: str, body: Body) -> Iterator[PodProblem]:
    reason = text(body, "status", "reason")
    if text(body, "status", "phase") == "Failed" and _is_word(reason):
        yield PodProblem(reason=reason, message=one_line(text(body, "status", "message")), pod=name)
    for entry in items(body, "status", "conditions"):
        why = text(entry, "reason")
        if entry.get("type") == _SCHEDULED and entry.get("status") == "False" and _is_word(why):
            yield PodProblem(reason=why, message=one_line(text(entry, "message")), pod=name)


def _of_containers(name: str, body: Body) -> Iterator[PodProblem]:
    own, others = (
        list(islice(items(body, "status", key), _MOST_CONTAINERS))
        for key in ("containerStatuses", "initContainerStatuses")
    )
    has_begun = any(_has_begun(each) for each in own)
    for is_other, status in chain(((True, each) for each in others), ((False, each) for each in own)):
        waiting, ended = mapping(status, "state", "waiting"), mapping(status, "state", "terminated")
        last = ended or mapping(status, "lastState", "terminated")
        code = number(last, "exitCode") if last else None
        reason, said = text(waiting, "reason"), text(waiting, "message")
        if ended and is_other and has_begun:
            continue  # a sidecar that was stopped when the pod had ended, or will be restarted soon
        if ended:
            reason, said = (text(ended, "reason") or "Error" if code else ""), _last_line(ended)
        elif reason == "CrashLoopBackOff":  # its message counts seconds, which change
            reason, said = ("OOMKilled" if text(last, "reason") == "OOMKilled" else reason), _last_line(last)
        if reason not in _ORDINARY and _is_word(reason):
            container = one_line(text(status, "name"))
            yield PodProblem(
                reason=reason,
                message=one_line(said),
                pod=name,
                container=container,
                exit_code=code,
                before=is_other and not has_begun,
            )


def _has_begun(status: Mapping[str, Any]) -> bool:
    """Whether the container runs, or has run."""
    now = mapping(status, "state")
    return "running" in now or "terminated" in now or "terminated" in mapping(status, "lastState")


def _kept_container(status: Mapping[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {"name": one_line(text(status, "name"))}
    if restarts := number(status, "restartCount"):
        kept["restartCount"] = restarts
    waiting = mapping(status, "state", "waiting")
    if "running" in mapping(status, "state"):
        kept["state"] = {"running": {}}
    if _is_unready(status):
        kept["ready"] = False
    if waiting:
        kept["state"] = {"waiting": {key: one_line(text(waiting, key)) for key in ("reason", "message")}}
    for where in ("state", "lastState"):
        ended = mapping(status, where, "terminated")
        if ended:
            told = {"reason": one_line(text(ended, "reason")), "message": one_line(_last_line(ended))}
            kept[where] = {"terminated": {**told, "exitCode": number(ended, "exitCode")}}
    return kept


def _last_line(ended: Mapping[str, Any]) -> str:
    """The last line that a container left: of its termination message, else of the end of its log."""
    return next((line for line in reversed(text(ended, "message").splitlines()) if line.strip()), "")


def one_line(said: str) -> str:
    """A message on one line. A long one is cut to its beginning and end, with `[...]` between. Applying it to its own
    result changes nothing."""
    line = " ".join(said.split())
    if len(line) <= LONGEST_MESSAGE:
        return line
    begin = line[: LONGEST_MESSAGE - _SHOWN_END - len(_CUT)].rstrip()
    return f"{begin}{_CUT}{line[-_SHOWN_END:].lstrip()}"


def _is_word(reason: str) -> bool:
    return 0 < len(reason) <= _LONGEST_REASON and reason.isascii() and reason.isalnum()
