"""A Job of Kubernetes, or one of Run:ai's that has the same form, as the spec of a job."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from gpuctl.compile.amounts import NAME_LENGTH
from gpuctl.compile.sweep_v1 import MOST_INDICES
from gpuctl.edit import Target, Value
from gpuctl.scaffold.foreign import amounts
from gpuctl.scaffold.foreign.values import Left, Place, Record, Thing, strings

GPU = "nvidia.com/gpu"
_SECRET = re.compile(r"SECRET:([^,]{1,253}),([^,]{1,253})")
"""A key of a Secret, as Run:ai's command line has it."""
_OURS = {"app.kubernetes.io/managed-by": "gpuctl"}
_OF_SYSTEM = ("terminationMessagePath", "terminationMessagePolicy")
_OF_POD = {
    "dnsPolicy": ("ClusterFirst",),
    "schedulerName": ("default-scheduler", "runai-scheduler", "kai-scheduler"),
    "terminationGracePeriodSeconds": (30,),
    "restartPolicy": ("Never", "OnFailure"),
    "priorityClassName": ("train", "build"),
    "enableServiceLinks": (True,),
}
"""What pods have by themselves; anything else is told."""
_OF_JOB = ("completionMode", "manualSelector", "selector", "podReplacementPolicy")
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a path in containers


def job_of(item: Any, project: str, place: Place) -> Thing | Left:
    """The job that an object declares, or why it can be none."""
    whole = Record(item)
    metadata, status = whole.below("metadata"), whole.below("status")
    name, annotations = metadata.text("name"), metadata.below("annotations")
    target = Target(kind="Job", name=name, project=project)
    spec = whole.below("spec")
    reason = _no_job(metadata, status, spec)
    if reason:
        return Left(what=str(target), why=reason)
    several = _several(spec, name)
    if isinstance(several, str):
        return Left(what=str(target), why=several)
    pod = spec.below("template").below("spec")
    containers = pod.list_of("containers")
    if len(containers) != 1:
        return Left(what=str(target), why=f"its pods have {len(containers)} containers, and a worker has one")
    container = Record(containers[0])
    unsaid: list[str] = []
    fields: dict[str, Value] = {
        **_process(container, unsaid),
        **_requests(container, annotations, unsaid),
        **several,
        "maxDuration": amounts.seconds(spec.take("activeDeadlineSeconds")),
        "ttlAfterFinished": _ttl(spec),
        "nodePools": _pools(pod, place, unsaid),
        **_volumes(container, pod, unsaid),
        "imagePullSecrets": _pull_secrets(pod),
        "retries": amounts.whole(spec.take("backoffLimitPerIndex") or spec.take("backoffLimit")),
    }
    spec.take(*_OF_JOB)
    for field, usual in _OF_POD.items():
        pod.skip(field, usual)
    container.take(*_OF_SYSTEM)
    unsaid += [f"spec.template.spec.containers[0].{each}" for each in container.rest()]
    unsaid += [each for each in whole.rest() if each.startswith("spec.") and not _is_made(each)]
    return Thing(target=target, spec=given(fields), unsaid=tuple(unsaid))


def _several(spec: Record, name: str) -> dict[str, Value] | str:
    """A gang, where all pods of an Indexed Job may run at once; a sweep, where it has more than may run at a time.

    Why it is neither, where the number of its pods is not said, or too large.
    """
    told, wanted = spec.take("parallelism"), spec.take("completions")
    indexed = spec.text("completionMode") == "Indexed"
    at_once = 1 if told is None else amounts.whole(told)
    pods = at_once if wanted is None else amounts.whole(wanted)
    if not at_once or not pods or (wanted is None and at_once > 1):
        return "how many pods it takes is not said: declare a gang or a sweep by hand"
    if pods == 1:
        return {}
    if indexed and pods == at_once:
        return {"workers": pods}
    if pods > MOST_INDICES or len(f"{name}-{pods - 1}") > NAME_LENGTH:
        return f"it has {pods} pods, and a sweep at most {MOST_INDICES}, with names of at most {NAME_LENGTH} characters"
    return {"sweep": given({"completions": pods, "parallelism": at_once if at_once < pods else None})}


def _ttl(spec: Record) -> str | None:
    """How long it is kept after its end: a minute at least, in a declaration."""
    kept_s = amounts.whole(spec.take("ttlSecondsAfterFinished"))
    return None if kept_s is None else amounts.seconds(max(60, kept_s))


def given(fields: dict[str, Value]) -> dict[str, Value]:
    """The fields that have a value."""
    return {name: value for name, value in fields.items() if value is not None and value not in ("", [], {})}


def variables(entries: Iterable[Any], at: str, unsaid: list[str]) -> dict[str, Value]:
    """Environment variables: a text, or a key of a Secret."""
    env: dict[str, Value] = {}
    for entry in entries:
        record = Record(entry)
        name, value = record.text("name"), record.take("value")
        secret = record.below("valueFrom").below("secretKeyRef")
        told = secret if secret.text("name") else record.below("secret")
        if told.text("name") and told.text("key"):
            env[name] = {"secret": told.text("name"), "key": told.text("key")}
        elif isinstance(value, str) and (of_secret := _SECRET.fullmatch(value)):
            env[name] = {"secret": of_secret[1], "key": of_secret[2]}
        elif isinstance(value, str | int) and not isinstance(value, bool):
            env[name] = str(value)
        elif isinstance(value, bool):
            env[name] = "true" if value else "false"
        else:
            unsaid.append(f"{at} {name}")
    return env


def _no_job(metadata: Record, status: Record, spec: Record) -> str:
    """Why an object is no job to declare; empty if it is one."""
    labels = metadata.take("labels")
    if isinstance(labels, dict) and _OURS.items() <= labels.items():
        return "gpuctl made it"
    if any(isinstance(owner, dict) and owner.get("kind") == "CronJob" for owner in metadata.list_of("ownerReferences")):
        return "a CronJob makes it anew each time: a declared job runs once"
    for condition in status.list_of("conditions"):
        kind = Record(condition)
        if kind.text("status") == "True" and kind.text("type") in {"Complete", "Failed", "SuccessCriteriaMet"}:
            return "it has ended"
    spec.take("suspend")
    return ""


def _process(container: Record, unsaid: list[str]) -> dict[str, Value]:
    container.take("name")
    at = "spec.template.spec.containers[0].env"
    return {
        "image": container.text("image"),
        "imagePullPolicy": container.text("imagePullPolicy"),
        "command": strings(container.list_of("command")),
        "args": strings(container.list_of("args")),
        "workingDir": container.text("workingDir"),
        "env": variables(container.list_of("env"), at, unsaid),
    }


def _requests(container: Record, annotations: Record, unsaid: list[str]) -> dict[str, Value]:
    """GPUs, CPU and memory: requests, else limits. A fraction is where Run:ai and KAI have it, in an annotation."""
    resources = container.below("resources")
    requests, limits = resources.below("requests"), resources.below("limits")
    asked = {name: requests.take(name) for name in (GPU, "cpu", "memory")}
    most = {name: limits.take(name) for name in (GPU, "cpu", "memory")}
    whole = {name: most[name] if asked[name] is None else asked[name] for name in asked}
    fraction, megabytes = annotations.take("gpu-fraction"), amounts.whole(annotations.take("gpu-memory"))
    unsaid += [
        f"a limit of {name} above what it requests: {most[name]}"
        for name in ("cpu", "memory")
        if asked[name] is not None and most[name] not in (None, asked[name])
    ]
    wanted = whole[GPU] if fraction is None else fraction
    milli = amounts.gpu_milli(wanted) if wanted is not None else 0
    if milli is None:
        unsaid.append(f"its GPUs, {wanted}")
    return {
        "gpus": amounts.gpus(milli) if milli and not megabytes else None,
        "gpuMemory": f"{megabytes}Mi" if megabytes else None,
        "resources": given({"cpu": amounts.cpu(whole["cpu"]), "memory": amounts.memory(whole["memory"])}),
    }


def _pools(pod: Record, place: Place, unsaid: list[str]) -> list[Value]:
    """The pools whose nodes have the labels that the pod selects."""
    selector = pod.take("nodeSelector")
    if not isinstance(selector, dict) or not selector:
        return []
    fitting: list[Value] = [name for name, labels in place.pools.items() if selector.items() <= labels.items()]
    if not fitting:
        unsaid.append("spec.template.spec.nodeSelector: no pool has these labels")
    return fitting


def _volumes(container: Record, pod: Record, unsaid: list[str]) -> dict[str, Value]:
    """What is mounted, and shared memory where a volume in memory stands for it."""
    origins = {Record(each).text("name"): each for each in pod.list_of("volumes")}
    volumes: list[Value] = []
    large_shm = None
    for entry in container.list_of("volumeMounts"):
        mount = Record(entry)
        name, path = mount.text("name"), mount.text("mountPath")
        origin = Record(origins.get(name))
        in_memory = origin.below("emptyDir").text("medium") == "Memory"
        source = _source(origin)
        if in_memory and path == SHARED_MEMORY:
            large_shm = True
        elif source and not in_memory and not mount.text("subPath"):
            volumes.append(given({**source, "mountPath": path, "readOnly": mount.take("readOnly") is True or None}))
        else:
            unsaid.append(f"volume {name} at {path}")
    return {"largeShm": large_shm, "volumes": volumes}


def _pull_secrets(pod: Record) -> list[Value]:
    named = dict.fromkeys(Record(each).text("name") for each in pod.list_of("imagePullSecrets"))
    return [name for name in named if name]


def _source(origin: Record) -> dict[str, Value]:
    """What a volume is of; empty where no field says it, such as a Secret of which some keys are chosen."""
    size = amounts.memory(origin.below("emptyDir").take("sizeLimit"))
    for field, name in (
        ("claim", origin.below("persistentVolumeClaim").text("claimName")),
        ("secret", "" if origin.below("secret").list_of("items") else origin.below("secret").text("secretName")),
        ("configMap", "" if origin.below("configMap").list_of("items") else origin.below("configMap").text("name")),
    ):
        if name:
            return {field: name}
    return {"emptyDir": {"size": size}} if size else {}


def _is_made(field: str) -> bool:
    """Whether the system fills the field in by itself."""
    return field == "spec.template.metadata" or field.startswith("spec.template.metadata.")
