"""What docs/edit.md shows is what the commands print; `--update-golden` writes it anew."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path
from shutil import copytree

import pytest
from transcripts import typed

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "edit.md"
BLOCK = re.compile(r"<!-- edit -->\n```text\n(.*?)```\n<!-- /edit -->", re.DOTALL)
LINES = (
    "gpuctl submit train-1 -p team-d -i registry.example.com/train:1 -g 2 --branch train-1 -- --lr 0.1",
    "cat clusters/tr4858/projects/team-d/jobs/train-1.yaml",
    "gpuctl suspend team-d/train-1 --dry-run",
    "gpuctl submit train-2 -p team-d -i registry.example.com/train:1 -g 1.5",
    "gpuctl project set-quota team-a 2 --commit",
    "gpuctl list projects",
)


def test_the_commands_print_what_the_page_shows(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    copytree(ROOT / "clusters" / "tr4858", tmp_path / "clusters" / "tr4858")
    dates = {"GIT_AUTHOR_DATE": "1596000000 +0000", "GIT_COMMITTER_DATE": "1596000000 +0000"}
    people = {f"GIT_{role}_{part}": "ana@example.com" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}
    env = {**os.environ, **dates, **people, "XDG_CONFIG_HOME": str(tmp_path / "none")}
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "the report's cluster"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True, env=env)
    shown = []
    for line in LINES:
        done = typed(shlex.split(line), tmp_path, env)
        shown.append(f"$ {line}\n{done.stdout}")
    text, page = "\n".join(shown), PAGE.read_text()
    found = BLOCK.search(page)
    assert found is not None
    if request.config.getoption("--update-golden"):
        PAGE.write_text(page[: found.start(1)] + text + page[found.end(1) :])
        return
    assert found.group(1) == text
