"""`gpuctl bench review`: the commands that check a change, in processes of their own, on a made-up repository."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter_ns

import click

from gpuctl.cli.command import command
from gpuctl.cli.failures import Failure
from gpuctl.cli.output import print_json
from gpuctl.cli.terminal import show
from gpuctl.views.tables import table

_CLUSTER = "clusters/bench"
_SELF = (sys.executable, "-m", "gpuctl")
_COMMANDS = {
    "git diff": ("git", "diff", "HEAD"),
    "validate, nothing known": (*_SELF, "validate", "--no-cache", _CLUSTER),
    "validate, known": (*_SELF, "validate", _CLUSTER),
    "plan, nothing known": (*_SELF, "plan", "--no-cache", _CLUSTER, "--base", "HEAD", "-o", "json"),
    "plan of the change": (*_SELF, "plan", _CLUSTER, "--base", "HEAD", "-o", "json"),
}
"""The timed commands, in this order."""
_PLANNED = frozenset({0, 2, 3})
"""Exit codes of a plan that was made: no changes, changes, changes that a guard refuses."""
_CUT = 2


@command("review", examples=("gpuctl bench review", "gpuctl bench review --jobs 1000 --runs 1 -o json"))
@click.option("--jobs", type=click.IntRange(2, 50_000), default=10_000, show_default=True, help="Jobs to make.")
@click.option("--projects", type=click.IntRange(1, 1000), default=40, show_default=True, help="Projects they are of.")
@click.option(
    "--runs", type=click.IntRange(1, 100), default=3, show_default=True, help="Runs of each; the median counts."
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def review(jobs: int, projects: int, runs: int, output: str) -> None:
    """Time validate and plan on made-up jobs.

    The quota of one project is cut in the working tree of a repository, and the checks of that are timed: processes
    from start to end, and the CPU they took. Caches are in a folder of their own.
    """
    with TemporaryDirectory(prefix="gpuctl-bench-") as folder:
        top = Path(folder, "repository")
        environ = _environ(Path(folder))
        _repository(top, jobs, projects, environ)
        found = {what: _median(words, top, environ, runs) for what, words in _COMMANDS.items()}
    if output == "json":
        print_json({"jobs": jobs, "projects": projects, "runs": runs, "measured": found})
        return
    rows = [(what, f"{each['ms']}", f"{each['cpu_ms']}") for what, each in found.items()]
    show(table(("COMMAND", "MS", "CPU MS"), rows))


def _environ(folder: Path) -> dict[str, str]:
    """The environment, with the user's folders and Git's settings in a folder. Python keeps its compiled files of
    gpuctl, as in an installation: otherwise 0.4 s of each command are Python's own compiler."""
    left_out = ("GIT_", "GPUCTL_", "PYTHONDONTWRITEBYTECODE")
    dropped = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    kept = {"XDG_CACHE_HOME": str(folder / "cache"), "XDG_STATE_HOME": str(folder / "state")}
    return {**dropped, **kept, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}


def _repository(top: Path, jobs: int, projects: int, environ: dict[str, str]) -> None:
    """Make a repository with one commit, and a change in the working tree."""
    from gpuctl.app.bench.compile import bench_tree  # noqa: PLC0415 - only now

    for path, file in bench_tree(jobs, projects).files.items():
        where = top / path
        where.parent.mkdir(parents=True, exist_ok=True)
        where.write_bytes(file.content)
    who = ("-c", "user.name=bench", "-c", "user.email=bench@example.com")
    for words in (("init", "-q"), ("add", "-A"), (*who, "commit", "-qm", "jobs")):
        _run(("git", *words), top, environ)
    project = top / _CLUSTER / "projects" / "team-0" / "project.yaml"
    lines = project.read_text().splitlines(keepends=True)
    project.write_text("".join(f"  quota: {_CUT}\n" if line.startswith("  quota:") else line for line in lines))


def _median(words: tuple[str, ...], top: Path, environ: dict[str, str], runs: int) -> dict[str, int]:
    """The medians of a command's milliseconds and CPU time. Two runs before do not count: the second one of `plan`
    stores what it has compiled."""
    for _ in range(2):
        _run(words, top, environ)
    measured = [_run(words, top, environ) for _ in range(runs)]
    return {
        "ms": statistics.median_low(ms for ms, _ in measured),
        "cpu_ms": statistics.median_low(cpu_ms for _, cpu_ms in measured),
    }


def _run(words: tuple[str, ...], top: Path, environ: dict[str, str]) -> tuple[int, int]:
    before, begin = os.times(), perf_counter_ns()
    done = subprocess.run(words, cwd=top, env=environ, capture_output=True, check=False)  # noqa: S603 - ours
    ms, after = (perf_counter_ns() - begin) // 1_000_000, os.times()
    if done.returncode not in (_PLANNED if "plan" in words else {0}):
        said = done.stderr.decode(errors="replace").strip()
        raise Failure("GPU9002", f"{' '.join(words[-3:])} failed: {said}", hint="gpuctl bench review --jobs 100")
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return ms, int(cpu * 1000)
