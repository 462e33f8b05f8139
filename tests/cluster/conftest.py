"""Shared by tests of unattended processes: a control plane with gpuctl installed, and figures to report."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from controlplane.server import ControlPlane
from town import Account, Town, account_on, town_on
from unattended import install

FIGURE = "figure"


@pytest.fixture(scope="module")
def plane_with_gpuctl(shared_control_plane: Callable[..., ControlPlane]) -> ControlPlane:
    """The control plane with gpuctl. One test at a time holds its Lease."""
    return shared_control_plane("plane_with_gpuctl", install)


@pytest.fixture(scope="module")
def account(plane_with_gpuctl: ControlPlane) -> Iterator[Account]:
    """The account that the towns of a module share."""
    with account_on(plane_with_gpuctl) as made:
        yield made


@pytest.fixture
def town(plane_with_gpuctl: ControlPlane, account: Account, request: pytest.FixtureRequest) -> Iterator[Town]:
    """A town for the time of a test. It knows what earlier tests of the module saw."""
    with town_on(plane_with_gpuctl, request.node.name, account) as made:
        yield made


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """`figure(text)` reports a measurement at the end of the run."""
    return lambda text: request.node.user_properties.append((FIGURE, text))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the figures, if there are any."""
    reports = [report for of_outcome in terminalreporter.stats.values() for report in of_outcome]
    calls = [report for report in reports if isinstance(report, pytest.TestReport) and report.when == "call"]
    told = [str(text) for report in calls for key, text in report.user_properties if key == FIGURE]
    if told:
        terminalreporter.section("figures")
        for line in told:
            terminalreporter.line(line)
