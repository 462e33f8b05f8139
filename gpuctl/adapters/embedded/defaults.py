"""The fields that a server fills in on objects gpuctl writes. Filling in twice is the same as once.

Source: `pkg/apis/*/v1/defaults.go` and the strategies' PrepareForCreate, Kubernetes 1.36, as far as gpuctl's objects
need. Quantities stay as written; a real server writes them in canonical form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gpuctl.adapters.embedded.bodies import at, put
from gpuctl.k8s import kinds
from gpuctl.k8s.objects import uid
from gpuctl.model.state import Body

_RBAC = "rbac.authorization.k8s.io"


def filled(body: Body) -> dict[str, Any]:
    """The body with the server's defaults; its uid must be set already."""
    fill = _FILL.get((body["apiVersion"], body["kind"]))
    return dict(body) if fill is None else fill(body)


def _over(defaults: Mapping[str, Any], value: Mapping[str, Any] | None) -> dict[str, Any]:
    """The value, with missing fields taken from `defaults`."""
    given = {name: inner for name, inner in (value or {}).items() if inner is not None}
    return {**defaults, **given}


def _each(values: Any, fill: Callable[[Mapping[str, Any]], dict[str, Any]]) -> list[dict[str, Any]]:
    return [fill(value) for value in values or ()]


def _container(given: Mapping[str, Any]) -> dict[str, Any]:
    image = str(given.get("image", ""))
    latest = image.endswith(":latest") or ":" not in image.rpartition("/")[2]
    container = _over(
        {
            "imagePullPolicy": "Always" if latest else "IfNotPresent",
            "resources": {},
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
        },
        given,
    )
    resources = container["resources"]
    if "limits" in resources:
        requests = _over(resources["limits"], resources.get("requests"))
        container["resources"] = {**resources, "requests": requests}
    if "ports" in container:
        container["ports"] = _each(container["ports"], lambda port: _over({"protocol": "TCP"}, port))
    return container


def _volume(given: Mapping[str, Any]) -> dict[str, Any]:
    volume = dict(given)
    if "hostPath" in volume:
        volume["hostPath"] = _over({"type": ""}, volume["hostPath"])
    for source in ("secret", "configMap"):
        if source in volume:
            volume[source] = _over({"defaultMode": 420}, volume[source])
    return volume if len(volume) > 1 else {**volume, "emptyDir": {}}


def _pod_spec(given: Mapping[str, Any]) -> dict[str, Any]:
    spec = _over(
        {
            "dnsPolicy": "ClusterFirst",
            "restartPolicy": "Always",
            "schedulerName": "default-scheduler",
            "securityContext": {},
            "terminationGracePeriodSeconds": 30,
        },
        given,
    )
    for containers in ("containers", "initContainers"):
        if containers in spec:
            spec[containers] = _each(spec[containers], _container)
    if "volumes" in spec:
        spec["volumes"] = _each(spec["volumes"], _volume)
    return spec


def _template(body: Body) -> dict[str, Any]:
    return put(body, ("spec", "template", "spec"), _pod_spec(at(body, "spec", "template", "spec", default={})))


def _pod(body: Body) -> dict[str, Any]:
    spec = _pod_spec(at(body, "spec", default={}))
    seconds = {
        (t.get("key"), t.get("effect")) for t in spec.get("tolerations", ()) if t.get("effect") in {"NoExecute", None}
    }
    extra = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
        if (key, "NoExecute") not in seconds and (key, None) not in seconds
    ]
    if extra:
        spec["tolerations"] = [*spec.get("tolerations", ()), *extra]
    filled_body = put(body, ("spec",), spec)
    return put(filled_body, ("status",), _over({"phase": "Pending"}, at(body, "status", default={})))


def _job(body: Body) -> dict[str, Any]:
    spec = at(body, "spec", default={})
    counts = {} if "parallelism" in spec or "completions" in spec else {"completions": 1}
    filled_body = put(
        _template(body),
        ("spec",),
        _over(
            {
                "parallelism": 1, **counts, "backoffLimit": 6, "completionMode": "NonIndexed", "suspend": False,
                "manualSelector": False, "podReplacementPolicy": "TerminatingOrFailed",
            },
            _template(body)["spec"],
        ),
    )  # fmt: skip
    labels = {
        "batch.kubernetes.io/controller-uid": uid(body),
        "batch.kubernetes.io/job-name": body["metadata"]["name"],
        "controller-uid": uid(body),
        "job-name": body["metadata"]["name"],
    }
    given = at(body, "spec", "template", "metadata", "labels", default={})
    filled_body = put(filled_body, ("spec", "template", "metadata", "labels"), {**given, **labels})
    if "selector" not in spec:
        selector = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid(body)}}
        filled_body = put(filled_body, ("spec", "selector"), selector)
    return _over({"status": {}}, filled_body)


def _deployment(body: Body) -> dict[str, Any]:
    spec = _over(
        {
            "replicas": 1,
            "revisionHistoryLimit": 10,
            "progressDeadlineSeconds": 600,
            "strategy": {},
        },
        _template(body)["spec"],
    )
    spec["strategy"] = _strategy(spec["strategy"])
    return _over({"status": {}}, put(body, ("spec",), spec))


def _strategy(given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the given strategy only. On a real server the applying client has to remove the others."""
    if given.get("type") == "Recreate":
        return {"type": "Recreate"}
    rolling = _over({"maxSurge": "25%", "maxUnavailable": "25%"}, given.get("rollingUpdate"))
    return {"type": "RollingUpdate", "rollingUpdate": rolling}


def _service(body: Body) -> dict[str, Any]:
    spec = _over(
        {"type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster"},
        at(body, "spec", default={}),
    )
    serial = int(uid(body)[:8], 16)
    spec.setdefault("clusterIP", f"10.96.{serial // 250 % 250}.{serial % 250 + 1}")
    spec["clusterIPs"] = [spec["clusterIP"]]
    spec = _over({"ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"}, spec)
    if "ports" in spec:
        spec["ports"] = _each(
            spec["ports"], lambda port: _over({"protocol": "TCP", "targetPort": port.get("port")}, port)
        )
    return _over({"status": {"loadBalancer": {}}}, put(body, ("spec",), spec))


def _claim(body: Body) -> dict[str, Any]:
    spec = _over({"volumeMode": "Filesystem"}, at(body, "spec", default={}))
    return _over({"status": {"phase": "Pending"}}, put(body, ("spec",), spec))


def _namespace(body: Body) -> dict[str, Any]:
    name = body["metadata"]["name"]
    labelled = put(body, ("metadata", "labels", "kubernetes.io/metadata.name"), name)
    spec = _over({"finalizers": ["kubernetes"]}, at(body, "spec", default={}))
    return _over({"status": {"phase": "Active"}}, put(labelled, ("spec",), spec))


def _priority_class(body: Body) -> dict[str, Any]:
    return _over({"preemptionPolicy": "PreemptLowerPriority"}, body)


def _role_binding(body: Body) -> dict[str, Any]:
    def subject(given: Mapping[str, Any]) -> dict[str, Any]:
        return dict(given) if given.get("kind") == "ServiceAccount" else _over({"apiGroup": _RBAC}, given)

    bound = put(body, ("roleRef",), _over({"apiGroup": _RBAC}, at(body, "roleRef", default={})))
    return put(bound, ("subjects",), _each(body.get("subjects"), subject)) if "subjects" in body else bound


def _request(given: Mapping[str, Any]) -> dict[str, Any]:
    if "exactly" not in given:
        return dict(given)
    exactly = _over({"allocationMode": "ExactCount"}, given["exactly"])
    counted = {"count": 1} if exactly["allocationMode"] == "ExactCount" else {}
    return {**given, "exactly": _over(counted, exactly)}


def _claim_template(body: Body) -> dict[str, Any]:
    path = ("spec", "spec", "devices", "requests")
    return put(body, path, _each(at(body, *path), _request)) if at(body, *path) else dict(body)


def _resource_claim(body: Body) -> dict[str, Any]:
    path = ("spec", "devices", "requests")
    return put(body, path, _each(at(body, *path), _request)) if at(body, *path) else dict(body)


def _job_set(body: Body) -> dict[str, Any]:
    """The fields that JobSet's own webhook fills in, and the one default of its definition."""
    spec = at(body, "spec", default={})
    network = _over({"enableDNSHostnames": True, "publishNotReadyAddresses": True}, spec.get("network"))
    usual = {"successPolicy": {"operator": "All"}, "startupPolicy": {"startupPolicyOrder": "AnyOrder"}}
    entries = _each(spec.get("replicatedJobs"), _replicated_job)
    return put(body, ("spec",), {**_over(usual, spec), "network": network, "replicatedJobs": entries})


def _replicated_job(given: Mapping[str, Any]) -> dict[str, Any]:
    job = _over({"completionMode": "Indexed"}, at(given, "template", "spec"))
    job = put(job, ("template", "spec"), _over({"restartPolicy": "OnFailure"}, at(job, "template", "spec")))
    return put(_over({"replicas": 1, "groupName": "default"}, given), ("template", "spec"), job)


_FILL: Mapping[kinds.Kind, Callable[[Body], dict[str, Any]]] = {
    kinds.POD: _pod,
    kinds.JOB: _job,
    kinds.DEPLOYMENT: _deployment,
    kinds.JOB_SET: _job_set,
    kinds.SERVICE: _service,
    kinds.CLAIM: _claim,
    kinds.NAMESPACE: _namespace,
    kinds.PRIORITY_CLASS: _priority_class,
    kinds.ROLE_BINDING: _role_binding,
    kinds.CLAIM_TEMPLATE: _claim_template,
    kinds.RESOURCE_CLAIM: _resource_claim,
}
