"""The root command. Commands are imported when they are used; every error becomes one line with a code."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from gpuctl import __version__
from gpuctl.app.ports import WorldFault
from gpuctl.cli.command import ExampleCommand, ExampleGroup
from gpuctl.cli.failures import EXIT_USAGE, Failure, internal_failure, usage_failure, world_failure
from gpuctl.cli.instead import INSTEAD, instead_of, without_kind
from gpuctl.cli.nearest import nearest
from gpuctl.cli.terminal import show

COMMANDS = {
    "init": "gpuctl.cli.init:init",
    "import": "gpuctl.cli.importing:import_",
    "validate": "gpuctl.cli.validate:validate",
    "render": "gpuctl.cli.render:render",
    "plan": "gpuctl.cli.plan:plan",
    "comment": "gpuctl.cli.comment:comment",
    "simulate": "gpuctl.cli.simulate:simulate",
    "reconcile": "gpuctl.cli.reconcile:reconcile",
    "demo": "gpuctl.cli.demo:demo",
    "diff": "gpuctl.cli.diff:diff",
    "fmt": "gpuctl.cli.fmt:fmt",
    "submit": "gpuctl.cli.submit:submit",
    "delete": "gpuctl.cli.change_job:delete",
    "suspend": "gpuctl.cli.change_job:suspend",
    "resume": "gpuctl.cli.change_job:resume",
    "freeze": "gpuctl.cli.freeze:freeze",
    "unfreeze": "gpuctl.cli.freeze:unfreeze",
    "sync": "gpuctl.cli.freeze:sync",
    "status": "gpuctl.cli.status:status",
    "list": "gpuctl.cli.list_jobs:list_jobs",
    "watch": "gpuctl.cli.watch:watch",
    "get": "gpuctl.cli.get:get",
    "explain": "gpuctl.cli.explain:explain",
    "history": "gpuctl.cli.history:history",
    "replay": "gpuctl.cli.replay:replay",
    "logs": "gpuctl.cli.logs:logs",
    "exec": "gpuctl.cli.execute:exec_",
    "bash": "gpuctl.cli.bash:bash",
    "port-forward": "gpuctl.cli.port_forward:port_forward",
    "project": "gpuctl.cli.project:project",
    "policy": "gpuctl.cli.policy:policy",
    "top": "gpuctl.cli.top:top",
    "dashboard": "gpuctl.cli.dashboard:dashboard",
    "config": "gpuctl.cli.config:config",
    "install": "gpuctl.cli.install:install",
    "schema": "gpuctl.cli.schema:schema",
    "bench": "gpuctl.cli.bench:bench",
    "completion": "gpuctl.cli.completion:completion",
    "man": "gpuctl.cli.man:man",
    "version": "gpuctl.cli.version:version",
}
"""Every command and its module, in the order of the help text."""

EXAMPLES = ("gpuctl demo", "gpuctl validate clusters/tr4858", "gpuctl plan clusters/tr4858 --base origin/main")


_WORDS = "gpuctl.words"
"""What stands behind `gpuctl`, in the context of the command line."""


class RootGroup(ExampleGroup):
    """Loads commands by name from COMMANDS; the one place where exceptions become messages and exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The names, in the order of COMMANDS."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import one command; None for an unknown name."""
        if cmd_name not in COMMANDS:
            return None
        module, attribute = COMMANDS[cmd_name].split(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse, with mistakes as failures."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            raise usage_failure(error) from error

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
            return super().invoke(ctx)
        except click.exceptions.NoArgsIsHelpError as error:  # `gpuctl policy`, say
            show(f"{error.message}\n")
            raise click.exceptions.Exit(0) from None
        except click.UsageError as error:
            raise usage_failure(error, without_kind(ctx.meta[_WORDS])) from error
        except (click.ClickException, click.Abort, click.exceptions.Exit, BrokenPipeError):
            raise
        except WorldFault as fault:
            raise world_failure(fault, without_kind(ctx.meta[_WORDS])) from fault
        except Exception as error:
            raise internal_failure(error) from error


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
