"""Transcripts of documentation pages, run as they stand there: lines that begin with `$ ` in a marked console block."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
_IDS = re.compile(r"\b[0-9a-f]{10,16}\b")
_PEOPLE = {f"GIT_{role}_{key}": f"{key}@example.com".lower()
           for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}  # fmt: skip


def follow(page: str, marker: str, here: Path, *, update: bool, environment: Mapping[str, str] = {}) -> list[int]:
    """Run the lines of a page's block below a folder, and compare what is printed; `update` writes it into the page.

    Commit ids are not compared. Returns the exit codes.
    """
    path = DOCS / page
    text = path.read_text()
    block = re.compile(rf"(?<=<!-- {marker} -->\n```console\n).*?(?=```\n<!-- /{marker} -->)", re.DOTALL)
    found = block.search(text)
    assert found is not None
    env = {**os.environ, **_PEOPLE, "HOME": str(here), "GIT_CONFIG_GLOBAL": "/dev/null", **environment}
    told, ends = "", []
    for line in re.findall(r"^\$ (.*)$", found[0], flags=re.MULTILINE):
        told += f"$ {line}\n"
        words = shlex.split(line)
        if words[0] == "cd":
            here /= words[1]
            continue
        command = [sys.executable, "-m", "gpuctl", *words[1:]] if words[0] == "gpuctl" else words
        done = subprocess.run(
            command, cwd=here, env=env, text=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        told += done.stdout
        ends.append(done.returncode)
    if update:
        path.write_text(block.sub(lambda _: told, text))
    else:
        assert _IDS.sub("ID", told) == _IDS.sub("ID", found[0])
    return ends
