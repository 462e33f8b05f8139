"""The writes to the cluster, complete in every detail: applying a plan makes no choices."""

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
    """One write. `project` and `stage` group it: if a project's ledger or namespace can't be written, the project's
    later stages are skipped; after another failure, those for the same namespace and name.

    - `reason`: why, in a word or two for people (missing, drift: spec.suspend, no longer declared).
    - `may_rest`: the write only repairs fields that matter to no other team, so it may wait if they are changed back
      again and again.
    - `frees`: the write may take GPUs back from a run, so it never waits long.
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
    """Changes in the order in which they are made, the refusals of guards, and how many objects are as wanted.

    `notices`: differences from the declarations that no write can remove. `kept`: projects that are no longer declared
    and stay.
    """

    changes: tuple[Change, ...] = ()
    refusals: tuple[Diagnostic, ...] = ()
    unchanged: int = 0
    notices: tuple[Diagnostic, ...] = ()
    kept: frozenset[ProjectName] = frozenset()


class OutcomeStatus(StrEnum):
    """The result of a change. CONFLICT: the object had changed since the plan was made; the next cycle reads it
    again."""

    APPLIED = "applied"
    CONFLICT = "conflict"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one change; outcomes have the order of the changes. `refused`: the server will never take this
    write."""

    change: Change
    status: OutcomeStatus
    error: str = ""
    refused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyResult:
    """All outcomes; `writes`: how many requests changed something."""

    outcomes: tuple[Outcome, ...] = ()

    @property
    def writes(self) -> int:
        """Requests that took effect."""
        return sum(o.status is OutcomeStatus.APPLIED for o in self.outcomes)
