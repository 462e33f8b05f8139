"""Why pods of a run do not run, in the words of Kubernetes."""

from __future__ import annotations

from dataclasses import dataclass

FAILED_CREATE = "FailedCreate"
"""The server refuses the pods of a run, so that there is none."""
NO_POD = "NoPod"
"""A run has no pod, and nothing says why: the server refuses them, or one was lost and the next is still to come."""
TERMINATING = "Terminating"
"""A pod is being deleted and has not ended, and the run waits for that."""
OWN_EXIT = "Error"
"""A container ended by itself with another code than 0."""
ENDED_BY_OTHERS = frozenset({"OOMKilled", "UnexpectedAdmissionError", "Evicted"})
"""What ends pods that did not end by themselves: memory, a device plugin's refusal, the kubelet short of something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodProblem:
    """What keeps a container or a whole pod from running. `reason`: one word of Kubernetes, as `kubectl` shows it.

    `message` is what the server says of it, bounded in length and not yet made printable. `exit_code`: of the
    container's last end. `pod`, `container`: "" where it is not about one. `before`: the container is one that has to
    end, or to start, before the pod's own start.
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
