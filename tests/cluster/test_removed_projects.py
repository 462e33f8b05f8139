"""On a real API server: a project leaves Git whose namespace has the data of a claim that a person made there."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from controlplane.server import ControlPlane
from unattended import Site, at_last, job, project


@pytest.fixture
def site(plane_with_gpuctl: ControlPlane, tmp_path: Path) -> Iterator[Site]:
    made = Site(plane_with_gpuctl, tmp_path, "removed")
    yield made
    made.leave()


def test_the_data_of_a_persons_claim_goes_only_when_that_is_confirmed(site: Site) -> None:
    """A claim that jobs name in `claim` bears no label of gpuctl's, and goes with its namespace."""
    site.commit(project("a", 4), project("b", 4), job("j", project="b"))
    process = site.start()
    site.await_pods("j", project="b")
    namespace = f"/api/v1/namespaces/{site.namespace('b')}"
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"metadata": {"name": "dataset"}, "spec": spec}
    site.plane.call("POST", f"{namespace}/persistentvolumeclaims", claim)
    site.commit(dict.fromkeys([*project("b", 4), *job("j", project="b")]))

    def refusals() -> dict[str, str]:
        """The confirmations that are asked for, by code."""
        told = [line for line in process.lines() if "Gpuctl-Confirm" in str(line)]
        return {line["code"]: re.findall(r"Gpuctl-Confirm: (\w+)", str(line))[0] for line in told}

    def confirm(*digests: str) -> None:
        site.copy.write("c/README", f"b is over: {digests}\n".encode())
        lines = "".join(f"Gpuctl-Confirm: {digest}\n" for digest in digests)
        site.copy.commit(f"b is over\n\n{lines}", time.time_ns() // 1_000_000)

    def asks_for_data_alone() -> bool:
        """Of the commit that is followed now."""
        return any(line["event"] == "resolved" and line.get("code") == "GPU6002" for line in process.lines())

    at_last(lambda: refusals().keys() >= {"GPU6002", "GPU6003"}, site.logs)
    confirm(refusals()["GPU6002"])
    at_last(asks_for_data_alone, site.logs)
    site.await_pods("j", project="b")
    confirm(*refusals().values())

    def is_going() -> bool:
        body = site.plane.refused("GET", namespace)
        return body is not None or "deletionTimestamp" in site.plane.call("GET", namespace)["metadata"]

    at_last(is_going, site.logs)
