"""Runs the command as a user types it, in this process."""

from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import copytree

import pytest
from click.testing import CliRunner, Result

from gpuctl.adapters.git import WorkingCopy
from gpuctl.cli.main import gpuctl

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "clusters" / "tr4858"
Run = Callable[..., Result]


@pytest.fixture
def run() -> Iterator[Run]:
    """`run("validate", folder)` gives output, exit code and what was printed on standard error."""
    runner = CliRunner()

    def invoke(*args: object) -> Result:
        result = runner.invoke(gpuctl, [str(arg) for arg in args], prog_name="gpuctl")
        assert "Traceback" not in result.output
        assert result.exception is None or isinstance(result.exception, SystemExit)
        return result

    yield invoke


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """A copy of the report's cluster, to be changed."""
    return Path(copytree(EXAMPLE, tmp_path / "clusters" / "tr4858"))


@pytest.fixture
def repository(tmp_path: Path) -> WorkingCopy:
    """A repository that holds the report's cluster."""
    copy = WorkingCopy.create(tmp_path / "repository")
    for file in sorted(EXAMPLE.rglob("*.yaml")):
        copy.write(f"clusters/tr4858/{file.relative_to(EXAMPLE)}", file.read_bytes())
    copy.commit("the report's cluster", 1_596_000_000_000)
    return copy
