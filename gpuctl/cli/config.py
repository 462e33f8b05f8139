"""`gpuctl config`: defaults of the command line."""

from __future__ import annotations

import click

from gpuctl.cli.command import ExampleGroup, command
from gpuctl.cli.declared_names import project_names
from gpuctl.cli.failures import Failure
from gpuctl.cli.terminal import say


@click.group("config", cls=ExampleGroup, examples=("gpuctl config project team-a",))
def config() -> None:
    """Look at and set defaults of the command line."""


@command(
    "project",
    examples=("gpuctl config project team-a", "gpuctl config project", "gpuctl config project --unset"),
)
@click.argument("name", metavar="[PROJECT]", required=False, shell_complete=project_names)
@click.option("--unset", is_flag=True, help="Have no default project.")
def project(name: str | None, *, unset: bool) -> None:
    """Print or set the default project.

    It is the project of list, get, explain, logs, exec, bash, submit, delete, suspend and resume where neither -p nor
    PROJECT/JOB names one; `list -A` shows all. It is kept in gpuctl/config.yaml in XDG_CONFIG_HOME or ~/.config.
    """
    from gpuctl.adapters.settings import read_settings, write_project  # noqa: PLC0415 - only now
    from gpuctl.compile.amounts import label  # noqa: PLC0415

    if unset and name is not None:
        raise Failure("GPU9002", "a project and --unset exclude each other", hint="gpuctl config project --help")
    if unset:
        say(f"No default project: {write_project(None)}")
        return
    if name is None:
        now = read_settings().project
        if now is None:
            say("No default project is set.", err=True)
        else:
            say(now)
        return
    try:
        label(name)
    except ValueError:
        hint = "lower-case letters, digits and - inside; gpuctl project list shows all"
        raise Failure("GPU9002", f"{name} is no name of a project", hint=hint) from None
    say(f"The default project is {name}: {write_project(name)}")


config.add_command(project)
