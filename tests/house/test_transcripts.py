"""Five people's first ten minutes: each line of docs/transcripts is run; `--update-golden` writes what is printed.

Identifiers, instants and ages differ from run to run; all else is as printed, exit codes included.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from shutil import copytree, ignore_patterns

import pytest
import warm

ROOT = Path(__file__).resolve().parents[2]
PAGES = [page for page in sorted((ROOT / "docs" / "transcripts").glob("*.md")) if page.stem != "index"]
BLOCK = re.compile(r"(?<=```console\n).*?(?=```\n)", re.DOTALL)
DECLARATIONS = ("clusters", "policies")
SOURCES = ("docs", "gpuctl", "schemas", "tests", "pyproject.toml", "README.md")
NO_SOURCE = ignore_patterns("__pycache__", "*.pyc")
LONGEST_S = 600

VARYING = (
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z"), "TIME"),
    (re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{7,40}\b"), "ID"),
    (re.compile(r"\b\d+(\.\d+)?(m(\d+s)?|s)\b *"), "AGE "),
    (re.compile(r"\b\d+(?= deselected| kept)"), "N"),
)


def _stable(text: str) -> str:
    for varying, name in VARYING:
        text = varying.sub(name, text)
    return text


def _clone(tmp_path: Path, names: tuple[str, ...]) -> Path:
    """A clone of this repository, as far as a transcript reads it, with all of it committed."""
    folder = tmp_path / "gpuctl"
    folder.mkdir()
    for name in names:
        if (ROOT / name).is_dir():
            copytree(ROOT / name, folder / name, symlinks=True, ignore=NO_SOURCE)
        else:
            (folder / name).write_bytes((ROOT / name).read_bytes())
    (folder / ".gitignore").write_text("__pycache__/\n.hypothesis/\n.pytest_cache/\n.ruff_cache/\n")
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "As released"]):
        subprocess.run(["git", *words], cwd=folder, env=_environment(tmp_path), check=True)
    return folder


def _environment(home: Path) -> dict[str, str]:
    """Nothing of the machine's own settings; `gpuctl`, `python` and the tools are those that run this test."""
    people = {f"GIT_{role}_{key}": "ana@example.com" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}
    warm.write_command(home / "bin")
    path = f"{home / 'bin'}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    quiet = {"GIT_CONFIG_GLOBAL": "/dev/null", "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "100", "LC_ALL": "C.UTF-8"}
    return {**people, **quiet, "PATH": path, "HOME": str(home)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_transcript_is_what_is_printed(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    clone = _clone(tmp_path, (*DECLARATIONS, *SOURCES) if page.stem == "contributor" else DECLARATIONS)
    text = page.read_text(encoding="utf-8")
    shown = BLOCK.findall(text)
    assert shown
    environment = _environment(tmp_path)
    printed = ["".join(_run(line, clone, environment) for line in _commands(block)) for block in shown]
    if request.config.getoption("--update-golden"):
        left = iter(printed)
        page.write_text(BLOCK.sub(lambda _: next(left), text), encoding="utf-8")
    else:
        assert [_stable(block) for block in printed] == [_stable(block) for block in shown]


def _commands(block: str) -> list[str]:
    return re.findall(r"^\$ (.*)$", block, flags=re.MULTILINE)


def _run(line: str, here: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-c", line], cwd=here, env=environment, check=False, text=True, timeout=LONGEST_S,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    told = done.stdout if not done.stdout or done.stdout.endswith("\n") else f"{done.stdout}\n"
    ended = f"[exit code {done.returncode}]\n" if done.returncode else ""
    return f"$ {line}\n{told}{ended}"


def test_the_five_are_there() -> None:
    index = (ROOT / "docs" / "transcripts" / "index.md").read_text(encoding="utf-8")
    assert {page.stem for page in PAGES} >= {"researcher", "operator", "contributor", "reviewer"}
    assert all(f"({page.name})" in index for page in PAGES)
    assert "(../first-steps.md)" in index
