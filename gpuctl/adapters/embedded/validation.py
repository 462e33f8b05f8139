"""Everything that the server refuses with 422: missing or malformed fields, and changes of immutable parts.

Forms that the embedded cluster does not play (quota scopes, other CEL) are refused too, so that nothing is silently
misread. Source: pkg/apis/*/validation, Kubernetes 1.36, for the objects gpuctl writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gpuctl.adapters.embedded import scopes
from gpuctl.adapters.embedded.bodies import at, drop, key_of, put
from gpuctl.adapters.embedded.cel import selector
from gpuctl.adapters.embedded.faults import invalid
from gpuctl.adapters.embedded.podrules import pod_problems
from gpuctl.adapters.embedded.textrules import is_label, is_subdomain, label_problems
from gpuctl.k8s import kinds
from gpuctl.k8s.objects import flag, items, mapping, text
from gpuctl.k8s.quantity import exact
from gpuctl.model.state import Body

Problems = Iterable[str]
_MAX_CONFIG_BYTES = 1 << 20
_MAX_ANNOTATIONS_BYTES = 256 << 10
_DNS_LABELS = frozenset({kinds.NAMESPACE, kinds.SERVICE})
_PATH_NAMES = frozenset({kinds.ROLE_BINDING})
_IMMUTABLE = "Invalid value: field is immutable"


def check(body: Body) -> None:
    """Raises Invalid with everything that is wrong with an object whose defaults are filled in."""
    _refuse(body, [*_metadata(body), *_CHECKS.get((body["apiVersion"], body["kind"]), _nothing)(body)])


def check_change(old: Body, new: Body) -> None:
    """Raises Invalid with every change that is not allowed."""
    _refuse(new, _CHANGES.get((new["apiVersion"], new["kind"]), _no_change)(old, new))


def _refuse(body: Body, problems: Problems) -> None:
    found = list(problems)
    if found:
        raise invalid(f"{key_of(body)} is invalid: " + "; ".join(found))


def _nothing(_: Body) -> Problems:
    return ()


def _no_change(_old: Body, _new: Body) -> Problems:
    return ()


def _metadata(body: Body) -> Problems:
    meta = body["metadata"]
    kind = (body["apiVersion"], body["kind"])
    name = str(meta["name"])
    if kind in _PATH_NAMES:
        good = name not in {".", ".."} and not re.search("[/%]", name)
    else:
        good = is_label(name) if kind in _DNS_LABELS else is_subdomain(name)
    if not good:
        yield f"metadata.name: Invalid value: {name!r}: not a DNS name as this kind needs it"
    yield from label_problems("metadata.labels", mapping(meta, "labels"))
    size = sum(len(k.encode()) + len(str(v).encode()) for k, v in mapping(meta, "annotations").items())
    if size > _MAX_ANNOTATIONS_BYTES:
        yield f"metadata.annotations: Too long: may not be more than {_MAX_ANNOTATIONS_BYTES} bytes"
    wrong = [k for k, v in mapping(meta, "annotations").items() if not isinstance(v, str)]
    yield from (f"metadata.annotations: Invalid value: {k!r} is not a string" for k in wrong)


def _job(body: Body) -> Problems:
    spec = mapping(body, "spec")
    yield from pod_problems("spec.template", mapping(spec, "template"), {"Never", "OnFailure"})
    for field in ("parallelism", "completions", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished"):
        if isinstance(spec.get(field), bool) or not isinstance(spec.get(field, 0), int) or spec.get(field, 0) < 0:
            yield f"spec.{field}: Invalid value: must be an integer of at least 0"
    if spec.get("completionMode") == "Indexed" and spec.get("completions") is None:
        yield "spec.completions: Required value: when completion mode is Indexed"
    if spec.get("completionMode") not in {"Indexed", "NonIndexed"}:
        yield "spec.completionMode: Unsupported value"
    if spec.get("podReplacementPolicy") not in {"Failed", "TerminatingOrFailed"}:
        yield "spec.podReplacementPolicy: Unsupported value"
    if "podFailurePolicy" in spec:
        if spec.get("podReplacementPolicy") != "Failed":
            yield "spec.podReplacementPolicy: Unsupported value: must be Failed with a podFailurePolicy"
        if text(spec, "template", "spec", "restartPolicy") != "Never":
            yield "spec.template.spec.restartPolicy: Invalid value: must be Never with a podFailurePolicy"
    # The Job's name becomes a label of its pods, and with an index their host name.
    longest = 63 - (1 + len(str(max(0, int(spec.get("completions") or 1) - 1)))) * (
        spec.get("completionMode") == "Indexed"
    )
    if len(body["metadata"]["name"]) > longest:
        yield f"metadata.name: Invalid value: must be no more than {longest} characters"


def _job_change(old: Body, new: Body) -> Problems:
    for field in ("selector", "completionMode", "podFailurePolicy", "successPolicy", "backoffLimitPerIndex"):
        if at(old, "spec", field) != at(new, "spec", field):
            yield f"spec.{field}: {_IMMUTABLE}"
    counts = at(new, "spec", "completions")
    if counts != at(old, "spec", "completions"):
        if at(new, "spec", "completionMode") != "Indexed":
            yield f"spec.completions: {_IMMUTABLE}"
        elif counts != at(new, "spec", "parallelism"):
            yield f"spec.completions: Invalid value: {counts}: can only be modified in tandem with spec.parallelism"
    before, after = mapping(old, "spec", "template"), mapping(new, "spec", "template")
    if flag(old, "spec", "suspend") and at(old, "status", "startTime") is None:
        before, after = _unscheduled(before), _unscheduled(after)
    if before != after:
        yield f"spec.template: {_IMMUTABLE}"


def _job_set_change(old: Body, new: Body) -> Problems:
    """The forbidden changes of a JobSet: also while suspended, no affinity may change.

    Source: pkg/webhooks/jobset_webhook.go, ValidateUpdate, JobSet 0.12.
    """
    before, after = (list(items(body, "spec", "replicatedJobs")) for body in (old, new))
    if flag(old, "spec", "suspend") or flag(new, "spec", "suspend"):
        before, after = [_unmarked(entry) for entry in before], [_unmarked(entry) for entry in after]
    if before != after:
        yield f"spec.replicatedJobs: {_IMMUTABLE}"


def _unmarked(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """A replicated Job without the parts that may change while its JobSet is suspended."""
    for field in (("metadata", "labels"), ("metadata", "annotations")):
        entry = drop(entry, ("template", "spec", "template", *field))
    for name in ("nodeSelector", "tolerations", "schedulingGates"):
        entry = drop(entry, ("template", "spec", "template", "spec", name))
    return entry


def _unscheduled(template: Mapping[str, Any]) -> Mapping[str, Any]:
    """A pod template without the parts that may change while its Job is suspended and has not started (amounts from
    1.36 on)."""
    for path in (
        ("metadata", "labels"),
        ("metadata", "annotations"),
        ("spec", "nodeSelector"),
        ("spec", "tolerations"),
        ("spec", "schedulingGates"),
    ):
        template = drop(template, path)
    affinity = {k: v for k, v in mapping(template, "spec", "affinity").items() if k != "nodeAffinity"}
    template = put(template, ("spec", "affinity"), affinity)
    containers = [
        {**each, "resources": mapping(each, "resources").get("claims")}
        for each in items(template, "spec", "containers")
    ]
    return put(template, ("spec", "containers"), containers)


def _deployment(body: Body) -> Problems:
    yield from pod_problems("spec.template", mapping(body, "spec", "template"), {"Always"})
    wanted = mapping(body, "spec", "selector", "matchLabels")
    labels = mapping(body, "spec", "template", "metadata", "labels")
    if not wanted:
        yield "spec.selector: Required value"
    elif any(labels.get(name) != value for name, value in wanted.items()):
        yield "spec.template.metadata.labels: Invalid value: `selector` does not match template `labels`"
    if not isinstance(at(body, "spec", "replicas"), int) or at(body, "spec", "replicas") < 0:
        yield "spec.replicas: Invalid value: must be an integer of at least 0"


_OF_OTHERS = frozenset({"Object", "External"})
"""Types of metrics that exist without pods."""


def _autoscaler(body: Body) -> Problems:
    least, most = at(body, "spec", "minReplicas", default=1), at(body, "spec", "maxReplicas")
    if not isinstance(most, int) or most < 1:
        yield "spec.maxReplicas: Invalid value: must be greater than 0"
    elif not isinstance(least, int) or least < 0:
        yield "spec.minReplicas: Invalid value: must be greater than or equal to 0"
    elif not least and not {text(metric, "type") for metric in items(body, "spec", "metrics")} & _OF_OTHERS:
        yield "spec.metrics: Forbidden: must specify at least one Object or External metric to support scaling to zero"
    elif most < least:
        yield "spec.maxReplicas: Invalid value: must be greater than or equal to `minReplicas`"
    if not text(body, "spec", "scaleTargetRef", "name"):
        yield "spec.scaleTargetRef.name: Required value"
    for metric in items(body, "spec", "metrics"):
        kind = text(metric, "type").lower()
        if not text(metric, kind, "metric", "name"):
            yield f"spec.metrics.{kind}.metric.name: Required value"
        yield from _quantities("spec.metrics", {"target": mapping(metric, kind, "target").get("averageValue")})


def _service(body: Body) -> Problems:
    ports = list(items(body, "spec", "ports"))
    if not ports and text(body, "spec", "clusterIP") != "None":
        yield "spec.ports: Required value"
    if len(ports) > 1 and not all(port.get("name") for port in ports):
        yield "spec.ports: Required value: each of several ports has a name"
    wrong = [port for port in ports if not isinstance(port.get("port"), int) or not 0 < port["port"] < 65536]
    yield from (f"spec.ports: Invalid value: {port.get('port')!r}" for port in wrong)


def _claim(body: Body) -> Problems:
    if not at(body, "spec", "accessModes"):
        yield "spec.accessModes: Required value: at least 1 access mode is required"
    yield from _quantities("spec.resources.requests", mapping(body, "spec", "resources", "requests"))
    if "storage" not in mapping(body, "spec", "resources", "requests"):
        yield "spec.resources.requests.storage: Required value"


def _claim_change(old: Body, new: Body) -> Problems:
    def fixed(body: Body) -> Mapping[str, Any]:
        spec = drop(mapping(body, "spec"), ("resources", "requests"))
        return drop(spec, ("volumeName",)) if at(old, "spec", "volumeName") is None else spec

    if fixed(old) != fixed(new):
        yield "spec: Forbidden: spec is immutable after creation except resources.requests"
    size, before = (exact(str(at(b, "spec", "resources", "requests", "storage", default=0))) for b in (new, old))
    if size < before:
        yield "spec.resources.requests.storage: Forbidden: field can not be less than previous value"


def _claim_template(body: Body) -> Problems:
    return _device_requests("spec.spec.devices.requests", items(body, "spec", "spec", "devices", "requests"))


def _resource_claim(body: Body) -> Problems:
    return _device_requests("spec.devices.requests", items(body, "spec", "devices", "requests"))


def _device_class(body: Body) -> Problems:
    return _selectors("spec.selectors", items(body, "spec", "selectors"))


def _device_requests(where: str, requests: Iterable[Body]) -> Problems:
    for request in requests:
        if not is_label(text(request, "name")):
            yield f"{where}.name: Invalid value: {text(request, 'name')!r}"
        exactly = mapping(request, "exactly")
        if not text(exactly, "deviceClassName"):
            yield f"{where}.exactly.deviceClassName: Required value"
        if exactly.get("allocationMode") != "ExactCount" or not isinstance(exactly.get("count"), int):
            yield f"{where}.exactly: Unsupported value: the embedded cluster allocates exact counts"
        yield from _quantities(f"{where}.exactly.capacity.requests", mapping(exactly, "capacity", "requests"))
        yield from _selectors(f"{where}.exactly.selectors", items(exactly, "selectors"))


def _selectors(where: str, selectors: Iterable[Body]) -> Problems:
    for entry in selectors:
        try:
            selector(text(entry, "cel", "expression"))
        except ValueError as error:
            yield f"{where}: Invalid value: {error}"


def _quota(body: Body) -> Problems:
    yield from _quantities("spec.hard", mapping(body, "spec", "hard"))
    yield from scopes.problems(body)


def _quantities(where: str, amounts: Mapping[str, Any]) -> Problems:
    for name, value in amounts.items():
        try:
            negative = exact(str(value)) < 0
        except ValueError:
            negative = True
        if negative:
            yield f"{where}[{name}]: Invalid value: {value!r}: must be a quantity of at least 0"


def _config_map(body: Body) -> Problems:
    entries = mapping(body, "data")
    if sum(len(str(value).encode()) for value in entries.values()) > _MAX_CONFIG_BYTES:
        yield f"data: Too long: may not be more than {_MAX_CONFIG_BYTES} bytes"
    for name, value in entries.items():
        if not re.fullmatch(r"[-._a-zA-Z0-9]{1,253}", name):
            yield f"data: Invalid value: {name!r}: not a key"
        if not isinstance(value, str):
            yield f"data[{name}]: Invalid value: not a string"


def _config_map_change(old: Body, new: Body) -> Problems:
    return ["data: Forbidden: field is immutable when `immutable` is set"] * (
        flag(old, "immutable") and (not flag(new, "immutable") or mapping(old, "data") != mapping(new, "data"))
    )


def _role_binding(body: Body) -> Problems:
    if not text(body, "roleRef", "name") or text(body, "roleRef", "kind") not in {"Role", "ClusterRole"}:
        yield "roleRef: Required value: a Role or ClusterRole by name"
    for subject in items(body, "subjects"):
        if not subject.get("name") or subject.get("kind") not in {"User", "Group", "ServiceAccount"}:
            yield "subjects: Invalid value: a User, Group or ServiceAccount by name"


def _ingress(body: Body) -> Problems:
    for rule in items(body, "spec", "rules"):
        for path in items(rule, "http", "paths"):
            if path.get("pathType") not in {"Exact", "Prefix", "ImplementationSpecific"}:
                yield "spec.rules.http.paths.pathType: Required value"
            if not str(path.get("path", "/")).startswith("/"):
                yield f"spec.rules.http.paths.path: Invalid value: {path.get('path')!r}: must be an absolute path"
            if not text(path, "backend", "service", "name"):
                yield "spec.rules.http.paths.backend: Required value"


def _priority_class(body: Body) -> Problems:
    if not isinstance(body.get("value"), int) or isinstance(body.get("value"), bool):
        yield "value: Required value"
    elif body["value"] > 1_000_000_000:
        yield "value: Forbidden: maximum allowed value of a user defined priority is 1000000000"


def _pod(body: Body) -> Problems:
    policies = {"Always", "OnFailure", "Never"}
    return pod_problems("pod", {"metadata": body["metadata"], "spec": mapping(body, "spec")}, policies)


def _fixed(*paths: tuple[str, ...]) -> Callable[[Body, Body], Problems]:
    """A check that these parts never change."""

    def problems(old: Body, new: Body) -> Problems:
        return [f"{'.'.join(path)}: {_IMMUTABLE}" for path in paths if at(old, *path) != at(new, *path)]

    return problems


_CHECKS: Mapping[kinds.Kind, Callable[[Body], Problems]] = {
    kinds.JOB: _job,
    kinds.POD: _pod,
    kinds.DEPLOYMENT: _deployment,
    kinds.AUTOSCALER: _autoscaler,
    kinds.SERVICE: _service,
    kinds.CLAIM: _claim,
    kinds.CLAIM_TEMPLATE: _claim_template,
    kinds.RESOURCE_CLAIM: _resource_claim,
    kinds.DEVICE_CLASS: _device_class,
    kinds.RESOURCE_QUOTA: _quota,
    kinds.CONFIG_MAP: _config_map,
    kinds.ROLE_BINDING: _role_binding,
    kinds.INGRESS: _ingress,
    kinds.PRIORITY_CLASS: _priority_class,
}

_CHANGES: Mapping[kinds.Kind, Callable[[Body, Body], Problems]] = {
    kinds.JOB: _job_change,
    kinds.JOB_SET: _job_set_change,
    kinds.DEPLOYMENT: _fixed(("spec", "selector")),
    kinds.SERVICE: _fixed(("spec", "clusterIP")),
    kinds.CLAIM: _claim_change,
    kinds.CLAIM_TEMPLATE: _fixed(("spec",)),
    kinds.RESOURCE_CLAIM: _fixed(("spec",)),
    kinds.CONFIG_MAP: _config_map_change,
    kinds.ROLE_BINDING: _fixed(("roleRef",)),
    kinds.PRIORITY_CLASS: _fixed(("value",), ("preemptionPolicy",)),
}
