"""The JSON form of a PlanReport as models: the one source of `schemas/gpuctl.dev/v1/planreport.json`.

Programs read this form, so fields are only ever added to it. `document` writes the report; tests hold every golden
report, and generated ones, against these models.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.views import plan_comparison, plan_effect, plan_report
from gpuctl.views.plan_page import Form, PlanPage, page
from gpuctl.views.plan_report import PlanReport

DIALECT = "https://json-schema.org/draft/2020-12/schema"
ADDRESS = "https://gpuctl.dev/schemas/gpuctl.dev/v1/planreport.json"


class BeforeAfter(Form):
    """An amount in thousandths without the change and with it."""

    before: int | None = Field(description="Without the change; null: there is none.")
    after: int | None = Field(description="With the change; null: there is none.")


class CountChange(Form):
    """A number without the change and with it."""

    before: int = Field(description="Without the change.")
    after: int = Field(description="With the change.")


class MergeForm(Form):
    """What was compared."""

    state: Literal["clean", "conflicts", "unsupported", "direct", "rollback"] = Field(
        description="clean: base with the merge. conflicts, or unsupported by a git before 2.38: the merge base with "
        "head. direct: base with head. rollback: base with the cluster's folder as it was at head."
    )
    folder: str = Field(description="The cluster's folder in the repository.")
    base_commit: str | None = Field(description="The commit that base names.")
    head_commit: str | None = Field(description="The commit that head names; null: the working tree.")
    merge_base: str | None = Field(description="The commit where the two part; null with direct.")
    base_moved_by: int = Field(
        description="How many commits base has that head lacks; of a rollback, those that changed the folder."
    )
    conflicts: list[str] = Field(description="The files that both changed, each in its own way.")
    left_out: list[str] = Field(description="Projects of base that do not compile, and are no part of the comparison.")


class RefForm(Form):
    """A Kubernetes object."""

    api_version: str = Field(description="Its apiVersion.")
    kind: str = Field(description="Its kind.")
    namespace: str = Field(description="Its namespace; empty for objects of the whole cluster.")
    name: str = Field(description="Its name.")


class ObjectForm(Form):
    """An object that changes."""

    action: Literal["create", "update", "delete"] = Field(description="What happens to it.")
    ref: RefForm = Field(description="Which object.")
    project: str | None = Field(description="The project it belongs to; null: the cluster itself.")
    reason: str = Field(description="Why, or the fields that differ.")


class QuotaForm(Form):
    """What a project may use in a quota domain."""

    project: str = Field(description="The project.")
    domain: str = Field(description="The pool; * where quotas are of the whole cluster.")
    quota_gpu_milli: BeforeAfter = Field(description="Guaranteed, in thousandths of a GPU.")
    limit_gpu_milli: BeforeAfter = Field(description="Hard ceiling, in thousandths of a GPU.")
    over_quota_weight_milli: BeforeAfter = Field(description="Claim on spare GPUs, in thousandths.")
    allocated_gpu_milli: CountChange | None = Field(description="What its jobs hold there; null: not known.")
    capacity_gpu_milli: int | None = Field(description="All GPUs there, in thousandths; null: not known.")
    limit_below_allocated: bool = Field(description="Whether the limit is set below what is held without the change.")


class SettingForm(Form):
    """A setting that no object shows."""

    of: str = Field(description="The job, project, pool, department or policy that it is of.")
    setting: str = Field(description="Its name.")
    before: str = Field(description="Its value without the change.")
    after: str = Field(description="Its value with the change.")


class DepartmentLimitForm(Form):
    """A department whose limit is below what its projects hold without the change."""

    department: str = Field(description="The department.")
    domain: str = Field(description="The pool; * where quotas are of the whole cluster.")
    limit_gpu_milli: int = Field(description="Its limit with the change, in thousandths of a GPU.")
    allocated_gpu_milli: int = Field(description="What its projects hold there without the change.")


class BreachForm(Form):
    """A declaration that starts or ceases to break a policy, or breaks it at another severity than before."""

    starts: bool = Field(description="Whether it starts; else it ceases.")
    severity: Literal["error", "warning", "audit"] = Field(description="The policy's.")
    message: str = Field(description="What the policy says, why it is broken, and its name.")
    file: str = Field(description="The file of the declaration.")
    line: int = Field(description="The line in it, with the change if it starts.")
    was: Literal["error", "warning", "audit"] | None = Field(
        default=None, description="The severity at which it broke the policy before; null: it did not."
    )


class ReasonForm(Form):
    """Why something is so."""

    code: str = Field(description="A code of `gpuctl explain`.")
    message: str = Field(description="The same in words.")


class WorkerForm(Form):
    """Where a worker runs."""

    node: str = Field(description="The node.")
    gpus: list[int] = Field(description="The GPUs of that node, by index.")


class StartedForm(Form):
    """A job that starts."""

    job: str = Field(description="project/name.")
    gpu_milli: int = Field(description="What it holds, in thousandths of a GPU.")
    placement: list[WorkerForm] = Field(description="Its workers in order.")
    reason: ReasonForm = Field(description="Why it may start.")
    pauses: list[str] = Field(description="The jobs that make room for it.")
    anew: bool = Field(description="Whether an earlier run of it is ended.")


class PausedForm(Form):
    """A job that is paused."""

    job: str = Field(description="project/name.")
    gpu_milli: int = Field(description="What it held, in thousandths of a GPU.")
    for_: str | None = Field(alias="for", description="The job it makes room for; null: none.")
    reason: ReasonForm = Field(description="Why it is paused.")
    lost_ms: int | None = Field(
        None, description="The most work that it has to do again, in milliseconds; null: not known."
    )


class MovedForm(Form):
    """A job that starts again elsewhere."""

    job: str = Field(description="project/name.")
    gpu_milli: int = Field(description="What it holds, in thousandths of a GPU.")
    from_: list[WorkerForm] = Field(alias="from", description="Where its workers ran.")
    to: list[WorkerForm] = Field(description="Where they run then.")
    for_: str | None = Field(alias="for", description="The job it makes room for; null: none.")
    reason: ReasonForm = Field(description="Why it is moved.")
    lost_ms: int | None = Field(
        None, description="The most work that it has to do again, in milliseconds; null: not known."
    )


class ResizedForm(Form):
    """An elastic job with another number of workers."""

    job: str = Field(description="project/name.")
    workers: CountChange = Field(description="How many workers.")
    for_: str | None = Field(alias="for", description="The job it makes room for; null: none.")


class StoppedForm(Form):
    """A run that ends."""

    job: str = Field(description="project/name.")
    gpu_milli: int = Field(description="What it held, in thousandths of a GPU.")
    why: Literal["removed", "changed", "suspended", "timedOut"] = Field(description="Why it ends.")


class DequeuedForm(Form):
    """A job that waited and is in the queue no more, without having started."""

    job: str = Field(description="project/name.")
    gpu_milli: int = Field(description="What it asked for, in thousandths of a GPU.")
    why: Literal["removed", "suspended"] = Field(description="Why it waits no more.")


class QueueForm(Form):
    """A position in the queue."""

    position: int = Field(description="Its position, from 1.")
    of: int = Field(description="How many wait.")


class ProspectForm(Form):
    """When a waiting job starts."""

    starts_in_ms: int | None = Field(description="Milliseconds until it starts; null: no start is forecast.")
    after: list[str] = Field(description="The jobs whose end lets it start.")
    horizon_ms: int | None = Field(description="How far ahead was looked, in milliseconds.")
    queue: QueueForm | None = Field(description="Its position in the queue.")


class WaitsForm(ProspectForm):
    """A job that waits."""

    job: str = Field(description="project/name.")
    gpu_milli: int = Field(description="What it asks for, in thousandths of a GPU.")
    reason: ReasonForm = Field(description="Why it waits.")
    before: ProspectForm | None = Field(description="The same without the change; null: it did not wait.")
    place_kept: list[WorkerForm] | None = Field(description="The place that is reserved for it.")


class HoldingForm(Form):
    """What a project holds in a quota domain."""

    project: str = Field(description="The project.")
    domain: str = Field(description="The pool; * where quotas are of the whole cluster.")
    allocated_gpu_milli: CountChange = Field(description="What its jobs hold, in thousandths of a GPU.")
    fair_share_gpu_milli: CountChange = Field(description="Its fair share, in thousandths of a GPU.")


class UnlikeForm(Form):
    """What a cluster does not have as base declares it."""

    cluster: bool = Field(description="Whether the cluster's own files are among it.")
    projects: list[str] = Field(description="The projects.")


class GroundForm(Form):
    """The state that the effect starts from."""

    from_: Literal["cluster", "inventory"] = Field(alias="from", description="A live cluster, or the declared nodes.")
    at: str | None = Field(description="When a live cluster was so: RFC 3339.")
    nodes: int = Field(description="How many nodes it has.")
    gpu_milli: int = Field(description="Its GPUs, in thousandths.")
    age_ms: int | None = Field(description="How long ago that was, in milliseconds; null for the declared nodes.")
    revision: str | None = Field(description="The commit of the cluster's own files that is enforced there.")
    unlike_base: UnlikeForm | None = Field(description="What is not enforced there as base declares it; null: unknown.")


class EffectForm(Form):
    """What happens to jobs."""

    ground: GroundForm | None = Field(description="The state it starts from.")
    summary: str = Field(description="The same in a sentence.")
    started: list[StartedForm] = Field(description="Jobs that start.")
    paused: list[PausedForm] = Field(description="Jobs that are paused.")
    moved: list[MovedForm] = Field(description="Jobs that start again elsewhere.")
    resized: list[ResizedForm] = Field(description="Elastic jobs with another number of workers.")
    stopped: list[StoppedForm] = Field(description="Runs that end.")
    dequeued: list[DequeuedForm] = Field(default=[], description="Jobs that waited and are removed or suspended.")
    starved: list[WaitsForm] = Field(description="Jobs that wait with no start forecast.")
    eta: list[WaitsForm] = Field(description="Jobs that wait with a forecast start.")
    projects: list[HoldingForm] = Field(description="Projects that hold more or less, or have another fair share.")
    unaffected: int = Field(description="How many runs go on as they were.")
    without_limit: int = Field(description="How many running jobs have no maxDuration.")


class RefusalForm(Form):
    """What a guard refuses."""

    code: str = Field(description="A code of `gpuctl explain`.")
    message: str = Field(description="What is refused, in words.")
    help: str = Field(description="What lifts the refusal.")


class FailedForm(Form):
    """A gate of `--fail-on` that the change fails."""

    gate: Literal["paused", "stopped", "moved", "starved", "deleted"] = Field(description="The gate.")
    names: list[str] = Field(description="The jobs or objects because of which it fails.")


class PlanReportV1(Form):
    """What merging a change does: `gpuctl plan -o json`."""

    api_version: Literal["gpuctl.dev/v1"] = Field(description="The version of this form.")
    kind: Literal["PlanReport"] = Field(description="What this is.")
    version: str = Field(description="The version of gpuctl that made it.")
    base: str = Field(description="The revision that the change is merged into, as it was named.")
    head: str = Field(description="The revision with the change, as it was named.")
    merge: MergeForm = Field(description="What was compared.")
    objects: list[ObjectForm] = Field(description="Objects that change.")
    quotas: list[QuotaForm] = Field(description="Quotas that change.")
    settings: list[SettingForm] = Field(description="Settings that change.")
    department_limits: list[DepartmentLimitForm] = Field(
        default=[], description="Limits of departments that the change sets below what their projects hold."
    )
    breaches: list[BreachForm] = Field(description="Declarations that start or cease to break a policy.")
    effect: EffectForm | None = Field(description="What happens to jobs; null: head declares no cluster.")
    refusals: list[RefusalForm] = Field(description="What guards refuse of the change.")
    confirmed: list[RefusalForm] = Field(description="What they would refuse, had no commit confirmed it.")
    refused_already: list[RefusalForm] = Field(description="What they refuse without the change as well.")
    failed_on: list[FailedForm] = Field(description="The gates of --fail-on that the change fails.")
    result: Literal["none", "changes", "refused"] = Field(description="The exit code's meaning: 0, 2 or 3.")
    digest: str = Field(description="A name for the changes of objects, quotas and settings alone.")
    comment: PlanPage = Field(description="What the comment says: `gpuctl comment --plan` writes it.")


def document(report: PlanReport) -> dict[str, Any]:
    """The JSON form, as `schemas/gpuctl.dev/v1/planreport.json` has it."""
    return {
        "apiVersion": "gpuctl.dev/v1",
        "kind": "PlanReport",
        "version": report.version,
        "base": report.compared.base,
        "head": report.compared.head,
        "merge": plan_comparison.document(report.compared),
        **plan_report.changes(report),
        "departmentLimits": [plan_report.department_limit(each) for each in report.department_limits],
        "effect": None if report.effect is None else plan_effect.document(report.effect, report.ground),
        "refusals": [_refusal(each) for each in report.refusals.new],
        "confirmed": [_refusal(each) for each in report.refusals.confirmed],
        "refusedAlready": [_refusal(each) for each in report.refusals.standing],
        "failedOn": [{"gate": each.gate, "names": list(each.names)} for each in report.failed],
        "result": "none" if report.empty else "refused" if report.refused else "changes",
        "digest": plan_report.digest(report),
        "comment": page(report).model_dump(mode="json", by_alias=True),
    }


def _refusal(refusal: Diagnostic) -> dict[str, str]:
    return {"code": refusal.code, "message": refusal.message, "help": refusal.help}


def schema() -> dict[str, Any]:
    """The JSON Schema. It allows unknown fields: later versions of gpuctl may add some."""
    made = PlanReportV1.model_json_schema(mode="validation")
    return {"$schema": DIALECT, "$id": ADDRESS, "title": "PlanReport", **opened(made)}


def opened(node: Any, *, named: bool = False) -> Any:
    """The schema without titles that repeat names, and without the ban on other fields. `named`: the keys are field
    names."""
    if isinstance(node, list):
        return [opened(entry) for entry in node]
    if not isinstance(node, dict):
        return node
    return {
        key: opened(value, named=key in {"properties", "$defs"} and not named)
        for key, value in node.items()
        if named or key not in {"title", "additionalProperties"}
    }
