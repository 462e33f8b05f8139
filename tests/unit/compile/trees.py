"""Small trees for the compiler's tests."""

from __future__ import annotations

from collections.abc import Mapping

from gpuctl.compile import Compiled, compile_tree
from gpuctl.model.source import SourceFile, SourceTree

HEAD = "apiVersion: gpuctl.dev/v1\n"
CLUSTER = HEAD + (
    "kind: Cluster\nmetadata: {name: c}\nspec:\n  nodePools:\n"
    "  - {name: dgx, nodes: [d1, d2], gpusPerNode: 8, gpuMemory: 32Gi, sharing: dra,\n"
    "     resourcesPerNode: {cpu: 80, memory: 512Gi}}\n"
    "  - {name: old, nodes: [o1, {name: o2, gpus: 2}], gpusPerNode: 4, gpuMemory: 16Gi}\n"
)
OPEN_CLUSTER = CLUSTER + "  security: {podSecurity: privileged, hostPaths: [/]}\n"


def project(name: str, spec: str = "{quota: 4}") -> str:
    return f"{HEAD}kind: Project\nmetadata: {{name: {name}}}\nspec: {spec}\n"


def job(name: str, spec: str = "{image: x, gpus: 1}", owner: str = "team-a") -> str:
    return f"{HEAD}kind: Job\nmetadata: {{name: {name}, project: {owner}}}\nspec: {spec}\n"


def tree(**documents: str) -> SourceTree:
    """A tree with a file for each argument, besides the cluster."""
    return tree_of({"cluster.yaml": CLUSTER, **{f"{name}.yaml": text for name, text in documents.items()}})


def tree_of(files: Mapping[str, str | bytes], cluster_dir: str = ".") -> SourceTree:
    contents = {path: text if isinstance(text, bytes) else text.encode() for path, text in files.items()}
    return SourceTree(
        cluster_dir=cluster_dir, files={path: SourceFile(content=content) for path, content in contents.items()}
    )


def codes(compiled: Compiled) -> list[str]:
    return [diagnostic.code for diagnostic in compiled.diagnostics]


def compiled_of(**documents: str) -> Compiled:
    return compile_tree(tree(**documents))
