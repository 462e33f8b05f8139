"""The transcript of docs/first-steps.md is run as it stands there; `--update-golden` writes what is printed anew."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "first-steps.md"
_BLOCK = re.compile(r"(?<=<!-- first-steps -->\n```console\n).*?(?=```\n<!-- /first-steps -->)", re.DOTALL)
_IDS = re.compile(r"\b[0-9a-f]{10,16}\b")


def test_the_transcript_is_what_is_printed(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    git = {
        f"GIT_{role}_{key}": f"{key}@example.com".lower()
        for role in ("AUTHOR", "COMMITTER")
        for key in ("NAME", "EMAIL")
    }
    environment = {**os.environ, **git, "HOME": str(tmp_path), "GIT_CONFIG_GLOBAL": "/dev/null"}
    page = PAGE.read_text()
    found = _BLOCK.search(page)
    assert found is not None
    here, told, ends = tmp_path, "", []
    for line in re.findall(r"^\$ (.*)$", found[0], flags=re.MULTILINE):
        told += f"$ {line}\n"
        words = shlex.split(line)
        if words[0] == "cd":
            here /= words[1]
            continue
        command = [sys.executable, "-m", "gpuctl", *words[1:]] if words[0] == "gpuctl" else words
        done = subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True, check=False)
        assert not done.stderr
        told += done.stdout
        ends.append((words[1], done.returncode))
    assert ends == [("init", 0), ("validate", 0), ("add", 0), ("commit", 0), ("submit", 0), ("plan", 2)]
    if request.config.getoption("--update-golden"):
        PAGE.write_text(_BLOCK.sub(lambda _: told, page))
    else:
        assert _IDS.sub("ID", told) == _IDS.sub("ID", found[0])
