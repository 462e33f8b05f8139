"""docs/other-kinds.md: its jobs are valid and counted as it says, and it has a row for each kind that is known."""

from __future__ import annotations

import re
from pathlib import Path

from gpuctl import api
from gpuctl.k8s.workload_table import BUILT_IN

PAGE = (Path(__file__).parents[2] / "docs" / "other-kinds.md").read_text()
CLUSTER = """apiVersion: gpuctl.dev/v1
kind: Cluster
metadata: {name: prod}
spec:
  nodePools:
  - name: dgx
    nodes: [dgx-1, dgx-2, dgx-3, dgx-4]
    gpusPerNode: 8
    gpuMemory: 80Gi
    resourcesPerNode: {cpu: 128, memory: 1Ti}
    sharing: device-plugin
---
apiVersion: gpuctl.dev/v1
kind: Project
metadata: {name: vision}
spec: {quota: 32}
"""


def test_its_jobs_are_counted_as_it_says() -> None:
    found = re.search(r"```yaml\n(apiVersion: gpuctl.*?)```", PAGE, flags=re.DOTALL)
    assert found
    compiled = api.compile({"cluster.yaml": CLUSTER, "jobs.yaml": found[1]})
    assert compiled.declared is not None, compiled.diagnostics
    total = {job.id.name: job.total_gpu_milli // 1000 for job in compiled.declared.jobs}
    assert [job.workers for job in compiled.declared.jobs] == [4, 4, 4]
    amounts = f"{total['finetune']}, {total['sweep']} and {total['chat']} GPUs"
    assert f"<!-- counted -->{amounts}<!-- end -->" in PAGE


def test_a_kind_of_the_clusters_own_is_counted_as_it_says() -> None:
    text = next(each for each in re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL) if "workloadKinds" in each)
    project = CLUSTER.partition("---\n")[2].replace("32", "8")
    compiled = api.compile({"all.yaml": f"{text}---\n{project}"})
    assert compiled.declared is not None, compiled.diagnostics
    (job,) = compiled.declared.jobs
    assert f"<!-- declared -->{job.workers} workers and {job.total_gpu_milli // 1000} GPUs<!-- end -->" in PAGE


def test_it_has_a_row_for_each_kind_with_the_field_that_stops_it() -> None:
    table = PAGE.partition("<!-- kinds -->")[2].partition("<!-- end -->")[0]
    rows = {cells[1].strip(): cells for line in table.splitlines() if (cells := line.split("|"))[1:2]}
    assert {f"`{kind[1]}`" for kind in BUILT_IN} == {name for name in rows if name.startswith("`")}
    for kind, row in BUILT_IN.items():
        cells = rows[f"`{kind[1]}`"]
        field = ".".join(row.suspension.field[1:])
        assert cells[4].strip() == (f"`{field}: 0`" if row.suspension.is_count else f"`{field}`")
        assert (cells[5].strip() == "never") is not row.ends
