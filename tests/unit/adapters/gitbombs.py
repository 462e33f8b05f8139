"""Commits that no porcelain would make: trees, links and messages written object by object."""

from __future__ import annotations

import os
import subprocess
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha1
from pathlib import Path

CLUSTER = "clusters/one/cluster.yaml"
WHO = "x <x@example.com> 1596000000 +0000"


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

    def made(self, kind: str, content: bytes) -> str:
        """An object, written as Git keeps it: a process for each took half of these tests' time."""
        whole = b"%s %d\0%s" % (kind.encode(), len(content), content)
        name = sha1(whole, usedforsecurity=False).hexdigest()
        file = self.folder / ".git" / "objects" / name[:2] / name[2:]
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(zlib.compress(whole, 1))
        return name

    def blob(self, content: bytes) -> str:
        return self.made("blob", content)

    def tree(self, entries: Iterable[tuple[str, str, str]]) -> str:
        """Of (mode, object, name)."""
        named = sorted((f"{name}/" if mode == "040000" else name, mode, blob, name) for mode, blob, name in entries)
        lines = (
            b"%s %s\0%s" % (mode.lstrip("0").encode(), os.fsencode(name), bytes.fromhex(blob))
            for _, mode, blob, name in named
        )
        return self.made("tree", b"".join(lines))

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
        before = self.main.read_text().strip() if self.main.exists() else ""
        parent = f"parent {before}\n" if before else ""
        head = f"tree {tree}\n{parent}author {WHO}\ncommitter {WHO}\n\n"
        return self.moved(self.made("commit", head.encode() + text + b"\n"))

    @property
    def main(self) -> Path:
        """The file that says what main is at."""
        return self.folder / ".git" / "refs" / "heads" / "main"

    def moved(self, commit: str) -> str:
        """Main is at that commit from now on."""
        self.main.write_text(f"{commit}\n")
        return commit

    def signed(self) -> str:
        """The head of main with a signature that a program would have to check."""
        head, _, text = self.run("cat-file", "commit", "main").partition("\n\n")
        signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n x\n -----END PGP SIGNATURE-----"
        return self.moved(self.made("commit", f"{head}\n{signature}\n\n{text}\n".encode()))

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
