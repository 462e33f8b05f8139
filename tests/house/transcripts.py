"""Transcripts of documentation pages, run as they stand there: lines that begin with `$ ` in a marked console block."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import warm

DOCS = Path(__file__).resolve().parents[2] / "docs"
_IDS = re.compile(r"\b[0-9a-f]{10,16}\b")
_PEOPLE = {f"GIT_{role}_{key}": f"{key}@example.com".lower()
           for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}  # fmt: skip


def follow(
    page: str,
    marker: str,
    here: Path,
    *,
    update: bool,
    environment: Mapping[str, str] = {},
    told_as: Mapping[str, str] = {},
) -> list[int]:
    """Run the lines of a page's block below a folder, and compare what is printed; `update` writes it into the page.

    Commit ids are not compared. `told_as`: texts of this machine, such as paths, and what the page has instead. Returns
    the exit codes.
    """
    found = _block(marker, "console").search((DOCS / page).read_text())
    assert found is not None
    env = {**os.environ, **_PEOPLE, "HOME": str(here), "GIT_CONFIG_GLOBAL": "/dev/null", **environment}
    told, ends = "", []
    for line in re.findall(r"^\$ (.*)$", found[2], flags=re.MULTILINE):
        told += f"$ {line}\n"
        words = shlex.split(line)
        if words[0] == "cd":
            here /= words[1]
            continue
        done = typed(words, here, env)
        told += done.stdout
        ends.append(done.returncode)
    for here_text, there in told_as.items():
        told = told.replace(here_text, there)
    compare(page, marker, told, update=update)
    return ends


def typed(words: Sequence[str], here: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """A command to its end, `gpuctl` or another, and what a terminal would show of it."""
    if words[0] == "gpuctl":
        return warm.run(*words[1:], cwd=here, env=env, together=True)
    return subprocess.run(
        words, cwd=here, env=env, text=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def compare(page: str, marker: str, told: str, *, update: bool, form: str = "console") -> None:
    """Compare a page's block with a text, without commit ids; `update` writes the text into the page."""
    path, block = DOCS / page, _block(marker, form)
    text = path.read_text()
    if update:
        path.write_text(block.sub(lambda found: f"{found[1]}{told}{found[3]}", text))
        return
    found = block.search(text)
    assert found is not None
    assert _IDS.sub("ID", told) == _IDS.sub("ID", found[2])


def _block(marker: str, form: str) -> re.Pattern[str]:
    """The opening, the text and the end of a block; that of Markdown has a fourth backtick."""
    fence = "````" if form == "markdown" else "```"
    return re.compile(rf"(<!-- {marker} -->\n{fence}{form}\n)(.*?)({fence}\n<!-- /{marker} -->)", re.DOTALL)
