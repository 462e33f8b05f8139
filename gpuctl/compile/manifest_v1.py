"""A job's `manifest`: the object of another controller that the job is, read as far as gpuctl has to know it.

All that counts is read off the pod templates: workers, GPUs, CPU, memory, the time that pods have to end. A field that
is not known here is refused: what a job can't have by gpuctl's own fields it can't have by a manifest.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from gpuctl.compile.amounts import WrongValue
from gpuctl.compile.document import values_in
from gpuctl.compile.pod_v1 import HARMLESS_CAPABILITIES
from gpuctl.k8s import names
from gpuctl.k8s.objects import items, mapping, number, text
from gpuctl.k8s.pod_keys import is_for_people, reserved_after
from gpuctl.k8s.quantity import exact, format_cpu
from gpuctl.k8s.workload_kinds import ANY, METADATA, WORKLOAD_KINDS, Allowed, PodSet, WorkloadKind, pod_sets, sum_of
from gpuctl.model.job import USUAL_GRACE_MS

At: TypeAlias = tuple[str | int, ...]
Body: TypeAlias = Mapping[str, Any]

BESIDE = frozenset({
    "type", "template", "manifest", "priority", "preemptible", "maxDuration", "nodePools", "ttlAfterFinished",
    "checkpointEvery", "suspend", "after", "runIndex",
})  # fmt: skip
"""Fields that a job with a manifest may have; all others are the manifest's to say."""
MOST_PODS = 10_000
_MOST_VALUES = 1_500
_LISTS = frozenset({"containers", "initContainers", "volumes", "env", "envFrom", "replicatedJobs"})
_AMOUNTS = ("cpu", "memory", "ephemeral-storage", names.GPU_RESOURCE)
_DEVICES_MOUNT = "nvidia-container-devices"
_INSTEAD = {
    "suspend": "write suspend: true in the job's own spec",
    "ttlSecondsAfterFinished": "write ttlAfterFinished in the job's own spec",
    "activeDeadlineSeconds": "write maxDuration in the job's own spec",
    "name": "the object is called after the job and its run",
    "namespace": "the object is in the namespace of its project",
    "nodeSelector": "write nodePools in the job's own spec",
    "affinity": "write nodePools in the job's own spec",
    "priorityClassName": "write priority in the job's own spec",
    "tolerations": "the Cluster declares tolerations for each pool",
}


class Counted(NamedTuple):
    """A manifest, and the fields of a job's spec that follow from it."""

    fields: Mapping[str, Any]
    mistakes: tuple[WrongValue, ...]


def counted(spec: Mapping[str, Any]) -> Counted:
    """The fields of a spec that has a manifest, as they follow from that, and all that is wrong with it."""
    manifest = spec["manifest"]
    mistakes = list(_both(spec))
    row = _row(manifest)
    if isinstance(row, WrongValue):
        return Counted(_NOTHING, (*mistakes, row))
    if values_in(manifest, _MOST_VALUES) >= _MOST_VALUES:
        wrong = WrongValue("GPU2018", at=("manifest",), found="a manifest", rule=f"at most {_MOST_VALUES} values")
        return Counted(_NOTHING, (*mistakes, wrong))
    shape = {"apiVersion": ANY, "kind": ANY, "metadata": METADATA, "spec": row.allowed}
    mistakes += _not_allowed(manifest, shape, ("manifest",))
    mistakes += _wrong_marks(mapping(manifest, "metadata"), ("manifest", "metadata"))
    if not mistakes:
        mistakes += _of_entries(row, manifest)
    if mistakes:
        return Counted(_NOTHING, tuple(mistakes))
    return Counted(_fields(row, manifest), ())


_NOTHING: Mapping[str, Any] = {"image": "-"}
"""Of a manifest with a mistake: that no image is missed besides."""


def as_json(manifest: Mapping[str, Any]) -> str:
    """A manifest without a mistake as one text: equal manifests give equal texts. An amount with a fraction is text."""
    return json.dumps(manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=str)


def _both(spec: Mapping[str, Any]) -> Iterator[WrongValue]:
    for field in spec.keys() - BESIDE:
        fix = "say it in the manifest, in its pod templates" if field != "framework" else "remove it"
        yield WrongValue("GPU2019", at=(field,), fix=fix, fields=f"manifest and {field}", found="both")
    if spec.get("type") == "inference":
        fix = "leave type out: a job with a manifest is training or interactive"
        yield WrongValue("GPU2019", at=("type",), fix=fix, fields="manifest and type: inference", found="both")


def _row(manifest: Any) -> WorkloadKind | WrongValue:
    if not isinstance(manifest, Mapping):
        return WrongValue("GPU2006", at=("manifest",), wanted="a mapping", found="something else")
    kind = str(manifest.get("apiVersion", "")), str(manifest.get("kind", ""))
    row = WORKLOAD_KINDS.get(kind)
    if row is not None:
        return row
    known = ", ".join(f"apiVersion: {version}, kind: {name}" for version, name in WORKLOAD_KINDS)
    found = f"{kind[1] or 'nothing'} of {kind[0] or 'no apiVersion'}"
    return WrongValue("GPU3100", at=("manifest", "kind"), fix=f"write {known}", found=found)


def _not_allowed(value: Any, allowed: Allowed, at: At) -> Iterator[WrongValue]:
    """Each field that is not known, at its key. Cost: linear in the values."""
    if allowed is ANY or value is None:
        return
    if isinstance(value, list):
        for position, entry in enumerate(value):
            yield from _not_allowed(entry, allowed, (*at, position))
    elif not isinstance(value, Mapping):
        yield WrongValue("GPU2006", at=at, wanted="a mapping", found="something else")
    else:
        for key, below in value.items():
            if key not in allowed:
                fix = _INSTEAD.get(key, "remove it; `gpuctl explain GPU3101` says what a manifest may have")
                yield WrongValue("GPU3101", at=(*at, key), fix=fix, field=str(key))
            elif key in _LISTS and not isinstance(below, list):
                yield WrongValue("GPU2006", at=(*at, key), wanted="a list", found="something else")
            else:
                yield from _not_allowed(below, allowed[key], (*at, key))


def _wrong_marks(metadata: Mapping[str, Any], at: At) -> Iterator[WrongValue]:
    """Labels and annotations that gpuctl, Kubernetes, a driver or the workload's controller obeys."""
    for part in ("labels", "annotations"):
        for key, value in mapping(metadata, part).items():
            if not is_for_people(str(key)):
                fix = "take a key with a domain of your own, or without one"
                rule = "gpuctl, Kubernetes or a driver obeys this key"
                yield WrongValue("GPU2018", at=(*at, part, key), fix=fix, found=str(key), rule=rule)
            elif not isinstance(value, str):
                yield WrongValue("GPU2008", at=(*at, part, key), fix=f'write "{value}"', found=str(value),
                                 kind="no text")  # fmt: skip


def _of_entries(row: WorkloadKind, manifest: Body) -> Iterator[WrongValue]:
    """What is wrong with each of the sets of pods, and with all of them together."""
    spec = mapping(manifest, "spec")
    entries = list(items(spec, *row.sets.entries))
    here: At = ("manifest", "spec", *row.sets.entries)
    if not entries:
        yield WrongValue("GPU2005", at=("manifest", "spec"), field=".".join(("spec", *row.sets.entries)))
    named: set[str] = set()
    broken = False
    for position, entry in enumerate(entries):
        name, at = text(entry, *row.sets.name), (*here, position)
        if name in named:
            yield WrongValue("GPU2021", at=(*at, *row.sets.name), found=name)
        named.add(name)
        found = [*_wrong_counts(row, entry, at), *_of_template(row, entry, at)]
        broken = broken or bool(found)
        yield from found
    if not broken:
        yield from _unequal(row, spec, here)
        yield from _in_steps(row, spec)


def _wrong_counts(row: WorkloadKind, entry: Body, at: At) -> Iterator[WrongValue]:
    for path in row.sets.counts:
        value = mapping(entry, *path[:-1]).get(path[-1], 1)
        if not isinstance(value, int) or isinstance(value, bool):
            yield WrongValue("GPU2006", at=(*at, *path), wanted="a whole number", found="something else")
        elif not 1 <= value <= MOST_PODS:
            yield WrongValue("GPU2018", at=(*at, *path), found=str(value), rule=f"at least 1 and at most {MOST_PODS}")


def _of_template(row: WorkloadKind, entry: Body, at: At) -> Iterator[WrongValue]:
    template, here = mapping(entry, *row.sets.template), (*at, *row.sets.template)
    yield from _wrong_marks(mapping(template, "metadata"), (*here, "metadata"))
    pod, here = mapping(template, "spec"), (*here, "spec")
    if not list(items(pod, "containers")):
        yield WrongValue("GPU2005", at=here, field="containers")
    grace = pod.get("terminationGracePeriodSeconds", 1)
    if not isinstance(grace, int) or isinstance(grace, bool) or grace < 1:
        where = (*here, "terminationGracePeriodSeconds")
        yield WrongValue("GPU2018", at=where, found=str(grace), rule="a whole number of seconds, at least 1")
    if pod.get("dnsPolicy", "ClusterFirst") not in {"ClusterFirst", "Default"}:
        yield WrongValue(
            "GPU2018", at=(*here, "dnsPolicy"), found=str(pod["dnsPolicy"]), rule="ClusterFirst or Default"
        )
    yield from _wrong_profile(pod, here)
    for kind in ("initContainers", "containers"):
        for position, container in enumerate(items(pod, kind)):
            yield from _of_container(container, (*here, kind, position))


def _wrong_profile(owner: Body, at: At) -> Iterator[WrongValue]:
    profile = text(owner, "securityContext", "seccompProfile", "type")
    if profile not in {"", "RuntimeDefault"}:
        where = (*at, "securityContext", "seccompProfile", "type")
        yield WrongValue("GPU2018", at=where, found=profile, rule="RuntimeDefault, or left out")


def _of_container(container: Body, at: At) -> Iterator[WrongValue]:
    if not text(container, "image"):
        yield WrongValue("GPU2005", at=at, field="image")
    yield from _wrong_profile(container, at)
    added = mapping(container, "securityContext", "capabilities").get("add")
    for position, capability in enumerate(added if isinstance(added, list) else ()):
        if capability not in HARMLESS_CAPABILITIES:
            where = (*at, "securityContext", "capabilities", "add", position)
            yield WrongValue("GPU2018", at=where, found=str(capability), rule="it reaches the node")
    for position, variable in enumerate(items(container, "env")):
        name = text(variable, "name")
        if name in names.RESERVED_ENV_NAMES or name.startswith(names.RESERVED_ENV_PREFIXES):
            yield WrongValue("GPU3047", at=(*at, "env", position, "name"), name=name)
    for position, source in enumerate(items(container, "envFrom")):
        if not text(source, "prefix"):
            where, wanted = (*at, "envFrom", position), "a prefix, so that no key can name a variable that gives GPUs"
            yield WrongValue("GPU2018", at=where, fix="add prefix: HUB_", found="envFrom", rule=wanted)
        elif reserved := reserved_after(text(source, "prefix")):
            where = (*at, "envFrom", position, "prefix")
            yield WrongValue("GPU3049", at=where, prefix=text(source, "prefix"), name=reserved)
    for position, mount in enumerate(items(container, "volumeMounts")):
        if _DEVICES_MOUNT in text(mount, "mountPath"):
            where = (*at, "volumeMounts", position, "mountPath")
            yield WrongValue("GPU2018", at=where, found=text(mount, "mountPath"), rule="a mount there gives GPUs")
    yield from _wrong_amounts(mapping(container, "resources"), (*at, "resources"))


def _wrong_amounts(resources: Body, at: At) -> Iterator[WrongValue]:
    """Amounts that can't be counted as the cluster counts them: unreadable ones, and devices of other kinds."""
    for part in ("requests", "limits"):
        for name, amount in mapping(resources, part).items():
            here = (*at, part, name)
            if name not in _AMOUNTS:
                yield WrongValue("GPU3103", at=here, found=str(name))
            elif not _is_amount(amount) or (name == names.GPU_RESOURCE and not str(amount).isdecimal()):
                yield WrongValue("GPU2018", at=here, found=str(amount), rule="an amount as Kubernetes reads it")
    asked, most = (mapping(resources, part).get(names.GPU_RESOURCE) for part in ("requests", "limits"))
    if asked is not None and str(asked) != str(most):
        where = (*at, "requests", names.GPU_RESOURCE)
        yield WrongValue("GPU2018", at=where, fix="leave it out of requests", found=str(asked),
                         rule="GPUs are asked for in limits; a request is the same")  # fmt: skip


def _is_amount(amount: Any) -> bool:
    if not isinstance(amount, int | str | Decimal) or isinstance(amount, bool):
        return False
    try:
        return exact(str(amount)) >= 0
    except ValueError:
        return False


def _unequal(row: WorkloadKind, spec: Body, at: At) -> Iterator[WrongValue]:
    """The first pods with GPUs that ask for others than those before them: a gang's workers are equal."""
    sets = list(pod_sets(row, spec))
    with_gpus = [(position, each) for position, each in enumerate(sets) if each.requests.gpus]
    name = partial(_name_at, row, spec)
    for position, each in with_gpus:
        (first, one), gpus = with_gpus[0], each.requests.gpus
        if gpus != one.requests.gpus:
            other, others = name(first), one.requests.gpus
            at_one = (*at, position)
            yield WrongValue("GPU3102", at=at_one, name=name(position), found=gpus, other=other, others=others)
            return
    if sum(each.pods for each in sets) > MOST_PODS:
        yield WrongValue("GPU2018", at=at, found="the sum of all pods", rule=f"at most {MOST_PODS}")


def _in_steps(row: WorkloadKind, spec: Body) -> Iterator[WrongValue]:
    """Pods with GPUs that start after others with GPUs: the first would hold theirs while the last are not made."""
    entries = list(items(spec, *row.sets.entries))
    sets = list(pod_sets(row, spec))
    if sum(bool(each.requests.gpus) for each in sets) < 2:
        return
    if text(spec, "startupPolicy", "startupPolicyOrder") == "InOrder":
        yield WrongValue("GPU3104", at=("manifest", "spec", "startupPolicy", "startupPolicyOrder"))
    for position, (entry, each) in enumerate(zip(entries, sets, strict=True)):
        if each.requests.gpus and list(items(entry, "dependsOn")):
            yield WrongValue("GPU3104", at=("manifest", "spec", *row.sets.entries, position, "dependsOn"))


def _name_at(row: WorkloadKind, spec: Body, position: int) -> str:
    return text(list(items(spec, *row.sets.entries))[position], *row.sets.name)


def _fields(row: WorkloadKind, manifest: Body) -> Mapping[str, Any]:
    """What the engine, the project's quota and policies take the job for."""
    spec = mapping(manifest, "spec")
    total = sum_of(row, spec)
    sets = list(pod_sets(row, spec))
    first = next((each for each in sets if each.requests.gpus), sets[0])
    grace = max(_grace_s(each) for each in sets)
    return {
        "image": text(next(items(first.template, "spec", "containers")), "image"),
        "gpus": total.worker.gpus,
        "workers": total.workers,
        "resources": {"cpu": format_cpu(total.worker.cpu_milli), "memory": str(total.worker.mem_bytes)},
        **({"pauseGrace": f"{grace}s"} if grace * 1000 != USUAL_GRACE_MS else {}),
    }


def _grace_s(each: PodSet) -> int:
    return number(each.template, "spec", "terminationGracePeriodSeconds", default=USUAL_GRACE_MS // 1000)
