"""The reconciler's state as models: the one source of `schemas/gpuctl.dev/v1/status.json`.

The leader publishes this form in the cluster, every replica serves it at `/status`, and `gpuctl status` reads it.
Fields are only ever added, so a reader ignores those that it does not know.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from gpuctl.views.plan_form import DIALECT, opened

ADDRESS = "https://gpuctl.dev/schemas/gpuctl.dev/v1/status.json"


class StatusForm(BaseModel):
    """What all parts of the status have in common: each field is always there. Times are RFC 3339, in UTC."""

    model_config = ConfigDict(
        extra="ignore", strict=True, frozen=True, alias_generator=to_camel, populate_by_name=True, defer_build=True
    )


class ProblemForm(StatusForm):
    """Something that stands wrong, as the log says it."""

    event: str = Field(description="What kind of thing it is, in a word: invalid, refused, failed, source, ...")
    level: Literal["warning", "error"] = Field(description="An error keeps the status from being ready.")
    code: str = Field(description="The code, for `gpuctl explain CODE`; empty where there is none.")
    message: str = Field(description="What is wrong.")
    place: str = Field(description="The file, line and column; or the object; empty where there is neither.")
    help: str = Field(description="What to do; empty where the code says it.")


class CommitForm(StatusForm):
    """The commit that is followed, and the one that is in force."""

    branch: str = Field(description="The branch that is followed.")
    head: str | None = Field(description="The newest commit that was read; null: none yet.")
    applied: str | None = Field(description="The commit that the cluster was last made to match; null: none yet.")
    applied_at: str | None = Field(description="Since when; null: not by this leader.")


class ReplicaForm(StatusForm):
    """The process that says this."""

    identity: str = Field(description="Its name; empty on the embedded cluster.")
    role: Literal["leader", "standby"] = Field(description="Whether it may write.")
    leader: str = Field(description="The name of the leader, as far as is known; empty if there is none.")


class HeldForm(StatusForm):
    """A part of the declarations that does not follow the newest commit."""

    project: str | None = Field(description="The project; null: the cluster's own files, or the whole commit.")
    state: Literal["keptBack", "pinned", "window"] = Field(
        description="keptBack: enforced as of an earlier commit. pinned: no good commit is known, so it is left alone. "
        "window: a freeze window holds the whole commit."
    )
    commit: str | None = Field(description="The commit that is in force for it; null: none.")
    problems: list[ProblemForm] = Field(description="Why: the mistakes that hold it back.")


class RefusalForm(StatusForm):
    """Something that a guard refuses until a commit confirms it."""

    code: str = Field(description="The code of the guard.")
    message: str = Field(description="What is refused.")
    confirm: str = Field(description="The line that a commit's message has to end with.")


class FrozenForm(StatusForm):
    """A part that a person froze, so that nothing of it is written; or a freeze window that is open, for commits."""

    project: str | None = Field(description="The project; null: the whole cluster.")
    by: str = Field(description="The user who froze it; empty: a freeze window that is declared in Git.")
    reason: str = Field(description="Why.")
    since: str | None = Field(description="Since when; null: not known.")
    until: str | None = Field(description="When it ends by itself; null: when a person ends it.")


class PoolForm(StatusForm):
    """A pool that has fewer nodes than are declared."""

    pool: str = Field(description="The pool.")
    declared: int = Field(description="How many nodes are declared.")
    usable: int = Field(description="How many of them are there, ready and not cordoned.")
    missing: list[str] = Field(description="Some of the others.")


class PredictionForm(StatusForm):
    """A commit that did something else than was predicted."""

    commit: str = Field(description="The commit.")
    at: str = Field(description="When it was compared.")
    result: Literal["explained", "bug"] = Field(description="Whether each difference has a cause that was observed.")
    differences: list[str] = Field(description="Some of the differences, with their causes.")


class GitForm(StatusForm):
    """How the repository was read."""

    last_good_fetch: str | None = Field(description="When it was last read well, as of `writtenAt`; null: never.")


class CycleForm(StatusForm):
    """How the cluster was made to match."""

    last_good_cycle: str | None = Field(description="When a cycle last went well, as of `writtenAt`; null: never.")


class StatusV1(StatusForm):
    """The reconciler's state."""

    api_version: Literal["gpuctl.dev/v1"] = Field(description="The version of this form.")
    kind: Literal["Status"] = Field(description="Always Status.")
    cluster: str | None = Field(description="The cluster's name; null: not known yet.")
    version: str = Field(description="The version of gpuctl.")
    written_at: str = Field(
        description="When this was written: once something other than a time has changed, and every five minutes."
    )
    ready: bool = Field(description="Whether the newest commit is applied whole and nothing stands wrong.")
    why_not: list[str] = Field(description="What keeps it from being ready, a sentence each.")
    replica: ReplicaForm = Field(description="The process that says this.")
    commit: CommitForm = Field(description="Commits.")
    git: GitForm = Field(description="The repository.")
    cycle: CycleForm = Field(description="The cluster.")
    held: list[HeldForm] = Field(description="Parts that do not follow the newest commit.")
    refusals: list[RefusalForm] = Field(description="What waits for a confirmation.")
    frozen: list[FrozenForm] = Field(description="Parts that nothing is written of.")
    pools: list[PoolForm] = Field(description="Pools that are short of nodes.")
    predictions: list[PredictionForm] = Field(description="Commits that did something else than was predicted.")
    problems: list[ProblemForm] = Field(description="All else that stands wrong.")
    left_out: int = Field(description="How many entries of the lists above were left out to bound the size.")


def parsed(document: bytes) -> StatusV1:
    """Read a status. Raises ValueError, with the first mistake, for anything else."""
    try:
        return StatusV1.model_validate_json(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"{place}: {first['msg']}" if place else first["msg"]) from error


def schema() -> dict[str, Any]:
    """The JSON Schema. It allows unknown fields: later versions of gpuctl may add some."""
    made = StatusV1.model_json_schema(mode="validation")
    return {"$schema": DIALECT, "$id": ADDRESS, "title": "Status", **opened(made)}
