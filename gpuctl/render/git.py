"""A Git repository that is checked out before a run starts: git-sync as an init container, into a folder of the pod.

Security: a job's values reach git-sync in variables, never as arguments, and are bounded to addresses and names of
revisions. git-sync has no GPU, and as much CPU and memory as the job's own container: a pod with both asks for no more.

With ssh, the key and the known hosts are files of a Secret, owned by root, that only git-sync sees: ssh accepts them
from a user who does not own them, and from root only if no other user may read them.

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
"""How often in a row git-sync may fail, at intervals of ten seconds, before the pod fails."""
_KEY_VOLUME = "git-ssh"
_KEYS = "/etc/git-secret"
_KEY_FILES = {"ssh-privatekey": "ssh", "known_hosts": "known_hosts"}
_WITHOUT_RIGHTS: Spec = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def git_volume(git: GitCheckout) -> tuple[Spec, Spec]:
    """The volume with the checkout, and its mount in the job's container."""
    volume = {"name": _VOLUME, "emptyDir": {"sizeLimit": format_bytes(git.size_bytes)}}
    return volume, {"name": _VOLUME, "mountPath": git.path}


def git_key_volume(owner: JobOwner, git: GitCheckout) -> list[Spec]:
    """The volume with the key, if one is needed."""
    if not git.is_by_ssh:
        return []
    mode = 0o400 if owner.job.container.run_as.user == 0 else 0o444
    items = [{"key": key, "path": path} for key, path in _KEY_FILES.items()]
    return [{"name": _KEY_VOLUME, "secret": {"secretName": git.secret, "items": items, "defaultMode": mode}}]


def git_container(owner: JobOwner, git: GitCheckout, resources: Spec) -> Spec:
    """The init container. `resources`: those of the job's own container besides GPUs."""
    container: dict[str, Any] = {
        "name": names.GIT_CONTAINER,
        "image": owner.project.cluster.cluster.git_sync,
        "imagePullPolicy": "IfNotPresent",
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "env": [*NO_GPUS, *_variables(git)],
        "securityContext": _WITHOUT_RIGHTS,
        "volumeMounts": [
            {"name": _VOLUME, "mountPath": _ROOT},
            *([{"name": _KEY_VOLUME, "mountPath": _KEYS, "readOnly": True}] if git.is_by_ssh else ()),
        ],
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
    if git.is_by_ssh:
        told |= {
            "GITSYNC_SSH": "true",
            "GITSYNC_SSH_KEY_FILE": f"{_KEYS}/ssh",
            "GITSYNC_SSH_KNOWN_HOSTS": "true",
            "GITSYNC_SSH_KNOWN_HOSTS_FILE": f"{_KEYS}/known_hosts",
            "GITSYNC_ADD_USER": "true",
        }
    yield from ({"name": name, "value": value} for name, value in told.items())
    if git.secret is not None and not git.is_by_ssh:
        for name, key in (("GITSYNC_USERNAME", "username"), ("GITSYNC_PASSWORD", "password")):
            yield {"name": name, "valueFrom": {"secretKeyRef": {"name": git.secret, "key": key}}}
