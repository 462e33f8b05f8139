from __future__ import annotations

from gpuctl.app.bench.compile import bench_compile, bench_tree
from gpuctl.app.ports import SourceUnavailable
from gpuctl.app.validate import validate
from gpuctl.model.source import SourceFile, SourceTree


def test_several_trees_are_checked_on_their_own_and_told_together() -> None:
    good = bench_tree(8, 2)
    bad = SourceTree(cluster_dir="k", files={"k/a.yaml": SourceFile(content=b"a: [")})
    trees = {"good": good, "bad": bad, "worse": bad}
    found = validate(trees, trees.__getitem__)
    assert (found.valid, found.clusters, found.jobs) == (False, 3, 8)
    assert [d.code for d in found.diagnostics] == ["GPU3001", "GPU1001"]
    assert validate(["good"], trees.__getitem__).valid


def test_a_folder_that_can_not_be_read_is_a_mistake_of_its_own() -> None:
    def read(folder: str) -> SourceTree:
        if folder == "large":
            raise SourceUnavailable("GPU8014", "too much")
        return bench_tree(8, 2)

    found = validate(["good", "large"], read)
    assert (found.valid, found.clusters, found.jobs) == (False, 2, 8)
    assert [(str(d.span), d.code, d.message) for d in found.diagnostics] == [("large:1:1", "GPU8014", "too much")]
    assert found.diagnostics[0].help


def test_the_benchmark_measures_a_tree_that_is_the_same_every_time() -> None:
    assert bench_tree(20, 4) == bench_tree(20, 4)
    measured = bench_compile(jobs=40, projects=4, runs=1)
    assert (measured.jobs, measured.projects, measured.files) == (40, 4, 45)
    assert measured.size_bytes > 10_000
    assert measured.peak_mib > 0
