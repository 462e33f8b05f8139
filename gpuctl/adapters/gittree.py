"""One commit's files, out of what `git ls-tree` and `git cat-file` print. Links are followed inside the commit only.

A commit may hold anything: trees that name each other over and over, links of megabytes, links through links. So what
is read of one is counted, and reading ends at the bounds of `model.source`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import PurePosixPath
from typing import NamedTuple

from gpuctl.model.source import YAML_SUFFIXES, SourceFault, Tally, TooLarge, exceeded

_LISTING_BYTES = 64 << 20
_LONGEST_PATH = 1 << 16
_LINE_BYTES = 53
"""Of a listing, before a path."""
_LINKS_BYTES = 4 << 20
_LINK_HOPS = 16
_LINK_PARTS = 512
"""The bounds of following one link: links on its way, and parts of what they say."""
_ROUNDS = 64
_LINK, _FOLDER, _SUBMODULE = "120000", "040000", "160000"


class Entry(NamedTuple):
    """A path of the commit, and what is there. `path` holds what is no UTF-8 as Python's surrogates."""

    mode: str
    blob: str
    path: str

    @property
    def is_link(self) -> bool:
        """Whether it is a symbolic link."""
        return self.mode == _LINK


NOTHING = Entry("", "", "")
_MARKS = frozenset({"", ".", ".."})


class Meter:
    """How much has been listed of one commit. TooLarge beyond the bounds."""

    def __init__(self, where: str) -> None:
        """`where`: the cluster's folder."""
        self._entries = self._bytes = 0
        self._tally = Tally(where)

    def entries(self, chunks: Iterable[bytes]) -> Iterator[Entry]:
        """What `ls-tree -z` prints, as it comes."""
        rest = b""
        for chunk in chunks:
            *lines, rest = (rest + chunk).split(b"\0")
            self._bytes += len(chunk)
            self._entries += len(lines)
            found = [_entry(line) for line in lines]
            for entry in found:
                self._tally.add(entry.path, _LINE_BYTES + len(entry.path))
            if len(rest) > _LONGEST_PATH:
                self._tally.add(_entry(rest).path, self._bytes)
            bound = exceeded(entries=self._entries)
            if bound or self._bytes > _LISTING_BYTES or len(rest) > _LONGEST_PATH:
                raise self._tally.too_large(
                    bound or f"{_LISTING_BYTES >> 20} MiB of paths, or {_LONGEST_PATH} bytes in one of them"
                )
            yield from found


def _entry(line: bytes) -> Entry:
    facts, _, path = line.partition(b"\t")
    mode, _, blob = facts.decode().split()
    return Entry(mode, blob, path.decode("utf-8", "surrogateescape"))


class Listing:
    """The declarations below the cluster's folder and in the policies that go with it: files, and links."""

    def __init__(self, where: str) -> None:
        """`where`: the cluster's folder; "." is the root."""
        folder = PurePosixPath(where)
        self._where = where
        self._policies = [(at / "policies").as_posix() for at in (folder, *folder.parents)]
        self._found: dict[str, dict[str, Entry]] = {root: {} for root in (where, *self._policies)}
        self._held: set[str] = set()

    @property
    def paths(self) -> list[str]:
        """What is to be listed with all below it; all there is where that is none."""
        return [] if self._where == "." else [self._where, *self._policies[1:]]

    def without(self, projects: Collection[str], below: Callable[[str], Iterable[Entry]]) -> list[str]:
        """The same without the folders of some projects. `below` gives what is in a folder, "" being the root, and
        perhaps the folders on the way to it."""
        root = "" if self._where == "." else f"{self._where}/"

        def inside(folder: str) -> Iterator[tuple[str, str]]:
            named = ((entry.path, entry.path.removeprefix(folder)) for entry in below(folder))
            return ((path, name) for path, name in named if path == folder + name and "/" not in name)

        own = [path for path, name in inside(root) if name != "projects"]
        kept = [path for path, name in inside(f"{root}projects/") if name not in projects]
        return [*own, *kept, *self.paths[1:]]

    def take(self, entries: Iterable[Entry]) -> None:
        """Keep what is wanted of what is listed."""
        for entry in entries:
            if entry.mode in {_FOLDER, _SUBMODULE}:
                continue
            for root, found in self._found.items():
                below = _below(entry.path, root)
                if below is None:
                    continue
                if root == self._where or entry.mode != _LINK:
                    self._held.add(root)
                if _declares(below):
                    found[entry.path] = entry

    @property
    def is_there(self) -> bool:
        """Whether there is such a folder with a file in it."""
        return self._where in self._held

    def declarations(self) -> dict[str, Entry]:
        """By path: those of the cluster, and of the nearest `policies/` at or above its folder that holds files."""
        nearest = next((root for root in self._policies if root in self._held), self._where)
        return {**self._found[self._where], **self._found[nearest]}


class Links:
    """Follows symbolic links inside one commit, all together, so that its cost is a few commands for each hop.

    Cost: linear in the bytes of the links. What can't be followed within the bounds leads nowhere.
    """

    def __init__(
        self,
        known: Mapping[str, Entry],
        look_up: Callable[[Sequence[str]], Iterable[Entry]],
        read: Callable[[set[str]], Mapping[str, bytes | None]],
    ) -> None:
        """`known`: entries by path. `look_up` gives the entries at paths and the folders on the way to them; no path
        it is asked for is on the way to another. `read` gives contents by blob, None for those longer than a link."""
        self._known = dict(known)
        self._look_up = look_up
        self._read = read
        self._said: dict[str, list[str] | None] = {}
        self._bytes = 0

    def follow(self, links: Iterable[Entry]) -> dict[str, Entry | SourceFault]:
        """By the link's path: the file it stands for."""
        ways = {link.path: _Way(link) for link in links}
        under_way = list(ways.values())
        for _ in range(_ROUNDS):
            self._read_links({way.link.blob for way in under_way if way.link})
            for way in under_way:
                way.go(self._known, self._said)
            under_way = [way for way in under_way if way.end is None]
            if not under_way:
                break
            self._ask([way.asks for way in under_way if way.asks])
        return {path: way.end or SourceFault.DANGLING for path, way in ways.items()}

    def _read_links(self, blobs: set[str]) -> None:
        """What links say, in parts; None for what is no path."""
        for blob, text in self._read(blobs - self._said.keys()).items():
            self._bytes += len(text or b"")
            if self._bytes > _LINKS_BYTES:
                raise TooLarge(f"{_LINKS_BYTES >> 20} MiB of symbolic links")
            sound = text and b"\0" not in text
            self._said[blob] = text.decode("utf-8", "surrogateescape").split("/") if text and sound else None

    def _ask(self, paths: Iterable[str]) -> None:
        """Have an entry for each path, unless one before it is on the way to it: then that one goes first."""
        asked: list[list[str]] = []
        for parts in sorted({tuple(path.split("/")) for path in paths}):
            if not asked or list(parts[: len(asked[-1])]) != asked[-1]:
                asked.append(list(parts))
        names = ["/".join(parts) for parts in asked]
        self._known |= {entry.path: entry for entry in self._look_up(names) if entry.mode != _SUBMODULE}
        for name in names:
            self._known.setdefault(name, NOTHING)


class _Way:
    """Where one link leads, as far as it is known.

    `done` are the parts of a folder, all real; `ahead` what is to be walked from there. Instead, `link` is one to be
    read first. `asks`: the path that has to be known to go on. `end`: what it leads to.
    """

    def __init__(self, link: Entry) -> None:
        self.link: Entry | None = link
        self.asks = ""
        self.end: Entry | SourceFault | None = None
        self._done = link.path.split("/")[:-1]
        self._ahead: deque[str] = deque()
        self._hops = self._parts = 0

    def go(self, known: Mapping[str, Entry], said: Mapping[str, list[str] | None]) -> None:
        """Go on, until something has to be looked up."""
        self.asks = ""
        while self.end is None and not self.asks and self._read(said):
            self._walk(known)

    def _read(self, said: Mapping[str, list[str] | None]) -> bool:
        """Put what the link says before what is ahead; False when that is not known yet, or leads nowhere."""
        if self.link is None:
            return True
        if self.link.blob not in said:
            return False
        parts = said[self.link.blob]
        self._hops, self._parts = self._hops + 1, self._parts + len(parts or ())
        if parts is None or self._hops > _LINK_HOPS or self._parts > _LINK_PARTS:
            self.end = SourceFault.DANGLING
        elif not parts[0]:
            self.end = SourceFault.ESCAPES
        else:
            self._ahead.extendleft(reversed(parts))
            self.link = None
        return self.end is None

    def _walk(self, known: Mapping[str, Entry]) -> None:
        """One step: over a mark, or over all names up to the next mark."""
        if not self._ahead:
            self.end = SourceFault.UNREADABLE  # a folder
        elif self._ahead[0] in _MARKS:
            mark = self._ahead.popleft()
            if mark == ".." and not self._done:
                self.end = SourceFault.ESCAPES
            elif mark == "..":
                self._done.pop()
        else:
            self._enter(list(takewhile(lambda part: part not in _MARKS, self._ahead)), known)

    def _enter(self, names: list[str], known: Mapping[str, Entry]) -> None:
        found = known.get("/".join((*self._done, *names)))
        if found is NOTHING:  # perhaps there is a link on the way: the first part that is no folder
            while len(names) > 1 and known.get("/".join((*self._done, *names[:-1])), NOTHING).mode != _FOLDER:
                names.pop()
            found = known.get("/".join((*self._done, *names)))
        if found is None:
            self.asks = "/".join((*self._done, *names))
            return
        for _ in names:
            self._ahead.popleft()
        if found.mode == _FOLDER:
            self._done += names
        elif found.mode == _LINK:
            self._done += names[:-1]
            self.link = found
        else:
            leads_on = found is NOTHING or any(part not in {"", "."} for part in self._ahead)
            self.end = SourceFault.DANGLING if leads_on else found


def blob_sizes(output: bytes) -> dict[str, int]:
    """Sizes by blob of `cat-file --batch-check`; those that are missing are left out."""
    facts = (line.split() for line in output.decode().splitlines())
    return {fact[0]: int(fact[2]) for fact in facts if len(fact) == 3}


def file_contents(chunks: Iterable[bytes]) -> Iterator[tuple[str, bytes]]:
    """(blob, content) of `cat-file --batch`, as it comes."""
    rest = b""
    for chunk in chunks:
        data, at = rest + chunk, 0
        while (end := data.find(b"\n", at)) >= 0:
            blob, _, size = data[at:end].decode().split()
            after = end + 1 + int(size)
            if len(data) <= after:
                break
            yield blob, data[end + 1 : after]
            at = after + 1
        rest = data[at:]


def shown(path: str) -> str:
    """A path as messages name it: what is no UTF-8 in it is spelt out."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _below(path: str, root: str) -> str | None:
    """The path from a folder on; None for what is not below it."""
    if root == ".":
        return path
    return path[len(root) + 1 :] if path.startswith(f"{root}/") else None


def _declares(below: str) -> bool:
    """Whether a path is a YAML file's in no hidden folder, in small letters or not."""
    return below.lower().endswith(YAML_SUFFIXES) and not any(part.startswith(".") for part in below.split("/")[:-1])
