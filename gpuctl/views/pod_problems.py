"""Why a run's pods do not run, in a sentence, and what to do about it: one remedy for each reason of Kubernetes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuctl.diag.escapes import printable
from gpuctl.k8s.names import MAIN_CONTAINER
from gpuctl.model.pod_problem import PodProblem

_PULL = (
    "Check spec.image for a typing error, that the registry has the image, and that the namespace's ServiceAccount may "
    "pull it."
)
_NODE = "Look at the node with `kubectl describe pod`; deleting the pod has it made again."
_VOLUME = "A volume can't be mounted: check spec.volumes, that the claim is there, and that no other node holds it."
_CLAIM = "The claim gets no volume: check its storageClass and size in spec.volumes, and what the cluster offers."
_AGAIN = "Kubernetes makes it again, and that takes none of the job's retries."
REMEDIES: Mapping[str, str] = {
    "CrashLoopBackOff": "The command ends by itself: `gpuctl logs JOB --previous` shows its last words.",
    "CreateContainerConfigError": "Create the Secret or ConfigMap in the project's namespace, or correct its name in "
    "spec.env.",
    "CreateContainerError": "The container can't be made: check spec.command, spec.workingDir and spec.volumes.",
    "ErrImageNeverPull": "imagePullPolicy is Never and the node lacks the image: load it there, or set IfNotPresent.",
    "ErrImagePull": _PULL,
    "DeletionByTaintManager": "Its node has a taint that it does not tolerate, as one has that is lost. " + _AGAIN,
    "Error": "The command ended with an error: `gpuctl logs JOB` shows its last words.",
    "FailedCreate": "The server refuses its pods, and says by which rule: often Pod Security, a ResourceQuota, a "
    "LimitRange, a policy, a webhook. A run that began before a Pod Security level was raised needs a higher "
    "spec.runIndex.",
    "EvictionByEvictionAPI": "It was evicted, as `kubectl drain` does it. " + _AGAIN,
    "FailedAttachVolume": _VOLUME,
    "FailedBinding": _CLAIM,
    "FailedCreatePodSandBox": "The node's runtime or network refuses the pod. " + _NODE,
    "FailedMapVolume": _VOLUME,
    "FailedMount": _VOLUME,
    "FailedPrepareDynamicResources": "The node's driver can't prepare the GPUs that it was given. " + _NODE,
    "ImagePullBackOff": _PULL,
    "InvalidImageName": "spec.image is no image reference: correct it.",
    "NetworkNotReady": "The node has no network for pods yet. " + _NODE,
    "NoPod": "It has no pod now. Kubernetes makes the next one 10 s after one was lost, and later each time; or the "
    "server refuses it: the events that `gpuctl get JOB` shows say by which rule.",
    "OOMKilled": "It needed more memory than it may have: raise spec.resources.memory.",
    "PreemptionByScheduler": "kube-scheduler gave its place to a pod of a higher PriorityClass. " + _AGAIN,
    "ProvisioningFailed": _CLAIM,
    "RunContainerError": "The command can't be started: check spec.command, and that the image has it.",
    "Terminating": "The pod was deleted, and holds its GPUs until it has ended; then it is made again, or the job "
    "fails if it has no retries. If it does not end, look at its node and its finalizers with `kubectl describe pod`.",
    "TerminationByKubelet": "Its node ended it: it was short of memory or disk, or was shut down. " + _AGAIN,
    "Unschedulable": "kube-scheduler finds no node for it: its words say what is short, or which claim is not there.",
    "Unhealthy": "Its probe says no: check spec.probes; `gpuctl logs JOB` shows what it does.",
    "UnexpectedAdmissionError": "The node's device plugin refused a GPU: the log of that plugin says why.",
}
"""What to do, by reason. Reasons that are not here get `OTHERWISE`."""
OTHERWISE = _NODE
OTHER = "Other"


def known_reason(problem: PodProblem) -> str:
    """The reason if the table has it, else "Other": as a label of measurements it must have few values."""
    return problem.reason if problem.reason in REMEDIES else OTHER


def problem_text(problem: PodProblem) -> str:
    """`CrashLoopBackOff (container main of a-1-x, exit code 3): what the server says`, printable."""
    where = [f"container {problem.container}"] if problem.container else []
    where = [" of ".join([*where, problem.pod] if problem.pod else where)] if where or problem.pod else []
    if problem.exit_code is not None:
        where.append(f"exit code {problem.exit_code}")
    about = f" ({', '.join(where)})" if where else ""
    said = f": {problem.message.removesuffix('.')}" if problem.message else ""
    return printable(f"{problem.status}{about}{said}")


def remedy_of(problem: PodProblem) -> str:
    """What to do about a problem. For a container that is not the job's own, with that container's fields and log."""
    remedy = REMEDIES.get(problem.reason, OTHERWISE)
    if problem.container in {"", MAIN_CONTAINER}:
        return remedy
    mine = remedy.replace("gpuctl logs JOB", f"gpuctl logs JOB -c {printable(problem.container)}")
    return mine.replace("spec.", "its ")


def problem_form(problem: PodProblem | None) -> dict[str, Any] | None:
    """The JSON form."""
    if problem is None:
        return None
    return {
        "reason": problem.reason,
        "message": problem.message,
        "pod": problem.pod or None,
        "container": problem.container or None,
        "beforeStart": problem.before,
        "exitCode": problem.exit_code,
        "remedy": remedy_of(problem),
    }
