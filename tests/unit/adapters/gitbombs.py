"""Commits that no porcelain would make: trees, links and messages written object by object."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

CLUSTER = "clusters/one/cluster.yaml"


@dataclass(frozen=True)
class Forge:
    """A repository whose objects a test makes itself."""

    folder: Path

    @staticmethod
    def create(folder: Path) -> Forge:
        subprocess.run(["git", "init", "-q", "-b", "main", str(folder)], check=True)
        return Forge(folder)

    def run(self, *args: str, feed: bytes = b"") -> str:
        who = ("-c", "user.name=x", "-c", "user.email=x@example.com")
        done = subprocess.run(
            ["git", "-C", str(self.folder), *who, *args], check=True, input=feed, capture_output=True
        )  # fmt: skip
        return done.stdout.decode().strip()

    def blob(self, content: bytes) -> str:
        return self.run("hash-object", "-w", "--stdin", feed=content)

    def tree(self, entries: Iterable[tuple[str, str, str]]) -> str:
        """Of (mode, object, name)."""
        kinds = {"040000": "tree", "160000": "commit"}
        lines = [f"{mode} {kinds.get(mode, 'blob')} {blob}\t{name}\0" for mode, blob, name in entries]
        return self.run("mktree", "-z", feed="".join(lines).encode())

    def nested(self, files: dict[str, tuple[str, str]]) -> str:
        """A tree of (mode, object) by path; an object may be a tree."""
        here: list[tuple[str, str, str]] = []
        below: dict[str, dict[str, tuple[str, str]]] = {}
        for path, (mode, blob) in files.items():
            first, _, rest = path.partition("/")
            if rest:
                below.setdefault(first, {})[rest] = (mode, blob)
            else:
                here.append((mode, blob, first))
        return self.tree([*here, *(("040000", self.nested(of), name) for name, of in below.items())])

    def commit(self, files: dict[str, tuple[str, str]], text: bytes = b"made") -> str:
        """The new head of main, with a cluster.yaml besides; a commit on top of the one before."""
        tree = self.nested({CLUSTER: ("100644", self.blob(b"kind: Cluster\n")), **files})
        before = self.run("for-each-ref", "--format=%(objectname)", "refs/heads/main")
        parents = ["-p", before] if before else []
        commit = self.run("commit-tree", tree, *parents, feed=text)
        self.run("update-ref", "refs/heads/main", commit)
        return commit

    def signed(self) -> str:
        """The head of main with a signature that a program would have to check."""
        head, _, text = self.run("cat-file", "commit", "main").partition("\n\n")
        signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n x\n -----END PGP SIGNATURE-----"
        body = f"{head}\n{signature}\n\n{text}\n"
        commit = self.run("hash-object", "-t", "commit", "-w", "--stdin", feed=body.encode())
        self.run("update-ref", "refs/heads/main", commit)
        return commit

    def link(self, target: bytes) -> tuple[str, str]:
        return "120000", self.blob(target)

    def file(self, content: bytes = b"kind: Job\n") -> tuple[str, str]:
        return "100644", self.blob(content)

    def bomb(self, *, levels: int = 7, each: int = 20, leaf: str = "") -> tuple[str, str]:
        """Trees of which each names the one below many times: `each` to the power of `levels` paths."""
        tree = leaf or self.tree([("100644", self.blob(b"kind: Job\n"), "job.yaml")])
        for _ in range(levels):
            tree = self.tree([("040000", tree, f"folder-{n}") for n in range(each)])
        return "040000", tree
