"""What all tests share: a Hypothesis profile, golden files that `--update-golden` rewrites, a real control plane."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from controlplane.build import HOW, find
from controlplane.server import ControlPlane, start
from hypothesis import settings

settings.register_profile("gpuctl", derandomize=True, deadline=None, database=None)
settings.load_profile("gpuctl")


STARTING = frozenset({"new_control_plane", "lasting_control_plane"})
ON_A_SERVER = pytest.mark.xdist_group("server")
"""Tests on real API servers run one after the other, in one process, which starts each server once."""


QUICK = (
    "diagnostics", "golden", "house/test_tree.py", "unit/compile", "unit/diag", "unit/engine", "unit/explain",
    "unit/observe", "unit/render",
)  # fmt: skip
"""Tests that a small change breaks most often, and that take seconds: `pytest -m quick`, under a minute."""


@pytest.hookimpl(tryfirst=True)  # before the groups are read
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.relative_to(here).as_posix().startswith(QUICK):
            item.add_marker("quick")
        if isinstance(item, pytest.Function) and not STARTING.isdisjoint(item.fixturenames):
            item.add_marker(ON_A_SERVER)
            item.add_marker("server")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files as they come out now")


@pytest.fixture(scope="session", autouse=True)
def _no_cache_of_the_user() -> Iterator[None]:
    """No test is told what another run has found, nor leaves anything in the user's folders."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUCTL_NO_CACHE", "1")
        yield


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """`golden(path, text)`: the text is exactly what the file holds, or becomes it with --update-golden."""
    update = bool(request.config.getoption("--update-golden"))

    def check(path: Path, text: str) -> None:
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode("utf-8"))
            return
        wanted = path.read_bytes().decode("utf-8") if path.exists() else ""
        if text != wanted:
            lines = difflib.unified_diff(
                wanted.splitlines(keepends=True), text.splitlines(keepends=True), str(path), "now"
            )
            pytest.fail(f"{path} differs; --update-golden rewrites it\n{''.join(lines)}", pytrace=False)

    return check


@pytest.fixture(scope="session")
def traces() -> Path:
    """The folder with the published traces, which are no part of the project; without it its tests skip."""
    folder = Path(os.environ.get("GPUCTL_TRACES") or Path(__file__).resolve().parents[2] / "shared" / "traces")
    if not folder.is_dir():
        pytest.skip(f"no traces in {folder}: set GPUCTL_TRACES to the folder that holds openb/ and philly/")
    return folder


@pytest.fixture(scope="module")
def new_control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., ControlPlane]]:
    """Starts real control planes, which last for the module's tests: an idle one takes CPU and 0.5 GiB of memory."""
    with control_planes(tmp_path_factory) as begin:
        yield begin


@pytest.fixture(scope="session")
def lasting_control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., ControlPlane]]:
    """Starts those that several modules share, which last for the test run."""
    with control_planes(tmp_path_factory) as begin:
        yield begin


@contextmanager
def control_planes(folders: pytest.TempPathFactory) -> Iterator[Callable[..., ControlPlane]]:
    """Starts control planes, and stops them in the end. Not built: their tests skip, in CI they fail."""
    started: list[ControlPlane] = []

    def begin(emulated: str = "") -> ControlPlane:
        binaries = find()
        if binaries is None:
            missing = f"no Kubernetes control plane for the tests: {HOW}"
            if os.environ.get("CI"):
                pytest.fail(missing, pytrace=False)
            pytest.skip(missing)
        started.append(start(binaries, folders.mktemp("control-plane"), emulated))
        return started[-1]

    try:
        yield begin
    finally:
        for plane in started:
            plane.stop()


@pytest.fixture(scope="session")
def control_plane(lasting_control_plane: Callable[[], ControlPlane]) -> ControlPlane:
    """The one that most tests share."""
    return lasting_control_plane()


@pytest.fixture(scope="session")
def real_lab(lasting_control_plane: Callable[[], ControlPlane]) -> Callable[[], Iterator[Any]]:
    """Makes labs of the Cluster contract on a control plane of their own, with four nodes."""
    from real import furnish, real_labs  # noqa: PLC0415 - found once the contracts' folder is on the path

    plane = lasting_control_plane()
    furnish(plane)
    return real_labs(plane)
