"""A Job or Deployment of Kubernetes, or a job of Run:ai in the same form, as the spec of a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuctl.compile.amounts import NAME_LENGTH
from gpuctl.compile.sweep_v1 import MOST_INDICES
from gpuctl.edit import Target, Value
from gpuctl.k8s.names import GIT_CONTAINER, MAIN_CONTAINER, TOLERATED_TAINT_KEYS
from gpuctl.k8s.pod_keys import is_for_people
from gpuctl.k8s.tolerations import OF_THE_CLUSTER
from gpuctl.scaffold.foreign import amounts
from gpuctl.scaffold.foreign.containers import probes, process, security, security_beside
from gpuctl.scaffold.foreign.mounts import Mounts
from gpuctl.scaffold.foreign.values import Left, Place, Record, Thing, given, strings

GPU = "nvidia.com/gpu"
_OURS = {"app.kubernetes.io/managed-by": "gpuctl"}
_OF_POD = {
    "schedulerName": ("default-scheduler", "runai-scheduler", "kai-scheduler"),
    "restartPolicy": ("Never", "OnFailure", "Always"),
    "priorityClassName": ("train", "build"),
    "enableServiceLinks": (True,),
}
"""Fields that pods have by themselves, with their values; anything else is reported."""
_OF_JOB = ("completionMode", "manualSelector", "selector", "podReplacementPolicy")
_POD = "spec.template.spec"
_UNLIMITED = 2**31 - 1
"""The `backoffLimit` that a server writes on a Job with a limit for each index."""
_TAKEN = frozenset({MAIN_CONTAINER, GIT_CONTAINER})


def job_of(item: Any, project: str, place: Place) -> Thing | Left:
    """The job that an object declares, or why it can't be one."""
    whole = Record(item)
    metadata, status = whole.below("metadata"), whole.below("status")
    name, annotations = metadata.text("name"), metadata.below("annotations")
    target = Target(kind="Job", name=name, project=project)
    spec = whole.below("spec")
    reason = _no_job(metadata, status, spec)
    if reason:
        return Left(what=str(target), why=reason)
    several = _several(spec, name) if whole.text("kind") != "Deployment" else _service(spec)
    if isinstance(several, str):
        return Left(what=str(target), why=several)
    unsaid: list[str] = []
    template = spec.below("template")
    pod = template.below("spec")
    if not pod.list_of("containers"):
        return Left(what=str(target), why="its pods have no container")
    fields: dict[str, Value] = {
        **several,
        **_of_containers(pod, annotations, place, unsaid),
        "maxDuration": amounts.seconds(spec.take("activeDeadlineSeconds")),
        "ttlAfterFinished": _ttl(spec),
        "nodePools": _pools(pod, place, unsaid),
        "imagePullSecrets": _pull_secrets(pod),
        **_for_people(template.below("metadata")),
        **_of_pod(pod, place, unsaid),
        **_retries(spec, is_gang="workers" in several),
    }
    spec.take(*_OF_JOB)
    for field, usual in _OF_POD.items():
        pod.skip(field, usual)
    unsaid += [each for each in whole.rest() if each.startswith("spec.") and not _is_made(each)]
    return Thing(target=target, spec=given(fields), unsaid=tuple(unsaid), origin=item)


def _of_containers(pod: Record, annotations: Record, place: Place, unsaid: list[str]) -> dict[str, Value]:
    """The job's own container (the first one with a GPU, else the first), and all others."""
    containers = [Record(each, f"{_POD}.containers[{at}].") for at, each in enumerate(pod.list_of("containers"))]
    with_gpu = (one for one in containers if GPU in str(one.take("resources")))
    main = next(with_gpu, containers[0])
    at = main.at.removesuffix(".")
    of_pod = security(pod.below("securityContext"), f"{_POD}.securityContext", unsaid)
    secured = {**of_pod, **security(main.below("securityContext"), f"{at}.securityContext", unsaid)}
    mounts = Mounts(pod, place, unsaid)
    mounts.of_job(main)
    asked = probes(main, at, unsaid)
    main.take("name")
    fields: dict[str, Value] = {
        **process(main, at, unsaid),
        **_requests(main, annotations, unsaid),
        "probes": asked,
        "preStop": [*strings(main.below("lifecycle").below("preStop").below("exec").list_of("command"))],
        "security": secured,
        "tty": True if main.take("tty") is True and main.take("stdin") is True else None,
    }
    before, beside = _others(pod, [one for one in containers if one is not main], mounts, of_pod, secured, unsaid)
    unsaid += main.rest()
    fields |= {"initContainers": before, "sidecars": beside}
    return {**fields, "largeShm": mounts.large_shm, "volumes": mounts.volumes}


def _others(  # noqa: PLR0913, PLR0917 - what a container has of its pod and of the job
    pod: Record,
    further: list[Record],
    mounts: Mounts,
    of_pod: Mapping[str, Value],
    secured: Mapping[str, Value],
    unsaid: list[str],
) -> tuple[list[Value], list[Value]]:
    """Init containers and sidecars."""
    first = [Record(each, f"{_POD}.initContainers[{at}].") for at, each in enumerate(pod.list_of("initContainers"))]
    stay = [one.text("restartPolicy") == "Always" for one in first]
    before: list[Value] = []
    beside: list[Value] = []
    for position, one in enumerate((*first, *further)):
        is_further = position >= len(first)
        stays = is_further or stay[position]
        at = one.at.removesuffix(".")
        name = one.text("name")
        fields: dict[str, Value] = {
            "name": f"{name}-1" if name in _TAKEN else name,
            **process(one, at, unsaid),
            **_requests(one, Record({}), unsaid),
            "mounts": mounts.of_other(one, name),
        }
        own = security(one.below("securityContext"), f"{at}.securityContext", unsaid)
        beside_job = security_beside(own, of_pod, secured, f"{at}.securityContext", unsaid)
        if stays:
            fields["probes"] = probes(one, at, unsaid)
            fields["beforeInit"] = (not is_further and not all(stay[position:])) or None
        if is_further:
            unsaid.append(f"that the job waits for {at}: it is a sidecar now, and ends with the job's own container")
        elif stays and not all(stay[position:]) and not all(stay[:position]):
            unsaid.append(f"that {at} starts after an init container: it starts before all of them")
        made = given(fields)
        (beside if stays else before).append({**made, "security": beside_job} if beside_job else made)
        unsaid += one.rest()
    return before, beside


def _of_pod(pod: Record, place: Place, unsaid: list[str]) -> dict[str, Value]:
    """The fields of a pod as a whole."""
    aliases: list[Value] = []
    for each in pod.list_of("hostAliases"):
        record = Record(each)
        names: list[Value] = [*strings(record.list_of("hostnames"))]
        aliases.append(given({"ip": record.text("ip"), "hostnames": names}))
    for each in pod.list_of("tolerations"):
        key = Record(each).text("key")
        if key not in place.tolerated and key not in TOLERATED_TAINT_KEYS and not key.startswith(OF_THE_CLUSTER):
            unsaid.append(f"{_POD}.tolerations of {key or 'all taints'}: the Cluster declares them for each pool")
    policy = pod.take("dnsPolicy")
    if policy not in (None, "ClusterFirst", "Default"):
        unsaid.append(f"{_POD}.dnsPolicy {policy}")
    grace = amounts.whole(pod.take("terminationGracePeriodSeconds"))
    if grace is not None and grace > place.grace_s:
        unsaid.append(f"{_POD}.terminationGracePeriodSeconds {grace}: the Cluster allows {place.grace_s}")
        grace = None
    return {
        "hostAliases": aliases,
        "dnsPolicy": "Default" if policy == "Default" else None,
        "pauseGrace": None if grace in {None, 30} else amounts.seconds(grace),
    }


def _for_people(metadata: Record) -> dict[str, Value]:
    """Labels and annotations of the pods that neither gpuctl nor the cluster acts on."""
    found: dict[str, Value] = {}
    for field in ("labels", "annotations"):
        told = metadata.take(field)
        marks = told.items() if isinstance(told, dict) else ()
        found[field] = {key: text for key, text in marks if is_for_people(str(key)) and isinstance(text, str)}
    return found


def _service(spec: Record) -> dict[str, Value] | str:
    """A Deployment as a service: workers, with the ports they name. Scaled to zero, it is suspended."""
    count = amounts.whole(spec.take("replicas"))
    spec.take("selector", "strategy", "revisionHistoryLimit", "progressDeadlineSeconds")
    pod = Record(Record(spec.take("template")).take("spec"))
    ports = {
        port: None
        for each in pod.list_of("containers")
        for entry in Record(each).list_of("ports")
        if (port := amounts.whole(Record(entry).take("containerPort"))) is not None
    }
    exposed: list[Value] = [{"port": port, "via": "service"} for port in ports]
    workers = count if count is not None and count > 1 else None
    return {"type": "inference", "workers": workers, "suspend": count == 0 or None, "expose": exposed}


def _several(spec: Record, name: str) -> dict[str, Value] | str:
    """A gang, if all pods of an Indexed Job may run at once; a sweep, if it has more pods than may run at a time.

    A text says why it is neither: the number of its pods is not given, or too large.
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


def _retries(spec: Record, *, is_gang: bool) -> dict[str, Value]:
    """The retries of all pods together, and of each; an index of a sweep is a job with its own retries."""
    each, together = amounts.whole(spec.take("backoffLimitPerIndex")), amounts.whole(spec.take("backoffLimit"))
    if each is None:
        return {"retries": together}
    if not is_gang:
        return {"retries": each}
    spec.skip("maxFailedIndexes", (0,))
    return {"retriesPerWorker": each or None, "retries": together if together != _UNLIMITED else None}


def _ttl(spec: Record) -> str | None:
    """How long a Job is kept after its end; a declaration needs at least a minute."""
    kept_s = amounts.whole(spec.take("ttlSecondsAfterFinished"))
    return None if kept_s is None else amounts.seconds(max(60, kept_s))


def _no_job(metadata: Record, status: Record, spec: Record) -> str:
    """Why an object is no job to declare; "" if it is one."""
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


def _requests(container: Record, annotations: Record, unsaid: list[str]) -> dict[str, Value]:
    """GPUs, CPU and memory: requests, else limits. A fraction comes from the annotation of Run:ai and KAI."""
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


def _pull_secrets(pod: Record) -> list[Value]:
    named = dict.fromkeys(Record(each).text("name") for each in pod.list_of("imagePullSecrets"))
    return [name for name in named if name]


def _is_made(field: str) -> bool:
    """Whether the system itself fills in the field."""
    return field == "spec.template.metadata" or field.startswith("spec.template.metadata.")
