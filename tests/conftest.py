"""Shared by all tests: Hypothesis profiles, golden files that `--update-golden` rewrites, a real control plane."""

from __future__ import annotations

import difflib
import gc
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from controlplane.build import HOW, find
from controlplane.prepared import prepared
from controlplane.server import ControlPlane, start
from hypothesis import HealthCheck, settings

# Python must write bytecode. Without it, each run rewrites the assertions of all test modules, and each process that a
# test starts compiles gpuctl: half of the time until the first test, and a second or more a process.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Collection makes next to no garbage: looking for it would take a tenth of the collection's time.
gc.disable()

# No time limit for examples: the machine may be busy with other tests.
settings.register_profile(
    "gpuctl", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("new examples", settings.get_profile("gpuctl"), derandomize=False)
settings.load_profile("gpuctl")

FUZZ_SEED = 13

TESTS = Path(__file__).parent

SHARED = ("control_plane", "plane_with_gpuctl", "real_lab")
"""The control planes that tests of several modules share. Any other belongs to its module."""

PARTS = {
    "interrupted": (
        "test_clock", "test_git_faults", "test_kill", "test_replicas", "test_server_faults", "test_rights",
    ),
    "neighbours": ("test_nodes_and_neighbours", "test_job_life"),
    "failures": ("test_pod_failures", "test_objects_of_people", "test_what_gpus_do"),
}  # fmt: skip
"""Groups of modules on `plane_with_gpuctl`, each with such a control plane of its own. These tests mostly wait: one
after the other they take longer than all others on two cores. Tests of the first group wait for faults."""

LONGEST_FIRST = (
    "neighbours", "failures", "interrupted", "plane_with_gpuctl", "real_lab", "test_operate_page",
    "test_story_on_kueue", "control_plane", "test_bench_cluster", "test_declared_life", "test_rights_taken_away",
    "test_server_goes_back", "test_idle", "test_jobset_life", "test_install_upgrade", "test_install_page",
    "test_forged_objects", "test_demo", "test_tenants", "test_install_again", "test_sharing",
)  # fmt: skip
"""The groups that take longest when their tests run one after the other. A run ends no sooner than the last of them."""

SERVERS_UNTIL = 0.8
"""The part of a run in which groups on control planes begin. They wait for 2,000 s in all: the later the last of them
begins, the more of the eight processes have work for the two cores."""

NEW_OBJECTS = 20_000
"""The garbage collector looks once there are this many new objects, less those that are gone."""

_LONGEST_ID = 1000

RUNNING = pytest.StashKey[dict[str, ControlPlane]]()

QUICK = (
    "diagnostics", "golden", "house/test_tree.py", "unit/compile", "unit/diag", "unit/engine", "unit/explain",
    "unit/observe", "unit/render",
)  # fmt: skip
"""Tests that a small change breaks most often, and that take seconds: `pytest -m quick`, under a minute."""


@pytest.hookimpl(tryfirst=True)  # before the groups are read
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Divide the tests into units, one process each, and order them: a unit is the tests on one control plane, or else
    of one file, so that what they share is made once. The run keeps the order of the units."""
    units, servers = dict[pytest.Item, str](), set[str]()
    for item in items:
        path = item.nodeid.partition("::")[0].removeprefix("tests/")  # cheaper than from the item's path
        if path.startswith(QUICK):
            item.add_marker("quick")
        if server := _group(item):
            item.add_marker("server")
            servers.add(server)
        given = item.get_closest_marker("xdist_group")
        units[item] = server or (str(given.args[0]) if given else path)
        if not given:
            item.add_marker(pytest.mark.xdist_group(units[item]))
    begins = _order([unit for unit in dict.fromkeys(units.values()) if unit not in servers], servers)
    items.sort(key=lambda item: (begins[units[item]], units[item]))


def _order(others: Sequence[str], servers: Collection[str]) -> Mapping[str, float]:
    """The begin of each unit, from 0 to 1. Units on control planes mostly wait: they are spread among units that take
    CPU, the longest first, and begin early enough to end before the run does."""
    longest = sorted(servers, key=_place)
    begin = {unit: at / len(others) for at, unit in enumerate(others)}
    return begin | {unit: SERVERS_UNTIL * at / len(servers) for at, unit in enumerate(longest)}


def _place(server: str) -> tuple[int, str]:
    return (LONGEST_FIRST.index(server) if server in LONGEST_FIRST else len(LONGEST_FIRST), server)


def _group(item: pytest.Item) -> str:
    """The control plane that a test runs on. Its tests run one after the other in one process, which starts it once."""
    asked = item.fixturenames if isinstance(item, pytest.Function) else []
    for name in SHARED:
        if name in asked:
            return next((part for part, modules in PARTS.items() if item.path.stem in modules), name)
    if "new_control_plane" in asked:
        return item.path.stem
    return "real_lab" if item.get_closest_marker("server") else ""  # such a test gets its lab through a parameter


@pytest.hookimpl(trylast=True)  # after the module's own fixtures
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Stop a control plane after its last test: an idle one takes CPU and 0.5 GiB of memory."""
    goes_on = nextitem is not None and (nextitem.path == item.path or "" != _group(nextitem) == _group(item))
    if not goes_on:
        for plane in item.config.stash[RUNNING].values():
            plane.stop()
        item.config.stash[RUNNING].clear()


def pytest_collection_finish() -> None:
    """Have the garbage collector skip everything imported and collected, which stays to the end.

    Cost: to look through it again and again takes a tenth of the processor time of tests in Python; to look now, when
    little of it is garbage, takes a tenth of collection. The collector also looks at new objects less often than by
    default: another tenth, most of it in Hypothesis' tests, since Hypothesis measures each look.
    """
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS)
    gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[RUNNING] = {}
    config.option.loadscopereorder = False  # pytest-xdist would begin with the groups that have the most tests
    if config.getoption("hypothesis_seed") is not None:  # with "gpuctl" Hypothesis would ignore the seed
        settings.load_profile("new examples")


@pytest.hookimpl(optionalhook=True)  # pytest-xdist's
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """Compile the test modules in two processes, half each, before a run in a new clone. Else each process of the run
    would compile all of them at the same time: 8 s each."""
    if any(TESTS.glob("*/__pycache__/test_*")) or any(TESTS.glob("*/*/__pycache__/test_*")):
        return
    at = config.invocation_params.dir
    asked = [at / arg.partition("::")[0] for arg in config.args]
    modules = [file for path in asked for file in (sorted(path.rglob("test_*.py")) if path.is_dir() else [path])]
    collect = [sys.executable, "-m", "pytest", "--collect-only", "-qq"]
    half = len(modules) // 2
    halves = [part for part in (modules[:half], modules[half:]) if part]
    begun = [subprocess.Popen([*collect, *part], cwd=at, stdout=subprocess.DEVNULL) for part in halves]
    for process in begun:
        process.wait()


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """The id of a long text is its length: ids go to each process, and into the environment of the commands that a test
    runs, which is bounded."""
    return f"{argname} of {len(val)}" if isinstance(val, str | bytes) and len(val) > _LONGEST_ID else None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files as they come out now")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List why tests were skipped, a line for each reason."""
    reports = terminalreporter.stats.get("skipped", [])
    told = Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in reports)
    if told:
        terminalreporter.section("skipped")
        for reason, count in told.most_common():
            terminalreporter.line(f"{count} for one reason: {reason}" if count > 1 else reason)


@pytest.fixture(scope="session", autouse=True)
def _nothing_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Isolate tests from the user. No test reads results of another run, or the user's Git settings, which may sign
    each commit or lack a name; none leaves anything in the user's folders. This project's own folder may belong to
    another user."""
    config = tmp_path_factory.mktemp("git") / "config"
    config.write_text(
        f"[user]\n    name = Ana\n    email = ana@example.com\n[safe]\n    directory = {TESTS.resolve().parent}\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUCTL_NO_CACHE", "1")
        patch.setenv("GIT_CONFIG_GLOBAL", str(config))
        patch.setenv("GIT_CONFIG_NOSYSTEM", "1")
        yield


@pytest.fixture
def fuzz_seed(request: pytest.FixtureRequest) -> int:
    """The seed of the fuzzers' inputs: that of `--hypothesis-seed`, else the same in each run."""
    return int(request.config.getoption("hypothesis_seed") or FUZZ_SEED)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """`golden(path, text)` checks that the file holds exactly the text; with --update-golden it writes the file."""
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
    """The folder with the published traces, which are no part of the project. Without it, tests that need it skip."""
    folder = Path(os.environ.get("GPUCTL_TRACES") or Path(__file__).resolve().parents[2] / "shared" / "traces")
    if not folder.is_dir():
        pytest.skip(f"no traces in {folder}: set GPUCTL_TRACES to the folder that holds openb/ and philly/")
    return folder


@pytest.fixture(scope="module")
def new_control_plane(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., ControlPlane]:
    """Start real control planes, which last for the module's tests."""
    running = request.config.stash[RUNNING]

    def begin(emulated: str = "") -> ControlPlane:
        return running.setdefault(f"new {len(running)}", started(tmp_path_factory, emulated))

    return begin


@pytest.fixture(scope="session")
def shared_control_plane(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., ControlPlane]:
    """`shared_control_plane(name, prepare)`: the control plane of that name, started and prepared if it does not
    run."""
    running = request.config.stash[RUNNING]

    def share(name: str, prepare: Callable[[ControlPlane], object] = bool) -> ControlPlane:
        if name not in running:
            running[name] = started(tmp_path_factory)
            prepare(running[name])
        return running[name]

    return share


def started(folders: pytest.TempPathFactory, emulated: str = "") -> ControlPlane:
    """Start a control plane. If none is built, its tests skip; in CI they fail."""
    binaries = find()
    if binaries is None:
        missing = f"no Kubernetes control plane for the tests: {HOW}"
        if os.environ.get("CI"):
            pytest.fail(missing, pytrace=False)
        pytest.skip(missing)
    return start(binaries, folders.mktemp("control-plane"), emulated, prepared(binaries, emulated))


@pytest.fixture(scope="module")
def control_plane(shared_control_plane: Callable[..., ControlPlane]) -> ControlPlane:
    """The control plane that most tests share."""
    return shared_control_plane("control_plane")


@pytest.fixture(scope="module")
def real_lab(shared_control_plane: Callable[..., ControlPlane]) -> Callable[[], Iterator[Any]]:
    """Makes labs of the Cluster contract on a control plane of their own, with four nodes."""
    from real import furnish, real_labs  # noqa: PLC0415 - found once the contracts' folder is on the path

    return real_labs(shared_control_plane("real_lab", furnish))
