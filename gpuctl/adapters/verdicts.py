"""The caches of `validate` and `plan`, in the user's cache folder.

There is a file for each tree that was validated, for each cluster's folder whose changes were planned, and for each
base that they were planned for.

Threat model: others can write in the cache folder, or a service has restored it. So an entry begins with a code
(HMAC-SHA256) over its body, its key and the code of gpuctl. The secret lies in another folder, which only the user
reads. An entry that is damaged, cut off, forged, or of another tree or version is not believed, and made anew. Reading
a body runs nothing either: see the modules that write it. Whatever fails here, the command works without the cache.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import os
import secrets
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import NamedTuple

from gpuctl import __version__
from gpuctl.adapters.files import read_regular


class Bounds(NamedTuple):
    """The bounds of a folder: entries, bytes of one entry and of all. The entries used last stay."""

    entries: int
    entry_bytes: int
    bytes: int


OF_VERDICTS = Bounds(entries=200, entry_bytes=2 << 20, bytes=32 << 20)
"""A thousand diagnostics of a project, the most that are reported, take half a MiB."""
OF_COMPILED = Bounds(entries=50, entry_bytes=64 << 20, bytes=192 << 20)
"""25,000 jobs take 64 MiB."""
OF_RESTS = Bounds(entries=50, entry_bytes=8 << 20, bytes=32 << 20)
"""10,000 jobs take 1.5 MiB."""
_DIGEST_BYTES = 32
_MOST_CODE_BYTES = 2 << 20
_COMPILING = ("compile", "diag", "k8s", "model", "app/validate.py", "app/validation.py")
"""The code that a verdict depends on. What the verdict is made from is part of every key, as are the installed
packages."""
_ALL = ("",)
"""All code, for entries that depend on more."""


class VerdictFolder:
    """Entries in a folder. Two processes may use it at once, and anything in it may be removed at any time."""

    def __init__(self, folder: Path, secret: bytes, version: bytes, bounds: Bounds = OF_VERDICTS) -> None:
        self._folder = folder
        self._secret = secret
        self._version = version
        self._bounds = bounds

    def get(self, key: bytes) -> bytes | None:
        """The body that this version put under the key with this secret; anything else under the key is removed."""
        path = self._path(key)
        try:
            content = read_regular(path, _DIGEST_BYTES + self._bounds.entry_bytes)
        except OSError:
            return None
        code, body = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        with suppress(OSError):
            if hmac.compare_digest(code, self._code(key, body)):
                os.utime(path)
                return body
            path.unlink()
        return None

    def put(self, key: bytes, body: bytes) -> None:
        """Write a file beside the entry and rename it: a reader finds all of it or nothing."""
        if len(body) > self._bounds.entry_bytes:
            return
        path = self._path(key)
        with suppress(OSError):
            _write(path, self._code(key, body) + body)
            self._forget()

    def _path(self, key: bytes) -> Path:
        return self._folder / hashlib.sha256(self._version + key).hexdigest()

    def _code(self, key: bytes, body: bytes) -> bytes:
        return hmac.digest(self._secret, self._version + key + body, "sha256")

    def _forget(self) -> None:
        """Remove the entries that were used longest ago, until the rest is within the bounds."""
        entries = sorted(_entries(self._folder), reverse=True)
        size_bytes = 0
        for place, (_, size, path) in enumerate(entries):
            size_bytes += size
            if place >= self._bounds.entries or size_bytes > self._bounds.bytes:
                Path(path).unlink(missing_ok=True)


class Entry(NamedTuple):
    """The place of one key in a folder."""

    folder: VerdictFolder
    key: bytes

    def get(self) -> bytes | None:
        """See `VerdictFolder.get`."""
        return self.folder.get(self.key)

    def put(self, body: bytes) -> None:
        """See `VerdictFolder.put`."""
        self.folder.put(self.key, body)


def verdict_folder(environ: Mapping[str, str]) -> VerdictFolder | None:
    """The user's cache of verdicts; None without a home, or if others can write to its folders."""
    return _folder_of(environ, "verdicts", OF_VERDICTS)


def compiled_folder(environ: Mapping[str, str]) -> VerdictFolder | None:
    """The user's cache of compiled files."""
    return _folder_of(environ, "compiled", OF_COMPILED)


def rest_folder(environ: Mapping[str, str]) -> VerdictFolder | None:
    """The user's cache of clusters at rest: what the declared nodes and the jobs of a base come to."""
    return _folder_of(environ, "rests", OF_RESTS, _ALL)


def _folder_of(
    environ: Mapping[str, str], name: str, bounds: Bounds, deciding: tuple[str, ...] = _COMPILING
) -> VerdictFolder | None:
    cache = _base(environ, "XDG_CACHE_HOME", ".cache")
    state = _base(environ, "XDG_STATE_HOME", ".local/state")
    if cache is None or state is None:
        return None
    folder = cache / "gpuctl" / name
    try:
        _own_folder(folder)
        _own_folder(state / "gpuctl")
        return VerdictFolder(folder, _secret(state / "gpuctl" / "verdicts.key"), _version(name, deciding), bounds)
    except OSError:
        return None


def _base(environ: Mapping[str, str], name: str, default: str) -> Path | None:
    given, home = environ.get(name, ""), environ.get("HOME", "")
    if Path(given).is_absolute():
        return Path(given)
    return Path(home, default) if Path(home).is_absolute() else None


def _own_folder(folder: Path) -> None:
    """Make the folder if need be. Raises OSError if others own it or may write to it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    facts = folder.lstat()
    if not S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
        raise OSError("the folder is not the user's alone")


def _secret(path: Path) -> bytes:
    """The user's secret. It is made if there is none that only the user can read; of two made at once, one stays."""
    for _ in range(2):
        with suppress(OSError):
            facts = path.lstat()
            if S_ISREG(facts.st_mode) and facts.st_uid == os.geteuid() and not facts.st_mode & 0o077:
                secret = read_regular(path, _DIGEST_BYTES)
                if len(secret) == _DIGEST_BYTES:
                    return secret
            path.unlink()
        beside = _beside(path)
        _create(beside, secrets.token_bytes(_DIGEST_BYTES))
        with suppress(FileExistsError):
            os.link(beside, path)
        beside.unlink()
    raise OSError("there is no place for a secret")


def _write(path: Path, content: bytes) -> None:
    beside = _beside(path)
    try:
        _create(beside, content)
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp")


def _create(path: Path, content: bytes) -> None:
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(number, "wb") as file:
        file.write(content)


def _entries(folder: Path) -> Iterator[tuple[int, int, str]]:
    """The time of last use, size and path of each file of a folder."""
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                facts = entry.stat(follow_symlinks=False)
                yield facts.st_mtime_ns, facts.st_size, entry.path


@functools.cache
def _version(name: str, deciding: tuple[str, ...]) -> bytes:
    """The digest of what an entry depends on besides the files: gpuctl's code, Python, the installed packages.

    The folder's name is part of it, so that an entry of one folder is not valid in another. Raises OSError if the code
    is in no files. Cost: a hundred files are read once a process, which runs the code it began with; 0.03 s for all.
    """
    digest = hashlib.sha256(f"{name}\0{__version__}\0{sys.version}\0".encode())
    top = Path(__file__).parent.parent
    for part in deciding:
        for path in sorted((top / part).rglob("*.py")) if not part.endswith(".py") else (top / part,):
            content = read_regular(path, _MOST_CODE_BYTES)
            digest.update(f"{path.relative_to(top)} {len(content)} ".encode() + content)
    for folder in sys.path:
        with suppress(OSError):
            packages = sorted(path.name for path in Path(folder).iterdir() if path.name.endswith(".dist-info"))
            digest.update("/".join(packages).encode())
    return digest.digest()
