"""What holds for every command: help with an example, one line for a mistake, never a traceback."""

import json
import subprocess
import sys

import click
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuctl import __version__
from gpuctl.cli.main import COMMANDS, gpuctl


def leaves(command: click.Command, path: tuple[str, ...]) -> list[tuple[str, ...]]:
    if not isinstance(command, click.Group):
        return [path]
    context = click.Context(command)
    found = [path] if path else []
    for name in command.list_commands(context):
        child = command.get_command(context, name)
        assert child is not None
        found += leaves(child, (*path, name))
    return found


EVERY_COMMAND = leaves(gpuctl, ())


@pytest.mark.parametrize("path", [(), *EVERY_COMMAND], ids=lambda path: " ".join(path) or "gpuctl")
def test_every_help_text_has_an_example_that_the_command_understands(run, path):
    result = run(*path, "--help")
    assert result.exit_code == 0
    examples = result.output.partition("Example")[2].splitlines()[1:]
    assert examples
    assert all(example.strip().startswith("gpuctl ") for example in examples)


@pytest.mark.parametrize("path", EVERY_COMMAND, ids=" ".join)
def test_the_first_line_of_help_fits_the_overview(run, path):
    overview = run(*path[:-1], "--help").output
    line = next(line for line in overview.splitlines() if line.startswith(f"  {path[-1]} "))
    assert not line.endswith("...")


def test_the_commands_are_those_of_the_design():
    wanted = "validate render plan simulate reconcile demo list get explain schema bench version"
    assert set(COMMANDS) == set(wanted.split())


def test_without_arguments_the_help_is_printed(run):
    result = run()
    assert result.exit_code == 0
    assert "Commands:" in result.output


@pytest.mark.parametrize("path", EVERY_COMMAND, ids=" ".join)
def test_an_unknown_option_is_one_line_with_a_code_and_exit_2(run, path):
    result = run(*path, "--no-such-option")
    assert result.exit_code == 2
    assert result.stderr.startswith("error GPU9002: ")
    assert result.stdout == ""


@pytest.mark.parametrize(
    "args",
    [
        ("frobnicate",),
        ("validate", "no/such/folder"),
        ("plan", "clusters/tr4858"),
        ("simulate",),
        ("simulate", "no-such-file.yaml"),
        ("reconcile", "--repo", ".", "--path", "x"),
        ("reconcile", "--repo", ".", "--path", "x", "--embedded", "--interval", "soon"),
        ("reconcile", "--repo", ".", "--path", "x", "--embedded", "--interval", "1ms"),
        ("list",),
        ("list", "-p", "a", "-A", "--embedded", __file__),
        ("get", "a-1-g"),
        ("explain", "GPU0000"),
        ("explain", "a-1-g"),
        ("schema", "Pod"),
        ("bench", "compile", "--jobs", "0"),
        ("version", "-o", "xml"),
    ],
    ids=" ".join,
)
def test_wrong_use_is_told_and_exits_2(run, args):
    result = run(*args)
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("error GPU9")


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(args=st.lists(st.one_of(st.sampled_from([*COMMANDS, "-o", "json", "--head", "-p"]), st.text(max_size=8)), max_size=4))
def test_garbage_never_ends_in_a_traceback(run, args):
    if not {"demo", "reconcile", "bench", "simulate"} & set(args):
        assert run(*args).exit_code in {0, 1, 2}


def test_version(run):
    assert run("--version").output == f"gpuctl {__version__}\n"
    assert run("version").output.startswith(f"gpuctl {__version__} ")
    facts = json.loads(run("version", "-o", "json").output)
    assert facts["version"] == __version__


def test_version_imports_nothing_that_is_not_needed():
    code = "import sys; sys.argv = ['gpuctl', '--version']; import gpuctl.__main__ as m; m.main(); print(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.startswith(f"gpuctl {__version__}\n")
    assert not {"click", "pydantic", "yaml", "git", "rich"} & set(out.split())


def test_validate_imports_neither_git_nor_the_cluster():
    code = (
        "import sys; sys.argv = ['gpuctl', 'validate', 'clusters/tr4858']\nimport gpuctl.__main__ as m\n"
        "try:\n    m.main()\nexcept SystemExit as e:\n    assert not e.code, e.code\nprint(*sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"git", "sqlite3", "rich", "gpuctl.wiring"} & set(out.split())
