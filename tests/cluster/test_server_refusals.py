"""What people are told when a real API server refuses an object: each refusal is provoked, and read in full."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import pytest
from controlplane.server import ControlPlane
from unattended import at_last

from gpuctl.adapters.kubernetes.cluster import KubernetesCluster
from gpuctl.adapters.kubernetes.connection import connect
from gpuctl.app.ports import Invalid, WebhookAway
from gpuctl.model.state import Body

HOME = "refused"
Spec = Mapping[str, Any]
SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com')"
)
KEPT = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"


def job(image: str = "x", *, suspend: bool = True, **more: Any) -> Spec:
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": image, **more.pop("main", {})}]}
    return {"suspend": suspend, "template": {"spec": {**pod, **more.pop("pod", {})}}, **more}


def on(node: str) -> Spec:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    required = {"nodeSelectorTerms": [term]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def deployment(app: str) -> Spec:
    template = {"metadata": {"labels": {"app": app}}, "spec": {"containers": [{"name": "main", "image": "x"}]}}
    return {"selector": {"matchLabels": {"app": app}}, "template": template}


def claim(size: str, storage_class: str = "a") -> Spec:
    requests = {"requests": {"storage": size}}
    return {"accessModes": ["ReadWriteOnce"], "storageClassName": storage_class, "resources": requests}


def devices(count: int) -> Spec:
    exactly = {"deviceClassName": "x", "count": count, "allocationMode": "ExactCount"}
    return {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}}


def ingress(host: str, path: str) -> Spec:
    backend = {"service": {"name": "x", "port": {"number": 1}}}
    return {"rules": [{"host": host, "http": {"paths": [{"path": path, "pathType": "Prefix", "backend": backend}]}}]}


CASES: Mapping[str, tuple[tuple[str, str], tuple[Spec, ...], str]] = {
    "another template of a Job": (("batch/v1", "Job"), (job(), job("y")), "spec.template.spec: field is immutable"),
    "another place of a running Job": (
        ("batch/v1", "Job"), (job(suspend=False), job(suspend=False, pod=on("n"))), "spec.template: field is immutable",
    ),
    "other completions": (("batch/v1", "Job"), (job(), job(completions=3)), "spec.completions: 3: field is immutable"),
    "a mount of nothing": (
        ("batch/v1", "Job"), (job(main={"volumeMounts": [{"name": "nope", "mountPath": "/a"}]}),),
        'spec.template.spec.containers[0].volumeMounts[0].name: Not found: "nope"',
    ),
    "a Secret by no name": (
        ("batch/v1", "Job"),
        (job(main={"env": [{"name": "T", "valueFrom": {"secretKeyRef": {"name": "H", "key": "k"}}}]}),),
        f'spec.template.spec.containers[0].env[0].valueFrom.secretKeyRef.name: "H": {SUBDOMAIN}',
    ),
    "a text for a yes or no": (
        ("batch/v1", "Job"), ({**job(), "suspend": "yes"},), ".spec.suspend: expected boolean, got yes",
    ),
    "a field that is none": (("batch/v1", "Job"), (job(nope=1),), ".spec.nope: field not declared in schema"),
    "another selector": (
        ("apps/v1", "Deployment"), (deployment("a"), deployment("b")),
        'spec.selector: {"matchLabels":{"app":"b"}}: field is immutable',
    ),
    "a smaller claim": (
        ("v1", "PersistentVolumeClaim"), (claim("2Gi"), claim("1Gi")),
        f'spec: Forbidden: {KEPT} (- "storage": "2Gi", + "storage": "1Gi")',
    ),
    "another class of a claim": (
        ("v1", "PersistentVolumeClaim"), (claim("2Gi"), claim("2Gi", "b")),
        f'spec: Forbidden: {KEPT} (- "StorageClassName": "a", + "StorageClassName": "b")',
    ),
    "other devices": (
        ("resource.k8s.io/v1", "ResourceClaimTemplate"), (devices(1), devices(2)), "spec: field is immutable",
    ),
    "a host and a path that are none": (
        ("networking.k8s.io/v1", "Ingress"), (ingress("10.0.0.1", "x"),),
        (
            'spec.rules[0].host: "10.0.0.1": must be a DNS name, not an IP address; '
            'spec.rules[0].http.paths[0].path: "x": must be an absolute path'
        ),
    ),
}  # fmt: skip
"""The kind, the specs in the order in which they are applied, and what is said of the last one."""


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane) -> Iterator[KubernetesCluster]:
    connection = connect(str(control_plane.kubeconfig))
    with closing(connection), closing(KubernetesCluster(connection)) as made:
        made.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME}})
        yield made
    control_plane.remove_namespaces([HOME])


@pytest.mark.parametrize("case", CASES)
def test_a_refusal_is_a_sentence(case: str, cluster: KubernetesCluster) -> None:
    (version, kind), specs, wanted = CASES[case]
    name = case.lower().replace(" ", "-")
    bodies = [
        {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": HOME}, "spec": spec}
        for spec in specs
    ]
    for body in bodies[:-1]:
        cluster.apply(body)
    with pytest.raises(Invalid) as refused:
        cluster.apply(bodies[-1])
    assert str(refused.value) == f"apply {kind} {HOME}/{name}: {wanted}"


def test_an_object_that_is_too_large_is_a_sentence(cluster: KubernetesCluster) -> None:
    meta = {"name": "large", "namespace": HOME}
    with pytest.raises(Invalid) as refused:
        cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"a": "x" * 1_500_000}})
    assert str(refused.value).endswith(f"ConfigMap {HOME}/large: Too long: may not be more than 1048576 bytes")


def test_a_webhook_that_does_not_answer_is_no_server_that_is_away(
    cluster: KubernetesCluster, control_plane: ControlPlane
) -> None:
    """The server answers for it with 500."""
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    services = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["services"], "operations": ["*"]}
    hook = {
        "name": "dead.example.com", "clientConfig": {"url": "https://127.0.0.1:1/"}, "rules": [services],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": HOME}},
        "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": ["v1"],
    }  # fmt: skip
    control_plane.call("POST", path, {"metadata": {"name": HOME}, "webhooks": [hook]})
    meta = {"name": "dead", "namespace": HOME}
    body = {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"ports": [{"port": 80}]}}
    try:
        at_last(lambda: is_away(cluster, body))
    finally:
        control_plane.call("DELETE", f"{path}/{HOME}")


def is_away(cluster: KubernetesCluster, body: Body) -> bool:
    try:
        cluster.apply(body)
    except WebhookAway as fault:
        return "failed calling webhook" in str(fault)
    return False
