"""As in a container that runs under any user id: no HOME, and no entry for the user in /etc/passwd."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
AS_NOBODY = ("unshare", "--user", "--map-user=54321", "--map-group=54321")
HOMES = {"HOME", "USER", "LOGNAME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "KUBECONFIG"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    if shutil.which("unshare") is None or subprocess.run([*AS_NOBODY, "true"], check=False).returncode:
        pytest.skip("needs unshare, and a system that lets it make users")
    for name in ("clusters", "policies"):
        shutil.copytree(ROOT / name, tmp_path / name)
    who = ("-c", "user.name=x", "-c", "user.email=x@example.com")
    for args in (("init", "-q"), ("add", "-A"), (*who, "commit", "-qm", "x")):
        subprocess.run(["git", "-C", str(tmp_path), *args], check=True)
    return tmp_path


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("validate", 0),
        ("plan clusters/tr4858 --base HEAD", 0),
        ("reconcile --repo . --path clusters/tr4858 --embedded --once", 0),
        ("demo", 0),
        ("list", 2),
        ("list --kubeconfig ~/there", 2),
    ],
)
def test_no_command_needs_a_home_or_a_user(folder: Path, command: str, code: int) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in HOMES}
    done = subprocess.run(
        [*AS_NOBODY, sys.executable, "-m", "gpuctl", *command.split()],
        check=False, cwd=folder, env=environment, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert "GPU9001" not in done.stderr
    assert "Traceback" not in done.stderr
