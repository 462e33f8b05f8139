"""Checks the pods of a job's `manifest`: fields that their templates may not have, and amounts that can't be counted.

`gpuctl/compile/manifest_v1.py` has already refused all unknown fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, TypeAlias

from gpuctl.compile.amounts import WrongValue
from gpuctl.compile.pod_v1 import HARMLESS_CAPABILITIES
from gpuctl.k8s import names
from gpuctl.k8s.objects import items, mapping, text
from gpuctl.k8s.pod_keys import is_for_people, reserved_after
from gpuctl.k8s.quantity import exact
from gpuctl.k8s.workload_kinds import PodSet
from gpuctl.model.workload_kind import WorkloadKind

At: TypeAlias = tuple[str | int, ...]
Body: TypeAlias = Mapping[str, Any]

_AMOUNTS = ("cpu", "memory", "ephemeral-storage", names.GPU_RESOURCE)
_DEVICES_MOUNT = "nvidia-container-devices"


def wrong_marks(row: WorkloadKind, metadata: Mapping[str, Any], at: At) -> Iterator[WrongValue]:
    """Labels and annotations that gpuctl, Kubernetes, a driver or the workload's controller acts on."""
    for part in ("labels", "annotations"):
        for key, value in mapping(metadata, part).items():
            if not is_for_people(str(key)) or _is_of(row.domains, str(key)):
                fix = "take a key with a domain of your own, or without one"
                rule = "gpuctl, Kubernetes, a driver or the object's controller obeys this key"
                yield WrongValue("GPU2018", at=(*at, part, key), fix=fix, found=str(key), rule=rule)
            elif not isinstance(value, str):
                yield WrongValue("GPU2008", at=(*at, part, key), fix=f'write "{value}"', found=str(value),
                                 kind="no text")  # fmt: skip


def _is_of(domains: tuple[str, ...], key: str) -> bool:
    domain = key.rpartition("/")[0]
    return any(domain == other or domain.endswith(f".{other}") for other in domains)


def wrong_mount(path: str, at: At) -> Iterator[WrongValue]:
    """Refuse mounts in the folder through which a container runtime gives GPUs."""
    if _DEVICES_MOUNT in path:
        yield WrongValue("GPU2018", at=at, found=path, rule="a mount there gives GPUs")


def wrong_template(row: WorkloadKind, each: PodSet, at: At) -> Iterator[WrongValue]:
    """All mistakes in the template of a set of pods, which is at `at`. Cost: linear in its values."""
    yield from wrong_marks(row, mapping(each.template, "metadata"), (*at, "metadata"))
    pod, here = mapping(each.template, "spec"), (*at, "spec")
    containers = list(items(pod, "containers"))
    if not containers:
        yield WrongValue("GPU2005", at=here, field="containers")
    elif row.container and row.container not in {text(container, "name") for container in containers}:
        rule = f"its controller looks for a container that is called {row.container}"
        yield WrongValue("GPU2018", at=(*here, "containers"), found="containers", rule=rule)
    restarts = pod.get("restartPolicy", each.sets.restarts[0])
    if restarts not in each.sets.restarts:
        rule = " or ".join(each.sets.restarts)
        yield WrongValue("GPU2018", at=(*here, "restartPolicy"), found=str(restarts), rule=rule)
    grace = pod.get("terminationGracePeriodSeconds", 1)
    if not isinstance(grace, int) or isinstance(grace, bool) or grace < 1:
        where = (*here, "terminationGracePeriodSeconds")
        yield WrongValue("GPU2018", at=where, found=str(grace), rule="a whole number of seconds, at least 1")
    dns_policy = pod.get("dnsPolicy", "ClusterFirst")
    if dns_policy not in ("ClusterFirst", "Default"):
        yield WrongValue("GPU2018", at=(*here, "dnsPolicy"), found=str(dns_policy), rule="ClusterFirst or Default")
    yield from _wrong_profile(pod, here)
    for position, volume in enumerate(items(pod, "volumes")):
        for name, value in mapping(volume, "csi", "volumeAttributes").items():
            if not isinstance(value, str):
                where = (*here, "volumes", position, "csi", "volumeAttributes", name)
                yield WrongValue("GPU2008", at=where, fix=f'write "{value}"', found=str(value), kind="no text")
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
        if not isinstance(capability, str) or capability not in HARMLESS_CAPABILITIES:
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
        yield from wrong_mount(text(mount, "mountPath"), (*at, "volumeMounts", position, "mountPath"))
    yield from _wrong_amounts(mapping(container, "resources"), (*at, "resources"))


def _wrong_amounts(resources: Body, at: At) -> Iterator[WrongValue]:
    """Amounts that can't be counted as the cluster counts them: unreadable ones, and other kinds of devices."""
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
