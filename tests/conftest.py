"""What all tests share: Hypothesis profiles, golden files that `--update-golden` rewrites, a real control plane."""

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

# Where Python is told to write no bytecode, each run would rewrite the assertions of all test modules, and each process
# that a test starts would compile gpuctl: half of the time until the first test, and a second or more a process.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Whatever collection makes stays: looking through it for garbage takes a tenth of its time.
gc.disable()

# How long examples take is the machine's matter: it may be busy with other tests.
settings.register_profile(
    "gpuctl", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("new examples", settings.get_profile("gpuctl"), derandomize=False)
settings.load_profile("gpuctl")

FUZZ_SEED = 13

TESTS = Path(__file__).parent

SHARED = ("control_plane", "plane_with_gpuctl", "real_lab")
"""The control planes that tests of several modules share; any other is its module's own."""

PARTS = {
    "interrupted": (
        "test_clock", "test_git_faults", "test_kill", "test_replicas", "test_server_faults", "test_rights",
    ),
    "neighbours": ("test_nodes_and_neighbours", "test_job_life"),
    "failures": ("test_pod_failures", "test_objects_of_people", "test_what_gpus_do"),
}  # fmt: skip
"""Modules on `plane_with_gpuctl` by the groups that have such a control plane of their own: these tests mostly wait,
and one after the other they take longer than all others on two cores. Those of the first wait for faults."""

LONGEST_FIRST = (
    "neighbours", "failures", "interrupted", "plane_with_gpuctl", "real_lab", "test_operate_page",
    "test_story_on_kueue", "control_plane", "test_bench_cluster", "test_declared_life", "test_rights_taken_away",
    "test_server_goes_back", "test_idle", "test_jobset_life", "test_install_upgrade", "test_install_page",
    "test_forged_objects", "test_demo", "test_tenants", "test_install_again", "test_sharing",
)  # fmt: skip
"""Groups whose tests take longest one after the other: a run is over no sooner than the last of them."""

SERVERS_UNTIL = 0.8
"""The part of a run in which groups on control planes begin. They wait for 2,000 s in all: the later the last of them
begins, the more of the eight processes have work for the two cores."""

NEW_OBJECTS = 20_000
"""So many new objects, less those gone again, are there before the garbage collector looks at them."""

_LONGEST_ID = 1000

RUNNING = pytest.StashKey[dict[str, ControlPlane]]()

QUICK = (
    "diagnostics", "golden", "house/test_tree.py", "unit/compile", "unit/diag", "unit/engine", "unit/explain",
    "unit/observe", "unit/render",
)  # fmt: skip
"""Tests that a small change breaks most often, and that take seconds: `pytest -m quick`, under a minute."""


@pytest.hookimpl(tryfirst=True)  # before the groups are read
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests run in units that one process takes: those on one control plane, else those of one file, which make once
    what they share. The order of the units is that of the run."""
    units, servers = dict[pytest.Item, str](), set[str]()
    for item in items:
        path = item.nodeid.partition("::")[0].removeprefix("tests/")  # sooner than from its path
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
    """When each unit begins, from 0 to 1. Those on control planes, which mostly wait, are spread among those that take
    CPU, the longest first, and begin early enough to be over before the end."""
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
    return "real_lab" if item.get_closest_marker("server") else ""  # it asks for its lab by what it is given


@pytest.hookimpl(trylast=True)  # after the module's own fixtures
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """A control plane is stopped after its last test: an idle one takes CPU and 0.5 GiB of memory."""
    goes_on = nextitem is not None and (nextitem.path == item.path or "" != _group(nextitem) == _group(item))
    if not goes_on:
        for plane in item.config.stash[RUNNING].values():
            plane.stop()
        item.config.stash[RUNNING].clear()


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: frozen, the garbage collector doesn't look through it again and
    again, which takes a tenth of the processor time of tests in Python; nor now, for little of it is garbage, and to
    look takes a tenth of collection. Nor does it look at what is new as often as by default: another tenth, of
    Hypothesis' tests most, for Hypothesis measures each look."""
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS)
    gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[RUNNING] = {}
    config.option.loadscopereorder = False  # pytest-xdist would begin with the groups of the most tests
    if config.getoption("hypothesis_seed") is not None:  # with "gpuctl" Hypothesis would take no notice of it
        settings.load_profile("new examples")


@pytest.hookimpl(optionalhook=True)  # pytest-xdist's
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """In a new clone each process of a run would compile all test modules, all at the same time: 8 s each. Two compile
    a half of them each before they begin."""
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
    """A text that is too long to be read has its length in an id: ids go to each process, and into the environment of
    the commands that a test runs, which is bounded."""
    return f"{argname} of {len(val)}" if isinstance(val, str | bytes) and len(val) > _LONGEST_ID else None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files as they come out now")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Why tests were skipped: a line a reason, wherever they are."""
    reports = terminalreporter.stats.get("skipped", [])
    told = Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in reports)
    if told:
        terminalreporter.section("skipped")
        for reason, count in told.most_common():
            terminalreporter.line(f"{count} for one reason: {reason}" if count > 1 else reason)


@pytest.fixture(scope="session", autouse=True)
def _nothing_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test is told what another run has found, or has the user's Git, which may sign each commit or know no name;
    nor does one leave anything in the user's folders. This project's own folder may be another user's."""
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
    """Of the inputs that the fuzzers make: that of `--hypothesis-seed`, else the same in each run."""
    return int(request.config.getoption("hypothesis_seed") or FUZZ_SEED)


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
def new_control_plane(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., ControlPlane]:
    """Starts real control planes, which last for the module's tests."""
    running = request.config.stash[RUNNING]

    def begin(emulated: str = "") -> ControlPlane:
        return running.setdefault(f"new {len(running)}", started(tmp_path_factory, emulated))

    return begin


@pytest.fixture(scope="session")
def shared_control_plane(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., ControlPlane]:
    """`shared_control_plane(name, prepare)`: the one of that name; started and prepared where it does not run."""
    running = request.config.stash[RUNNING]

    def share(name: str, prepare: Callable[[ControlPlane], object] = bool) -> ControlPlane:
        if name not in running:
            running[name] = started(tmp_path_factory)
            prepare(running[name])
        return running[name]

    return share


def started(folders: pytest.TempPathFactory, emulated: str = "") -> ControlPlane:
    """A control plane. Not built: its tests skip, in CI they fail."""
    binaries = find()
    if binaries is None:
        missing = f"no Kubernetes control plane for the tests: {HOW}"
        if os.environ.get("CI"):
            pytest.fail(missing, pytrace=False)
        pytest.skip(missing)
    return start(binaries, folders.mktemp("control-plane"), emulated, prepared(binaries, emulated))


@pytest.fixture(scope="module")
def control_plane(shared_control_plane: Callable[..., ControlPlane]) -> ControlPlane:
    """The one that most tests share."""
    return shared_control_plane("control_plane")


@pytest.fixture(scope="module")
def real_lab(shared_control_plane: Callable[..., ControlPlane]) -> Callable[[], Iterator[Any]]:
    """Makes labs of the Cluster contract on a control plane of their own, with four nodes."""
    from real import furnish, real_labs  # noqa: PLC0415 - found once the contracts' folder is on the path

    return real_labs(shared_control_plane("real_lab", furnish))
