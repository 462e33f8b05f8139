"""A Git repository that is checked out before a run starts: git-sync as an init container, into a folder of the pod.

What a job says reaches git-sync in variables, never as an argument, and is bounded to addresses and names of
revisions. It has no GPU, and as much CPU and memory as the job's own container: a pod with both asks for no more.

Source: kubernetes/git-sync, version 4: its variables, and the link of the repository's name to the checkout.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpuctl.k8s import names
from gpuctl.k8s.quantity import format_bytes
from gpuctl.model.job import GitCheckout
from gpuctl.render.devices import NO_GPUS
from gpuctl.render.owner import JobOwner, Spec

_VOLUME = "git"
_ROOT = "/git"
_FAILURES = 5
"""How often in a row it may fail, with ten seconds between, before the pod fails."""
_WITHOUT_RIGHTS: Spec = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def git_volume(git: GitCheckout) -> tuple[Spec, Spec]:
    """The volume with the checkout, and its mount in the job's container."""
    volume = {"name": _VOLUME, "emptyDir": {"sizeLimit": format_bytes(git.size_bytes)}}
    return volume, {"name": _VOLUME, "mountPath": git.path}


def git_container(owner: JobOwner, git: GitCheckout, resources: Spec) -> Spec:
    """The init container. `resources`: what the job's own container asks for besides GPUs."""
    container: dict[str, Any] = {
        "name": names.GIT_CONTAINER,
        "image": owner.project.cluster.cluster.git_sync,
        "imagePullPolicy": "IfNotPresent",
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "env": [*NO_GPUS, *_variables(git)],
        "securityContext": _WITHOUT_RIGHTS,
        "volumeMounts": [{"name": _VOLUME, "mountPath": _ROOT}],
    }
    if resources:
        container["resources"] = resources
    return container


def _variables(git: GitCheckout) -> Iterator[Spec]:
    told = {
        "GITSYNC_REPO": git.repository,
        "GITSYNC_REF": git.revision,
        "GITSYNC_ROOT": _ROOT,
        "GITSYNC_LINK": git.folder,
        "GITSYNC_DEPTH": "1",
        "GITSYNC_ONE_TIME": "true",
        "GITSYNC_MAX_FAILURES": str(_FAILURES),
    }
    yield from ({"name": name, "value": value} for name, value in told.items())
    if git.secret is not None:
        for name, key in (("GITSYNC_USERNAME", "username"), ("GITSYNC_PASSWORD", "password")):
            yield {"name": name, "valueFrom": {"secretKeyRef": {"name": git.secret, "key": key}}}
