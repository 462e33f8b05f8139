"""How a command is declared, with examples, which its help prints last; and the clock that it tells the time by."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.failures import EXIT_USAGE

if TYPE_CHECKING:
    from gpuctl.app.ports import Clock

Function = Callable[..., Any]

_HELP = {"help_option_names": ["-h", "--help"]}
"""A setting of every command: click caches a command's help option, with the settings of the first command line."""


class ExampleCommand(click.Command):
    """A command whose help ends with examples. `failed`: its exit code if it can't do its work."""

    def __init__(self, *args: Any, examples: tuple[str, ...], failed: int = EXIT_USAGE, **kwargs: Any) -> None:
        kwargs["context_settings"] = _HELP
        super().__init__(*args, **kwargs)
        self.examples = examples
        self.failed = failed

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        """Write the examples."""
        write_examples(formatter, self.examples)


class ExampleGroup(click.Group):
    """A group of commands whose help ends with examples. `failed`: the exit code of all of them, as for one command."""

    def __init__(self, *args: Any, examples: tuple[str, ...], failed: int = EXIT_USAGE, **kwargs: Any) -> None:
        kwargs["context_settings"] = {**_HELP, **kwargs.get("context_settings", {})}
        super().__init__(*args, **kwargs)
        self.examples = examples
        self.failed = failed

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        """Write the examples."""
        write_examples(formatter, self.examples)


def write_examples(formatter: click.HelpFormatter, examples: tuple[str, ...]) -> None:
    """The last section of a help text, unwrapped, so that a line can be copied."""
    with formatter.section("Examples" if len(examples) > 1 else "Example"):
        for example in examples:
            formatter.write(f"{' ' * formatter.current_indent}{example}\n")


def command(
    name: str, *, examples: tuple[str, ...], failed: int = EXIT_USAGE
) -> Callable[[Function], click.Command]:  # fmt: skip
    """Declare a command."""
    return click.command(name, cls=ExampleCommand, examples=examples, failed=failed)


def context_clock() -> Clock:
    """The clock of the command in this thread: the machine's, or the object that gpuctl was called with."""
    from gpuctl import wiring  # noqa: PLC0415 - only now

    given: Clock | None = click.get_current_context().obj
    return given or wiring.clock()
