"""The root command. Commands are imported when they are used; every error becomes one line with a code."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from gpuctl import __version__
from gpuctl.app.ports import WorldFault
from gpuctl.cli.command import ExampleCommand, ExampleGroup
from gpuctl.cli.failures import EXIT_INTERRUPTED, EXIT_USAGE, Failure, unforeseen_failure, usage_failure, world_failure
from gpuctl.cli.instead import INSTEAD, instead_of, without_kind
from gpuctl.cli.nearest import nearest
from gpuctl.cli.terminal import show


class Listed(NamedTuple):
    """A command's place, `module:attribute` in this folder, and its line in the help text."""

    place: str
    line: str

    @property
    def module(self) -> str:
        """The module to import for running it."""
        return f"gpuctl.cli.{self.place.partition(':')[0]}"

    @property
    def attribute(self) -> str:
        """Its name in that module."""
        return self.place.partition(":")[2]


COMMANDS = {
    "init": Listed("init:init", "Begin a repository for a cluster."),
    "import": Listed("importing:import_", "Declare the projects and jobs of a running cluster."),
    "validate": Listed("validate:validate", "Check declarations, and report every mistake."),
    "render": Listed("render:render", "Print the Kubernetes objects of declarations."),
    "plan": Listed("plan:plan", "Show what merging a change does to jobs, objects and quotas."),
    "comment": Listed("comment:comment", "Write a plan as the comment of a pull or merge request."),
    "simulate": Listed("simulate:simulate", "Run scenario files, or a trace, in virtual time."),
    "reconcile": Listed("reconcile:reconcile", "Follow a branch and make a cluster match it."),
    "demo": Listed("demo:demo", "Watch four teams share 16 GPUs, in seconds."),
    "diff": Listed("diff:diff", "Show where a cluster differs from its declarations."),
    "fmt": Listed("fmt:fmt", "Format declarations: YAML files, or all in a folder."),
    "submit": Listed("submit:submit", "Declare a job: write its YAML into the working tree."),
    "delete": Listed("change_job:delete", "Remove jobs' declarations from their files."),
    "suspend": Listed("change_job:suspend", "Suspend jobs: set `suspend: true` in their declarations."),
    "resume": Listed("change_job:resume", "Resume jobs: take `suspend` out of their declarations."),
    "freeze": Listed("freeze:freeze", "Have nothing written of a project, or of the whole cluster."),
    "unfreeze": Listed("freeze:unfreeze", "End what `gpuctl freeze` began."),
    "sync": Listed("freeze:sync", "Have the controller read Git now."),
    "status": Listed("status:status", "Show the commit applied, and what is held back or wrong."),
    "list": Listed("list_jobs:list_jobs", "List jobs, the newest start first."),
    "watch": Listed("watch:watch", "Follow a cluster on a live screen."),
    "get": Listed("get:get", "Show one job in full, or a sweep with all its jobs."),
    "explain": Listed("explain:explain", "Explain a code, or why a job waits or runs."),
    "history": Listed("history:history", "Show what held GPUs, when, why, by which commit."),
    "replay": Listed("replay:replay", "Decide a past cycle again, and compare."),
    "logs": Listed("logs:logs", "Print the log of a job's current run."),
    "exec": Listed("execute:exec_", "Run a command in a running job's container."),
    "bash": Listed("bash:bash", "Open a shell in a running job's container."),
    "port-forward": Listed("port_forward:port_forward", "Reach ports of a running job's container on this machine."),
    "project": Listed("project:project", "Look at projects, and edit their declarations."),
    "policy": Listed("policy:policy", "Look at policies, and test them."),
    "top": Listed("top:top", "Show what nodes have allocated, and what GPUs do."),
    "dashboard": Listed("dashboard:dashboard", "Serve pages for a browser that show a cluster."),
    "config": Listed("config:config", "Look at and set defaults of the command line."),
    "install": Listed("install:install", "Print the manifests that run gpuctl in a cluster."),
    "schema": Listed("schema:schema", "Print the JSON Schema of declarations, or of an output."),
    "bench": Listed("bench:bench", "Measure gpuctl on made-up input."),
    "completion": Listed("completion:completion", "Print a shell's completion of gpuctl's command lines."),
    "man": Listed("man:man", "Write the pages of the manual, one for each command."),
    "version": Listed("version:version", "Print versions: gpuctl, Python, the machine."),
}
"""Every command, in the order of the help text. With the lines here, `gpuctl --help` and a shell that completes a name
import none of them: 0.2 s in place of 1.2 s."""

EXAMPLES = ("gpuctl demo", "gpuctl validate clusters/tr4858", "gpuctl plan clusters/tr4858 --base origin/main")


_WORDS = "gpuctl.words"
"""The key of the words behind `gpuctl`, in the context of the command line."""


class RootGroup(ExampleGroup):
    """Loads commands by name from COMMANDS; the one place where exceptions become messages and exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The names, in the order of COMMANDS."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import one command; None for an unknown name."""
        if cmd_name not in COMMANDS:
            return None
        listed = COMMANDS[cmd_name]
        command: click.Command = getattr(import_module(listed.module), listed.attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        """Write the commands' lines."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, listed.line) for name, listed in COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The names and options that begin with the typed text."""
        named = {name: listed for name, listed in COMMANDS.items() if name.startswith(incomplete)}
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [*(CompletionItem(name, help=listed.line) for name, listed in named.items()), *options]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse, with mistakes as failures; `--help` is printed here."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            raise usage_failure(error) from error
        except BrokenPipeError:
            raise
        except OSError as error:
            raise unforeseen_failure(error) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run the chosen command. World faults keep their code; any other exception is GPU9001, exit 2."""
        try:
            return self._invoke(ctx)
        except Failure as failure:
            command = self.get_command(ctx, ctx.invoked_subcommand or "")
            if isinstance(command, ExampleCommand | ExampleGroup) and failure.exit_code == EXIT_USAGE:
                failure.exit_code = command.failed  # type: ignore[misc] # click reads it off the instance
            raise

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:  # fmt: skip
        """Find the command; an unknown name is reported with the nearest known one."""
        ctx.meta[_WORDS] = args
        instead = instead_of(args[:2]) if args and not args[0].startswith("-") else ""
        if instead:
            words = " ".join(args[:2] if tuple(args[:2]) in INSTEAD else args[:1])
            raise Failure("GPU9002", f"gpuctl has no command {words}", hint=instead)
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            hint = nearest(args[0], COMMANDS) or "gpuctl --help lists them"
            raise Failure("GPU9002", f"there is no command {args[0]}", hint=hint)
        return super().resolve_command(ctx, args)

    def _invoke(self, ctx: click.Context) -> Any:
        """Run the command, with its errors as failures."""
        try:
            return self._invoke_or_help(ctx)
        except click.UsageError as error:
            raise usage_failure(error, without_kind(ctx.meta[_WORDS])) from error
        except (click.ClickException, click.Abort, click.exceptions.Exit, BrokenPipeError):
            raise
        except KeyboardInterrupt:
            raise click.exceptions.Exit(EXIT_INTERRUPTED) from None
        except WorldFault as fault:
            raise world_failure(fault, without_kind(ctx.meta[_WORDS])) from fault
        except Exception as error:
            raise unforeseen_failure(error) from error

    def _invoke_or_help(self, ctx: click.Context) -> Any:
        """Run the command; print the help of a group that is given without one of its commands, such as `gpuctl
        policy`."""
        try:
            return super().invoke(ctx)
        except click.exceptions.NoArgsIsHelpError as error:
            show(f"{error.message}\n")
            raise click.exceptions.Exit(0) from None


@click.group(
    cls=RootGroup,
    examples=EXAMPLES,
    invoke_without_command=True,
    context_settings={"max_content_width": 100},
)
@click.version_option(__version__, "-V", "--version", message="gpuctl %(version)s")
@click.pass_context
def gpuctl(ctx: click.Context) -> None:
    """GPU projects, quotas and jobs declared in Git, scheduled fairly and reconciled into Kubernetes."""
    if ctx.invoked_subcommand is None:
        show(f"{ctx.get_help()}\n")
