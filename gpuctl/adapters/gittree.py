"""Lists one commit's files, from what `git ls-tree` and `git cat-file` print. Links are followed only inside the
commit.

Security: a commit may hold anything, such as trees that name each other over and over, links of megabytes, or links
through links. So gpuctl counts what it reads of a commit, and stops at the bounds of `model.source`.
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
"""Bytes of a line of a listing before its path."""
_LINKS_BYTES = 4 << 20
_LINK_HOPS = 16
_LINK_PARTS = 512
"""The bounds of following one link: the links on its way, and the parts of their targets."""
_ROUNDS = 64
_LINK, _FOLDER, _SUBMODULE = "120000", "040000", "160000"


class Entry(NamedTuple):
    """A path of the commit and the object there. `path` holds bytes that are not UTF-8 as Python's surrogates."""

    mode: str
    blob: str
    path: str

    @property
    def is_link(self) -> bool:
        """Whether the entry is a symbolic link."""
        return self.mode == _LINK


NOTHING = Entry("", "", "")
_MARKS = frozenset({"", ".", ".."})


class Meter:
    """Counts what was listed of one commit. Raises TooLarge beyond the bounds."""

    def __init__(self, where: str) -> None:
        """`where`: the cluster's folder."""
        self._entries = self._bytes = 0
        self._tally = Tally(where)

    def entries(self, chunks: Iterable[bytes]) -> Iterator[Entry]:
        """The entries that `ls-tree -z` prints, as they come."""
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
    """The files and links that declare something: below the cluster's folder, and in the policies that go with it."""

    def __init__(self, where: str) -> None:
        """`where`: the cluster's folder; "." is the root."""
        folder = PurePosixPath(where)
        self._where = where
        self._policies = [(at / "policies").as_posix() for at in (folder, *folder.parents)]
        self._found: dict[str, dict[str, Entry]] = {root: {} for root in (where, *self._policies)}
        self._held: set[str] = set()

    @property
    def paths(self) -> list[str]:
        """The folders to list with all below them; empty: list the whole commit."""
        return [] if self._where == "." else [self._where, *self._policies[1:]]

    def without(self, projects: Collection[str], below: Callable[[str], Iterable[Entry]]) -> list[str]:
        """The paths to list without the folders of some projects. `below` gives the entries in a folder ("" is the
        root), and perhaps the folders on the way to it."""
        root = "" if self._where == "." else f"{self._where}/"

        def inside(folder: str) -> Iterator[tuple[str, str]]:
            named = ((entry.path, entry.path.removeprefix(folder)) for entry in below(folder))
            return ((path, name) for path, name in named if path == folder + name and "/" not in name)

        own = [path for path, name in inside(root) if name != "projects"]
        kept = [path for path, name in inside(f"{root}projects/") if name not in projects]
        return [*own, *kept, *self.paths[1:]]

    def take(self, entries: Iterable[Entry]) -> None:
        """Keep the declarations among listed entries."""
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
        """Whether the cluster's folder exists, with a file in it."""
        return self._where in self._held

    def declarations(self) -> dict[str, Entry]:
        """The entries by path: of the cluster, and of the nearest `policies/` at or above its folder that holds
        files."""
        nearest = next((root for root in self._policies if root in self._held), self._where)
        return {**self._found[self._where], **self._found[nearest]}


class Links:
    """Follows symbolic links inside one commit; all links together, so that each hop costs only a few commands.

    Cost: linear in the bytes of the links. A link that can't be followed within the bounds leads nowhere.
    """

    def __init__(
        self,
        known: Mapping[str, Entry],
        look_up: Callable[[Sequence[str]], Iterable[Entry]],
        read: Callable[[set[str]], Mapping[str, bytes | None]],
    ) -> None:
        """`known`: entries by path. `look_up` gives the entries at paths and the folders on the way to them; none of
        its paths is on the way to another. `read` gives contents by blob, None for contents that are longer than a
        link."""
        self._known = dict(known)
        self._look_up = look_up
        self._read = read
        self._said: dict[str, list[str] | None] = {}
        self._bytes = 0

    def follow(self, links: Iterable[Entry]) -> dict[str, Entry | SourceFault]:
        """The file that each link stands for, by the link's path."""
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
        """Read the targets of links, in parts; None for a target that is no path."""
        for blob, text in self._read(blobs - self._said.keys()).items():
            self._bytes += len(text or b"")
            if self._bytes > _LINKS_BYTES:
                raise TooLarge(f"{_LINKS_BYTES >> 20} MiB of symbolic links")
            sound = text and b"\0" not in text
            self._said[blob] = text.decode("utf-8", "surrogateescape").split("/") if text and sound else None

    def _ask(self, paths: Iterable[str]) -> None:
        """Look up an entry for each path, except paths below an earlier one: the earlier one goes first."""
        asked: list[list[str]] = []
        for parts in sorted({tuple(path.split("/")) for path in paths}):
            if not asked or list(parts[: len(asked[-1])]) != asked[-1]:
                asked.append(list(parts))
        names = ["/".join(parts) for parts in asked]
        self._known |= {entry.path: entry for entry in self._look_up(names) if entry.mode != _SUBMODULE}
        for name in names:
            self._known.setdefault(name, NOTHING)


class _Way:
    """How far one link was followed.

    `done`: the parts of a folder, none a link. `ahead`: the parts to walk from there. If `link` is set, that link must
    be read first. `asks`: the path whose entry is needed to go on. `end`: what the link leads to.
    """

    def __init__(self, link: Entry) -> None:
        self.link: Entry | None = link
        self.asks = ""
        self.end: Entry | SourceFault | None = None
        self._done = link.path.split("/")[:-1]
        self._ahead: deque[str] = deque()
        self._hops = self._parts = 0

    def go(self, known: Mapping[str, Entry], said: Mapping[str, list[str] | None]) -> None:
        """Go on until something has to be looked up."""
        self.asks = ""
        while self.end is None and not self.asks and self._read(said):
            self._walk(known)

    def _read(self, said: Mapping[str, list[str] | None]) -> bool:
        """Put the link's target before `ahead`; False if the target is not known yet, or leads nowhere."""
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
        """Take one step: over one mark, or over all names up to the next mark."""
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
    """The sizes by blob that `cat-file --batch-check` prints, without missing blobs."""
    facts = (line.split() for line in output.decode().splitlines())
    return {fact[0]: int(fact[2]) for fact in facts if len(fact) == 3}


def file_contents(chunks: Iterable[bytes]) -> Iterator[tuple[str, bytes]]:
    """The blobs and contents that `cat-file --batch` prints, as they come."""
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
    """The path as messages name it: bytes that are not UTF-8 are escaped."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _below(path: str, root: str) -> str | None:
    """The path relative to a folder; None if it is not below the folder."""
    if root == ".":
        return path
    return path[len(root) + 1 :] if path.startswith(f"{root}/") else None


def _declares(below: str) -> bool:
    """Whether a path is a YAML file outside hidden folders; its suffix may have capitals."""
    return below.lower().endswith(YAML_SUFFIXES) and not any(part.startswith(".") for part in below.split("/")[:-1])
