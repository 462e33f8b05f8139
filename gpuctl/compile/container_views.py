"""Jobs of several containers as policies see them: the job, and once more for each of its other containers.

A rule about an image, a command, variables, mounts or a user must hold for every container; otherwise a second
container would be a way round it. So each container is checked as if it were the job's own: its fields stand in place
of the job's. Amounts are then those of the whole pod. A mistake is reported at the container's own line. A job that is
the object of another controller is seen as each of the containers of its pods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from gpuctl.compile.declarations import Declaration
from gpuctl.compile.document import Document, Path
from gpuctl.compile.spec_v1 import JobV1
from gpuctl.compile.text import NO_PARAMS, Params
from gpuctl.compile.worker import Started, started, worker_of
from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.k8s.objects import items, mapping, text
from gpuctl.k8s.quantity import format_bytes, format_cpu
from gpuctl.k8s.workload_kinds import pod_sets
from gpuctl.k8s.workload_table import Rows
from gpuctl.model.units import WHOLE_GPU

_OWN = ("image", "imagePullPolicy", "command", "args", "workingDir", "envFrom")
"""Fields that a container sets in place of the job."""
_BY_PART = ("env", "security")
"""Mappings that a container overrides field by field."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ContainerDocument(Document):
    """A job's document, with another of its containers in place of its own. `at`: the path of that container."""

    job: Document
    at: Path

    @property
    def as_written(self) -> Document:
        """The document as it is in the file."""
        return self.job.as_written

    def mistake(
        self, code: str, path: Path, params: Params = NO_PARAMS, fix: str = "", *, at_key: bool = False
    ) -> Diagnostic:
        """An error of the value at a path, or of its key, at the place where the container sets it."""
        return self.job.mistake(code, self._written(path), params, fix, at_key=at_key)

    def _written(self, path: Path) -> Path:
        says = self.job.data
        for step in self.at:
            says = says[step]
        _, *below = path or ("",)
        if below[:1] == ["volumes"]:
            mounts = "mounts" if "mounts" in says else "volumeMounts"
            return (*self.at, mounts, *below[1:2]) if says.get(mounts) else path
        if below[:1] == ["security"] and "securityContext" in says:
            return (*self.at, "securityContext", *below[1:])
        return (*self.at, *below) if below and below[0] in {*_OWN, *_BY_PART} and below[0] in says else path


def other_containers(declaration: Declaration[JobV1], rows: Rows) -> Iterator[Declaration[JobV1]]:
    """The job with each of its other containers in place of its own. Cost: linear in the job's text, for each one."""
    for each in started(declaration.model.spec):
        yield _view(declaration, each.path, _data(declaration, each))
    if declaration.model.spec.manifest is not None:
        for at, says in _of_manifest(declaration.model.spec.manifest, rows):
            yield _view(declaration, at, says(declaration.document.data))


def _view(declaration: Declaration[JobV1], at: Path, data: Mapping[str, Any]) -> Declaration[JobV1]:
    document = declaration.document
    view = ContainerDocument(
        source=document.source, start=document.start, end=document.end, data=data, name=document.name,
        sound=document.sound, job=document, at=at,
    )  # fmt: skip
    return Declaration(view, declaration.model)


def _of_manifest(manifest: Mapping[str, Any], rows: Rows) -> Iterator[tuple[Path, Callable[[Any], Mapping[str, Any]]]]:
    """Each container of a manifest's pods: its path, and the job's data with it."""
    row = rows[manifest["apiVersion"], manifest["kind"]]
    for each in pod_sets(row, mapping(manifest, "spec")):
        pod = mapping(each.template, "spec")
        at: Path = ("spec", "manifest", "spec", *each.at, *each.sets.template, "spec")
        for kind in ("initContainers", "containers"):
            for position, container in enumerate(items(pod, kind)):
                yield (*at, kind, position), partial(_with_container, pod, container)


def _with_container(pod: Mapping[str, Any], container: Mapping[str, Any], data: Any) -> Mapping[str, Any]:
    """The job's data as if the job itself had the fields of a container of its manifest."""
    spec: dict[str, Any] = {**data["spec"], **{name: container[name] for name in _OWN if name in container}}
    spec["env"] = {text(each, "name"): text(each, "value") for each in items(container, "env")}
    spec["security"] = {**mapping(pod, "securityContext"), **mapping(container, "securityContext")}
    origins = {text(volume, "name"): volume for volume in items(pod, "volumes")}
    spec["volumes"] = [
        {
            **_origin(origins.get(text(mount, "name"), {})),
            "mountPath": text(mount, "mountPath"),
            "readOnly": mount.get("readOnly", False),
        }
        for mount in items(container, "volumeMounts")
    ]
    return {**data, "spec": spec}


def _origin(volume: Mapping[str, Any]) -> Mapping[str, Any]:
    """The source of a pod's volume, in the form of a job's volume."""
    named = {
        "hostPath": text(volume, "hostPath", "path"),
        "claim": text(volume, "persistentVolumeClaim", "claimName"),
        "secret": text(volume, "secret", "secretName"),
        "configMap": text(volume, "configMap", "name"),
    }
    csi, nfs = mapping(volume, "csi"), mapping(volume, "nfs")
    told = {"driver": text(csi, "driver"), "attributes": dict(mapping(csi, "volumeAttributes"))}
    secret = text(csi, "nodePublishSecretRef", "name")
    sources = list(map(_source, items(volume, "projected", "sources")))
    more = {
        "csi": {**told, **({"secret": secret} if secret else {})} if csi else {},
        "nfs": dict(nfs),
        "projected": {"sources": sources} if "projected" in volume else {},
    }
    return {name: each for name, each in {**named, **more}.items() if each}


def _source(source: Mapping[str, Any]) -> Mapping[str, Any]:
    """A source of a projected volume, in the form of a job's volume."""
    named = {name: text(source, name, "name") for name in ("secret", "configMap")}
    files = {text(each, "path"): text(each, "fieldRef", "fieldPath") for each in items(source, "downwardAPI", "items")}
    found = {name: each for name, each in named.items() if each}
    return {**found, **({"downwardAPI": files} if files else {})}


def _data(declaration: Declaration[JobV1], each: Started) -> Mapping[str, Any]:
    data, worker = declaration.document.data, worker_of(declaration.model.spec)
    says: Any = data
    for step in each.path:
        says = says[step]
    spec = {**data["spec"], **{name: says[name] for name in _OWN if name in says}}
    spec |= {name: {**(spec.get(name) or {}), **(says.get(name) or {})} for name in _BY_PART if says.get(name)}
    if says.get("mounts"):
        spec["volumes"] = list(_volumes(spec.get("volumes") or [], each))
    if "gpus" in spec and "gpuMemory" not in spec and not worker.gpu_milli % WHOLE_GPU:
        spec["gpus"] = worker.gpu_milli // WHOLE_GPU
    cpu = format_cpu(worker.cpu_milli)
    whole = {"cpu": int(cpu) if cpu.isdigit() else cpu, "memory": format_bytes(worker.mem_bytes)}
    asked = {name: amount for name, amount in whole.items() if name in (says.get("resources") or {})}
    return {**data, "spec": {**spec, "resources": {**(spec.get("resources") or {}), **asked}} if asked else spec}


def _volumes(declared: list[Mapping[str, Any]], each: Started) -> Iterator[Mapping[str, Any]]:
    """The volumes that the container mounts, in the order of its mounts; a checkout is left out."""
    for mount in each.container.mounts:
        origin = next((volume for volume in declared if volume.get("mountPath") == mount.volume), {})
        read_only = mount.read_only or origin.get("readOnly", False)
        yield {**origin, "mountPath": mount.mount_path or mount.volume, "readOnly": read_only}
