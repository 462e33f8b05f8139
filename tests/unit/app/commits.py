"""A source in memory: commits are written by the test, in order, and can be taken away."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gpuctl.app.ports import SourceUnavailable
from gpuctl.model.history import Commit
from gpuctl.model.ids import Revision
from gpuctl.model.source import SourceFile, SourceTree

CLUSTER = """apiVersion: gpuctl.dev/v1
kind: Cluster
metadata: {name: one}
spec:
  nodePools:
  - name: p
    nodes: [n1, n2]
    gpusPerNode: 8
    gpuMemory: 32Gi
    gpuProduct: Tesla
    sharing: device-plugin
"""


def project(name: str, quota: int = 4, weight: int = 1) -> str:
    return (
        f"apiVersion: gpuctl.dev/v1\nkind: Project\nmetadata: {{name: {name}}}\n"
        f"spec: {{quota: {quota}, overQuotaWeight: {weight}}}\n"
    )


def job(name: str, owner: str, gpus: int = 1) -> str:
    return (
        f"apiVersion: gpuctl.dev/v1\nkind: Job\nmetadata: {{name: {name}, project: {owner}}}\n"
        f"spec: {{image: x, gpus: {gpus}}}\n"
    )


BASE = {
    "c/cluster.yaml": CLUSTER,
    "c/projects/a/project.yaml": project("a"),
    "c/projects/a/j1.yaml": job("j1", "a"),
    "c/projects/b/project.yaml": project("b"),
    "c/projects/b/j2.yaml": job("j2", "b"),
}


class Commits:
    """Implements Source. `reachable` False: the remote is away; commits in `lost` are not in the repository."""

    def __init__(self) -> None:
        self.files: dict[Revision, Mapping[str, str]] = {}
        self.parents: dict[Revision, Revision | None] = {}
        self.confirmed: dict[Revision, frozenset[str]] = {}
        self.lost: set[Revision] = set()
        self.reachable = True
        self.at: Revision | None = None
        self.branch = "main"

    def commit(self, files: Mapping[str, str], parent: Revision | None = None, confirm: str = "") -> Revision:
        """A commit with these files on top of the newest one, or of another."""
        revision = Revision(f"{len(self.files) + 1:040x}")
        self.files[revision] = dict(files)
        self.parents[revision] = parent if parent is not None else self.at
        self.confirmed[revision] = frozenset({confirm} if confirm else ())
        self.at = revision
        return revision

    def head(self) -> Revision:
        if not self.reachable or self.at is None:
            raise SourceUnavailable("GPU8001", "the remote is away")
        return self.at

    def tree(self, revision: Revision) -> SourceTree:
        if revision in self.lost or revision not in self.files:
            raise SourceUnavailable("GPU8006", "no such commit")
        files = {
            path: SourceFile(content=text.encode(), revision=revision) for path, text in self.files[revision].items()
        }
        if not files:
            raise SourceUnavailable("GPU8003", "no such folder")
        return SourceTree(cluster_dir="c", revision=revision, files=files)

    def follows(self, older: Revision, newer: Revision) -> bool:
        at: Revision | None = newer
        while at is not None and at != older:
            at = self.parents[at]
        return at is not None

    def commits(self, revisions: Collection[Revision]) -> tuple[Commit, ...]:
        del revisions
        return ()

    def verify(self, since: Collection[Revision], head: Revision) -> None:
        """It has no signatures, and asks for none."""

    def confirmations(self, since: Revision, until: Revision, within: str | None = None) -> frozenset[str]:
        del within
        found: set[str] = set()
        at: Revision | None = until
        while at is not None and at != since:
            found |= self.confirmed[at]
            at = self.parents[at]
        return frozenset(found)
