"""docs/jobsets.md: what it shows is valid, counted as it says, and rendered as gpuctl does; and what the table of kinds
names is in JobSet's own definition."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from controlplane.build import go

from gpuctl import api
from gpuctl.app.planning import waiting_manifests
from gpuctl.diag.wording import memory
from gpuctl.k8s import kinds
from gpuctl.k8s.workload_kinds import ANY, JOBSET, WORKLOAD_KINDS, Allowed
from gpuctl.model.declared import Declared
from jobset.tools import HERE, MODULE

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


def test_each_kind_of_the_table_is_one_of_the_kinds_that_are_read() -> None:
    assert all(kinds.KINDS[kind].observed and kinds.KINDS[kind].prune_rank for kind in WORKLOAD_KINDS)


@pytest.fixture(scope="module")
def definition() -> Any:
    """JobSet's definition, from its module; it is downloaded with the controller."""
    command = [*go(Path.home() / ".cache"), "list", "-m", "-f", "{{.Dir}}", MODULE] if _has_go() else ["false"]
    found = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False, env=_OFFLINE)
    folder = Path(found.stdout.strip() or "/nowhere") / "config" / "components" / "crd" / "bases"
    if not folder.is_dir():
        pytest.skip("no module of JobSet here: python tests/jobset/tools.py downloads it")
    body = yaml.load((folder / "jobset.x-k8s.io_jobsets.yaml").read_text(), yaml.CSafeLoader)
    (version,) = [each for each in body["spec"]["versions"] if each["name"] == JOBSET.kind[0].rpartition("/")[2]]
    return version["schema"]["openAPIV3Schema"]


_OFFLINE = os.environ | {"GOFLAGS": "-mod=mod", "GOPROXY": "off"}


def _has_go() -> bool:
    return any((Path(folder) / "go").exists() for folder in os.environ["PATH"].split(os.pathsep))


def test_what_the_table_names_is_in_the_definition(definition: Any) -> None:
    fields = definition["properties"]
    assert not list(_missing(JOBSET.allowed, fields["spec"], "spec"))
    for path in (JOBSET.suspend, JOBSET.restarts, ("status", "conditions"), ("status", "replicatedJobsStatus")):
        assert _at(definition, path) is not None, path
    entry = _at(fields["spec"], JOBSET.sets.entries)["items"]
    for path in (JOBSET.sets.template, *JOBSET.sets.counts, JOBSET.sets.jobs, JOBSET.sets.name, *JOBSET.sets.marked):
        assert _at(entry, path) is not None, path


def _missing(allowed: Allowed, schema: Any, at: str) -> Iterator[str]:
    schema = schema.get("items", schema)
    for name, below in allowed.items():
        found = schema.get("properties", {}).get(name)
        if found is None and not (at.endswith(".metadata") or "x-kubernetes-preserve-unknown-fields" in schema):
            yield f"{at}.{name}"
        elif below is not ANY and found is not None:
            yield from _missing(below, found, f"{at}.{name}")


def _at(schema: Any, path: tuple[str, ...]) -> Any:
    for step in path:
        properties: Mapping[str, Any] = schema.get("items", schema).get("properties", {})
        schema = properties.get(step)
        if schema is None:
            return None
    return schema
