"""What holds for every command: help with an example, one line for a mistake, never a traceback."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from commands import ROOT, Run
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuctl import __version__, wiring
from gpuctl.cli.main import COMMANDS, gpuctl

Path_ = tuple[str, ...]


def commands(command: click.Command, path: Path_ = ()) -> list[Path_]:
    """The paths of a command and of all below it."""
    if not isinstance(command, click.Group):
        return [path]
    context = click.Context(command)
    below = [(name, command.get_command(context, name)) for name in command.list_commands(context)]
    return [path, *(found for name, child in below if child for found in commands(child, (*path, name)))]


ALL = commands(gpuctl)
BELOW_ROOT = [path for path in ALL if path]
LEAVES = [path for path in BELOW_ROOT if path not in {("bench",), ("project",), ("top",)}]


@pytest.mark.parametrize("path", ALL, ids=lambda path: " ".join(path) or "gpuctl")
def test_every_help_text_ends_with_examples(run: Run, path: Path_) -> None:
    result = run(*path, "--help")
    assert result.exit_code == 0
    examples = result.output.partition("\nExample")[2].splitlines()[1:]
    assert examples
    assert all(example.startswith("  gpuctl ") for example in examples)


@pytest.mark.parametrize("path", BELOW_ROOT, ids=" ".join)
def test_the_first_line_of_help_fits_the_overview(run: Run, path: Path_) -> None:
    overview = run(*path[:-1], "--help").output.partition("\nCommands:")[2]
    line = next(line for line in overview.splitlines() if line.startswith(f"  {path[-1]} "))
    assert not line.endswith("...")


def test_the_overview_has_the_first_line_of_each_commands_help() -> None:
    room = 80 - 6 - max(map(len, COMMANDS))  # of a terminal, as click counts
    found = {name: gpuctl.get_command(click.Context(gpuctl), name) for name in COMMANDS}
    lines = {name: command.get_short_help_str(room) for name, command in found.items() if command}
    assert lines == {name: listed.line for name, listed in COMMANDS.items()}


def test_the_overview_and_a_shell_import_no_command() -> None:
    assert not {listed.module for listed in COMMANDS.values()} & imported_by("--help")
    code = "from gpuctl.cli.main import gpuctl; import click, sys; "
    code += "print(*[each.value for each in gpuctl.shell_complete(click.Context(gpuctl), 'li')]); "
    code += "print('gpuctl.cli.list_jobs' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "list\nFalse\n"


def test_the_commands_are_those_of_the_design() -> None:
    files = "validate render plan simulate schema bench version"
    live = "reconcile demo diff list get explain logs exec bash project top"
    assert set(COMMANDS) >= {*files.split(), *live.split()}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("plan clusters/tr4858", "GPU9002: Missing option '--base'."),
        ("plan nowhere --base HEAD", "GPU8003: nowhere is in neither HEAD nor the working tree"),
        ("plan clusters/tr4858 --base HEAD --embedded README.md", "GPU7001: README.md can't be used"),
    ],
)
def test_what_plan_can_not_do_is_not_taken_for_changes(
    run: Run, line: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    result = run(*line.split())
    assert (result.exit_code, result.stderr.splitlines()[0].startswith(f"error {said}")) == (1, True), result.stderr
    assert result.stderr.splitlines()[1].startswith("help: ")


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("lst", "did you mean list?"),
        ("explain GPU5099", "did you mean GPU5092?"),
        ("explain GPU0000", "codes are GPU and four digits: GPU1001"),
        ("explain a-1-gg clusters/tr4858", "did you mean team-a/a-1-g?"),
        ("explain team-x/a-1-g clusters/tr4858", "did you mean team-a/a-1-g?"),
    ],
)
def test_a_name_that_is_none_is_told_with_the_nearest(
    run: Run, line: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    result = run(*line.split())
    assert (result.exit_code, result.stderr.splitlines()[1]) == (2, f"help: {hint}")


def test_without_arguments_the_help_is_printed(run: Run) -> None:
    result = run()
    assert result.exit_code == 0
    assert "Commands:" in result.output


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_an_unknown_option_is_one_line_with_a_code(run: Run, path: Path_) -> None:
    result = run(*path, "--no-such-option")
    failed = 1 if path[0] in {"plan", "comment", "init", "import"} else 2  # 2 of plan is: there are changes
    assert result.exit_code == failed
    assert result.stderr.startswith("error GPU9002: ")
    assert result.stdout == ""


@pytest.mark.parametrize(
    "line",
    [
        "frobnicate",
        "validate no/such/folder",
        "simulate",
        "simulate no-such-file.yaml",
        "reconcile --repo . --path x --embedded --interval soon",
        "reconcile --repo . --path x --embedded --interval 1ms",
        "reconcile --repo . --path x --embedded --write-qps 5",
        "reconcile --repo . --path x --write-burst 0",
        "list -p a -A --embedded README.md",
        "list --context prod --embedded README.md",
        "logs a-1-g --embedded README.md --worker -1",
        "exec a-1-g",
        "diff no/such/folder",
        "explain GPU0000",
        "schema Pod",
        "bench compile --jobs 0",
        "version -o xml",
    ],
)
def test_wrong_use_is_told_with_a_code_and_exits_2(run: Run, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    result = run(*line.split())
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("error GPU9")


@pytest.mark.parametrize(
    "line", ["list", "get a-1-g", "explain a-1-g", "logs a-1-g", "bash a-1-g", "top node", "diff clusters/tr4858"]
)
def test_without_a_cluster_it_is_said_where_one_was_looked_for(
    run: Run, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    result = run(*line.split())
    assert result.exit_code == 2
    assert result.stderr.startswith("error GPU7010: there is no kubeconfig: ")
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("line", "meant"),
    [("get nodes", "gpuctl top node. "), ("get projects", "gpuctl project list. "), ("list", ""), ("get a-1-g", "")],
)
def test_without_a_cluster_it_is_said_what_to_do(
    run: Run, line: str, meant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    (told,) = re.findall("(?m)^help: (.*)$", run(*line.split()).stderr)
    assert told.startswith(f"{meant}Name one with --kubeconfig FILE. Without Kubernetes: --embedded FILE, ")


WORDS = st.one_of(st.sampled_from([*COMMANDS, "-o", "json", "--head", "-p", "--", "-"]), st.text(max_size=8))
NOT_AT_RANDOM = frozenset({"demo", "reconcile", "bench", "simulate", "fmt", "config", "man"})
"""Slow ones, and those that write where they are run, whatever else is said."""


@settings(max_examples=60)
@given(args=st.lists(WORDS, max_size=4).filter(lambda args: not NOT_AT_RANDOM & set(args)))
def test_garbage_never_ends_in_a_traceback(run: Run, args: list[str]) -> None:
    assert run(*args).exit_code in {0, 1, 2}


FIRST = (
    "list(manual(gpuctl, 'gpuctl', None))",
    "CliRunner().invoke(version, ['--help']), CliRunner().invoke(top, ['-h'])",
)
"""What may meet the commands before a command line does: click makes the help option of each then, once."""


@pytest.mark.parametrize("first", FIRST)
def test_help_is_the_same_whatever_met_the_command_first(first: str) -> None:
    code = (
        "from click.testing import CliRunner; from gpuctl.cli.main import gpuctl; from gpuctl.cli.man import manual\n"
        "from gpuctl.cli.top import top; from gpuctl.cli.version import version\n"
        f"{first}\n"
        "for words in ([], ['version'], ['top'], ['top', 'nodes']):\n"
        "    assert '-h, --help' in CliRunner().invoke(gpuctl, [*words, '--help']).output, words"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_version(run: Run) -> None:
    assert run("--version").output == f"gpuctl {__version__}\n"
    assert run("version").output.startswith(f"gpuctl {__version__} ")
    assert json.loads(run("version", "-o", "json").output)["version"] == __version__


def imported_by(*args: str) -> set[str]:
    code = (
        f"import sys; sys.argv = ['gpuctl', *{args!r}]\nimport gpuctl.__main__ as m\n"
        "try:\n    m.main()\nexcept SystemExit as end:\n    assert not end.code, end.code\nprint()\nprint(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(done.stdout.splitlines()[-1].split())


def test_version_imports_nothing_else() -> None:
    assert not {"click", "pydantic", "yaml", "git", "gpuctl.cli"} & imported_by("--version")


@pytest.mark.parametrize("line", ["--help", "list --help", "logs --help", "explain GPU5011"])
def test_the_kubernetes_package_is_imported_only_to_ask_a_server(line: str) -> None:
    assert not {"kubernetes", "websocket", "urllib3", "gpuctl.wiring"} & imported_by(*line.split())


def test_validate_imports_neither_git_nor_a_cluster() -> None:
    assert not {"git", "sqlite3", "gpuctl.wiring"} & imported_by("validate", "clusters/tr4858")


def test_a_look_at_a_cluster_imports_neither_the_controller_nor_git(embedded: Path) -> None:
    unused = {"git", "pydantic", "prometheus_client", "urllib3", "gpuctl.wiring.controller", "gpuctl.wiring.stages"}
    assert not unused & imported_by("project", "list", "--embedded", str(embedded))


def test_every_part_of_the_wiring_has_what_it_is_asked_for() -> None:
    assert all(hasattr(wiring, name) for names in wiring._PARTS.values() for name in names)
    assert not {name for names in wiring._PARTS.values() for name in names} & wiring._PARTS.keys()


@pytest.mark.parametrize("group", ["config", "policy", "project"])
def test_a_group_of_commands_alone_shows_its_help(run: Run, group: str) -> None:
    alone = run(group)
    assert (alone.exit_code, alone.stderr) == (0, "")
    assert alone.stdout == run(group, "--help").stdout


def test_a_terminal_that_lacks_a_character_is_shown_it_escaped(tmp_path: Path) -> None:
    """What others wrote ended the command as a bug of gpuctl."""
    (tmp_path / "cluster.yaml").write_text("kind: \u6f22\u00e9\n")
    words = [sys.executable, "-m", "gpuctl", "validate", str(tmp_path)]
    env = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    told = subprocess.run(words, capture_output=True, check=False, env=env, cwd=ROOT)
    assert (told.returncode, b'"\\u6f22\xe9"' in told.stdout, told.stderr) == (1, True, b"")


@pytest.mark.parametrize("words", ["explain GPU1001", "--help", "--version", "version", "list --help", "policy"])
def test_output_that_has_no_room_is_no_bug_of_gpuctl(words: str, tmp_path: Path) -> None:
    """`--help` ended in a traceback, and Python's own attempt to write made the exit code 120."""
    env = {name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "gpuctl", *words.split()],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False, cwd=tmp_path, env=env,
        )  # fmt: skip
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 2)
    assert done.stderr.startswith("error GPU9004: the output can't be written: ")


@pytest.mark.parametrize("words", ["--help", "--version", "explain GPU1001"])
def test_a_reader_that_has_gone_is_told_nothing(words: str, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as gone:
        done = subprocess.run(
            [sys.executable, "-m", "gpuctl", *words.split()],
            stdout=gone, stderr=subprocess.PIPE, text=True, check=False, cwd=tmp_path,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "")


def test_a_mistake_that_can_not_be_told_has_its_exit_code(tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([sys.executable, "-m", "gpuctl", "nothing"], stderr=full, check=False, cwd=tmp_path)
    assert done.returncode == 2


def test_a_closed_output_is_written_to_nowhere(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "gpuctl", "explain", "GPU0000"]
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *words], stderr=subprocess.PIPE, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error GPU9003: ")


def test_ctrl_c_while_gpuctl_is_imported_is_no_traceback(tmp_path: Path) -> None:
    pressed = (
        "import sys, importlib.abc\n"
        "class Pressed(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'click': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Pressed())\n"
        "from gpuctl.__main__ import main\n"
        "sys.argv = ['gpuctl', 'validate']\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", pressed], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (130, "")
