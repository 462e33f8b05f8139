"""The choices that a cluster declares for its scheduling and its security: part of `spec_v1`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag

from gpuctl.compile.amounts import WrongValue
from gpuctl.compile.fields_v1 import (
    AbsolutePath,
    Duration,
    Grace,
    Image,
    Limit,
    Name,
    Spec,
    Subdomain,
    at_least_a_minute,
    at_least_the_usual,
    form_of,
    positive,
    unique,
    visible,
)
from gpuctl.diag.wording import duration
from gpuctl.model.freeze import Forbidden, FreezeWindow, ends, is_cron, is_zone


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
    start_timeout: Annotated[Duration, AfterValidator(at_least_a_minute)] = Field(
        "15m",
        validate_default=True,
        description="A run whose workers do not all run by then is stopped, so that other jobs get its GPUs. It is "
        "tried again after 1, 5 and then every 30 minutes, on GPUs that all other jobs leave idle. At least 1m.",
    )
    pause_grace: Annotated[Grace, AfterValidator(at_least_the_usual)] = Field(
        "5m",
        validate_default=True,
        description="The longest time that projects and jobs may ask for between the signal that stops a worker and "
        "its end: as long, its GPUs may be kept from the next job. At least 30s.",
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
    scale_to_zero: bool = Field(
        default=False,
        description="Services may have minWorkers: 0. The cluster's API server and its autoscaler need the feature "
        "HPAScaleToZero, which is on from Kubernetes 1.37 on.",
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


def _of_cron(value: str) -> str:
    if is_cron(value):
        return value
    wanted = "a cron expression of five fields that is due at some time: 0 18 * * 5"
    raise WrongValue("GPU2023", found=value, wanted=wanted)


def _of_zone(value: str) -> str:
    if is_zone(value):
        return value
    raise WrongValue("GPU2023", found=value, wanted="the name of a time zone: Europe/Berlin")


def _ending(value: Freeze) -> Freeze:
    """Refuse a window that would begin again before it ends."""
    window = FreezeWindow(
        cron=value.cron, duration_ms=value.duration, time_zone=value.time_zone, forbids=frozenset(Forbidden)
    )
    if ends(window):
        return value
    rule = "it must be shorter than the time between two starts, or the window never ends"
    raise WrongValue("GPU2018", at=("duration",), found=duration(value.duration), rule=rule)


def _list_or_plain(value: object) -> str:
    return "(list)" if isinstance(value, list) else "(plain)"


def _in_its_form(value: object) -> object:
    """`all` stands alone, the other values in a list. A value in the wrong form is reported where it is written."""
    if isinstance(value, list) and "all" in value:
        raise WrongValue("GPU2007", at=(value.index("all"),), found="all", fix="write forbids: all")
    if isinstance(value, str) and value in {Forbidden.PAUSE, Forbidden.DELETE}:
        raise WrongValue("GPU2007", found=value, fix=f"write forbids: [{value}]")
    return value


class Freeze(Spec):
    """A window in which commits are held that would do what it forbids."""

    cron: Annotated[str, AfterValidator(_of_cron)] = Field(
        max_length=100, description="When it begins, as minute, hour, day of month, month and day of week: 0 18 * * 5."
    )
    duration: Annotated[Duration, AfterValidator(positive)] = Field(
        description="How long it lasts, in real time: 62h, also where a clock is changed meanwhile."
    )
    time_zone: Annotated[str, AfterValidator(_of_zone)] = Field(
        "UTC", max_length=60, description="The time zone of cron, by its IANA name: Europe/Berlin."
    )
    forbids: Annotated[
        Annotated[list[Literal["pause", "delete"]], unique(), Tag("(list)")]
        | Annotated[Literal["all"], Tag("(plain)")],
        Discriminator(_list_or_plain),
        BeforeValidator(_in_its_form),
    ] = Field(
        "all",
        description="pause: commits that pause, move or end a running job that stays declared. delete: commits that "
        "remove a job or a project. all: commits that change anything. They wait until it ends, or are confirmed.",
    )
    reason: Annotated[str, AfterValidator(visible)] = Field(
        "", max_length=200, description="Why, told with each commit that waits."
    )


Freezes = list[Annotated[Freeze, AfterValidator(_ending)]]
Level = Literal["privileged", "baseline", "restricted"]


class GitSync(Spec):
    """What checks Git repositories out for jobs."""

    image: Image = Field(
        description="An image of git-sync, version 4, of a registry of yours, by its digest. A changed one is that of "
        "pods that start from then on."
    )


class NfsExport(Spec):
    """A folder of an NFS server."""

    server: Subdomain = Field(description="Its host name or IPv4 address.")
    path: AbsolutePath = Field(description="The folder that it exports: /datasets.")


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
    nfs: Annotated[list[NfsExport], unique()] = Field(
        [],
        max_length=1000,
        description="Folders of NFS servers that jobs may mount, with everything below. Default: none. A server takes "
        "a job's word for its user's number, so list only what all may read.",
    )
    csi_drivers: Annotated[list[Annotated[Subdomain, Field(max_length=63)]], unique()] = Field(
        [],
        max_length=1000,
        description="CSI drivers whose inline volumes jobs may have: [secrets-store.csi.k8s.io]. Default: none. A "
        "driver runs on the node with rights of its own, and is told by the job what to mount.",
    )
    priority_classes: Annotated[list[Subdomain], unique()] = Field(
        [],
        max_length=1000,
        description="PriorityClasses that pods in project namespaces may have besides gpuctl's own. Default: none. The "
        "cluster's globalDefault class must be listed if there is one: each pod without a class gets it.",
    )
    reachable_from: Annotated[list[Name], unique()] | None = Field(
        None,
        max_length=1000,
        description="Namespaces whose pods may reach those of projects, besides the project's own: [ingress-nginx, "
        "monitoring]. Default: all may. Needs a network that enforces NetworkPolicies.",
    )
