"""Runs the command as a user types it, in this process."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree
from time import sleep

import pytest
from click.testing import CliRunner, Result
from commands import EXAMPLE, Run, repository_in

from gpuctl.adapters.git import WorkingCopy
from gpuctl.app.ports import Clock
from gpuctl.cli.main import gpuctl
from gpuctl.views.plan_form import PlanReportV1


@pytest.fixture(scope="session", autouse=True)
def nowhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No command finds a cluster that its test did not name, nor settings of the user."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", str(tmp_path_factory.mktemp("nowhere") / "config"))
        patch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        patch.delenv("GPUCTL_EMBEDDED", raising=False)
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("settings")))
        yield


@pytest.fixture(scope="session")
def run() -> Run:
    """Never a traceback, never an internal error; a plan's JSON is as its schema says. `clock`: not the machine's."""
    runner = CliRunner()

    def invoke(*args: object, clock: Clock | None = None) -> Result:
        result = runner.invoke(gpuctl, [str(arg) for arg in args], prog_name="gpuctl", obj=clock)
        assert "Traceback" not in result.output
        assert "GPU9001" not in result.stderr
        assert result.exception is None or isinstance(result.exception, SystemExit)
        if args[:1] == ("plan",) and "json" in args and result.exit_code in {0, 2, 3}:
            PlanReportV1.model_validate_json(result.stdout)
        return result

    return invoke


@pytest.fixture
def in_no_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else all of this project's own history is searched for the commit that removed a job."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """A copy of the report's cluster, to be changed."""
    return Path(copytree(EXAMPLE, tmp_path / "clusters" / "tr4858"))


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository that tests get copies of: to make one takes Git a process a file."""
    return repository_in(tmp_path_factory.mktemp("made-once") / "repository").folder


@pytest.fixture
def repository(made_once: Path, tmp_path: Path) -> WorkingCopy:
    """A repository that holds the report's cluster."""
    folder = copytree(made_once, tmp_path / "repository")
    subprocess.run(["git", "-C", folder, "update-index", "-q", "--refresh"], check=True)  # these are other files
    return WorkingCopy(folder)


@pytest.fixture(scope="session")
def embedded(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the embedded cluster in which the report's jobs were let go; their pods take a second to start."""
    folder = tmp_path_factory.mktemp("embedded")
    repository_in(folder / "repository")
    file = folder / "cluster.db"
    follow = ("--repo", folder / "repository", "--path", "clusters/tr4858", "--workdir", folder / "clones")
    result = run("reconcile", *follow, "--embedded", file, "--once")
    assert result.exit_code == 0, result.output
    sleep(1.1)
    return file
