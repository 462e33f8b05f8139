"""On a real API server: a project leaves Git whose namespace has the data of a claim that a person made there."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from controlplane.server import ControlPlane
from unattended import Site, at_last, project


@pytest.fixture
def site(plane_with_gpuctl: ControlPlane, tmp_path: Path) -> Iterator[Site]:
    made = Site(plane_with_gpuctl, tmp_path, "removed")
    yield made
    made.leave()


def test_a_namespace_with_a_persons_claim_is_deleted_only_when_that_is_confirmed(site: Site) -> None:
    """A claim that jobs name in `claim` bears no label of gpuctl's, and goes with its namespace."""
    site.commit(project("a", 4), project("b", 4))
    process = site.start()
    namespaces, namespace = "/api/v1/namespaces", site.namespace("b")

    def is_there() -> bool:
        bodies = site.plane.call("GET", namespaces)["items"]
        return namespace in {body["metadata"]["name"] for body in bodies if "deletionTimestamp" not in body["metadata"]}

    at_last(is_there, site.logs)
    claims = f"{namespaces}/{namespace}/persistentvolumeclaims"
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    site.plane.call("POST", claims, {"metadata": {"name": "dataset"}, "spec": spec})
    site.commit(dict.fromkeys(project("b", 4)))

    def refused() -> list[str]:
        told = str([line for line in process.lines() if line.get("code") == "GPU6003" and "dataset" in str(line)])
        return re.findall(r"Gpuctl-Confirm: (\w+)", told)

    confirmation = at_last(refused, site.logs)[-1]
    assert is_there()
    site.copy.write("c/README", b"b is over\n")
    site.copy.commit(f"b is over\n\nGpuctl-Confirm: {confirmation}", time.time_ns() // 1_000_000)
    at_last(lambda: not is_there(), site.logs)
