"""Why the pods of a run do not run, in the words of Kubernetes."""

from __future__ import annotations

from dataclasses import dataclass

FAILED_CREATE = "FailedCreate"
"""The server refuses to create the pods of a run, so that it has none."""
NO_POD = "NoPod"
"""A run has no pod, and nothing says why: the server refuses them, or one was lost and its successor is not there."""
TERMINATING = "Terminating"
"""A pod is being deleted and has not ended, and the run waits for its end."""
OWN_EXIT = "Error"
"""A container ended by itself with an exit code other than 0."""
ENDED_BY_OTHERS = frozenset({"OOMKilled", "UnexpectedAdmissionError", "Evicted"})
"""Reasons for which pods are ended from outside: out of memory, refused by a device plugin, evicted by the kubelet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodProblem:
    """What keeps a container or a whole pod from running. `reason`: one word of Kubernetes, as `kubectl` shows it.

    - `message`: the server's text, bounded in length and not yet made printable.
    - `exit_code`: of the container's last end.
    - `pod`, `container`: "" if the problem is not about one.
    - `before`: the container must end, or start, before the pod's own containers start.
    """

    reason: str
    message: str = ""
    pod: str = ""
    container: str = ""
    exit_code: int | None = None
    before: bool = False

    @property
    def status(self) -> str:
        """The reason as `kubectl` shows it in its column STATUS."""
        return f"Init:{self.reason}" if self.before else self.reason
