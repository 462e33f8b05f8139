"""JSON of another system: it is refused as a whole, or what is declared of it compiles beside what there was."""

from __future__ import annotations

from dataclasses import replace

from gpuctl.app.editing import WorkingTree, added_errors
from gpuctl.app.importing import imported, place_in
from gpuctl.compile import compile_tree
from gpuctl.model.source import SourceFile, SourceTree
from gpuctl.scaffold.foreign import items, of_kubectl, of_runai

from .harness import JSON, Target

_HEAD = "apiVersion: gpuctl.dev/v1\n"
CLUSTER = f"""{_HEAD}kind: Cluster
metadata: {{name: c}}
spec:
  nodePools:
  - {{name: dgx, nodes: [d1, d2], gpusPerNode: 8, gpuMemory: 32Gi, sharing: dra,
     resourcesPerNode: {{cpu: 80, memory: 512Gi}}}}
  - {{name: old, nodes: [o1], gpusPerNode: 4, gpuMemory: 16Gi, resourcesPerNode: {{cpu: 8, memory: 64Gi}}}}
---
{_HEAD}kind: Project
metadata: {{name: there}}
spec: {{quota: 1}}
"""
WORKING = WorkingTree(SourceTree(cluster_dir="c", files={"c/cluster.yaml": SourceFile(content=CLUSTER.encode())}))
PLACE, BEFORE = place_in(WORKING), compile_tree(WORKING.tree).diagnostics


def check(data: bytes) -> None:
    """Import it in both ways; write what is declared as a file, and compile it."""
    try:
        found_items = items(data)
    except ValueError:
        return
    for found in (of_kubectl(found_items, PLACE), of_runai(found_items, PLACE)):
        declared = imported(WORKING, found)
        files = {path: SourceFile(content=content) for path, content in declared.files.items()}
        assert len(declared.things) + len(declared.left) >= len({thing.target for thing in found.things})
        after = compile_tree(replace(WORKING.tree, files={**WORKING.tree.files, **files}))
        assert added_errors(BEFORE, after.diagnostics) == declared.errors
        assert all(error.code in {"GPU3009", "GPU3010"} for error in declared.errors)
        for path, content in declared.files.items():
            assert path.startswith(("c/projects/", "c/departments/"))
            assert "/." not in path
            assert content.decode().isascii() or all(c.isprintable() or c == "\n" for c in content.decode())


TARGET = Target(
    check=check,
    form=JSON,
    words=(b'"kind":"Project"', b'"kind":"Job"', b'"items":[', b'"deservedGpus":1e9999', b'"value":', b"runai-",
           b"1e-9", b'"nvidia.com/gpu":"1"', b'"projects":[', b"../", b"kube-system"),
)  # fmt: skip
