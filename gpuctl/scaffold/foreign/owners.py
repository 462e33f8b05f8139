"""Projects and departments of Run:ai, and queues of its scheduler, as declarations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuctl.edit import Target, Value
from gpuctl.model.units import GpuMilli
from gpuctl.scaffold.foreign import amounts
from gpuctl.scaffold.foreign.values import Place, Record, Thing, given, strings

_QUIET = (
    *("clusterId", "clusterUuid", "createdAt", "createdBy", "updatedAt", "displayName", "description", "effective"),
    *("status", "totalResources", "nodePools", "type", "tenantId", "phase"),
)
"""Fields that are there by themselves, or do not matter for the division of GPUs."""
_USUAL_PRIORITY = 100
"""The priority of a KAI queue that gives none; for a project here that is 0."""
DEFAULT = "default"
"""The department of a project that names none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """An owner's part of a pool; `pool` "": of the cluster. `limit` None: no limit. `endless`: its quota is -1."""

    pool: str
    quota: GpuMilli
    limit: GpuMilli | None
    weight: GpuMilli | None
    endless: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A project or a department as found. `department`: its name, or its number in the other system."""

    kind: str
    name: str
    number: str
    department: str
    shares: tuple[Share, ...]
    spec: Mapping[str, Value]
    unsaid: tuple[str, ...]
    origin: Mapping[str, Any]


def owner_of(item: Mapping[str, Any], kind: str, place: Place) -> Owner:
    """Read one owner: a resource of the cluster (`metadata`, `spec`), or an object of the API."""
    whole = Record(item)
    metadata = whole.below("metadata")
    name = metadata.text("name") or whole.text("name")
    number = number_of(whole.take("id", "departmentId") if kind == "Department" else whole.take("id"))
    record = whole.below("spec") if isinstance(item.get("spec"), dict) else whole
    department = record.text("department", "departmentName", "parentQueue") or whole.text("parentId", "departmentName")
    if kind == "Project" and not department:
        department = number_of(record.take("departmentId"))
    unsaid: list[str] = []
    spec = _rules(record, place, unsaid) if kind == "Project" else {}
    priority = record.take("priority") if kind == "Project" and item.get("kind") == "Queue" else None
    if isinstance(priority, int) and not isinstance(priority, bool):
        spec["priority"] = priority - _USUAL_PRIORITY or None
    shares = _shares(record)
    if kind == "Project" and any(share.endless for share in shares):
        unsaid.append("its quota, which has no end")
    whole.take(*_QUIET)
    record.take(*_QUIET)
    unsaid += [each for each in whole.rest() if not each.startswith("metadata.") and each not in {"kind", "apiVersion"}]
    return Owner(kind=kind, name=name, number=number, department=department, shares=tuple(shares), spec=spec,
                 unsaid=tuple(unsaid), origin=item)  # fmt: skip


def number_of(value: Any) -> str:
    """An id of the API: a number or a long id; "" for none."""
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""


def declared(owners: Sequence[Owner], place: Place) -> list[Thing]:
    """The departments that exist or are named, then the projects."""
    by_number = {owner.number: owner.name for owner in owners if owner.kind == "Department" and owner.number}
    departments = {owner.name: owner for owner in owners if owner.kind == "Department" and owner.name != DEFAULT}
    by_pool = _by_pool(owners, place)
    things = []
    named: dict[str, None] = {}
    for owner in owners:
        if owner.kind != "Project":
            continue
        department = by_number.get(owner.department, owner.department)
        is_known = department in departments or not _is_number(department)
        unsaid = [*owner.unsaid, *([] if is_known else [f"its department, {department}"])]
        spec = {**_amounts(owner, place, unsaid, by_pool=by_pool), **owner.spec}
        if department and department != DEFAULT and is_known:
            spec["department"] = department
            named[department] = None
        target = Target(kind="Project", name=owner.name)
        things.append(Thing(target=target, spec=given(spec), unsaid=tuple(unsaid), origin=owner.origin))
    above = []
    for name in {**departments, **named}:
        unsaid = list(departments[name].unsaid) if name in departments else []
        spec = _amounts(departments[name], place, unsaid, by_pool=by_pool) if name in departments else {}
        origin = departments[name].origin if name in departments else None
        target = Target(kind="Department", name=name)
        above.append(Thing(target=target, spec=given(spec), unsaid=tuple(unsaid), origin=origin))
    return above + things


def _is_number(text: str) -> bool:
    """Whether a text is a number or a long id rather than a name."""
    return text.isdecimal() or (len(text) == 36 and text.count("-") == 4)


def _by_pool(owners: Sequence[Owner], place: Place) -> bool:
    """Whether quotas are by pool: as already declared, else if all pools with a quota are declared."""
    if place.by_pool is not None:
        return place.by_pool
    pools = {share.pool for owner in owners for share in owner.shares if share.quota or share.pool in place.pools}
    return len(place.pools) > 1 and bool(pools) and pools <= place.pools.keys()


def _amounts(owner: Owner, place: Place, unsaid: list[str], *, by_pool: bool) -> dict[str, Value]:
    """Quota, limit and weight: of each pool, or of all together."""
    shares = owner.shares
    if by_pool:
        unsaid += [f"{amounts.gpus(share.quota)} GPUs of pool {share.pool or DEFAULT}, which the cluster has not"
                   for share in shares if share.quota and share.pool not in place.pools]  # fmt: skip
        shares = tuple(share for share in shares if share.pool in place.pools)
    weights = {share.weight for share in shares if share.weight is not None and (share.quota or share.weight)}
    if len(weights) > 1:
        unsaid.append("its over-quota weights, which differ from pool to pool")
    weight = amounts.gpus(next(iter(weights))) if len(weights) == 1 else None
    if by_pool:
        quota: Value = {share.pool: amounts.gpus(share.quota) for share in shares if share.quota}
        limit: Value = {share.pool: amounts.gpus(share.limit) for share in shares
                        if share.limit is not None and share.limit >= share.quota}  # fmt: skip
        return {"quota": quota, "limit": limit, "overQuotaWeight": weight}
    total, limits = sum(share.quota for share in shares), [share.limit for share in shares]
    most = sum(each for each in limits if each is not None) if limits and None not in limits else None
    if most is not None and most < total:
        unsaid.append("its limit, which is below its quota")
        most = None
    return {
        "quota": amounts.gpus(total) if total else None,
        "limit": None if most is None else amounts.gpus(most),
        "overQuotaWeight": weight,
    }


def _shares(record: Record) -> list[Share]:
    """An owner's shares: by pool in the API and its later resources, of the whole cluster in the first ones."""
    by_pool = record.list_of("nodePoolsResources") or _listed(record.take("resources"))
    shares = []
    for entry in by_pool:
        each = Record(entry)
        pool, gpu = each.below("nodePool"), each.below("gpu")
        shares.append(_share(gpu, pool.text("name") or each.text("nodePoolName")))
    plain = record.take("deservedGpus")
    most, weight = record.take("maxAllowedGpus"), record.take("gpuOverQuotaWeight")
    if shares or plain is None:
        return shares
    return [Share(pool="", quota=amounts.gpu_milli(plain) or 0, limit=amounts.gpu_milli(most),
                  weight=amounts.gpu_milli(weight))]  # fmt: skip


def _listed(resources: Any) -> list[Any]:
    """The entries of `resources`: a list by pool, or one object of GPU, CPU and memory."""
    return resources if isinstance(resources, list) else [resources] if isinstance(resources, dict) else []


def _share(gpu: Record, pool: str) -> Share:
    quota = gpu.take("deserved", "quota")
    return Share(
        pool=pool,
        quota=amounts.gpu_milli(quota) or 0,
        endless=quota == -1,
        limit=amounts.gpu_milli(gpu.take("limit", "maxAllowed")),
        weight=amounts.gpu_milli(gpu.take("overQuotaWeight")),
    )


def _rules(record: Record, place: Place, unsaid: list[str]) -> dict[str, Value]:
    """Time limits, and the pools that a project may use."""
    rules = record.below("schedulingRules")

    def limit(*names: str) -> str | None:
        value = rules.take(*(f"{name.removesuffix('Secs')}Seconds" for name in names))
        return amounts.seconds(record.take(*names) if value is None else value)

    interactive = given({
        "maxDuration": limit("interactiveJobTimeLimitSecs"),
        "idleTimeout": limit("interactiveJobMaxIdleDurationSecs"),
    })  # fmt: skip
    training = given({"maxDuration": limit("trainingJobTimeLimitSecs", "trainJobTimeLimitSecs")})
    types = record.below("nodeTypes", "nodeAffinity")
    usual = record.list_of("defaultNodePools")
    training_types = (
        *record.list_of("nodeAffinityTrain", "nodeAffinityTrainTypes"),
        *_types(types, "training", "train"),
    )
    other_types = (
        *record.list_of("nodeAffinityInteractive", "nodeAffinityInteractiveTypes"),
        *_types(types, "workspace", "interactive"),
    )
    affinity = given({
        "training": pools((*training_types, *usual), place, unsaid),
        "interactive": pools((*other_types, *usual), place, unsaid),
    })
    return {"nodeAffinity": affinity, "interactive": interactive, "training": training}


def _types(record: Record, *names: str) -> list[Any]:
    below = record.below(*names)
    below.take("affinityType")
    return record.list_of(*names) if below.take("selectedTypes") is None else below.list_of("selectedTypes")


def pools(named: Iterable[Any], place: Place, unsaid: list[str]) -> list[Value]:
    """The declared pools among those named, each once, in order; the others are reported."""
    found: list[Value] = []
    for name in strings(named):
        if name in place.pools and name not in found:
            found.append(name)
        told = f"node pool or type {name}, which the cluster has not"
        if name not in place.pools and name != DEFAULT and told not in unsaid:
            unsaid.append(told)
    return found
