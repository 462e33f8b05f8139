"""The small cluster whose objects are mutated: two teams, and pools that are shared in each way there is.

The corpora of `observe` and `plan` are its objects, as the embedded cluster had them after a minute: one job waits.
An input is a list of objects. Those without what the API server gives every object are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpuctl.adapters.kubernetes.decoding import decode
from gpuctl.compile import compile_tree
from gpuctl.k8s.objects import ref_of
from gpuctl.model.declared import Declared
from gpuctl.model.ids import ObjectRef
from gpuctl.model.source import SourceFile, SourceTree
from gpuctl.model.state import Body, RawObjects

NOW_MS = 1_596_000_061_000
"""A minute after the town began."""
_HEAD = "apiVersion: gpuctl.dev/v1\nkind: "
_JOB = f"{_HEAD}Job\nmetadata: {{name: %s, project: %s}}\nspec: {{image: x, gpus: %s}}\n"
FILES = {
    "cluster.yaml": f"{_HEAD}Cluster\nmetadata: {{name: one}}\nspec:\n  nodePools:\n"
    "  - {name: p, nodes: [n1], gpusPerNode: 4, gpuMemory: 32Gi, gpuProduct: Tesla, sharing: device-plugin}\n"
    "  - {name: h, nodes: [h1], gpusPerNode: 2, gpuMemory: 32Gi, sharing: hami}\n"
    "  - {name: d, nodes: [d1], gpusPerNode: 2, gpuMemory: 32Gi, sharing: dra}\n"
    "  scheduling: {starvationGuard: 1m}\n",
    "good.yaml": f"{_HEAD}Project\nmetadata: {{name: good}}\nspec: {{quota: 4}}\n",
    "evil.yaml": f"{_HEAD}Project\nmetadata: {{name: evil}}\nspec: {{quota: 4}}\n",
    "g1.yaml": _JOB % ("g1", "good", "1, workers: 2, minWorkers: 1"),
    "g2.yaml": _JOB % ("g2", "good", "1, type: inference"),
    "e1.yaml": _JOB % ("e1", "evil", "0.5, nodePools: [h]"),
    "e2.yaml": _JOB % ("e2", "evil", "1, nodePools: [d]"),
    "e3.yaml": _JOB % ("e3", "evil", "4"),
}


def declared() -> Declared:
    """What is declared of it."""
    files = {f"c/{path}": SourceFile(content=text.encode()) for path, text in FILES.items()}
    compiled = compile_tree(SourceTree(cluster_dir="c", files=files))
    assert compiled.declared is not None, compiled.diagnostics
    return compiled.declared


DECLARED = declared()


def objects_of(data: bytes) -> RawObjects:
    """The objects of an input, decoded as a server's answers are; none of what is no JSON."""
    try:
        tree = decode(data)
    except ValueError:
        return RawObjects()
    return RawObjects(objects=dict(_addressed(tree if isinstance(tree, list) else [])))


def _addressed(bodies: list[Any]) -> Iterator[tuple[ObjectRef, Body]]:
    for body in bodies:
        meta = body.get("metadata") if isinstance(body, dict) else None
        told = [body.get("apiVersion"), body.get("kind"), meta.get("name")] if isinstance(meta, Mapping) else [None]
        if all(isinstance(text, str) and text for text in told):
            yield ref_of(body), body
