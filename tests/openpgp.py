"""OpenPGP keys of people who sign commits, made by gpg for one test. Tests skip where gpg is not installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

needs_gpg = pytest.mark.skipif(shutil.which("gpg") is None, reason="gpg is not installed")
LONG_AGO = "20200101T000000"
"""A time for gpg to take for now (`--faked-system-time`)."""


class Person:
    """A key pair in a GnuPG folder of its own. `expires`: the key's term; `now`: a time for gpg to take for now.

    `signature_expires`: the term of each signature.
    """

    def __init__(
        self, folder: Path, name: str, *, expires: str = "never", now: str = "", signature_expires: str = ""
    ) -> None:
        self.home = folder / name
        self.home.mkdir(mode=0o700)
        self.address = f"{name}@x"
        self._clock = ("--faked-system-time", now) if now else ()
        self.gpg("--quick-gen-key", "--passphrase", "", self.address, "ed25519", "sign", expires)
        self.program = self.home / "program"
        term = f"--default-sig-expire {signature_expires}" if signature_expires else ""
        self.program.write_text(f'#!/bin/sh\nexec gpg {" ".join(self._clock)} {term} "$@"\n')
        self.program.chmod(0o755)

    def gpg(self, *args: str, feed: str | None = None) -> str:
        """What gpg prints."""
        command = ["gpg", "--homedir", str(self.home), "--batch", "--quiet", *self._clock, *args]
        return subprocess.run(command, check=True, capture_output=True, text=True, input=feed).stdout

    @property
    def fingerprint(self) -> str:
        """The key's."""
        lines = self.gpg("--with-colons", "--list-keys").splitlines()
        return next(line.split(":")[9] for line in lines if line.startswith("fpr:"))

    def revoke(self) -> None:
        """Revoke the key by the certificate that gpg wrote when it made it."""
        kept = (self.home / "openpgp-revocs.d" / f"{self.fingerprint}.rev").read_text()
        self.gpg("--import", feed=kept.replace(":-----BEGIN", "-----BEGIN"))

    def export(self) -> Path:
        """A file with the public key."""
        path = self.home / "public.asc"
        path.write_text(self.gpg("--armor", "--export"))
        return path

    def commit(self, repository: Path) -> str:
        """A commit without changes, signed, in the branch that is checked out."""
        settings = ("user.name=Eve", "user.email=eve@x", "gpg.format=openpgp", f"gpg.program={self.program}")
        words = [word for setting in settings for word in ("-c", setting)]
        git = ["git", "-C", str(repository)]
        command = [*git, *words, "commit", "-q", "--allow-empty", "-m", "x", f"-S{self.address}"]
        environment = {**os.environ, "GNUPGHOME": str(self.home)}
        subprocess.run(command, check=True, capture_output=True, env=environment)
        return subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()

    def close(self) -> None:
        """End gpg's agent."""
        subprocess.run(["gpgconf", "--homedir", str(self.home), "--kill", "all"], check=True, capture_output=True)


class People:
    """Persons who are made as they are needed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: list[Person] = []

    def person(self, name: str, *, expires: str = "never", now: str = "", signature_expires: str = "") -> Person:
        """A new person."""
        made = Person(self._folder, name, expires=expires, now=now, signature_expires=signature_expires)
        self._made.append(made)
        return made

    def close(self) -> None:
        """End their agents."""
        for person in self._made:
            person.close()


@contextmanager
def people() -> Iterator[People]:
    """Persons whose folders have short paths: an agent's socket has at most 107 characters."""
    with TemporaryDirectory(prefix="pgp-", ignore_cleanup_errors=True) as folder:
        made = People(Path(folder))
        try:
            yield made
        finally:
            made.close()
