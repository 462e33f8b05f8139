from __future__ import annotations

from gpuctl.app.bench.compile import bench_compile, bench_tree
from gpuctl.app.validate import validate
from gpuctl.model.source import SourceFile, SourceTree


def test_several_trees_are_checked_on_their_own_and_told_together() -> None:
    good = bench_tree(8, 2)
    bad = SourceTree(cluster_dir="k", files={"k/a.yaml": SourceFile(content=b"a: [")})
    found = validate([good, bad, bad])
    assert (found.valid, found.clusters, found.jobs) == (False, 3, 8)
    assert [d.code for d in found.diagnostics] == ["GPU3001", "GPU1001"]
    assert validate([good]).valid


def test_the_benchmark_measures_a_tree_that_is_the_same_every_time() -> None:
    assert bench_tree(20, 4) == bench_tree(20, 4)
    measured = bench_compile(jobs=40, projects=4, runs=1)
    assert (measured.jobs, measured.projects, measured.files) == (40, 4, 45)
    assert measured.size_bytes > 10_000
    assert measured.peak_mib > 0
