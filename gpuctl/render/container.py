"""Parts that all containers of a job's pods have, and the containers besides the job's own.

They start in this order: the checkout of a Git repository, sidecars that start before the init containers, the init
containers one after another, the other sidecars, the job's own container.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gpuctl.k8s import names
from gpuctl.k8s.quantity import format_bytes, format_cpu
from gpuctl.model.declared import PodSecurity
from gpuctl.model.job import (
    EnvSource,
    EnvValue,
    ExtraContainer,
    OwnAmounts,
    Probe,
    Probes,
    RunAs,
    SecretKey,
)
from gpuctl.render.devices import NO_GPUS
from gpuctl.render.owner import JobOwner, Spec

WITHOUT_PRIVILEGES: Spec = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
"""Fields that Pod Security level `restricted` requires of each container; the other levels require none."""


def extra_containers(owner: JobOwner, seen: Mapping[str, Spec]) -> Iterator[Spec]:
    """The init containers and sidecars, in the order in which they start. `seen`: the mounts of the job's own container
    by path."""
    runs = owner.job.container
    yield from (_extra(owner, each, seen, stays=True) for each in runs.sidecars if each.before_init)
    yield from (_extra(owner, each, seen, stays=False) for each in runs.init_containers)
    yield from (_extra(owner, each, seen, stays=True) for each in runs.sidecars if not each.before_init)


def _extra(owner: JobOwner, one: ExtraContainer, seen: Mapping[str, Spec], *, stays: bool) -> Spec:
    gpus = {names.GPU_RESOURCE: str(one.gpus)} if one.gpus else {}
    resources = amounts(OwnAmounts(cpu_milli=one.cpu_milli, mem_bytes=one.mem_bytes), gpus)
    container: dict[str, Any] = {
        "name": one.name,
        "image": one.image,
        "imagePullPolicy": one.image_pull_policy,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        **process(one.command, one.args, one.working_dir),
        **environment(() if one.gpus else NO_GPUS, one.env, one.env_from),
    }
    if stays:
        container |= {"restartPolicy": "Always", **questions(one.probes)}
    if resources:
        container["resources"] = resources
    if one.mounts:
        container["volumeMounts"] = [
            {
                "name": seen[mount.volume]["name"],
                "mountPath": mount.mount_path,
                **({"readOnly": True} if mount.read_only else {}),
            }
            for mount in one.mounts
        ]
    security = {**user_of(one.run_as), **container_security(owner, one.run_as)}
    if security:
        container["securityContext"] = security
    return container


def process(command: Iterable[str], args: Iterable[str], working_dir: str | None) -> Spec:
    """The process that is started in a container; parts that are not given are the image's."""
    words = {"command": list(command), "args": list(args)}
    given: dict[str, Any] = {name: each for name, each in words.items() if each}
    return given if working_dir is None else {**given, "workingDir": working_dir}


def environment(own: Iterable[Spec], declared: Mapping[str, EnvValue], sources: Iterable[EnvSource]) -> Spec:
    """Variables: gpuctl's first, so that `$(NAME)` in a declared one may use them; a declared one replaces gpuctl's."""
    mine = [variable for variable in own if variable["name"] not in declared]
    env = [*mine, *(_variable(name, value) for name, value in sorted(declared.items()))]
    from_objects = [_env_source(each) for each in sources]
    return {**({"env": env} if env else {}), **({"envFrom": from_objects} if from_objects else {})}


def _variable(name: str, value: EnvValue) -> Spec:
    if isinstance(value, SecretKey):
        return {"name": name, "valueFrom": {"secretKeyRef": {"name": value.secret, "key": value.key}}}
    return {"name": name, "value": value}


def _env_source(source: EnvSource) -> Spec:
    """All keys of one object as variables; a variable of the same name in `env` is preferred."""
    if source.secret is not None:
        return {"prefix": source.prefix, "secretRef": {"name": source.secret}}
    return {"prefix": source.prefix, "configMapRef": {"name": source.config_map}}


def questions(probes: Probes) -> Spec:
    """The probes that the kubelet makes on a container."""
    asked = {"startupProbe": probes.startup, "readinessProbe": probes.readiness, "livenessProbe": probes.liveness}
    return {name: _probe(probe) for name, probe in asked.items() if probe is not None}


def _probe(probe: Probe) -> Spec:
    """One probe. Its numbers are written even if they are Kubernetes' defaults, so that it reads as declared."""
    if probe.path is not None:
        question: Spec = {"httpGet": {"path": probe.path, "port": probe.port}}
    elif probe.port is not None:
        question = {"tcpSocket": {"port": probe.port}}
    else:
        question = {"exec": {"command": list(probe.command)}}
    return {
        **question,
        **({"initialDelaySeconds": probe.delay_ms // 1000} if probe.delay_ms else {}),
        "periodSeconds": probe.period_ms // 1000,
        "timeoutSeconds": probe.timeout_ms // 1000,
        "failureThreshold": probe.failures,
    }


def user_of(wanted: RunAs) -> Spec:
    """The user of a container, or of all containers of a pod, and the system calls that it may make."""
    numbers = {"runAsUser": wanted.user, "runAsGroup": wanted.group}
    return {
        **({"seccompProfile": {"type": wanted.seccomp}} if wanted.seccomp else {}),
        **{name: number for name, number in numbers.items() if number is not None},
    }


def container_security(owner: JobOwner, wanted: RunAs) -> Spec:
    """The privileges of a container's processes, with those that the namespace's level requires to be dropped."""
    restricted = is_restricted(owner)
    drop = WITHOUT_PRIVILEGES["capabilities"]["drop"] if restricted else list(wanted.dropped)
    capabilities = {
        **({"add": list(wanted.added)} if wanted.added else {}),
        **({"drop": drop} if drop else {}),
    }
    return {
        **(WITHOUT_PRIVILEGES if restricted else {}),
        **({"capabilities": capabilities} if capabilities else {}),
        **({"readOnlyRootFilesystem": True} if wanted.read_only_root else {}),
    }


def is_restricted(owner: JobOwner) -> bool:
    """Whether the namespace has the strictest level."""
    return owner.project.pod_security is PodSecurity.RESTRICTED


def amounts(asked: OwnAmounts, gpus: Spec) -> Spec:
    """CPU is requested but not limited; memory is both, so that a job can't push its neighbours off the node."""
    requests, limits = dict(gpus), dict(gpus)
    if asked.cpu_milli:
        requests["cpu"] = format_cpu(asked.cpu_milli)
    if asked.mem_bytes:
        requests["memory"] = limits["memory"] = format_bytes(asked.mem_bytes)
    both = {"requests": requests, "limits": limits}
    return {name: amount for name, amount in both.items() if amount}
