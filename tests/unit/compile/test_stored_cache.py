"""A compile cache of an earlier process changes no result, and its bytes run nothing."""

from __future__ import annotations

import os
import pickle
from dataclasses import replace
from functools import partial

import pytest
from trees import CLUSTER, HEAD, job, project, tree_of

from gpuctl.app.revisions import contents_of
from gpuctl.compile import CompileCache, compile_tree
from gpuctl.compile.stored import restored, stored
from gpuctl.model.source import SourceTree
from gpuctl.model.stored import _made

TEMPLATE = (
    f"{HEAD}kind: Template\nmetadata: {{name: t, project: team-b}}\n"
    "spec: {parameters: {n: {type: number, default: 1}}, job: {image: x, gpus: {$parameter: n}}}\n"
)
FILES = {
    "k/projects/team-b/t.yaml": TEMPLATE,
    "k/projects/team-b/j-2.yaml": job("j-2", "{template: {name: t}}", "team-b"),
    "k/cluster.yaml": CLUSTER,
    "k/projects/team-a/project.yaml": project("team-a", "{quota: 4}"),
    "k/projects/team-a/j.yaml": job("j-1", "{image: x, gpus: 0.5}", "team-a"),
    "k/projects/team-b/project.yaml": project("team-b", "{quota: 8}"),
    "k/projects/team-b/j.yaml": job("j-1", "{image: x, gpus: 4, env: {A: '1'}}", "team-b"),
}
TREE = tree_of(FILES)
CHANGES = {
    "nothing": TREE,
    "a quota": tree_of(FILES | {"k/projects/team-a/project.yaml": project("team-a", "{quota: 2}")}),
    "a job": tree_of(FILES | {"k/projects/team-b/j.yaml": job("j-1", "{image: y, gpus: 4}", "team-b")}),
    "a template": tree_of(FILES | {"k/projects/team-b/t.yaml": TEMPLATE.replace("image: x", "image: z")}),
    "the cluster": tree_of(FILES | {"k/cluster.yaml": f"{CLUSTER}  namespacePrefix: x-\n"}),
    "a file is gone": tree_of({path: text for path, text in FILES.items() if not path.endswith("b/j.yaml")}),
    "a mistake": tree_of(FILES | {"k/projects/team-b/j.yaml": "a: ["}),
    "another folder": replace(TREE, cluster_dir="other"),
}


def kept(tree: SourceTree) -> bytes:
    cache = CompileCache()
    compile_tree(tree, cache)
    return stored(cache)


def test_what_projects_declare_has_the_same_digest() -> None:
    cache = CompileCache()
    known = contents_of(TREE, compile_tree(TREE, cache), cache)
    for change, tree in CHANGES.items():
        warm, cold = restored(stored(cache)) or CompileCache(), CompileCache()
        found = contents_of(tree, compile_tree(tree, warm), warm)
        assert found == contents_of(tree, compile_tree(tree, cold), cold), change
        assert found == known or change != "nothing"
        if change == "a job":
            assert warm.contents.made == 1
            assert {name for name in found if found[name] != known[name]} == {"team-b"}


@pytest.mark.parametrize("change", CHANGES)
def test_every_tree_compiles_as_it_does_from_nothing(change: str) -> None:
    cache = restored(kept(TREE))
    assert cache is not None
    assert compile_tree(CHANGES[change], cache) == compile_tree(CHANGES[change])


def test_only_what_changed_is_compiled() -> None:
    cache = restored(kept(TREE))
    assert cache is not None
    compile_tree(TREE, cache)
    assert (cache.reading.files.made, cache.fitted.made, cache.jobs.made) == (0, 0, 0)
    compile_tree(CHANGES["a job"], cache)
    assert (cache.reading.files.made, cache.fitted.made, cache.jobs.made) == (1, 1, 1)


def test_a_value_that_could_not_be_read_is_not_taken_for_one() -> None:
    broken = tree_of(FILES | {"k/projects/team-b/j.yaml": job("j-1", "{image: x, gpus: !!binary 4}", "team-b")})
    cache = restored(kept(broken)) or CompileCache()
    assert compile_tree(broken, cache) == compile_tree(broken)


class Runs:
    def __init__(self, *call: object) -> None:
        self.call = call

    def __reduce__(self) -> tuple[object, ...]:
        return self.call[0], self.call[1:]


@pytest.mark.parametrize(
    "body",
    [
        pickle.dumps(Runs(_made, str, 1)), pickle.dumps(Runs(_made, SourceTree, 1)),
        b"", b"\x80\x05", b"not a pickle", kept(TREE)[:-200], pickle.dumps([1, 2, 3, 4]), pickle.dumps({}),
        pickle.dumps(Runs(os.system, "exit 1")), pickle.dumps(Runs(eval, "1")), pickle.dumps(Runs(partial, print)),
        b"cgpuctl.compile.fit\npartial\n.", b"cgpuctl.model.stored\npickle.loads\n.", b"cgpuctl.wiring\nhost\n.",
        b"cgpuctl.compile.compiler\ncompile_tree\n.", b"cgpuctl.model.stored\n_Unpickler\n.",
        b"cgpuctl.model.stored\ndumped\n.", b"cgpuctl.model.stored\nfields\n.", b"cgpuctl.modelx.y\nz\n.",
    ],
)  # fmt: skip
def test_other_bytes_are_no_cache_and_call_nothing(body: bytes) -> None:
    assert restored(body) is None
