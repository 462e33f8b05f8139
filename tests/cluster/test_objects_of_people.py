"""What a person made under a name that gpuctl would give is left as it is: what needs it waits, all else goes on."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

import pytest
from town import Town

from gpuctl.adapters.clock import SystemClock
from gpuctl.adapters.kubernetes.connection import connect
from gpuctl.adapters.kubernetes.reader import OnceCluster
from gpuctl.app.drift import drift_report
from gpuctl.diag.wording import reason_text
from gpuctl.k8s.objects import uid
from gpuctl.model.decision import Pending, Reason
from gpuctl.views.drift import DriftReport

BODIES: Mapping[str, tuple[str, str, str, Mapping[str, Any]]] = {
    "Service": (
        "/api/v1/namespaces/{}/services", "j", ", expose: [{port: 80, via: service}]",
        {"spec": {"selector": {"app": "theirs"}, "ports": [{"port": 80, "name": "port-80"}]}},
    ),
    "Ingress": (
        "/apis/networking.k8s.io/v1/namespaces/{}/ingresses", "j", ", expose: [{port: 80, via: ingress}]",
        {"spec": {"defaultBackend": {"service": {"name": "theirs", "port": {"number": 1}}}}},
    ),
    "PersistentVolumeClaim": (
        "/api/v1/namespaces/{}/persistentvolumeclaims", "pvc-j-0",
        ", volumes: [{newClaim: {size: 2Gi}, mountPath: /d}]",
        {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}},
    ),
}  # fmt: skip
"""Of each kind: where its objects are, the name, what in a job asks for it, and the body of a person's own."""


def make(town: Town, kind: str) -> tuple[str, dict[str, Any]]:
    """A person's object, and its path."""
    place, name, _, spec = BODIES[kind]
    collection = place.format(town.namespace)
    town.until(lambda: town.cycle().settled)
    made = town.plane.call("POST", collection, {"metadata": {"name": name, "labels": {"app": "theirs"}}, **spec})
    return f"{collection}/{name}", made


def why(town: Town, job: str) -> Reason | None:
    """Why the job waits."""
    (decision,) = [each for each in town.cycle().schedule.decisions if each.job.name == job]
    return decision.reason if isinstance(decision, Pending) else None


def said(body: Mapping[str, Any]) -> object:
    """What people say in an object: its labels and its spec."""
    spec = {key: part for key, part in body["spec"].items() if key != "volumeName"}
    return body["metadata"]["labels"], spec, uid(body)


def differences(town: Town) -> DriftReport:
    """What `gpuctl diff` says."""
    with closing(connect(str(town.plane.kubeconfig))) as connection, closing(OnceCluster(connection)) as cluster:
        return drift_report(town.declared(), cluster, SystemClock())


@pytest.mark.parametrize("kind", BODIES)
def test_an_object_that_a_person_made_is_left_as_it_is(town: Town, kind: str) -> None:
    path, made = make(town, kind)
    town.jobs |= {"j": f", gpus: 1{BODIES[kind][2]}", "k": ", gpus: 1"}
    town.comes_to(j="Queued", k="Running")
    town.until(lambda: town.cycle().settled)
    reason = why(town, "j")
    assert reason is not None
    assert reason.code == "GPU5072"
    assert reason_text(reason).startswith(f"{kind} {town.namespace}/{BODIES[kind][1]}, which gpuctl did not create")
    assert said(town.plane.call("GET", path)) == said(made)
    told = f"{kind} {town.namespace}/{BODIES[kind][1]} is there and was not created by gpuctl, so it is left as it is"
    assert [(each.code, each.message) for each in differences(town).refusals] == [("GPU7060", told)]
    assert differences(town).objects == ()
    del town.jobs["j"]
    town.comes_to(k="Running")
    town.until(lambda: town.cycle().settled)
    assert said(town.plane.call("GET", path)) == said(made)
    town.plane.call("DELETE", path)
