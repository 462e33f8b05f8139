"""What a person made under a name that gpuctl would give is left as it is: what needs it waits, all else goes on."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from controlplane.known import await_quotas
from test_pod_failures import Ahead
from town import Town

from gpuctl.adapters.clock import SystemClock
from gpuctl.adapters.kubernetes.connection import connect
from gpuctl.adapters.kubernetes.incidents import EventReader
from gpuctl.adapters.kubernetes.reader import OnceCluster
from gpuctl.app.drift import drift_report
from gpuctl.app.report import of_troubles
from gpuctl.diag.wording import reason_text
from gpuctl.k8s import names
from gpuctl.k8s.objects import uid
from gpuctl.model.decision import Pending, Reason
from gpuctl.observe.incidents import ASK_AFTER_MS
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


def test_a_quota_of_an_administrator_under_gpuctls_name_is_left_as_it_is(town: Town) -> None:
    """It has scopes, which can't be taken off a quota: the forced apply wrote what it should have in it."""
    town.until(lambda: town.cycle().settled)
    collection = f"/api/v1/namespaces/{town.namespace}/resourcequotas"
    town.plane.call("DELETE", f"{collection}/{names.QUOTA_NAME}")
    spec = {"scopes": ["NotTerminating"], "hard": {"pods": "50"}}
    town.plane.call("POST", collection, {"metadata": {"name": names.QUOTA_NAME}, "spec": spec})
    town.jobs["k"] = ", gpus: 1"
    town.comes_to(k="Running")
    found = town.plane.call("GET", f"{collection}/{names.QUOTA_NAME}")
    assert (found["spec"], found["metadata"].get("labels")) == (spec, None)
    (told,) = [each for each in of_troubles(town.cycle()) if each.fields["code"] == "GPU7060"]
    assert (told.level, told.fields["object"]) == ("error", f"ResourceQuota {town.namespace}/gpuctl")
    town.plane.call("DELETE", f"{collection}/{names.QUOTA_NAME}")
    town.context = replace(town.context, rejected={})
    town.until(lambda: "labels" in town.plane.call("GET", f"{collection}/{names.QUOTA_NAME}")["metadata"])


BOUNDS: Mapping[str, tuple[str, Mapping[str, Any], str]] = {
    "a quota with a scope": (
        "resourcequotas", {"scopes": ["NotTerminating"], "hard": {"pods": "0"}}, "exceeded quota: theirs",
    ),
    "a quota with a selector": (
        "resourcequotas",
        {
            "hard": {"requests.nvidia.com/gpu": "0"},
            "scopeSelector": {
                "matchExpressions": [
                    {"scopeName": "PriorityClass", "operator": "In", "values": [names.PRIORITY_CLASS]}
                ]
            },
        },
        "exceeded quota: theirs",
    ),
    "a quota that wants limits": ("resourcequotas", {"hard": {"limits.memory": "1Ti"}}, "must specify limits.memory"),
    "a limit range": (
        "limitranges", {"limits": [{"type": "Container", "max": {"nvidia.com/gpu": "0"}}]}, "maximum nvidia.com/gpu",
    ),
}  # fmt: skip
"""What an administrator sets in a project's namespace, and what the server says of pods that break it."""


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("kind", ["training", "inference"])
def test_a_bound_of_the_namespace_is_told_where_it_keeps_pods_from_being_made(
    town: Town, bound: str, kind: str
) -> None:
    plural, spec, words = BOUNDS[bound]
    town.until(lambda: town.cycle().settled)
    collection = f"/api/v1/namespaces/{town.namespace}/{plural}"
    town.plane.call("POST", collection, {"metadata": {"name": "theirs"}, "spec": spec})
    if plural == "resourcequotas":
        town.until(lambda: "hard" in town.plane.call("GET", f"{collection}/theirs")["status"])
        await_quotas(town.plane, town.namespace)
    clock = Ahead()
    with closing(EventReader(town.cluster.requests.connection)) as reader:
        town.context = replace(town.context, clock=clock, incidents=reader)
        town.jobs["j"] = f", gpus: 1, type: {kind}"
        town.comes_to(j="Starting")
        clock.by_ms += ASK_AFTER_MS
        town.until(lambda: words in problem(town))
    town.plane.call("DELETE", f"{collection}/theirs")


def problem(town: Town) -> str:
    """What is said of the run that does not start."""
    (run,) = town.cycle().state.runs
    return "" if run.problem is None else f"{run.problem.reason}: {run.problem.message}"
