"""Where the contract of the Cluster port is tested: a cluster, a way to let time pass, and what a person may do to it.

Tests speak to the port and to this class only; real.py has the lab on a real API server, where time passes by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from workloads.declarations import DECLARED_KINDS, ROWS

from gpuctl.adapters.clock import VirtualClock
from gpuctl.adapters.embedded import EmbeddedCluster
from gpuctl.app.ports import Conflict
from gpuctl.diag.span import SourceSpan
from gpuctl.k8s import kinds, names
from gpuctl.k8s.kinds import Kind, Scope
from gpuctl.model.declared import DeclaredNode, NodePool, PlacementStrategy, Sharing
from gpuctl.model.ids import JobId, NodeName, ObjectRef, PoolName, ProjectName
from gpuctl.model.state import Body

EPOCH_MS = 1_596_000_000_000
DRIVER = names.DRA_DRIVER
PROJECT = ProjectName("team-a")


def pool(sharing: Sharing, *nodes: str, gpus: int = 8) -> NodePool:
    return NodePool(
        name=PoolName(nodes[0][:-2]),
        match_labels={"gpuctl.dev/pool": nodes[0][:-2]},
        nodes=tuple(DeclaredNode(name=NodeName(n), gpus=gpus, cpu_milli=80_000, mem_bytes=512 << 30) for n in nodes),
        gpu_mem_bytes=32_510 << 20,
        gpu_product="Tesla-V100-SXM2-32GB",
        placement=PlacementStrategy.BINPACK,
        sharing=sharing,
        span=SourceSpan(file="cluster.yaml"),
    )


POOLS = (pool(Sharing.DEVICE_PLUGIN, "plain-1", "plain-2"), pool(Sharing.DRA, "shared-1", "shared-2"))


SELECTED = {kinds.SERVICE_ACCOUNT: Scope(label_selector="test=yes")}
"""The objects of one kind are listed and watched by a label, all others whatever labels they have."""


class Lab:
    """One cluster with four nodes of eight GPUs: plain-1 and -2 with the device plugin, shared-1 and -2 with DRA."""

    def __init__(self, path: Path | None = None) -> None:
        self.clock = VirtualClock(EPOCH_MS)
        self.cluster = EmbeddedCluster(self.clock, None if path is None else str(path), scopes=SELECTED)
        self.cluster.provide(POOLS)
        self.namespace = "gpu-team-a"
        self.apply(body(kinds.NAMESPACE, self.namespace, namespace=None))

    def close(self) -> None:
        self.cluster.close()

    def serve(self, kind: Kind) -> None:
        """Have a kind of another controller served."""
        self.cluster.define([ROWS[each] for each in DECLARED_KINDS if each == kind])

    def apply(self, wanted: Body, *, is_new: bool = False) -> Body:
        return self.cluster.apply(wanted, is_new=is_new)

    def make(self, made: Body) -> Body:
        """A plain create by somebody else."""
        return self.cluster.create(made, "person")

    def await_quotas(self) -> None:
        """Wait until quotas hold that were counted."""

    def edit(self, changed: Body, manager: str) -> Body:
        """A plain update of the whole object by somebody else."""
        return self.cluster.update(changed, manager)

    def get(self, kind: Kind, name: str) -> Body | None:
        found = (o for o in self.cluster.list(kind).items if o["metadata"]["name"] == name)
        return next((o for o in found if o["metadata"].get("namespace") in {None, self.namespace}), None)

    def there(self, kind: Kind, name: str) -> Body:
        found = self.get(kind, name)
        assert found is not None, f"{kind[1]} {name} is not there"
        return found

    def delete(self, kind: Kind, name: str) -> None:
        """Delete what is there; its controllers may write it in between, so that it has to be read again."""

        def done() -> bool:
            meta = self.there(kind, name)["metadata"]
            ref = ObjectRef(kind[0], kind[1], meta.get("namespace", ""), name)
            try:
                self.cluster.delete(ref, meta["uid"], meta["resourceVersion"])
            except Conflict:
                return False
            return True

        self.eventually(done)

    def pods(self, job: str) -> list[Body]:
        live = self.cluster.list(kinds.POD).items
        label = "batch.kubernetes.io/job-name"
        return [p for p in live if p["metadata"].get("labels", {}).get(label) == job]

    def status(self, job: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.there(kinds.JOB, job).get("status", {})
        return found

    def condition(self, job: str, kind: str) -> Mapping[str, Any]:
        entries = self.status(job).get("conditions", [])
        return next((c for c in entries if c["type"] == kind and c["status"] == "True"), {})

    def eventually(self, holds: Callable[[], object], within_ms: int = 60_000) -> None:
        """Let time pass until it holds, at most `within_ms`."""
        until = self.clock.now_ms() + within_ms
        while not holds():
            due = self.cluster.next_event_ms()
            assert due is not None, "nothing is due any more, and it does not hold"
            assert due <= until, "it did not come to hold in time"
            self.clock.advance_to(due)
            self.cluster.settle()

    def later(self, ms: int) -> None:
        """Let that much time pass."""
        self.clock.advance_to(self.clock.now_ms() + ms)
        self.cluster.settle()

    def passes(self, ms: int) -> None:
        """Let exactly that much time pass, however long it takes."""
        self.later(ms)

    def running(self, job: str, count: int = 1) -> list[Body]:
        """Wait for the job's pods to run."""

        def holds() -> bool:
            pods = self.pods(job)
            return len(pods) == count and all(p["status"].get("phase") == "Running" for p in pods)

        self.eventually(holds)
        return self.pods(job)

    def finish(self, job: str, exit_code: int = 0) -> None:
        """End the containers of a job's running pods."""
        self.cluster.finish(JobId(PROJECT, job), exit_code)

    def unschedulable(self, job: str) -> str:
        """The scheduler's words about a job's pod that has no node."""
        conditions = [
            c for p in self.pods(job) for c in p["status"].get("conditions", []) if c["type"] == "PodScheduled"
        ]
        return next((str(c.get("message", "")) for c in conditions if c["status"] == "False"), "")


@pytest.fixture(params=["memory", "file", pytest.param("real", marks=pytest.mark.server)])
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lab]:
    if request.param == "real":
        yield from request.getfixturevalue("real_lab")()
        return
    made = Lab(tmp_path / "cluster.db" if request.param == "file" else None)
    yield made
    made.close()


def body(kind: Kind, name: str, *, namespace: str | None = "gpu-team-a", **rest: Any) -> dict[str, Any]:
    """An object of that kind; `rest` are its other top-level fields."""
    meta: dict[str, Any] = {"name": name} if namespace is None else {"name": name, "namespace": namespace}
    return {"apiVersion": kind[0], "kind": kind[1], "metadata": {**meta, **rest.pop("metadata", {})}, **rest}


def on_nodes(*nodes: str) -> dict[str, Any]:
    """Required affinity to these nodes: a term each."""
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]} for node in nodes]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def job(name: str, *, suspend: bool = False, nodes: tuple[str, ...] = (), gpus: int = 1, **spec: Any) -> dict[str, Any]:
    """A Job of one worker as gpuctl writes it; `spec` overrides fields of its spec, `pod` fields of its pods' spec."""
    labels = {names.PROJECT_LABEL: PROJECT, names.JOB_LABEL: name}
    container = {
        "name": "main",
        "image": "registry.local/train:1",
        "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
    }
    pod: dict[str, Any] = {"restartPolicy": "Never", "containers": [container], **spec.pop("pod", {})}
    if nodes:
        pod["affinity"] = on_nodes(*nodes)
    template = {"metadata": {"labels": labels}, "spec": pod}
    fields = {"suspend": suspend, "backoffLimit": 0, "podReplacementPolicy": "Failed", "template": template, **spec}
    return body(kinds.JOB, name, metadata={"labels": labels}, spec=fields)


def dra_job(name: str, template: str, *, nodes: tuple[str, ...], suspend: bool = False, **spec: Any) -> dict[str, Any]:
    """A Job whose workers have their devices by claims of a template."""
    container = {"name": "main", "image": "registry.local/train:1", "resources": {"claims": [{"name": "gpu"}]}}
    claims = [{"name": "gpu", "resourceClaimTemplateName": template}]
    pod = {"containers": [container], "resourceClaims": claims}
    return job(name, suspend=suspend, nodes=nodes, pod=pod, **spec)


def claim_template(
    name: str, minors: tuple[int, ...], *, cores: int = 100, memory: str = "32510Mi", count: int = 1
) -> dict[str, Any]:
    """A template for devices of these minors, as gpuctl writes it."""
    exactly = {
        "deviceClassName": names.DRA_DEVICE_CLASS,
        "allocationMode": "ExactCount",
        "count": count,
        "capacity": {"requests": {"cores": str(cores), "memory": memory}},
        "selectors": [{"cel": {"expression": f"device.attributes['{DRIVER}'].minor in {list(minors)}"}}],
    }
    requests = [{"name": "gpu", "exactly": exactly}]
    return body(kinds.CLAIM_TEMPLATE, name, spec={"spec": {"devices": {"requests": requests}}})
