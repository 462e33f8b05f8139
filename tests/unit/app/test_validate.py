from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuctl.app.bench.compile import bench_compile, bench_tree
from gpuctl.app.ports import SourceUnavailable
from gpuctl.app.validate import validate, validate_change
from gpuctl.app.validation import Validation, key_of, read, written
from gpuctl.compile import compile_tree
from gpuctl.diag.diagnostic import Diagnostic, Severity
from gpuctl.diag.span import SourceSpan
from gpuctl.model.ids import Revision
from gpuctl.model.source import SourceFault, SourceFile, SourceTree


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


class Kept:
    """The cache in memory."""

    def __init__(self) -> None:
        self.bodies: dict[bytes, bytes] = {}

    def get(self, key: bytes) -> bytes | None:
        return self.bodies.get(key)

    def put(self, key: bytes, body: bytes) -> None:
        self.bodies[key] = body


def test_what_is_known_of_the_same_bytes_is_told_without_compiling() -> None:
    trees = {"good": bench_tree(8, 2), "bad": SourceTree(cluster_dir="k", files={"k/a.yaml": SourceFile(content=b"[")})}
    kept = Kept()
    first = validate(trees, trees.__getitem__, kept)
    assert first == validate(trees, trees.__getitem__, kept) == validate(trees, trees.__getitem__)
    kept.put(key_of(trees["good"]), written(Validation(jobs=77)))
    assert validate(trees, trees.__getitem__, kept).jobs == 77


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"jobs": {}}', b"[" * 100_000, b"\xff", b"null"])
def test_a_body_that_says_nothing_is_made_anew(body: bytes) -> None:
    tree, kept = bench_tree(8, 2), Kept()
    kept.put(key_of(tree), body)
    assert validate(["good"], lambda _: tree, kept).jobs == 8
    assert read(kept.bodies[key_of(tree)]) == Validation(jobs=8)


def test_a_change_is_known_by_both_of_its_trees() -> None:
    good, kept = bench_tree(8, 2), Kept()
    broken = replace(good, files={**good.files, "clusters/bench/x.yaml": SourceFile(content=b"[")})
    for before, now in ((good, broken), (broken, good), (None, broken), (good, good)):
        fresh = validate_change(["x"], lambda _, pair=(before, now): pair)  # type: ignore[misc]
        assert validate_change(["x"], lambda _, pair=(before, now): pair, kept) == fresh  # type: ignore[misc]
        assert validate_change(["x"], lambda _, pair=(before, now): pair, kept) == fresh  # type: ignore[misc]
    assert len(kept.bodies) == 3


def test_what_is_known_of_one_number_of_jobs_is_not_told_of_another() -> None:
    tree, kept = bench_tree(8, 2), Kept()
    for _ in range(2):
        found = [validate(["x"], lambda _: tree, kept, most).valid for most in (None, 8, 7)]
        assert found == [True, True, False]
        found = [validate_change(["x"], lambda _: (None, tree), kept, most).valid for most in (None, 8, 7)]
        assert found == [True, True, False]
    assert len(kept.bodies) == 6


def test_all_that_a_verdict_depends_on_is_in_the_key() -> None:
    file = SourceFile(content=b"ab")
    tree = SourceTree(cluster_dir="c", files={"c/1.yaml": file, "c/2.yaml": file})
    others = [
        None,
        replace(tree, cluster_dir="d"),
        replace(tree, revision=Revision("1" * 40)),
        replace(tree, files={"c/1.yaml": file}),
        replace(tree, files={"c/1.yaml": file, "c/3.yaml": file}),
        *(
            replace(tree, files={"c/1.yaml": other, "c/2.yaml": file})
            for other in (
                SourceFile(content=b"aB"),
                SourceFile(content=b""),
                SourceFile(content=b"ab", revision=Revision("1" * 40)),
                SourceFile(content=b"", fault=SourceFault.DANGLING),
                SourceFile(content=b"", fault=SourceFault.ESCAPES),
            )
        ),
    ]
    keys = [key_of(each) for each in (tree, *others)] + [key_of(tree, tree), key_of(None, tree), key_of(tree, None)]
    keys += [key_of(tree, most_jobs=1), key_of(tree, most_jobs=11)]
    assert len(set(keys)) == len(keys)
    assert key_of(replace(tree, files=dict(reversed(list(tree.files.items()))))) == key_of(tree)


NAMES = st.text(max_size=5) | st.just("\udc80")
FILES = st.builds(SourceFile, content=st.binary(max_size=5), revision=NAMES.map(Revision))


@given(st.dictionaries(NAMES, FILES, max_size=3), st.dictionaries(NAMES, FILES, max_size=3))
def test_other_files_have_another_key(some: dict[str, SourceFile], others: dict[str, SourceFile]) -> None:
    keys = [key_of(SourceTree(cluster_dir=".", files=files)) for files in (some, others)]
    assert (keys[0] == keys[1]) == (some == others)


SPANS = st.builds(SourceSpan, file=NAMES, line=st.integers(1), column=st.integers(1), revision=NAMES)
FOUND = st.builds(
    Diagnostic,
    code=NAMES, message=NAMES, help=NAMES, source_line=NAMES, policy=NAMES,
    span=SPANS,
    severity=st.sampled_from(Severity),
    related=st.lists(st.tuples(NAMES, SPANS), max_size=2).map(tuple),
)  # fmt: skip


@given(st.builds(Validation, diagnostics=st.lists(FOUND, max_size=3).map(tuple), jobs=st.integers(0)))
def test_a_validation_is_read_as_it_was_written(validation: Validation) -> None:
    assert read(written(validation)) == validation


def test_a_large_verdict_fits_into_the_cache() -> None:
    files = {f"c/{n}.yaml": SourceFile(content=b"kind: Jobs\napiVersion: gpuctl.dev/v1\n" * 3) for n in range(1500)}
    compiled = compile_tree(SourceTree(cluster_dir="c", files=files))
    assert len(compiled.diagnostics) > 1000
    assert len(written(Validation(diagnostics=compiled.diagnostics))) < 1 << 20
