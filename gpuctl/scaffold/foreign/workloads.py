"""Workloads of Run:ai, from its resources in a cluster or from its API, as jobs."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from gpuctl.edit import Target, Value
from gpuctl.model.units import WHOLE_GPU
from gpuctl.scaffold.foreign import amounts
from gpuctl.scaffold.foreign.namespaces import project_of
from gpuctl.scaffold.foreign.owners import number_of, pools
from gpuctl.scaffold.foreign.values import Left, Place, Record, Thing, given, strings, variables

_TYPES = {"interactive": "interactive", "workspace": "interactive", "build": "interactive", "training": "training",
          "train": "training", "distributed": "training", "inference": "inference"}  # fmt: skip
_ENDED = {"completed", "succeeded", "failed", "deleted", "deleting", "timedout", "preempted"}
_QUIET = ("name", "namePrefix", "usage", "additionalFields", "category", "createdAt", "id", "clusterId")


def workload_of(item: Mapping[str, Any], project: str, place: Place) -> Thing | Left:
    """The job that a workload declares, or why it can't be one."""
    whole = Record(item)
    metadata = whole.below("metadata")
    spec = whole.below("spec") if isinstance(item.get("spec"), dict) else whole
    name = spec.text("name") or whole.text("name") or metadata.text("name")
    target = Target(kind="Job", name=name, project=project)
    kind = _type(item)
    if kind is None:
        return Left(what=str(target), why=f"it is of kind {whole.text('kind', 'type')}, which no job is")
    ended = _phase(whole)
    if ended.replace(" ", "").lower() in _ENDED:
        return Left(what=str(target), why=f"it has ended ({ended})")
    image = spec.text("image") or next(iter(strings(spec.list_of("images"))), "")
    if not image:
        return Left(what=str(target), why="a list does not say its image: export the workload itself")
    unsaid: list[str] = []
    fields: dict[str, Value] = {
        "type": kind,
        "image": image,
        "imagePullPolicy": spec.text("imagePullPolicy"),
        "command": _words(spec, "command"),
        "args": _words(spec, "args", "arguments"),
        "workingDir": spec.text("workingDir"),
        "env": variables(spec.list_of("environmentVariables", "environment"), "environment variable", unsaid),
        **_requests(spec, unsaid),
        **_workers(spec),
        "preemptible": _preemptible(spec, kind),
        "nodePools": pools(_pools(spec), place, unsaid),
        "expose": _ports(spec, unsaid),
        "volumes": _claims(spec, unsaid),
        "retries": amounts.whole(spec.take("backoffLimit")),
    }
    spec.take(*_QUIET)
    spec.skip("distributedFramework", ("PyTorch",))
    unsaid += [each.removeprefix("spec.") for each in spec.rest()] if spec is not whole else []
    return Thing(target=target, spec=given(fields), unsaid=tuple(unsaid), origin=item)


def project_of_workload(item: Mapping[str, Any], projects: Mapping[str, str], place: Place) -> str:
    """The project of a workload: by name, by number (`projects`: names by number), or by its namespace."""
    whole = Record(item)
    metadata = whole.below("metadata")
    named = whole.text("projectName", "project") or whole.below("spec").text("project")
    labels = metadata.take("labels")
    label = next((labels[key] for key in ("runai/queue", "kai.scheduler/queue", "project") if key in labels), "") if (
        isinstance(labels, dict)
    ) else ""  # fmt: skip
    number = number_of(whole.take("projectId"))
    namespace = metadata.text("namespace") or whole.text("namespace")
    return (
        named or projects.get(number, "") or (label if isinstance(label, str) else "") or project_of(namespace, place)
    )


def _type(item: Mapping[str, Any]) -> str | None:
    record = Record(item)
    kind = record.text("kind").lower().removesuffix("workload") or record.text("type", "workloadType").lower()
    interactive = Record(item.get("spec")).take("interactive")
    if interactive is True or interactive == "true":
        return "interactive"
    return _TYPES.get(kind.removesuffix("workload"), None if kind else "training")


def _phase(whole: Record) -> str:
    status = whole.take("status")
    nested = Record(status).text("phase", "status")
    return whole.text("phase", "actualPhase") or nested or (status if isinstance(status, str) else "")


def _words(spec: Record, *names: str) -> list[Value]:
    """A command: a list of words, or a text, which is split as by a shell."""
    value = spec.take(*names)
    if isinstance(value, list):
        return [str(word) for word in value if isinstance(word, str | int)]
    if not isinstance(value, str):
        return []
    try:
        return list(shlex.split(value))
    except ValueError:
        return [value]


def _requests(spec: Record, unsaid: list[str]) -> dict[str, Value]:
    """GPUs, CPU and memory: from `compute`, or from the spec itself."""
    compute = spec.below("compute")

    def take(*names: str) -> Any:
        found = compute.take(*names)
        return spec.take(*names) if found is None else found

    kind = str(take("gpuRequestType") or "")
    devices, portion = take("gpuDevicesRequest", "gpu"), amounts.gpu_milli(take("gpuPortionRequest"))
    memory, count = amounts.memory(take("gpuMemoryRequest", "gpuMemory")), amounts.gpu_milli(devices)
    large_shm = take("largeShmRequest", "largeShm")
    asked: dict[str, Value] = {
        "cpu": amounts.cpu(take("cpuCoreRequest", "cpu")),
        "memory": amounts.memory(take("cpuMemoryRequest", "memory")),
    }
    if devices is not None and count is None:
        unsaid.append(f"its GPUs, {devices}")
    by_memory = memory is not None and kind != "portion"
    milli = count or 0
    if portion is not None and kind in {"portion", ""} and milli <= WHOLE_GPU:
        milli = portion
    elif (portion not in {None, WHOLE_GPU} or by_memory) and milli > WHOLE_GPU:
        unsaid.append("a part of each of several GPUs")
    return {
        "gpus": amounts.gpus(milli) if milli and not by_memory else None,
        "gpuMemory": memory if by_memory else None,
        "resources": given(asked),
        "largeShm": True if large_shm is True or large_shm == "true" else None,
    }


def _workers(spec: Record) -> dict[str, Value]:
    """The number of workers. The master of a distributed workload is a worker too."""
    count = amounts.whole(spec.take("numWorkers", "workers"))
    fewest = amounts.whole(spec.take("minReplicas"))
    if count is None:
        return {}
    workers = count + (spec.take("noMaster") is not True)
    return {"workers": workers, "minWorkers": fewest or None}


def _preemptible(spec: Record, kind: str) -> bool | None:
    """Whether the job is preemptible, if that differs from its type's default; else None."""
    value = spec.take("preemptible", "preemptibility")
    said = {"preemptible": True, "non-preemptible": False, "true": True, "false": False}.get(str(value).lower())
    return None if said is None or said is (kind == "training") else said


def _pools(spec: Record) -> list[Any]:
    value = spec.take("nodePools", "nodepools")
    return value.split() if isinstance(value, str) else value if isinstance(value, list) else []


def _ports(spec: Record, unsaid: list[str]) -> list[Value]:
    exposed: list[Value] = []
    for entry in (*spec.list_of("ports"), *spec.list_of("exposedUrls")):
        record = Record(entry)
        nested = record.below("value")
        port = amounts.whole(record.take("container")) or amounts.whole(nested.take("container"))
        if port is None:
            unsaid.append("a port that names none of the container's")
        elif {"port": port} not in exposed:
            exposed.append({"port": port})
    return exposed


def _claims(spec: Record, unsaid: list[str]) -> list[Value]:
    """The claims; other volumes are reported by their kind."""
    storage = spec.below("storage")
    volumes: list[Value] = []
    for entry in (*storage.list_of("pvc"), *spec.list_of("pvcs")):
        outer = Record(entry)
        record = outer.below("value") if isinstance(entry, dict) and isinstance(entry.get("value"), dict) else outer
        record_name, path = record.text("claimName"), record.text("path")
        size = record.below("claimInfo")
        needed = amounts.memory(size.take("size") or record.take("size"))
        is_there = record.take("existingPvc")
        read_only = record.take("readOnly") is True or None
        if record_name and (is_there is True or needed is None):
            volumes.append(given({"claim": record_name, "mountPath": path, "readOnly": read_only}))
        elif needed:
            storage_class: Value = size.text("storageClass") or record.text("storageClass")
            new: dict[str, Value] = {"size": needed, "storageClass": storage_class}
            volumes.append(given({"newClaim": given(new), "mountPath": path, "readOnly": read_only}))
        else:
            unsaid.append("a volume")
    return volumes
