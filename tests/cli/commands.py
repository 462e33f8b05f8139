"""What the tests of commands share."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from click.testing import Result

from gpuctl.adapters.git import WorkingCopy

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "clusters" / "tr4858"
A_1_G = "clusters/tr4858/projects/team-a/jobs/a-1-g.yaml"
AT_MS = 1_596_000_000_000

Run: TypeAlias = Callable[..., Result]
"""`run("validate", folder)`: exit code, output, and what was printed on standard error."""


def repository_in(folder: Path) -> WorkingCopy:
    """A new repository that holds the report's cluster."""
    copy = WorkingCopy.create(folder)
    for file in sorted(EXAMPLE.rglob("*.yaml")):
        copy.write(f"clusters/tr4858/{file.relative_to(EXAMPLE)}", file.read_bytes())
    copy.commit("the report's cluster", AT_MS)
    return copy


def folder_in(repository: WorkingCopy) -> Path:
    """The folder of the report's cluster in such a repository."""
    return repository.folder / "clusters" / "tr4858"


def heeding_ctrl_c() -> None:
    """A shell has what it runs in the background ignore Ctrl-C, and a process inherits that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
