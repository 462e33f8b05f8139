"""What the tests of unattended processes share: a control plane with gpuctl installed, and figures to be read."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from controlplane.server import ControlPlane
from unattended import install

FIGURES = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def plane_with_gpuctl(new_control_plane: Callable[[], ControlPlane]) -> ControlPlane:
    """Its Lease is held by one test at a time."""
    plane = new_control_plane()
    install(plane)
    return plane


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """`figure(text)`: what was measured, told at the end of the run."""
    return request.config.stash.setdefault(FIGURES, []).append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The figures, if there are any."""
    told = terminalreporter.config.stash.get(FIGURES, [])
    if told:
        terminalreporter.section("figures")
        for line in told:
            terminalreporter.line(line)
