"""`gpuctl man`: the pages of the manual, of what `--help` prints."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuctl import __version__
from gpuctl.cli.command import ExampleCommand, ExampleGroup, command
from gpuctl.cli.failures import Failure
from gpuctl.cli.output import counted
from gpuctl.cli.terminal import say

if TYPE_CHECKING:
    from gpuctl.views.manual import ManualPage


@command("man", examples=("gpuctl man ~/.local/share/man/man1", "gpuctl man man1"))
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.pass_context
def man(ctx: click.Context, folder: Path) -> None:
    """Write the pages of the manual, one for each command.

    They say what --help says. Files of the same names are replaced.
    """
    from gpuctl.views.manual import manual_page  # noqa: PLC0415 - only now

    pages = list(manual(ctx.find_root().command, "gpuctl", None))
    for page in pages:
        file = folder / f"{page.name}.1"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file.write_text(manual_page(page, __version__), encoding="utf-8")
        except OSError as error:
            raise Failure("GPU9004", f"{file} can't be written: {error.strerror}") from error
    say(f"{counted(len(pages), 'page')} in {folder}")


def manual(shown: click.Command, words: str, above: click.Context | None) -> Iterator[ManualPage]:
    """The page of a command, then those of the commands below it."""
    from gpuctl.views.manual import ManualPage  # noqa: PLC0415 - only now

    ctx = click.Context(shown, info_name=words.rpartition(" ")[2], parent=above, **shown.context_settings)
    below = list(_below(shown, ctx))
    summary, *paragraphs = inspect.cleandoc(shown.help or "").split("\n\n")
    records = [record for each in shown.get_params(ctx) if (record := each.get_help_record(ctx))]
    examples = shown.examples if isinstance(shown, ExampleCommand | ExampleGroup) else ()
    yield ManualPage(
        words=words,
        synopsis=" ".join(shown.collect_usage_pieces(ctx)),
        summary=summary.removesuffix("."),
        paragraphs=paragraphs,
        options=records,
        below=[(name, each.get_short_help_str(200)) for name, each in below],
        examples=examples,
        see=[f"{words} {name}".replace(" ", "-") for name, _ in below] or ["gpuctl"],
    )
    for name, each in below:
        yield from manual(each, f"{words} {name}", ctx)


def _below(shown: click.Command, ctx: click.Context) -> Iterator[tuple[str, click.Command]]:
    if isinstance(shown, click.Group):
        for name in shown.list_commands(ctx):
            each = shown.get_command(ctx, name)
            if each is not None:
                yield name, each
