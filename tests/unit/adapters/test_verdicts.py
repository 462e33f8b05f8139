"""The cache of validate: whole entries of the same files, version and user are believed, and nothing else is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuctl.adapters.verdicts import OF_VERDICTS, VerdictFolder, compiled_folder, rest_folder, verdict_folder

KEY, BODY = b"k" * 32, b'{"jobs":7}'


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(tmp_path / "cache"), "XDG_STATE_HOME": str(tmp_path / "state")}


@pytest.fixture
def folder(home: dict[str, str]) -> VerdictFolder:
    return opened(home)


def opened(home: dict[str, str]) -> VerdictFolder:
    found = verdict_folder(home)
    assert found is not None
    return found


def files(home: dict[str, str]) -> list[Path]:
    return sorted(Path(home["XDG_CACHE_HOME"], "gpuctl", "verdicts").iterdir())


def test_what_was_put_is_there_for_the_next_process(home: dict[str, str], folder: VerdictFolder) -> None:
    assert folder.get(KEY) is None
    folder.put(KEY, BODY)
    assert opened(home).get(KEY) == BODY
    assert opened(home).get(b"x" * 32) is None
    assert {path.stat().st_mode & 0o777 for path in files(home)} == {0o600}


def test_every_damage_is_found_out_and_removed(home: dict[str, str], folder: VerdictFolder) -> None:
    folder.put(KEY, BODY)
    (entry,) = files(home)
    whole = entry.read_bytes()
    damaged = [whole[:n] + bytes([whole[n] ^ 1]) + whole[n + 1 :] for n in range(len(whole))]
    damaged += [whole[:n] for n in range(len(whole))] + [whole + b" ", bytes(OF_VERDICTS.entry_bytes + 100)]
    for content in damaged:
        entry.write_bytes(content)
        assert folder.get(KEY) is None
        assert files(home) == []


def test_an_entry_is_of_one_key_one_secret_and_one_version(home: dict[str, str], folder: VerdictFolder) -> None:
    folder.put(KEY, BODY)
    (entry,) = files(home)
    other = b"o" * 32
    folder.put(other, b"{}")
    (moved,) = (path for path in files(home) if path != entry)
    moved.write_bytes(entry.read_bytes())
    assert folder.get(other) is None

    where = entry.parent
    forger = VerdictFolder(where, b"guessed secret".ljust(32), folder._version)
    forger.put(KEY, b'{"jobs":0}')
    assert forger.get(KEY) is not None
    assert folder.get(KEY) is None
    secret = Path(home["XDG_STATE_HOME"], "gpuctl", "verdicts.key").read_bytes()
    VerdictFolder(where, secret, b"another version").put(KEY, BODY)
    assert folder.get(KEY) is None


def test_an_entry_of_one_folder_is_none_of_another(home: dict[str, str], folder: VerdictFolder) -> None:
    folder.put(KEY, BODY)
    (entry,) = files(home)
    for other in filter(None, (compiled_folder(home), rest_folder(home))):
        other.put(KEY, b"{}")
        (moved,) = other._folder.iterdir()
        moved.write_bytes(entry.read_bytes())
        assert other.get(KEY) is None
        other.put(KEY, b"{}")
        (moved,) = other._folder.iterdir()
        entry.rename(moved.with_name(entry.name))
        assert other.get(KEY) == b"{}"
        folder.put(KEY, BODY)


def test_a_secret_that_others_can_read_is_made_anew(home: dict[str, str], folder: VerdictFolder) -> None:
    folder.put(KEY, BODY)
    secret = Path(home["XDG_STATE_HOME"], "gpuctl", "verdicts.key")
    assert secret.stat().st_mode & 0o777 == 0o600
    known = secret.read_bytes()
    secret.chmod(0o644)
    assert opened(home).get(KEY) is None
    assert secret.read_bytes() != known
    secret.write_bytes(b"short")
    opened(home).put(KEY, BODY)
    assert opened(home).get(KEY) == BODY


@pytest.mark.parametrize("name", ["XDG_CACHE_HOME", "XDG_STATE_HOME"])
def test_folders_that_are_not_the_users_alone_are_not_used(home: dict[str, str], tmp_path: Path, name: str) -> None:
    opened(home)
    below = Path(home[name], "gpuctl", *(["verdicts"] if name == "XDG_CACHE_HOME" else []))
    below.chmod(0o777)
    assert verdict_folder(home) is None
    below.chmod(0o700)
    below.rename(tmp_path / "elsewhere")
    below.symlink_to(tmp_path / "elsewhere")
    assert verdict_folder(home) is None


def test_there_is_no_cache_without_a_home(tmp_path: Path) -> None:
    assert verdict_folder({}) is None
    assert verdict_folder({"HOME": "relative"}) is None
    (tmp_path / "file").write_text("")
    assert verdict_folder({"HOME": str(tmp_path / "file")}) is None
    assert verdict_folder({"HOME": str(tmp_path)}) is not None
    assert (tmp_path / ".cache/gpuctl/verdicts").is_dir()
    assert (tmp_path / ".local/state/gpuctl/verdicts.key").is_file()


def test_what_is_no_file_is_no_entry(home: dict[str, str], folder: VerdictFolder) -> None:
    folder.put(KEY, BODY)
    (entry,) = files(home)
    entry.unlink()
    os.mkfifo(entry)
    assert folder.get(KEY) is None
    folder.put(KEY, BODY)
    assert folder.get(KEY) == BODY
    entry.unlink()
    entry.mkdir()
    assert folder.get(KEY) is None
    folder.put(KEY, BODY)
    assert files(home) == [entry]


def test_it_is_bounded_and_keeps_what_was_used_last(home: dict[str, str], folder: VerdictFolder) -> None:
    folder.put(KEY, bytes(OF_VERDICTS.entry_bytes + 1))
    assert files(home) == []
    folder.put(KEY, BODY)
    for number in range(OF_VERDICTS.entries + 20):
        folder.put(number.to_bytes(32, "big"), BODY)
        assert folder.get(KEY) == BODY
    assert len(files(home)) == OF_VERDICTS.entries
    assert folder.get(bytes(32)) is None
    where, secret = files(home)[0].parent, Path(home["XDG_STATE_HOME"], "gpuctl", "verdicts.key").read_bytes()
    smaller = VerdictFolder(where, secret, folder._version, OF_VERDICTS._replace(bytes=1000))
    smaller.put(b"l" * 32, bytes(400))
    assert sum(path.stat().st_size for path in files(home)) <= 1000
    assert smaller.get(b"l" * 32) == bytes(400)


BUSY = """
import os, sys
from gpuctl.adapters.verdicts import verdict_folder
folder = verdict_folder(os.environ)
for turn in range(300):
    key = (turn % 7).to_bytes(32, "big")
    body = folder.get(key)
    assert body in (None, key * 1000), "a part of an entry was read"
    folder.put(key, key * 1000)
"""


def test_two_processes_use_it_while_it_is_deleted(home: dict[str, str]) -> None:
    environ = {**os.environ, **home}
    busy = [subprocess.Popen([sys.executable, "-c", BUSY], env=environ, stderr=subprocess.PIPE) for _ in range(2)]
    folder = Path(home["XDG_CACHE_HOME"], "gpuctl", "verdicts")
    while any(process.poll() is None for process in busy):
        for path in folder.glob("*"):
            path.unlink(missing_ok=True)
    assert [process.communicate()[1] for process in busy] == [b"", b""]
    assert [process.returncode for process in busy] == [0, 0]
    assert opened(home).get(bytes(32)) in (None, bytes(32_000))
