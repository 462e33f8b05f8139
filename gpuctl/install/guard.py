"""Admission policies: what keeps the controller in its namespaces, and people from taking GPUs past it.

The API server evaluates them itself; nothing of gpuctl has to be up. They hold for administrators too. Who may delete
or change the policies can get round them, and so can whoever starts pods in namespaces that are no projects': those
are the cluster's owners.

A pod comes by way of a Job or a ReplicaSet, so its maker is a controller of Kubernetes: that its labels are gpuctl's is
worth something only because nobody else may write those labels onto anything that makes pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gpuctl.install.installation import ACCOUNT, Installation, made
from gpuctl.k8s import names
from gpuctl.model.state import Body

_POLICY = ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy")
_BINDING = ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding")

MAKERS = (
    ACCOUNT,
    "system:kube-controller-manager",
    "system:serviceaccount:kube-system:deployment-controller",
    "system:serviceaccount:kube-system:job-controller",
    "system:serviceaccount:kube-system:replicaset-controller",
)
"""Who makes what carries gpuctl's labels: gpuctl, and Kubernetes' controllers from what gpuctl made. Where the
controllers share one account, it is the second."""

_GPU_RESOURCES = ("nvidia.com/", "deviceclass.resource.kubernetes.io/")
_GPU_ANNOTATIONS = ("hami.io/", "nvidia.com/", "nvidia.cdi.k8s.io", "cdi.k8s.io", "gpu-")
_VISIBLE = "NVIDIA_VISIBLE_DEVICES"
_MARK = "gpuctl.dev/"
_IS_MARK = f"k.startsWith('{_MARK}') && k != '{names.IDLE_SINCE_ANNOTATION}'"
"""What others measure and write down is none."""
_PLACES = (
    "metadata.?labels",
    "metadata.?annotations",
    "?spec.?template.?metadata.?labels",
    "?spec.?jobTemplate.?metadata.?labels",
    "?spec.?jobTemplate.?spec.?template.?metadata.?labels",
)
"""Where marks may stand: on the object, on the pods it makes, on the Jobs it makes and on their pods."""


def policies(wanted: Installation) -> Iterator[Body]:
    """The policies and their bindings."""
    found = []
    if wanted.namespace_prefix:
        found.append(_fence(wanted.namespace_prefix))
    if wanted.guard:
        found += [_gpu_pods(), _marks(), _scale()]
    for name, spec in found:
        yield made(_POLICY, name, {"spec": {"failurePolicy": "Fail", **spec}})
        yield made(_BINDING, name, {"spec": {"policyName": name, "validationActions": ["Deny"]}})


def _fence(prefix: str) -> tuple[str, Mapping[str, Any]]:
    """The controller's rights are the cluster's wherever namespaces come and go; this bounds them to its own."""
    home = names.SYSTEM_NAMESPACE
    here = _list(names.PLURALS[kind] for kind in (names.CONFIG_MAP, names.LEASE))
    resource = "request.resource.resource"
    at_home = f"({resource} in {here} || ({resource} == 'namespaces' && request.operation != 'DELETE'))"
    in_namespaces = f"request.namespace == '{home}' ? {at_home} : request.namespace.startsWith('{prefix}')"
    nowhere = "!has(request.namespace) || request.namespace == ''"
    own = f"{nowhere} ? request.name == '{names.PRIORITY_CLASS}' : ({in_namespaces})"
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "operations": ["CREATE", "UPDATE", "DELETE"]}
    return "gpuctl-stays-home", {
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [{"name": "the-controller", "expression": f"request.userInfo.username == '{ACCOUNT}'"}],
        "validations": [
            _validation(
                f"{resource} == '{names.PLURALS[names.EVENT]}' || ({own})",
                f"gpuctl writes in namespaces that begin with {prefix} (gpuctl install --cluster-prefix) and its own",
            )
        ],
    }


def _gpu_pods() -> tuple[str, Mapping[str, Any]]:
    """Pods of others have no GPU, by any of the ways to one; and no pod at all goes past the scheduler.

    An update adds containers to look into a pod, gpuctl's too: of it only those are judged.
    """
    by_maker = f"request.userInfo.username in {_list(MAKERS)}"
    ours = f"{by_maker} && '{names.JOB_LABEL}' in object.metadata.?labels.orValue({{}})"
    added = "dyn({'ephemeralContainers': dyn(object).spec.?ephemeralContainers.orValue([])})"
    kinds = ("containers", "initContainers", "ephemeralContainers")
    containers = " + ".join(f"variables.pod.?{kind}.orValue([])" for kind in kinds)
    refused = [_validation(f"variables.ours || !({way})", text) for way, text in _ways_to_a_gpu()]
    return "gpuctl-gpu-pods", {
        "matchConstraints": _in_projects(
            _rule("", "v1", ("pods",), ("CREATE",)), _rule("", "v1", ("pods/ephemeralcontainers",), ("UPDATE",))
        ),
        "variables": [
            _variable("ours", ours),
            _variable("pod", f"request.operation == 'UPDATE' ? {added} : dyn(object).spec"),
            _variable("notes", "request.operation == 'UPDATE' ? {} : object.metadata.?annotations.orValue({})"),
            _variable("containers", containers),
        ],
        "validations": [
            *refused,
            _validation(
                "variables.pod.?nodeName.orValue('') == ''",
                "spec.nodeName goes past the scheduler and its account of GPUs",
            ),
        ],
    }


def _ways_to_a_gpu() -> Iterator[tuple[str, str]]:
    """Each way as an expression over the pod, and what to tell who tries it."""
    any_container = "variables.containers.exists(c, {})".format
    limits = f"c.?resources.?limits.orValue({{}}).exists(k, {_starts(_GPU_RESOURCES)})"
    yield any_container(limits), "GPUs are asked for in Git: only gpuctl's pods have them"
    yield (
        "variables.pod.?resourceClaims.orValue([]).size() > 0",
        "devices are claimed in Git: only gpuctl's pods have resource claims",
    )
    visible = f"e.name == '{_VISIBLE}' && !(e.?value.orValue('all') in ['void', 'none'])"
    yield (
        any_container(f"c.?env.orValue([]).exists(e, {visible})"),
        f"{_VISIBLE} gives a container GPUs that nobody counts",
    )
    yield (
        f"variables.notes.exists(k, {_starts(_GPU_ANNOTATIONS)})",
        "annotations that give a pod GPUs are written by gpuctl only",
    )
    yield (
        "variables.pod.?runtimeClassName.orValue('').startsWith('nvidia')",
        "the runtime class of GPU pods is for gpuctl's",
    )
    yield (
        any_container("c.?securityContext.?privileged.orValue(false)"),
        "a privileged container has every GPU of its node",
    )


def _starts(prefixes: Iterable[str]) -> str:
    return " || ".join(f"k.startsWith('{prefix}')" for prefix in prefixes)


def _marks() -> tuple[str, Mapping[str, Any]]:
    """Gpuctl's labels and annotations are written by gpuctl only, and what carries them is changed by it only."""
    both = ("CREATE", "UPDATE")
    return "gpuctl-marks", {
        "matchConstraints": _in_projects(
            _rule("", "v1", ("pods", "replicationcontrollers"), both),
            _rule("apps", "v1", ("deployments", "replicasets", "statefulsets", "daemonsets"), both),
            _rule("batch", "v1", ("jobs", "cronjobs"), both),
            _rule("resource.k8s.io", "*", ("resourceclaimtemplates",), both),
        ),
        "matchConditions": [_others()],
        "variables": [
            _variable("now", _places_of("object")),
            _variable("before", f"request.operation == 'UPDATE' ? {_places_of('oldObject')} : {[{}] * len(_PLACES)}"),
        ],
        "validations": [
            _validation(
                f"{list(range(len(_PLACES)))}.all(i, {_same_marks('variables.now[i]', 'variables.before[i]')})",
                f"labels and annotations of {_MARK[:-1]} are written by gpuctl only: declare the job in Git",
            ),
            _validation(
                f"!variables.before.exists(m, m.exists(k, {_IS_MARK})) || dyn(object).?spec == dyn(oldObject).?spec",
                "this is gpuctl's: change its declaration in Git",
            ),
        ],
    }


def _scale() -> tuple[str, Mapping[str, Any]]:
    return "gpuctl-scale", {
        "matchConstraints": _in_projects(_rule("apps", "v1", ("deployments/scale", "replicasets/scale"), ("UPDATE",))),
        "matchConditions": [_others()],
        "validations": [
            _validation(
                f"!dyn(oldObject).?status.?selector.orValue('').contains('{_MARK}')",
                "this is gpuctl's: change its replicas in Git",
            )
        ],
    }


def _places_of(source: str) -> str:
    """The mappings that may hold marks, as a CEL list."""
    return "[" + ", ".join(f"dyn({source}).{place}.orValue({{}})" for place in _PLACES) + "]"


def _same_marks(now: str, before: str) -> str:
    kept = f"{now}.all(k, !({_IS_MARK}) || (k in {before} && {before}[k] == {now}[k]))"
    return f"{kept} && {before}.all(k, !({_IS_MARK}) || k in {now})"


def _others() -> Mapping[str, str]:
    return {"name": "by-others", "expression": f"!(request.userInfo.username in {_list(MAKERS)})"}


def _in_projects(*rules: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"namespaceSelector": {"matchLabels": {names.MANAGED_LABEL: "true"}}, "resourceRules": list(rules)}


def _rule(group: str, version: str, resources: Iterable[str], operations: Iterable[str]) -> Mapping[str, Any]:
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "resources": list(resources),
        "operations": list(operations),
    }


def _variable(name: str, expression: str) -> Mapping[str, str]:
    return {"name": name, "expression": expression}


def _validation(expression: str, text: str) -> Mapping[str, str]:
    return {"expression": expression, "message": text, "reason": "Forbidden"}


def _list(values: Iterable[str]) -> str:
    """A CEL list of texts."""
    return "[" + ", ".join(f"'{value}'" for value in values) + "]"
