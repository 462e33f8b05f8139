"""What the server refuses in a pod or a pod template: containers, requests, volumes, claims, affinity."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from gpuctl.adapters.embedded.textrules import is_label, label_problems
from gpuctl.k8s.objects import items, mapping, text
from gpuctl.k8s.quantity import exact

_ENV_NAME = re.compile(r"[ -<>-~]+")
_OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"})
_NATIVE = frozenset({"cpu", "memory", "ephemeral-storage"})


def pod_problems(where: str, template: Mapping[str, Any], restart_policies: set[str]) -> Iterable[str]:
    """Everything that is wrong with a pod template."""
    spec = mapping(template, "spec")
    yield from label_problems(f"{where}.metadata.labels", mapping(template, "metadata", "labels"))
    if spec.get("restartPolicy") not in restart_policies:
        yield f"{where}.spec.restartPolicy: Unsupported value: {spec.get('restartPolicy')!r}"
    containers = list(items(spec, "containers"))
    if not containers:
        yield f"{where}.spec.containers: Required value"
    before = list(items(spec, "initContainers"))
    yield from _duplicates(f"{where}.spec.containers", [*before, *containers], "name")
    for container in before:
        if container.get("restartPolicy", "Always") != "Always":
            yield f"{where}.spec.initContainers.restartPolicy: Unsupported value: {container['restartPolicy']!r}"
    yield from _duplicates(f"{where}.spec.volumes", items(spec, "volumes"), "name")
    volumes = {text(volume, "name") for volume in items(spec, "volumes")}
    claims = {text(claim, "name") for claim in items(spec, "resourceClaims")}
    for container in (*containers, *before):
        yield from _container(f"{where}.spec.containers[{text(container, 'name')}]", container, volumes, claims)
    for claim in items(spec, "resourceClaims"):
        if bool(claim.get("resourceClaimName")) == bool(claim.get("resourceClaimTemplateName")):
            yield f"{where}.spec.resourceClaims: Invalid value: exactly one of a claim and a template is named"
    yield from _affinity(f"{where}.spec.affinity.nodeAffinity", spec)
    for toleration in items(spec, "tolerations"):
        if toleration.get("operator", "Equal") not in {"Exists", "Equal"}:
            yield f"{where}.spec.tolerations: Unsupported value: {toleration.get('operator')!r}"


def _container(where: str, container: Mapping[str, Any], volumes: set[str], claims: set[str]) -> Iterable[str]:
    if not is_label(text(container, "name")):
        yield f"{where}.name: Invalid value: {text(container, 'name')!r}"
    if not text(container, "image"):
        yield f"{where}.image: Required value"
    if container.get("imagePullPolicy") not in {"Always", "IfNotPresent", "Never"}:
        yield f"{where}.imagePullPolicy: Unsupported value: {container.get('imagePullPolicy')!r}"
    yield from _resources(f"{where}.resources", mapping(container, "resources"))
    for mount in items(container, "volumeMounts"):
        if text(mount, "name") not in volumes:
            yield f"{where}.volumeMounts: Not found: {text(mount, 'name')!r}"
        if not text(mount, "mountPath"):
            yield f"{where}.volumeMounts.mountPath: Required value"
    yield from _duplicates(f"{where}.volumeMounts", items(container, "volumeMounts"), "mountPath")
    for claim in items(container, "resources", "claims"):
        if text(claim, "name") not in claims:
            yield f"{where}.resources.claims: Not found: {text(claim, 'name')!r}"
    yield from _inputs(where, container)


def _inputs(where: str, container: Mapping[str, Any]) -> Iterable[str]:
    for variable in items(container, "env"):
        if not _ENV_NAME.fullmatch(text(variable, "name")):
            yield f"{where}.env.name: Invalid value: {text(variable, 'name')!r}"
        if "value" in variable and not isinstance(variable["value"], str):
            yield f"{where}.env[{text(variable, 'name')}].value: Invalid value: not a string"
    for port in items(container, "ports"):
        number = port.get("containerPort")
        if not isinstance(number, int) or not 0 < number < 65536:
            yield f"{where}.ports.containerPort: Invalid value: {number!r}"


def _resources(where: str, resources: Mapping[str, Any]) -> Iterable[str]:
    limits, requests = mapping(resources, "limits"), mapping(resources, "requests")
    for side, amounts in (("limits", limits), ("requests", requests)):
        for name, value in amounts.items():
            try:
                amount = exact(str(value))
            except ValueError:
                yield f"{where}.{side}[{name}]: Invalid value: {value!r}: not a quantity"
                continue
            if amount < 0 or (name not in _NATIVE and amount.denominator != 1):
                yield f"{where}.{side}[{name}]: Invalid value: {value!r}: must be at least 0, and whole for devices"
            elif side == "requests" and name in limits and _over(value, limits[name]):
                yield f"{where}.requests[{name}]: Invalid value: must be less than or equal to the limit"
            elif "/" in name and _unlike(name, limits, requests):
                yield f"{where}.{side}[{name}]: Invalid value: limit must be set and equal to request for {name}"


def _over(request: object, limit: object) -> bool:
    try:
        return exact(str(request)) > exact(str(limit))
    except ValueError:
        return False


def _unlike(name: str, limits: Mapping[str, Any], requests: Mapping[str, Any]) -> bool:
    """Whether a device is asked for without a limit, or with another one than requested."""
    return name not in limits or (name in requests and exact(str(requests[name])) != exact(str(limits[name])))


def _affinity(where: str, spec: Mapping[str, Any]) -> Iterable[str]:
    affinity = mapping(spec, "affinity", "nodeAffinity")
    if "requiredDuringSchedulingIgnoredDuringExecution" not in affinity:
        return
    terms = list(items(affinity, "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"))
    if not terms:
        yield f"{where}.nodeSelectorTerms: Required value: must have at least one node selector term"
    for term in terms:
        for field in items(term, "matchFields"):
            if field.get("key") != "metadata.name" or field.get("operator") not in {"In", "NotIn"}:
                yield f"{where}.matchFields: Unsupported value: only metadata.name, In or NotIn"
            if len(field.get("values", ())) != 1:
                yield f"{where}.matchFields.values: Required value: must be only one value for a node field"
        for expression in items(term, "matchExpressions"):
            if expression.get("operator") not in _OPERATORS:
                yield f"{where}.matchExpressions.operator: Unsupported value: {expression.get('operator')!r}"


def _duplicates(where: str, entries: Iterable[Mapping[str, Any]], key: str) -> Iterable[str]:
    seen: set[str] = set()
    for entry in entries:
        name = text(entry, key)
        if name in seen:
            yield f"{where}.{key}: Duplicate value: {name!r}"
        seen.add(name)
