"""Rules of the tree that no tool checks: sizes, the map, the two lines of the README, the lock files."""

import ast
import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import TypeGuard

import pytest
import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(p for p in (ROOT / "gpuctl").rglob("*.py"))
LOCKS = ("requirements.txt", "requirements-dev.txt", "requirements-release.txt")
MAX_FILE_LINES = 420
MAX_FUNCTION_LINES = 60


@dataclass(frozen=True)
class Source:
    """What the tests here ask of a module. A syntax tree takes a hundred times its room."""

    lines: int
    docstring: str | None
    long: tuple[str, ...]
    inexact: tuple[str, ...]


@cache
def source(path: Path) -> Source:
    """A module, parsed once for three tests: most of the processor time that they take."""
    text = path.read_text()
    tree = ast.parse(text)
    nodes = list(ast.walk(tree))
    return Source(
        lines=text.count("\n"),
        docstring=ast.get_docstring(tree),
        long=tuple(node.name for node in nodes if _is_long(node)),
        inexact=tuple(ast.unparse(node) for node in nodes if _is_inexact(node)),
    )


def _is_long(node: ast.AST) -> TypeGuard[ast.FunctionDef]:
    return isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno >= MAX_FUNCTION_LINES


def _is_inexact(node: ast.AST) -> bool:
    match node:
        case ast.Constant(value=value):
            return isinstance(value, float)
        case ast.BinOp(op=operation) | ast.AugAssign(op=operation):
            return isinstance(operation, ast.Div)
        case ast.Name(id=name):
            return name == "float"
        case _:
            return False


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_and_functions_are_short(path: Path) -> None:
    assert source(path).lines <= MAX_FILE_LINES
    assert source(path).long == ()


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_module_says_what_it_knows(path: Path) -> None:
    assert source(path).docstring


CORE = (
    "diag",
    "model",
    "k8s",
    "compile",
    "observe",
    "engine",
    "render",
    "plan",
    "simulate",
    "views",
    "install",
    "scaffold",
)
SHOWS_GPUS = ROOT / "gpuctl" / "simulate" / "expect.py"  # 0.5 in a report's JSON; nothing is computed with it
FOR_CEL = ROOT / "gpuctl" / "compile" / "cel_scope.py"  # its numbers with a point are doubles; only policies see them


EXACT = [p for p in SOURCES if p.relative_to(ROOT).parts[1] in CORE and p not in {SHOWS_GPUS, FOR_CEL}]


@pytest.mark.parametrize("path", EXACT, ids=lambda p: str(p.relative_to(ROOT)))
def test_the_core_has_no_floats(path: Path) -> None:
    assert source(path).inexact == ()


def test_the_map_names_every_room_and_only_those() -> None:
    rooms = {p.parent.name for p in (ROOT / "gpuctl").glob("*/__init__.py")}
    text = (ROOT / "docs" / "internals" / "architecture.md").read_text()
    named = set(re.findall(r"^\| `(\w+)/`", text, flags=re.MULTILINE))
    assert named == rooms
    for path in re.findall(r"`((?:gpuctl|tests|clusters|policies|schemas|docs)/[\w./-]+)`", text):
        assert (ROOT / path).exists(), f"architecture.md names {path}, which is not there"


def test_ci_runs_the_line_of_the_readme() -> None:
    line = (ROOT / ".ci" / "run").read_text().strip().splitlines()[-1]
    assert line in (ROOT / "README.md").read_text()
    assert ".ci/run" in (ROOT / ".github" / "workflows" / "ci.yml").read_text()


def test_the_parts_of_ci_are_all_tests() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    ci, nightly = (
        yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text())["jobs"]
        for name in ("ci", "nightly")
    )
    lone = re.findall(r"\.ci/run (\w+)", "".join(str(job["steps"]) for job in (*ci.values(), *nightly.values())))
    parts = {*ci["part"]["strategy"]["matrix"]["part"], *lone}
    assert set(re.findall(r"^(\w+)\)", script, flags=re.MULTILINE)) - {"all"} == parts
    folders = {path.relative_to(ROOT).parts[1] for path in (ROOT / "tests").rglob("test_*.py")}
    assert set(re.findall(r" tests/(\w+)\b(?!/build)", script)) >= folders


def test_ci_builds_the_image_as_the_pages_say() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    (build,) = re.findall(r"^  (docker build .+)$", script, flags=re.MULTILINE)
    assert f"`{build}`" in (ROOT / "Dockerfile").read_text()
    assert f"\n{build}\n" in (ROOT / "CONTRIBUTING.md").read_text()
    elsewhere = build.replace("gpuctl:", "registry.example.com/gpuctl:")
    assert f"\n{elsewhere}\n" in (ROOT / "docs" / "install.md").read_text()


def test_what_others_publish_is_named_by_its_digest() -> None:
    images = re.findall(r"^FROM (\S+)", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    assert images
    assert all(re.fullmatch(r"\S+:[\w.-]+@sha256:[0-9a-f]{64}", image) for image in images)
    workflows = "".join(path.read_text() for path in (ROOT / ".github" / "workflows").iterdir())
    actions = re.findall(r"uses: (.+)", workflows)
    assert actions
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[\d.]+", action) for action in actions)


@pytest.mark.parametrize(("lock", "extra"), [("requirements.txt", "build"), ("requirements-dev.txt", "dev")])
def test_every_dependency_is_locked(lock: str, extra: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["build"]]
    wanted += project["optional-dependencies"][extra]
    locked = set(re.findall(r"^([\w.-]+)(?:\[[\w,-]+\])?==", (ROOT / lock).read_text(), flags=re.MULTILINE))
    names = {re.split(r"[<>=\[ ]", requirement)[0].lower().replace(".", "-") for requirement in wanted} - {"gpuctl"}
    assert names <= locked


def test_the_tools_of_a_release_are_locked() -> None:
    (asked,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["release"]
    assert f"\n{Requirement(asked).name}==" in (ROOT / "requirements-release.txt").read_text()


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_has_hashes_and_names_no_host(lock: str) -> None:
    text = (ROOT / lock).read_text()
    locked = re.findall(r"^[\w.-]+(?:\[[\w,-]+\])?==", text, flags=re.MULTILINE)
    assert locked
    assert text.count("--hash=sha256:") >= len(locked)
    assert "://" not in text


def _asked(package: str) -> list[Requirement]:
    try:
        return [Requirement(line) for line in requires(package) or ()]
    except PackageNotFoundError:  # locked for another platform
        return []


@pytest.mark.parametrize("lock", LOCKS)
def test_an_extra_that_a_locked_package_asks_for_is_in_its_pin(lock: str) -> None:
    """Without it pip looks at the newest release first, and refuses that for its missing hash."""
    pins = dict(re.findall(r"^([\w.-]+)(?:\[([\w,-]+)\])?==", (ROOT / lock).read_text(), flags=re.MULTILINE))
    for package in pins:
        for asked in _asked(package):
            name = asked.name.lower().replace("_", "-").replace(".", "-")
            if asked.extras and name in pins and (asked.marker is None or asked.marker.evaluate({"extra": ""})):
                assert asked.extras <= set(pins[name].split(",")), f"{package} asks for {asked}"


@pytest.mark.xdist_group("kept together")
def test_groups_are_kept_together(request: pytest.FixtureRequest) -> None:
    """By pytest-xdist with `--dist loadgroup`, which marks them so. Else each process starts all control planes."""
    if request.config.getoption("loadgroup", default=False):
        assert request.node.nodeid.endswith("@kept together"), "install requirements-dev.txt: pytest is too new"
