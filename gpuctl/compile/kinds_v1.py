"""The public form of the kinds of other controllers that a Cluster declares: part of `spec_v1`.

A row says where the pods of such an object are, which field stops it and how it reports its end. Paths are short, and
none contains another. A kind of Kubernetes, gpuctl or another engine can't be declared.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, WithJsonSchema

from gpuctl.compile.amounts import WrongValue, excludes, needs
from gpuctl.compile.fields_v1 import Name, Spec, exactly_one, in_mapping, matching, unique
from gpuctl.k8s.kinds import KINDS, group_of

MOST_KINDS = 20
_MOST_TEMPLATES = 20
_MOST_FIELDS = 100
_STEP = r"[A-Za-z][A-Za-z0-9_-]{0,62}"
_PATH = rf"{_STEP}(\.{_STEP}){{0,9}}"
_GROUP = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)+"
_VERSION = rf"{_GROUP}/v[0-9]{{1,4}}((alpha|beta)[0-9]{{1,4}})?"
_A_PATH = "the path of a field, as names with dots between them: runPolicy.suspend"


_CONDITION = r"[A-Za-z]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_KIND = "[A-Z][A-Za-z0-9]{0,62}"
_PLURAL = "[a-z]([a-z0-9-]{0,61}[a-z0-9])?"


def _schema(pattern: str, longest: int) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": f"^{pattern}$", "maxLength": longest})


FieldPath = Annotated[str, Field(max_length=400), matching(_PATH, _A_PATH), _schema(_PATH, 400)]
Version = Annotated[
    str,
    Field(max_length=100),
    matching(_VERSION, "the group and version of a kind: batch.example.com/v1"),
    _schema(_VERSION, 100),
]
KindName = Annotated[str, matching(_KIND, "the name of a kind: TrainingRun"), _schema(_KIND, 63)]
Plural = Annotated[str, matching(_PLURAL, "the plural of a kind: trainingruns"), _schema(_PLURAL, 63)]
ConditionType = Annotated[str, matching(_CONDITION, "the type of a condition: Complete"), _schema(_CONDITION, 63)]


_BOTH = "give both, or neither"


def _one_place(data: Any) -> Iterator[WrongValue]:
    if data.get("each") is not None and data.get("at") is not None:
        yield excludes("each", "at", at=("at",))
    if data.get("nameField") is not None and data.get("each") is None:
        fix = "write name: the pods of one template are called alike"
        yield needs("nameField", "each", at=("nameField",), fix=fix)


def _one_way(data: Any) -> Iterator[WrongValue]:
    yield from exactly_one(data, "condition", "field")
    if (data.get("field") is None) is bool(data.get("values")):
        yield needs(*(("field", "values") if data.get("field") else ("values", "field")), fix=_BOTH)


def _one_end(data: Any) -> Iterator[WrongValue]:
    if (data.get("succeeded") is None) is not (data.get("failed") is None):
        yield needs(*(("succeeded", "failed") if data.get("succeeded") else ("failed", "succeeded")), fix=_BOTH)
    if data.get("suspend") is not None and data.get("scaleToZero") is not None:
        yield excludes("suspend", "scaleToZero", at=("scaleToZero",))
    if data.get("suspend") is None and data.get("scaleToZero") is None:
        yield WrongValue("GPU3132", kind=str(data.get("kind")))


class KindPods(Spec):
    """Pods of one template in such an object; all paths begin at its spec, or at the entry."""

    each: FieldPath | None = Field(None, description="The list of which each entry has the template: tasks.")
    at: FieldPath | None = Field(
        None, description="Or the one field that has it: tfReplicaSpecs.Worker. Default: the spec itself."
    )
    template: FieldPath = Field("template", description="From there, the pod template.")
    counts: Annotated[list[FieldPath], unique()] = Field(
        [],
        max_length=4,
        description="From there, the fields whose product is the number of pods: [replicas]. One that is absent is 1.",
    )
    name: Name | None = Field(None, description="What its pods are called besides the object's name: worker.")
    name_field: FieldPath | None = Field(None, description="With each: the field of an entry that says it.")
    makes: Annotated[list[Literal["Job", "Service"]], unique()] = Field(
        [],
        max_length=2,
        description="What its controller makes beside the pods, or between them and the object: at most one a pod.",
    )

    _checked = in_mapping(_one_place)
    _one_name = in_mapping(lambda data: exactly_one(data, "name", "nameField"))


class KindState(Spec):
    """How such an object tells a state: by a condition that is "True", or by a field of its status."""

    condition: ConditionType | None = Field(None, description="The type of the condition: Complete.")
    field: FieldPath | None = Field(None, description="Or the field, from its status: state.phase.")
    values: Annotated[list[Annotated[str, Field(min_length=1, max_length=63)]], unique()] = Field(
        [], max_length=20, description="With field: the values that tell it: [Completed]."
    )

    _checked = in_mapping(_one_way)


class WorkloadKind(Spec):
    """A kind of another controller that a job's manifest may be."""

    api_version: Version = Field(description="The group and version of the kind: batch.example.com/v1.")
    kind: KindName = Field(description="The kind: TrainingRun.")
    plural: Plural = Field(description="Its name in the API server's paths and in roles: trainingruns.")
    pods: list[KindPods] = Field(
        min_length=1, max_length=_MOST_TEMPLATES, description="Where its pod templates are: all of them."
    )
    fields: Annotated[list[FieldPath], unique()] = Field(
        [],
        max_length=_MOST_FIELDS,
        description="Other fields of its spec that a manifest may have, with whatever is below them. None of them may "
        "make pods, or say where pods run.",
    )
    suspend: FieldPath | None = Field(
        None, description="The field of its spec that, as true, leaves it without pods: suspend."
    )
    scale_to_zero: FieldPath | None = Field(
        None, description="Or the count of its spec that, as 0, does: replicas. It is among the counts of all its pods."
    )
    suspended: KindState | None = Field(
        None, description="How it tells that it has stopped. Default: that it has no pods."
    )
    succeeded: KindState | None = Field(
        None, description="How it tells that it has succeeded. Default: it never ends, and is a service."
    )
    failed: KindState | None = Field(None, description="With succeeded: how it tells that it has failed.")
    active: Annotated[list[FieldPath], unique()] = Field(
        [], max_length=20, description="Numbers of its status that are more than 0 as long as it has pods: [active]."
    )

    _checked = in_mapping(_one_end)


def _sound(row: WorkloadKind) -> WorkloadKind:
    """Refuse a row for a kind that may not be declared, or with paths that exclude each other."""
    why = _why_not(row)
    if why:
        raise WrongValue("GPU3130", at=("kind",), found=f"{row.kind} of {row.api_version}", why=why)
    known: list[str] = []
    for path, at, shared in _places(row):
        for other in known:
            inside = path == other or path.startswith(f"{other}.") or other.startswith(f"{path}.")
            if inside and not (shared and path == other):
                raise WrongValue("GPU3131", at=at, found=path, other=other)
        known.append(path)
    if row.scale_to_zero is not None:
        for position, pods in enumerate(row.pods):
            if pods.each is not None or row.scale_to_zero not in {_below(pods.at, count) for count in pods.counts}:
                rule = f"{row.scale_to_zero}, which stops it, is a count of all its pods"
                raise WrongValue("GPU2018", at=("pods", position), found="counts", rule=rule)
    return row


def _why_not(row: WorkloadKind) -> str:
    """Why a Cluster may not declare a kind; "" if it may."""
    group = row.api_version.rpartition("/")[0]
    if any(group == group_of(known) and (row.kind == known[1] or row.plural == KINDS[known].plural) for known in KINDS):
        return "gpuctl knows that kind already"
    if group.endswith((".k8s.io", ".kubernetes.io")) or group == "k8s.io":
        return "it is Kubernetes' own group, whose objects are rights, nodes and settings of the cluster"
    if group == "gpuctl.dev" or group in {group_of(kind) for kind, info in KINDS.items() if info.of_engine}:
        return "the objects of that group decide which jobs get GPUs"
    if row.kind in {known[1] for known in KINDS}:
        return "gpuctl knows another kind by that name"
    return ""


def _below(above: str | None, path: str) -> str:
    return path if above is None else f"{above}.{path}"


def _places(row: WorkloadKind) -> Iterator[tuple[str, tuple[str | int, ...], bool]]:
    """Each path of the spec that has a meaning: the path, where it is declared, and whether another one may equal
    it."""
    for position, pods in enumerate(row.pods):
        above, here = pods.each or pods.at, ("pods", position)
        yield _below(above, pods.template), (*here, "template"), False
        for number, count in enumerate(pods.counts):
            yield _below(above, count), (*here, "counts", number), True
        if pods.name_field is not None:
            yield _below(above, pods.name_field), (*here, "nameField"), False
    for number, path in enumerate(row.fields):
        yield path, ("fields", number), False
    if row.suspend is not None:
        yield row.suspend, ("suspend",), False


def _once(rows: list[WorkloadKind]) -> list[WorkloadKind]:
    """Refuse two rows of one kind or plural: two versions of a kind, or two names of one path, would be read twice."""
    seen: set[tuple[str, str]] = set()
    for position, row in enumerate(rows):
        group = row.api_version.rpartition("/")[0]
        for field, name in (("kind", row.kind), ("plural", row.plural)):
            if (group, name) in seen:
                raise WrongValue("GPU2021", at=(position, field), found=name)
        seen |= {(group, row.kind), (group, row.plural)}
    return rows


WorkloadKinds = Annotated[list[Annotated[WorkloadKind, AfterValidator(_sound)]], AfterValidator(_once)]
