"""One commit's files, out of what `git ls-tree` and `git cat-file` print. Links are followed inside the commit only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePosixPath

from gpuctl.model.ids import Revision
from gpuctl.model.source import SourceFault, SourceFile

_LINK_HOPS = 16
_DECLARATIONS = (".yaml", ".yml")
_LINK, _SUBMODULE = "120000", "160000"


class Contents:
    """One commit's files: paths with the blobs they name, and symbolic links with what they say."""

    def __init__(
        self,
        listed: Iterable[tuple[str, str, str]],
        read: Callable[[Iterable[str]], dict[str, bytes | None]],
    ) -> None:
        """`listed` is (mode, blob, path); `read` gives contents by blob, None for what is too large."""
        self._read = read
        self._blobs: dict[str, str] = {}
        links: dict[str, str] = {}
        for mode, blob, path in listed:
            if mode == _LINK:
                links[path] = blob
            elif mode != _SUBMODULE:
                self._blobs[path] = blob
        said = read(links.values())
        self._links = {path: (said[blob] or b"").decode("utf-8", "replace") for path, blob in links.items()}

    def holds(self, folder: str) -> bool:
        """Whether there is such a folder with a file in it."""
        below = "" if folder == "." else f"{folder}/"
        return any(path.startswith(below) for path in (*self._blobs, *self._links))

    def files(self, where: str, revision: Revision) -> dict[str, SourceFile]:
        """The declarations below the cluster's folder and the policies that go with it, links followed."""
        chosen: dict[str, str | SourceFault] = {}
        for root in (where, *self._policies(where)):
            chosen |= {path: path for path in self._blobs if _declares(path, root)}
            chosen |= {path: self._behind(path) for path in self._links if _declares(path, root)}
        read = self._read(self._blobs[real] for real in chosen.values() if not isinstance(real, SourceFault))
        return {path: self._file(real, read, revision) for path, real in sorted(chosen.items())}

    def _file(self, real: str | SourceFault, read: dict[str, bytes | None], revision: Revision) -> SourceFile:
        if isinstance(real, SourceFault):
            return SourceFile(content=b"", revision=revision, fault=real)
        content = read[self._blobs[real]]
        if content is None:
            return SourceFile(content=b"", revision=revision, fault=SourceFault.TOO_LARGE)
        return SourceFile(content=content, revision=revision)

    def _policies(self, where: str) -> Iterator[str]:
        """The `policies/` of the folder itself or of the nearest one above it."""
        for above in (PurePosixPath(where), *PurePosixPath(where).parents):
            policies = (above / "policies").as_posix()
            if any(path.startswith(f"{policies}/") for path in self._blobs):
                yield policies
                return

    def _behind(self, link: str) -> str | SourceFault:
        """The file a link stands for."""
        real = self._resolved(link)
        if isinstance(real, SourceFault) or real in self._blobs:
            return real
        return SourceFault.UNREADABLE if self.holds(real or ".") else SourceFault.DANGLING

    def _resolved(self, link: str) -> str | SourceFault:
        """The path a link leads to, through links on its way; never outside the commit."""
        ahead, done, hops = link.split("/"), list[str](), 0
        while ahead:
            part = ahead.pop(0)
            if part == "..":
                if not done:
                    return SourceFault.ESCAPES
                done.pop()
            elif part not in {"", "."}:
                done.append(part)
                target = self._links.get("/".join(done))
                if target is not None:
                    hops += 1
                    if hops > _LINK_HOPS:
                        return SourceFault.DANGLING
                    if target.startswith("/"):
                        return SourceFault.ESCAPES
                    done.pop()
                    ahead = [*target.split("/"), *ahead]
        return "/".join(done)


def entries(listing: bytes) -> Iterator[tuple[str, str, str]]:
    """(mode, blob, path) of `ls-tree -r -z`."""
    for line in listing.split(b"\0"):
        if line:
            facts, _, path = line.partition(b"\t")
            mode, _, blob = facts.decode().split()
            yield mode, blob, path.decode("utf-8", "replace")


def blob_sizes(output: bytes) -> dict[str, int]:
    """Sizes by blob of `cat-file --batch-check`; those that are missing are left out."""
    facts = (line.split() for line in output.decode().splitlines())
    return {fact[0]: int(fact[2]) for fact in facts if len(fact) == 3}


def file_contents(output: bytes) -> Iterator[tuple[str, bytes]]:
    """(blob, content) of `cat-file --batch`."""
    at = 0
    while at < len(output):
        end = output.index(b"\n", at)
        blob, _, size = output[at:end].decode().split()
        yield blob, output[end + 1 : end + 1 + int(size)]
        at = end + 2 + int(size)


def _declares(path: str, root: str) -> bool:
    """Whether a path is a YAML file below a folder, and in no hidden folder."""
    below = path if root == "." else path.removeprefix(f"{root}/")
    inside = root == "." or path.startswith(f"{root}/")
    return inside and path.endswith(_DECLARATIONS) and not any(part.startswith(".") for part in below.split("/")[:-1])
