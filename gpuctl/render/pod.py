"""A run's pod template: a container named `main`, its volumes, and where it may be scheduled.

It contains nothing that may change without a new run, except the place: the API server allows no other change, not even
while the Job is suspended. So only the job's Service names the ports that it exposes.

A waiting run's template has no affinity. The write that releases the run sets it, and it stays as it is while pods
exist. The pods carry the placement and the charge they were started with, for people: gpuctl itself reads its ledger.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, assert_never

from gpuctl.k8s import names
from gpuctl.k8s.annotations import encode_charge, encode_placement
from gpuctl.k8s.quantity import format_bytes
from gpuctl.k8s.tolerations import tolerations
from gpuctl.model.decision import Placement
from gpuctl.model.job import USUAL_GRACE_MS, Job
from gpuctl.model.state import Charge
from gpuctl.model.volumes import (
    ClaimVolume,
    ConfigMapVolume,
    CsiVolume,
    EmptyDirVolume,
    HostPathVolume,
    NewClaimVolume,
    NfsVolume,
    ProjectedSource,
    ProjectedVolume,
    SecretVolume,
    Volume,
)
from gpuctl.render.container import (
    amounts,
    container_security,
    environment,
    extra_containers,
    is_restricted,
    process,
    questions,
    user_of,
)
from gpuctl.render.devices import DeviceTerms, container_resources, device_annotations, device_env, pod_devices
from gpuctl.render.gang import gang_env, gang_labels, gang_ports, gang_spec
from gpuctl.render.git import git_container, git_key_volume, git_volume
from gpuctl.render.owner import JobOwner, Spec

_SHM = "shm"
WITHOUT_ROOT = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
"""Fields that Pod Security level `restricted` requires of a pod; the other levels require none."""


def charge_of(job: Job, terms: DeviceTerms) -> Charge:
    """What one worker is charged."""
    return Charge(gpu_milli=terms.gpu_milli, cpu_milli=job.cpu_milli, mem_bytes=job.mem_bytes)


def pod_template(owner: JobOwner, terms: DeviceTerms, place: Placement | None, restart: Spec) -> Spec:
    """The template; `restart`: the restart policy, if the workload's own default does not do."""
    workers = len(place.workers) if place else owner.job.workers
    runs = owner.job.container
    metadata: dict[str, Any] = {"labels": {**runs.labels, **owner.run_labels, **gang_labels(owner, workers)}}
    notes = dict(runs.annotations)
    volumes, mounts = _volumes(owner.job)
    volumes += git_key_volume(owner, runs.git) if runs.git is not None else []
    spec: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "containers": [_container(owner, terms, mounts)],
        "priorityClassName": names.PRIORITY_CLASS,
        "tolerations": tolerations_of(owner),
        **restart,
        **gang_spec(owner),
        **pod_devices(owner, terms),
    }
    before = [
        *([git_container(owner, runs.git, amounts(owner.job.own_amounts, {}))] if runs.git is not None else ()),
        *extra_containers(owner, {mount["mountPath"]: mount for mount in mounts}),
    ]
    if before:
        spec["initContainers"] = before
    if volumes:
        spec["volumes"] = volumes
    security = _pod_security(owner)
    if security:
        spec["securityContext"] = security
    if runs.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in runs.pull_secrets]
    if runs.host_aliases:
        spec["hostAliases"] = [{"ip": each.ip, "hostnames": list(each.hostnames)} for each in runs.host_aliases]
    if owner.job.pause_grace_ms != USUAL_GRACE_MS:
        spec["terminationGracePeriodSeconds"] = owner.job.pause_grace_ms // 1000
    if runs.dns_policy is not None:
        spec["dnsPolicy"] = runs.dns_policy
    if place is not None:
        notes |= {
            names.PLACEMENT_ANNOTATION: encode_placement(place),
            names.CHARGE_ANNOTATION: encode_charge(charge_of(owner.job, terms)),
            **device_annotations(owner.job, terms, place),
        }
        spec["affinity"] = affinity_to(place)
    if notes:
        metadata["annotations"] = notes
    return {"metadata": metadata, "spec": spec}


def tolerations_of(owner: JobOwner) -> list[Mapping[str, str]]:
    """The tolerations of all pools that the job may run in. Its affinity, not a taint, decides on which node it
    runs."""
    cluster = owner.project.cluster.cluster
    return tolerations(each for name in owner.job.pools for each in cluster.pool(name).tolerations)


def affinity_to(place: Placement) -> Spec:
    """Affinity to the nodes by name, one term for each: terms are alternatives, and matchFields takes one value."""
    terms = [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]} for node in sorted(place.nodes)
    ]
    required = {"nodeSelectorTerms": terms}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def _container(owner: JobOwner, terms: DeviceTerms, mounts: list[Spec]) -> Spec:
    runs = owner.job.container
    container: dict[str, Any] = {
        "name": names.MAIN_CONTAINER,
        "image": runs.image,
        "imagePullPolicy": runs.image_pull_policy,
        "terminationMessagePolicy": "FallbackToLogsOnError",  # the kubelet puts the end of its log into its status
        **process(runs.command, runs.args, runs.working_dir),
        **environment(
            (*gang_env(owner), *device_env(owner.job, terms), *_grace_env(owner.job)), runs.env, runs.env_from
        ),
    }
    ports = gang_ports(owner)
    if ports:
        container["ports"] = ports
    gpus, claims = container_resources(owner.job, terms)
    resources = {**amounts(owner.job.own_amounts, gpus), **claims}
    if resources:
        container["resources"] = resources
    if mounts:
        container["volumeMounts"] = mounts
    security = container_security(owner, runs.run_as)
    if security:
        container["securityContext"] = security
    if runs.pre_stop:
        container["lifecycle"] = {"preStop": {"exec": {"command": list(runs.pre_stop)}}}
    container |= questions(runs.probes)
    if runs.tty:
        container |= {"stdin": True, "tty": True}
    return container


def _pod_security(owner: JobOwner) -> Spec:
    """The user and groups of the whole pod."""
    wanted = owner.job.container.run_as
    return {
        **(WITHOUT_ROOT if is_restricted(owner) else {}),
        **user_of(wanted),
        **({"fsGroup": wanted.fs_group} if wanted.fs_group is not None else {}),
        **({"supplementalGroups": list(wanted.further_groups)} if wanted.further_groups else {}),
    }


def _grace_env(job: Job) -> Iterator[Spec]:
    """The variable with the time for saving work, if that time is declared."""
    if job.pause_grace_ms != USUAL_GRACE_MS:
        yield {"name": names.GRACE_VARIABLE, "value": str(job.pause_grace_ms // 1000)}


def _volumes(job: Job) -> tuple[list[Spec], list[Spec]]:
    """The pod's volumes and the container's mounts, in declared order; the checkout and the large /dev/shm come
    last."""
    volumes: list[Spec] = []
    mounts: list[Spec] = []
    new_claims = count()
    for index, volume in enumerate(job.container.volumes):
        name = f"volume-{index}"
        mount = {"name": name, "mountPath": volume.mount_path}
        volumes.append({"name": name, **_source(job, volume, new_claims)})
        mounts.append({**mount, "readOnly": True} if volume.read_only else mount)
    if job.container.git is not None:
        checkout, seen = git_volume(job.container.git)
        volumes.append(checkout)
        mounts.append(seen)
    if job.container.large_shm:
        volumes.append({"name": _SHM, "emptyDir": {"medium": "Memory"}})
        mounts.append({"name": _SHM, "mountPath": "/dev/shm"})  # noqa: S108 - shared memory, not a file of ours
    return volumes, mounts


def _source(job: Job, volume: Volume, new_claims: Iterator[int]) -> Spec:
    match volume:
        case ClaimVolume():
            return {"persistentVolumeClaim": {"claimName": volume.claim}}
        case NewClaimVolume():
            return {"persistentVolumeClaim": {"claimName": names.claim_name(job.id.name, next(new_claims))}}
        case HostPathVolume():
            return {"hostPath": {"path": volume.host_path}}
        case NfsVolume():
            return {"nfs": {"server": volume.server, "path": volume.path}}
        case SecretVolume():
            return {"secret": {"secretName": volume.secret}}
        case ConfigMapVolume():
            return {"configMap": {"name": volume.config_map}}
        case EmptyDirVolume():
            return {"emptyDir": {"sizeLimit": format_bytes(volume.size_bytes)}}
        case ProjectedVolume():
            return {"projected": {"sources": list(map(_projected, volume.sources))}}
        case CsiVolume():
            return {"csi": _inline(volume)}
        case _:
            assert_never(volume)


def _projected(source: ProjectedSource) -> Spec:
    chosen = {"items": [{"key": key, "path": path} for key, path in source.items.items()]} if source.items else {}
    if source.secret is not None:
        return {"secret": {"name": source.secret, **chosen}}
    if source.config_map is not None:
        return {"configMap": {"name": source.config_map, **chosen}}
    facts = [{"path": path, "fieldRef": {"fieldPath": fact}} for path, fact in source.facts.items()]
    return {"downwardAPI": {"items": facts}}


def _inline(volume: CsiVolume) -> Spec:
    return {
        "driver": volume.driver,
        **({"readOnly": True} if volume.read_only else {}),
        **({"volumeAttributes": dict(volume.attributes)} if volume.attributes else {}),
        **({"fsType": volume.fs_type} if volume.fs_type is not None else {}),
        **({"nodePublishSecretRef": {"name": volume.secret}} if volume.secret is not None else {}),
    }
