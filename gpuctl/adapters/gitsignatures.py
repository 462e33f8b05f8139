"""Checks signatures of commits: which commits need one, and whether its key may sign.

`git log` checks them, with `ssh-keygen` or `gpg`. Security: only the keys that gpuctl is given count; settings of a
repository, a keyring of the machine and key servers don't. In the OpenPGP file every key counts, whatever trust it has
elsewhere.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

from gpuctl.adapters.gitrun import Git, last_line, unavailable
from gpuctl.app.ports import SourceUnavailable
from gpuctl.model.ids import NO_REVISION, Revision

MAX_KEYS_BYTES = 1 << 18
MAX_COMMITS = 1000
"""The most commits that are checked at once. Cost: each signature takes a process or two, some 10 ms."""

_IMPORT_S = 30
_FIELDS = 3
_GOOD = "G"
_WHY: Mapping[str, str] = {
    "N": "it is not signed",
    "B": "its signature is not one of this commit",
    "U": "it is signed with key {key}, which is not among the keys that may sign, or not at the time of the commit",
    "E": "its signature can't be checked: the key is not among the keys that may sign, or is damaged",
    "X": "its signature has expired",
    "Y": "it is signed with key {key}, which has expired",
    "R": "it is signed with key {key}, which was revoked",
}
"""What git says about a signature with one letter. Source: git-log, pretty formats, `%G?`."""
_NO_KEYRING = "/dev/null/none"
_KEYRING_SETTINGS = "trust-model always\nno-auto-key-retrieve\nno-auto-key-locate\nno-autostart\n"
_SETTINGS = (
    "gpg.program=gpg",
    "gpg.openpgp.program=gpg",
    "gpg.ssh.program=ssh-keygen",
    "gpg.x509.program=false",
)


class Checked(StrEnum):
    """Which commits need a signature: each commit since the last good one, or only the newest, such as a merge
    commit."""

    EACH = "each"
    HEAD = "head"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signers:
    """The files with the keys that count; they are read anew for each check. None: no key of that kind counts.

    `allowed_signers` is SSH's file (ssh-keygen, ALLOWED SIGNERS); `openpgp_keys` holds exported public keys. `read`
    reads a file up to a number of bytes and one more. `most_commits`: how many commits are checked at once.
    """

    checked: Checked
    read: Callable[[Path, int], bytes]
    allowed_signers: Path | None = None
    openpgp_keys: Path | None = None
    most_commits: int = MAX_COMMITS


class Signatures:
    """Checks commits of a bare clone. `close` it, since it may have made a keyring."""

    def __init__(self, signers: Signers, git: Git) -> None:
        self._signers = signers
        self._git = git
        self._keyring: tuple[str, TemporaryDirectory[str]] | None = None
        self._refused: tuple[object, SourceUnavailable] | None = None

    def check(self, clone: Path, since: Collection[Revision], head: Revision) -> None:
        """Check the commits that `head` contains and none of `since` does; or only `head`, also if `since` is empty.

        Commits of `since` that the clone lost after a forced push exclude nothing. Raises GPU8021 for the first commit
        that is not accepted, GPU8022 if keys can't be read, GPU8013 if `head` is missing. Cost: some 10 ms a signature.
        A refusal is kept until the keys or the commits change, since each fetch asks for it.
        """
        ssh = self._keys(self._signers.allowed_signers, "allowed signers")
        openpgp = self._keys(self._signers.openpgp_keys, "OpenPGP keys")
        question = (head, frozenset(since), sha256(ssh).digest(), sha256(openpgp).digest())
        if self._refused is not None and self._refused[0] == question:
            raise self._refused[1].with_traceback(None)
        self._refused = None
        try:
            self._check(clone, since, head, openpgp)
        except SourceUnavailable as fault:
            if fault.code == "GPU8021":
                self._refused = (question, fault)
            raise

    def _check(self, clone: Path, since: Collection[Revision], head: Revision, openpgp: bytes) -> None:
        if self._git.run(f"--git-dir={clone}", "cat-file", "-e", f"{head}^{{commit}}").code:
            raise unavailable("GPU8013", folder=str(clone))  # `git log` below passes over what is missing
        alone = self._signers.checked is Checked.HEAD or not since
        asked = [head, *(() if alone else (f"^{old}" for old in sorted(since) if old != NO_REVISION))]
        for count, (revision, letter, key) in enumerate(self._signatures(clone, asked, openpgp, alone=alone), start=1):
            if count > self._signers.most_commits:
                raise unavailable(
                    "GPU8021",
                    revision=head,
                    why=f"more than {self._signers.most_commits} commits since the last good one need a check",
                )
            if letter != _GOOD:
                why = _WHY.get(letter, "its signature can't be checked").format(key=key or "unknown")
                raise unavailable("GPU8021", revision=revision, why=why)

    def _signatures(
        self, clone: Path, asked: Collection[str], openpgp: bytes, *, alone: bool
    ) -> Generator[tuple[str, str, str]]:
        """Each commit, newest first, with git's letter for its signature and the key's fingerprint."""
        allowed = str((self._signers.allowed_signers or Path("/dev/null")).absolute())
        settings = [word for s in (*_SETTINGS, f"gpg.ssh.allowedSignersFile={allowed}") for word in ("-c", s)]
        most = 1 if alone else self._signers.most_commits + 1
        command = ("log", "--ignore-missing", "--stdin", "-z", f"--max-count={most}", "--format=%H%n%G?%n%GF")
        damaged = unavailable("GPU8013", folder=str(clone))
        environment = {"GNUPGHOME": self._home(openpgp)}
        feed = "".join(f"{name}\n" for name in asked).encode()
        stream = self._git.stream(
            f"--git-dir={clone}", *settings, *command, otherwise=damaged, feed=feed, environment=environment
        )
        with closing(stream) as chunks:
            rest = b""
            for chunk in chunks:
                *whole, rest = (rest + chunk).split(b"\0")
                yield from map(_parsed, whole)
            if rest:
                yield _parsed(rest)

    def _keys(self, path: Path | None, what: str) -> bytes:
        if path is None:
            return b""
        try:
            keys = self._signers.read(path, MAX_KEYS_BYTES)
        except OSError as error:
            raise _unreadable(path, what, error.strerror or "not readable") from error
        if len(keys) > MAX_KEYS_BYTES:
            raise _unreadable(path, what, f"it has more than {MAX_KEYS_BYTES >> 10} KiB")
        return keys

    def _home(self, openpgp: bytes) -> str:
        """The folder of GnuPG with these keys and no other; it is made anew when they have changed."""
        if not openpgp:
            return _NO_KEYRING
        digest = sha256(openpgp).hexdigest()
        if self._keyring is None or self._keyring[0] != digest:
            self.close()
            try:
                folder = TemporaryDirectory(prefix="gpuctl-", ignore_cleanup_errors=True)
                self._keyring = (digest, folder)
                Path(folder.name, "gpg.conf").write_text(_KEYRING_SETTINGS, encoding="ascii")
            except OSError as error:
                raise _unreadable(Path(gettempdir()), "a keyring", error.strerror or "not writable") from error
            try:
                self._import(folder.name, openpgp)
            except SourceUnavailable:
                self.close()
                raise
        return self._keyring[1].name

    def close(self) -> None:
        """Remove the keyring."""
        if self._keyring is not None:
            self._keyring[1].cleanup()
        self._keyring = None

    def _import(self, home: str, openpgp: bytes) -> None:
        program, path = shutil.which("gpg"), self._signers.openpgp_keys or Path(home)
        if program is None:
            raise _unreadable(path, "OpenPGP keys", "gpg is not installed")
        try:
            done = subprocess.run(  # noqa: S603 - gpg, with keys that the operator gave
                [program, "--homedir", home, "--batch", "--quiet", "--import"],
                input=openpgp,
                capture_output=True,
                timeout=_IMPORT_S,
                check=False,
                cwd="/",
            )
        except subprocess.TimeoutExpired:
            raise _unreadable(path, "OpenPGP keys", f"gpg took more than {_IMPORT_S} s") from None
        if done.returncode:
            raise _unreadable(path, "OpenPGP keys", last_line(done.stderr.decode("utf-8", "replace")))


def _unreadable(path: Path, what: str, why: str) -> SourceUnavailable:
    return unavailable("GPU8022", path=str(path), what=what, why=why)


def _parsed(record: bytes) -> tuple[str, str, str]:
    revision, letter, key = (*record.decode("utf-8", "replace").split("\n"), "", "")[:_FIELDS]
    return revision, letter, key
