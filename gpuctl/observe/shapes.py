"""What a run's object says about itself: a Job, a Deployment, or another controller's object, all through one
interface.

Each answer comes from the object alone. What is remembered of its run is in `gpuctl/observe/workloads.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gpuctl.k8s.objects import condition, instant, mapping, number
from gpuctl.k8s.requests import Requests, requests_of
from gpuctl.k8s.suspension import is_at_rest, is_suspended, suspension_of
from gpuctl.k8s.workload_kinds import end_of, row_of, sum_of
from gpuctl.k8s.workload_table import Rows
from gpuctl.k8s.workloads import workers_of
from gpuctl.model.state import Body, RunPhase
from gpuctl.model.units import Instant
from gpuctl.model.workload_kind import Suspension, WorkloadKind
from gpuctl.observe.endings import NO_ENDINGS, Endings, endings_of
from gpuctl.observe.pods import Pod

_SUCCEEDED = ("Complete", "SuccessCriteriaMet")
_FAILED = ("Failed", "FailureTarget")
"""Of both pairs, the second condition is set when the outcome is certain, the first when the last pod is gone."""


class Shape(Protocol):
    """The questions to the object of a run, whichever controller makes its pods."""

    @property
    def body(self) -> Body:
        """The object."""
        ...

    @property
    def workers(self) -> int:
        """How many pods it asks for."""
        ...

    @property
    def by_index(self) -> bool:
        """Whether its pods are numbered, and the highest numbers are removed first when it asks for fewer."""
        ...

    @property
    def asks(self) -> Requests:
        """The requests of one worker."""
        ...

    @property
    def suspended(self) -> bool:
        """Whether it should have no pods."""
        ...

    @property
    def is_at_rest(self) -> bool:
        """Whether it is suspended, and its controller has seen that."""
        ...

    @property
    def pods_left(self) -> int:
        """The pods that are left by its own status. It and its pods are watched separately: it may know of some pods
        sooner."""
        ...

    @property
    def ends_by_pods(self) -> bool:
        """Whether a pod that has succeeded is not created again."""
        ...

    @property
    def has_restarted(self) -> bool:
        """Whether its status says that it has restarted, and so had begun."""
        ...

    @property
    def has_lost_pods(self) -> bool:
        """Whether its status says that some of its pods have ended and will be created again."""
        ...

    @property
    def outcome(self) -> RunPhase | None:
        """The final phase in its status; certain even while pods are left."""
        ...

    @property
    def ended_at_ms(self) -> Instant | None:
        """When it ended; None while its outcome is open."""
        ...

    def endings(self, named: Sequence[Pod]) -> Endings:
        """Which of its workers have ended for good, by the pods that name it."""
        ...


def shape_of(body: Body, rows: Rows) -> Shape:
    """The interface to an object: by the row of its kind, if that is another controller's."""
    row, suspension = row_of(body, rows), suspension_of(body, rows)
    if row is not None:
        return _Other(body, suspension, row)
    return (_Job if body.get("kind") == "Job" else _Deployment)(body, suspension)


def has_succeeded(body: Body, rows: Rows) -> bool:
    """Whether an object says that its run has succeeded, or is certain to."""
    return shape_of(body, rows).outcome is RunPhase.SUCCEEDED


@dataclass(frozen=True, slots=True)
class _Stoppable:
    """An object, and the way to stop it."""

    body: Body
    suspension: Suspension

    @property
    def suspended(self) -> bool:
        return is_suspended(self.suspension, self.body)

    @property
    def is_at_rest(self) -> bool:
        return is_at_rest(self.suspension, self.body)


@dataclass(frozen=True, slots=True)
class _Job(_Stoppable):
    by_index = True
    ends_by_pods = True
    has_restarted = False

    @property
    def workers(self) -> int:
        return workers_of(self.body)

    @property
    def asks(self) -> Requests:
        return _of_template(self.body)

    @property
    def pods_left(self) -> int:
        return _told(self.body, "active", "terminating")

    @property
    def has_lost_pods(self) -> bool:
        return number(self.body, "status", "failed") > 0 or bool(
            mapping(self.body, "status", "uncountedTerminatedPods").get("failed")
        )

    @property
    def outcome(self) -> RunPhase | None:
        if any(condition(self.body, kind) for kind in _SUCCEEDED):
            return RunPhase.SUCCEEDED
        failed = self._failed
        if not failed:
            return None
        return RunPhase.TIMED_OUT if failed.get("reason") == "DeadlineExceeded" else RunPhase.FAILED

    @property
    def ended_at_ms(self) -> Instant | None:
        return instant(self.body, "status", "completionTime") or instant(self._failed, "lastTransitionTime")

    @property
    def _failed(self) -> Body:
        return next((found for kind in _FAILED if (found := condition(self.body, kind))), {})

    def endings(self, named: Sequence[Pod]) -> Endings:
        return endings_of(self.body, named)


@dataclass(frozen=True, slots=True)
class _Deployment(_Stoppable):
    """A Deployment: it never ends, and restarts its pods without reporting it."""

    by_index = False
    ends_by_pods = False
    has_restarted = False
    has_lost_pods = False
    outcome = None
    ended_at_ms = None

    @property
    def workers(self) -> int:
        return workers_of(self.body)

    @property
    def asks(self) -> Requests:
        return _of_template(self.body)

    @property
    def pods_left(self) -> int:
        return _told(self.body, "replicas", "terminatingReplicas")

    def endings(self, named: Sequence[Pod]) -> Endings:  # noqa: ARG002 - each of its pods is made again
        return NO_ENDINGS


@dataclass(frozen=True, slots=True)
class _Other(_Stoppable):
    """Another controller's object, read by the row of its kind."""

    row: WorkloadKind
    by_index = False
    pods_left = 0
    has_lost_pods = False

    @property
    def workers(self) -> int:
        return sum_of(self.row, mapping(self.body, "spec")).workers

    @property
    def asks(self) -> Requests:
        return sum_of(self.row, mapping(self.body, "spec")).worker

    @property
    def ends_by_pods(self) -> bool:
        return self.row.ends

    @property
    def has_restarted(self) -> bool:
        return bool(self.row.restarts and number(self.body, *self.row.restarts))

    @property
    def outcome(self) -> RunPhase | None:
        end = end_of(self.row, self.body)
        return None if end is None else RunPhase.SUCCEEDED if end.succeeded else RunPhase.FAILED

    @property
    def ended_at_ms(self) -> Instant | None:
        end = end_of(self.row, self.body)
        return None if end is None else end.at_ms

    def endings(self, named: Sequence[Pod]) -> Endings:  # noqa: ARG002 - its status alone tells of ends
        return NO_ENDINGS


def _of_template(body: Body) -> Requests:
    return requests_of(mapping(body, "spec", "template", "spec"))


def _told(body: Body, *counts: str) -> int:
    return sum(number(body, "status", field) for field in counts)
