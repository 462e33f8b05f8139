"""The choices that a cluster makes for its scheduling and its security, as they are declared: part of `spec_v1`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from gpuctl.compile.fields_v1 import AbsolutePath, Duration, Limit, Name, Spec, Subdomain, form_of, unique


class Fairness(Spec):
    """Whether past usage counts."""

    half_life: Limit | None = Field(None, description="Weigh over-quota by usage decayed with this half-life: 24h.")


class MinRuntime(Spec):
    """How long a preemptible job runs undisturbed after each start, by what would stop it."""

    guarantee: Duration = Field(
        "0s",
        validate_default=True,
        description="Before it is paused or moved for a job that stays within its project's guarantee.",
    )
    fairness: Duration = Field(
        "1m",
        validate_default=True,
        description="Before it is paused for a job that stays within its project's fair share. Four times as "
        "long after each further start, up to a day.",
    )
    moves: Duration = Field(
        "1m",
        validate_default=True,
        description="Before it is moved for a job that stays within its project's fair share. Grows likewise.",
    )


class Scheduling(Spec):
    """The choices a cluster makes."""

    min_runtime: Annotated[
        Annotated[Duration, Tag("(plain)")] | Annotated[MinRuntime, Tag("(mapping)")], Discriminator(form_of)
    ] = Field(
        {},
        validate_default=True,
        description="A preemptible job is not stopped for another before it has run this long: one duration, or "
        "{guarantee: 0s, fairness: 1m, moves: 1m}. The least of the three holds inside its project too.",
    )
    starvation_guard: Duration = Field(
        "10m",
        validate_default=True,
        description="The oldest blocked job gets a reservation after this; smaller ones backfill around it.",
    )
    consolidation: bool = Field(
        default=True, description="Preemptible jobs may be moved when that lets a job within its fair share start."
    )
    quota_shrink: Literal["reclaim", "drain"] = Field(
        "reclaim", description="What a quota cut does to jobs already running over it: stop them, or let them end."
    )
    fairness: Fairness = Field({}, validate_default=True, description="How past usage counts.")
    overcommit_quota: bool = Field(
        default=False,
        description="Quotas above the declared GPUs: false: an error; true: a warning, guarantees scale by quota.",
    )
    stop_guard: int = Field(
        50,
        ge=1,
        le=100,
        description="Percent. Declarations that end more than one job and more than this part of the running GPUs wait "
        "for a commit that confirms it; 100: never.",
    )
    delete_guard: int = Field(
        100,
        ge=1,
        le=1_000_000,
        description="Jobs. Declarations that remove more than this many jobs that have not ended wait for a commit "
        "that confirms it; a project that is removed with more of them, too.",
    )


Level = Literal["privileged", "baseline", "restricted"]


class Security(Spec):
    """What the people of a project may do in its namespace. Only the Cluster says it, never the project itself."""

    pod_security: Level = Field(
        "baseline",
        description="The Pod Security level that the API server enforces on all pods in project namespaces. "
        "restricted: jobs run as the user of their image, which must not be root. Runs that started before it was "
        "declared keep their pods, and need a higher runIndex to get new ones.",
    )
    exceptions: dict[Name, Level] = Field(
        {},
        max_length=10_000,
        description="Projects whose namespaces enforce another level, by name: {storage: privileged}.",
    )
    host_paths: Annotated[list[AbsolutePath], unique()] = Field(
        [],
        max_length=1000,
        description="Folders of the nodes that jobs of privileged projects may mount, with everything below: "
        "[/mnt/data]. Default: none. A job that can write there can make a link that leads out of the folder.",
    )
    priority_classes: Annotated[list[Subdomain], unique()] = Field(
        [],
        max_length=1000,
        description="PriorityClasses that pods in project namespaces may have besides gpuctl's own. Default: none. The "
        "cluster's globalDefault class must be listed if there is one: each pod without a class gets it.",
    )
