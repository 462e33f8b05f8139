"""What is released: a wheel of the same bytes every time, which works by itself, and what is in it and in the image."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import pytest

from gpuctl import __version__

ROOT = Path(__file__).resolve().parents[2]
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
EPOCH = "1700000000"


def tree(folder: Path, at_s: int) -> Path:
    """What `.dockerignore` lets into the image's build, as of another time."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    for name in (line[1:] for line in lines if line.startswith("!")):
        whole = ROOT / name
        for path in whole.rglob("*") if whole.is_dir() else [whole]:
            if path.is_file() and "__pycache__" not in path.parts:
                file = folder / path.relative_to(ROOT)
                file.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, file)
                os.utime(file, (at_s, at_s))
    return folder


def built(folder: Path, out: Path) -> Path:
    """The wheel of a tree."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    env = {**os.environ, "SOURCE_DATE_EPOCH": EPOCH}
    subprocess.run(command, cwd=folder, env=env, capture_output=True, check=True)
    (wheel,) = out.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("first")
    return built(tree(folder / "tree", 1_600_000_000), folder / "out")


def test_a_wheel_is_the_same_bytes_wherever_and_whenever_it_is_built(wheel: Path, tmp_path: Path) -> None:
    again = built(tree(tmp_path / "another name", 1_650_000_000), tmp_path / "out")
    assert (again.name, again.read_bytes()) == (wheel.name, wheel.read_bytes())


def test_a_wheel_has_all_that_the_package_has(wheel: Path) -> None:
    names = set(ZipFile(wheel).namelist())
    wanted = {path.relative_to(ROOT).as_posix() for path in (ROOT / "gpuctl").rglob("*.py")}
    assert names >= wanted | {"gpuctl/py.typed"}
    assert {name for name in names if name.startswith("gpuctl/examples/")} >= {
        f"gpuctl/examples/{path.relative_to(ROOT / 'clusters').as_posix()}"
        for path in (ROOT / "clusters" / "tr4858").rglob("*.yaml")
    }


def test_an_installed_wheel_works_without_a_checkout(wheel: Path, tmp_path: Path) -> None:
    """Its dependencies are those of this environment, of which nothing else is seen."""
    venv.create(tmp_path / "clean", symlinks=True)
    python = tmp_path / "clean" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--isolated", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "-q", "--no-compile", "--no-index", "--no-deps", str(wheel)], check=True)
    library = Path(subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"],
        capture_output=True, text=True, check=True,
    ).stdout.strip())  # fmt: skip
    (library / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")

    def run(*words: str) -> str:
        command = [str(tmp_path / "clean" / "bin" / words[0]), *words[1:]]
        env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"}
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=env)
        assert done.returncode == 0, (words, done.stdout[-500:], done.stderr[-2000:])
        return done.stdout

    assert str(tmp_path) in run("python", "-c", "import gpuctl; print(gpuctl.__file__)")
    assert run("gpuctl", "--version") == f"gpuctl {__version__}\n"
    assert "as in the report: 14 jobs run on 16 of 16 GPUs" in run("gpuctl", "demo")
    run("gpuctl", "init", "gpus", "--cluster", "prod", "--pool", "name=a,nodes=a-[1-2],gpus=8,memory=80Gi")
    run("gpuctl", "validate", "gpus/clusters/prod")
    where = ("--repo", "https://git.example.com/gpus.git", "--path", "clusters/prod", "--guard")
    items = json.loads(run("gpuctl", "install", *where, "--policies", "gpus/policies", "-o", "json"))["items"]
    assert {"Namespace", "Deployment", "ValidatingAdmissionPolicy"} <= {item["kind"] for item in items}
    run("gpuctl", "install", "-o", "helm", "--dir", "chart")
    assert (tmp_path / "chart" / "values.schema.json").is_file()
    assert json.loads(run("gpuctl", "schema", "Job"))["title"]
    run("gpuctl", "man", "man1")
    assert "_GPUCTL_COMPLETE" in run("gpuctl", "completion", "bash")
    assert run("kubectl-gpuctl", "version").startswith(f"gpuctl {__version__} ")


def test_an_image_says_what_it_is() -> None:
    text = (ROOT / "Dockerfile").read_text()
    labels = dict(re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]*)"', text))
    assert labels["version"] == "${VERSION}"
    assert f"ARG VERSION={__version__}\n" in text
    assert labels.keys() >= {"title", "description", "licenses", "version", "revision", "documentation"}
    assert "SOURCE_DATE_EPOCH" in text


@pytest.fixture
def release_command() -> Callable[[str], list[str]]:
    """Words of a command that CONTRIBUTING.md has for a release, with this environment in place of `.venv`."""

    def words(beginning: str) -> list[str]:
        found = re.search(rf"^(\.venv/{re.escape(beginning)}.+)$", CONTRIBUTING.read_text(), flags=re.MULTILINE)
        assert found is not None
        return found[1].replace(".venv", sys.prefix).split()

    return words


@pytest.fixture
def release_tools(release_command: Callable[[str], list[str]]) -> None:
    """What `requirements-release.txt` locks, in an environment inside this one, which later runs find there."""
    folder, lock = Path(sys.prefix) / "release", (ROOT / "requirements-release.txt").read_text()
    stamp = folder / "installed.txt"
    if stamp.is_file() and stamp.read_text() == lock:
        return
    venv.create(folder, clear=True, symlinks=True)
    install = release_command("bin/pip --python")
    done = subprocess.run(install, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        missing = "pip could not install requirements-release.txt, which writes the bill of materials"
        if os.environ.get("CI"):
            pytest.fail(f"{missing}: {done.stderr[-2000:]}", pytrace=False)
        pytest.skip(missing)
    stamp.write_text(lock)


@pytest.mark.usefixtures("release_tools")
def test_the_bill_of_materials_names_what_is_locked(
    release_command: Callable[[str], list[str]], tmp_path: Path
) -> None:
    """By the command that CONTRIBUTING.md has for a release; the same bytes every time. The second time they are not
    checked against CycloneDX's schema, which takes 3 of the 3.5 s."""
    texts = []
    for name, more in (("one.json", []), ("two.json", ["--no-validate"])):
        words = [*release_command("release/bin/cyclonedx-py"), *more]
        words[words.index("-o") + 1] = str(tmp_path / name)
        subprocess.run(words, cwd=ROOT, check=True, capture_output=True)
        texts.append((tmp_path / name).read_text())
    assert texts[0] == texts[1]
    named = {(each["name"], each["version"]) for each in json.loads(texts[0])["components"]}
    locked = re.findall(
        r"^([\w.-]+)(?:\[[\w,-]+\])?==([^ ;\\]+)", (ROOT / "requirements.txt").read_text(), flags=re.MULTILINE
    )
    assert named == set(locked)
