"""What is to be done to the cluster, complete: applying a plan makes no choices."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.model.ids import ObjectRef, ProjectName
from gpuctl.model.state import Body


class Action(StrEnum):
    """CREATE and UPDATE are one server-side apply of `body`; DELETE is by uid and resource version."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One write. `project` and `stage` group it: when a project's ledger or namespace can't be written, its later
    stages are skipped; after another failure those of the same namespace and name.

    `reason` says why in a word or two for people (missing, drift: spec.suspend, no longer declared). `may_rest`: it
    only puts fields right that matter to no other team, so that it may wait where they are changed back each time.
    `frees`: it may take GPUs back from a run, so that it never waits long.
    """

    action: Action
    ref: ObjectRef
    body: Body | None = None
    uid: str = ""
    resource_version: str = ""
    project: ProjectName | None = None
    stage: int = 0
    reason: str = ""
    may_rest: bool = False
    frees: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Changes in the order they are made, what a guard refused (as diagnostics), and how many objects are as wanted.

    `notices` are what is otherwise than declared and can't be changed by a write. `kept`: projects that are declared no
    more, and stay.
    """

    changes: tuple[Change, ...] = ()
    refusals: tuple[Diagnostic, ...] = ()
    unchanged: int = 0
    notices: tuple[Diagnostic, ...] = ()
    kept: frozenset[ProjectName] = frozenset()


class OutcomeStatus(StrEnum):
    """What became of a change. CONFLICT: the object was not as the plan saw it; the next cycle looks again."""

    APPLIED = "applied"
    CONFLICT = "conflict"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One outcome a change, in the same order. `refused`: the server won't take this write, now or later."""

    change: Change
    status: OutcomeStatus
    error: str = ""
    refused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyResult:
    """All outcomes; `writes` is how many requests changed something."""

    outcomes: tuple[Outcome, ...] = ()

    @property
    def writes(self) -> int:
        """Requests that took effect."""
        return sum(o.status is OutcomeStatus.APPLIED for o in self.outcomes)
