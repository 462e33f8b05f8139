"""A job's `manifest`: the object of another controller that the job is, read as far as gpuctl must know it.

Everything that counts is read from the pod templates: workers, GPUs, CPU, memory, the time that pods have to end. An
unknown field is refused: a job may do no more with a manifest than with gpuctl's own fields.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from gpuctl.compile.amounts import WrongValue, excludes
from gpuctl.compile.document import values_in
from gpuctl.compile.manifest_pods import At, Body, wrong_marks, wrong_mount, wrong_template
from gpuctl.k8s.manifest_fields import ANY, METADATA, TEMPLATE
from gpuctl.k8s.objects import items, mapping, number, text
from gpuctl.k8s.quantity import format_cpu
from gpuctl.k8s.workload_kinds import PodSet, pod_sets, sum_of
from gpuctl.k8s.workload_table import Rows, rows_of
from gpuctl.model.job import USUAL_GRACE_MS
from gpuctl.model.workload_kind import MOST_PODS, Allowed, WorkloadKind

BESIDE = frozenset({
    "type", "template", "manifest", "priority", "preemptible", "maxDuration", "nodePools", "ttlAfterFinished",
    "checkpointEvery", "suspend", "after", "runIndex",
})  # fmt: skip
"""Fields that a job with a manifest may have; the manifest itself gives all others."""
MOST_VALUES = 1_500
"""The most values of a manifest, as `values_in` counts them."""
_LISTS = frozenset({
    "containers", "initContainers", "volumes", "env", "envFrom", "replicatedJobs", "workerGroupSpecs",
})  # fmt: skip
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
    "serviceAccountToken": "remove it: a job has no token; put the key that it needs into a Secret",
    "resourceClaims": "ask for nvidia.com/gpu; or write the job with an image, whose gpus may be claimed or shared",
}


class JobKinds(NamedTuple):
    """The kinds that a manifest may be: the built-in ones, and those that the Cluster declares.

    `all_known`: False if the Cluster could not be read, so that there may be others. The value is compared for each
    file, so it has only what the Cluster adds.
    """

    declared: tuple[WorkloadKind, ...] = ()
    all_known: bool = True

    @property
    def rows(self) -> Rows:
        """The rows of all kinds."""
        return rows_of(self.declared)


def is_known(manifest: Mapping[str, Any] | None, kinds: JobKinds) -> bool:
    """Whether there is a row for the manifest's kind. There may be none while the Cluster can't be read."""
    return manifest is None or (manifest["apiVersion"], manifest["kind"]) in kinds.rows


class Counted(NamedTuple):
    """The fields of a job's spec that follow from its manifest, and the manifest's mistakes."""

    fields: Mapping[str, Any]
    mistakes: tuple[WrongValue, ...]


def counted(spec: Mapping[str, Any], kinds: JobKinds) -> Counted:
    """The fields of a job's spec that follow from its manifest, and all mistakes in the manifest."""
    manifest = spec["manifest"]
    mistakes = list(_both(spec))
    row = _row(manifest, kinds.rows)
    if isinstance(row, WrongValue):
        is_told = kinds.all_known or row.code != "GPU3100"
        return Counted(_NOTHING, (*mistakes, *([row] if is_told else [])))
    if values_in(manifest, MOST_VALUES) >= MOST_VALUES:
        wrong = WrongValue("GPU2018", at=("manifest",), found="a manifest", rule=f"at most {MOST_VALUES} values")
        return Counted(_NOTHING, (*mistakes, wrong))
    shape = {"apiVersion": ANY, "kind": ANY, "metadata": METADATA, "spec": row.allowed}
    mistakes += _wrong_type(row, spec.get("type"))
    mistakes += _not_allowed(manifest, shape, ("manifest",))
    if row.plural:
        mistakes += _pods_in_free_fields(manifest, shape, ("manifest",))
    mistakes += wrong_marks(row, mapping(manifest, "metadata"), ("manifest", "metadata"))
    mistakes += _wrong_settings(row, mapping(manifest, "spec"))
    if not mistakes:
        mistakes += _of_entries(row, manifest)
    if mistakes:
        return Counted(_NOTHING, tuple(mistakes))
    fields = _fields(row, manifest)
    return Counted(fields if row.ends or "type" in spec else {**fields, "type": "inference"}, ())


_NOTHING: Mapping[str, Any] = {"image": "-"}
"""The fields of a manifest with a mistake. The image only prevents a second message, that it is missing."""


def as_json(manifest: Mapping[str, Any]) -> str:
    """A manifest without mistakes as text: equal manifests give equal texts. An amount with a fraction becomes a
    string."""
    return json.dumps(manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=str)


def _both(spec: Mapping[str, Any]) -> Iterator[WrongValue]:
    for field in spec.keys() - BESIDE:
        fix = "say it in the manifest, in its pod templates" if field != "framework" else "remove it"
        yield excludes("manifest", field, at=(field,), fix=fix)


def _wrong_type(row: WorkloadKind, kind: object) -> Iterator[WrongValue]:
    """Refuse `inference` for a kind that ends by itself, and `training` for one that never ends."""
    if kind == ("inference" if row.ends else "training"):
        others = "training or interactive" if row.ends else "inference or interactive"
        fix = f"leave type out: a job that is a {row.kind[1]} is {others}"
        yield excludes(f"the manifest of a {row.kind[1]}", f"type: {kind}", at=("type",), fix=fix)


def _wrong_settings(row: WorkloadKind, spec: Body) -> Iterator[WrongValue]:
    """Values of single fields that the controller or gpuctl does not accept."""
    for path, values in row.choices.items():
        found = mapping(spec, *path[:-1]).get(path[-1])
        if found is not None and found not in values:
            rule = " or ".join(_written(value) for value in values)
            yield WrongValue("GPU2018", at=("manifest", "spec", *path), found=_written(found), rule=rule)
    for path in row.mounts:
        yield from wrong_mount(text(spec, *path), ("manifest", "spec", *path))


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _row(manifest: Any, rows: Rows) -> WorkloadKind | WrongValue:
    if not isinstance(manifest, Mapping):
        return WrongValue("GPU2006", at=("manifest",), wanted="a mapping", found="something else")
    kind = str(manifest.get("apiVersion", "")), str(manifest.get("kind", ""))
    row = rows.get(kind)
    if row is not None:
        return row
    known = ", ".join(f"{name} ({version})" for version, name in rows)
    found = f"{kind[1] or 'nothing'} of {kind[0] or 'no apiVersion'}"
    return WrongValue("GPU3100", at=("manifest", "kind"), fix=f"write one of {known}", found=found)


def _not_allowed(value: Any, allowed: Allowed, at: At) -> Iterator[WrongValue]:
    """Each unknown field, at its key. Cost: linear in the values."""
    if allowed == ANY or value is None:
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


def _pods_in_free_fields(value: Any, allowed: Allowed, at: At, *, is_free: bool = False) -> Iterator[WrongValue]:
    """Pods in a field that a Cluster's row leaves open to any content: they would not be counted. Cost: as above."""
    if isinstance(value, list):
        for position, entry in enumerate(value):
            yield from _pods_in_free_fields(entry, allowed, (*at, position), is_free=is_free)
    elif isinstance(value, Mapping):
        for key, below in value.items():
            here = (*at, key)
            if is_free and key == "containers":
                fix = "remove it; the Cluster's workloadKinds says where pod templates of this kind are"
                yield WrongValue("GPU3101", at=here, fix=fix, field=str(key))
            elif key in allowed or is_free:
                known = allowed.get(key, ANY)
                if known != TEMPLATE:
                    yield from _pods_in_free_fields(below, known, here, is_free=is_free or known == ANY)


def _of_entries(row: WorkloadKind, manifest: Body) -> Iterator[WrongValue]:
    """Mistakes in each set of pods, and in all of them together."""
    spec = mapping(manifest, "spec")
    here: At = ("manifest", "spec")
    sets = list(pod_sets(row, spec))
    there = {each.sets for each in sets}
    absent = [known for known in row.pods if known.needed and known not in there]
    for known in absent or ([] if sets else row.pods[:1]):
        yield WrongValue("GPU2005", at=here, field=".".join(("spec", *known.entries, *known.template[:2])))
    named: set[str] = set()
    broken = bool(absent) or not sets
    for each in sets:
        at = (*here, *each.at)
        if each.sets.name and each.name in named:
            yield WrongValue("GPU2021", at=(*at, *each.sets.name), found=each.name)
        named.add(each.name)
        found = [*_wrong_counts(each, at), *wrong_template(row, each, (*at, *each.sets.template))]
        broken = broken or bool(found)
        yield from found
    if not broken:
        yield from _unequal(sets, here)
        yield from _in_steps(row, spec, sets)


def _wrong_counts(each: PodSet, at: At) -> Iterator[WrongValue]:
    for count in each.sets.counts:
        value = mapping(each.entry, *count.path[:-1]).get(count.path[-1], count.usual)
        if value == 0 and not count.usual:
            yield WrongValue("GPU2005", at=at, field=".".join(count.path))
        elif not isinstance(value, int) or isinstance(value, bool):
            yield WrongValue("GPU2006", at=(*at, *count.path), wanted="a whole number", found="something else")
        elif not 1 <= value <= count.most:
            rule = "1" if count.most == 1 else f"at least 1 and at most {count.most}"
            yield WrongValue("GPU2018", at=(*at, *count.path), found=str(value), rule=rule)


def _unequal(sets: Sequence[PodSet], here: At) -> Iterator[WrongValue]:
    """The first pods that ask for another number of GPUs than those before: workers of a gang are equal. Too many
    pods."""
    with_gpus = [each for each in sets if each.requests.gpus]
    for each in with_gpus:
        first, gpus = with_gpus[0], each.requests.gpus
        if gpus != first.requests.gpus:
            at, other, others = (*here, *each.at), first.name, first.requests.gpus
            yield WrongValue("GPU3102", at=at, name=each.name, found=gpus, other=other, others=others)
            return
    if sum(each.pods for each in sets) > MOST_PODS:
        at = (*here, *sets[0].sets.entries)
        yield WrongValue("GPU2018", at=at, found="the sum of all pods", rule=f"at most {MOST_PODS}")


def _in_steps(row: WorkloadKind, spec: Body, sets: Sequence[PodSet]) -> Iterator[WrongValue]:
    """Pods with GPUs that start only after others with GPUs: the first would hold their GPUs while the last do not
    exist."""
    with_gpus = [each for each in sets if each.requests.gpus]
    if len(with_gpus) < 2:
        return
    for path, value in row.in_order.items():
        if text(spec, *path) == value:
            yield WrongValue("GPU3104", at=("manifest", "spec", *path))
    for each in with_gpus:
        if each.sets.waits and list(items(each.entry, *each.sets.waits)):
            yield WrongValue("GPU3104", at=("manifest", "spec", *each.at, *each.sets.waits))


def _fields(row: WorkloadKind, manifest: Body) -> Mapping[str, Any]:
    """The fields by which the engine, the project's quota and policies see the job."""
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
