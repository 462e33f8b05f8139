"""docs/jobsets.md: what it shows is valid, counted as it says, and rendered as gpuctl does."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import yaml

from gpuctl import api
from gpuctl.app.other_engine import waiting_manifests
from gpuctl.diag.wording import memory
from gpuctl.model.declared import Declared

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "jobsets.md").read_text()
GOLDEN = ROOT / "tests" / "golden" / "jobset.yaml"
CLUSTER = """apiVersion: gpuctl.dev/v1
kind: Cluster
metadata: {name: prod}
spec:
  nodePools:
  - name: dgx
    nodes: [dgx-1, dgx-2]
    gpusPerNode: 8
    gpuMemory: 80Gi
    resourcesPerNode: {cpu: 128, memory: 1Ti}
    sharing: device-plugin
"""
PROJECT = "apiVersion: gpuctl.dev/v1\nkind: Project\nmetadata: {name: vision}\nspec: {quota: 16}\n"


def declared() -> Declared:
    found = re.search(r"```yaml\n(apiVersion: gpuctl.*?)```", PAGE, flags=re.DOTALL)
    assert found
    compiled = api.compile({"cluster.yaml": CLUSTER, "vision.yaml": PROJECT, "pretrain.yaml": found[1]})
    assert compiled.declared is not None, compiled.diagnostics
    return compiled.declared


def test_it_is_counted_as_the_page_says() -> None:
    (job,) = declared().jobs
    assert (job.workers, job.gpu_milli) == (4, 4000)
    amounts = f"{job.total_gpu_milli // 1000} GPUs, {job.cpu_milli * 4 // 1000} CPUs, {memory(job.mem_bytes * 4)}"
    assert f"<!-- counted -->{amounts}<!-- end -->" in PAGE


def test_it_is_rendered_with_what_the_page_says_and_nothing_else(golden: Callable[[Path, str], None]) -> None:
    found = [item.body for item in waiting_manifests(declared()).items if item.ref.kind == "JobSet"]
    golden(GOLDEN, yaml.safe_dump(found[0], sort_keys=True))
