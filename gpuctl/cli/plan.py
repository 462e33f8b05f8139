"""`gpuctl plan`: what merging head into base would change."""

from __future__ import annotations

from pathlib import Path

import click

from gpuctl.app.ports import WorldFault
from gpuctl.cli.command import command
from gpuctl.cli.declarations import tell
from gpuctl.cli.failures import EXIT_FAILED, Failure
from gpuctl.cli.output import print_json, tally
from gpuctl.cli.terminal import painted
from gpuctl.model.declared import Declared
from gpuctl.model.source import SourceTree

EXIT_CHANGES = 2
WORKING_TREE = "working tree"


@command(
    "plan",
    examples=(
        "gpuctl plan clusters/tr4858 --base origin/main",
        "gpuctl plan clusters/tr4858 --base origin/main --head HEAD -o markdown > comment.md",
    ),
)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--base", metavar="REV", required=True, help="The revision to compare with: a branch, tag or commit.")
@click.option("--head", metavar="REV", help="The revision that changes things. Default: the working tree.")
@click.option("-o", "--output", type=click.Choice(["text", "json", "markdown"]), default="text", show_default=True)
def plan(folder: Path, base: str, head: str | None, output: str) -> None:
    """Show what changes between two revisions.

    Objects are compared as rendered, with no job started; quotas and other settings as declared.

    Exit code: 0 no change, 2 changes, 1 error.
    """
    from gpuctl import wiring  # noqa: PLC0415 - only now
    from gpuctl.app.planning import plan_report  # noqa: PLC0415
    from gpuctl.views import plan_report as forms  # noqa: PLC0415

    try:
        trees = wiring.plan_trees(folder, base, head)
    except WorldFault as fault:
        raise Failure(fault.code, str(fault), exit_code=EXIT_FAILED) from fault
    names = (base, head or WORKING_TREE)
    before, after = (_compiled(tree, name) for tree, name in zip(trees, names, strict=True))
    if before is None and after is None:
        raise Failure("GPU8003", f"{folder} is in neither {names[0]} nor the {names[1]}", exit_code=EXIT_FAILED)
    report = plan_report(before, after, *names)
    if output == "json":
        print_json(forms.document(report))
    elif output == "markdown":
        click.echo("\n".join(forms.markdown(report)))
    else:
        for line in forms.text(report):
            click.echo(painted(line))
    if not report.empty:
        raise click.exceptions.Exit(EXIT_CHANGES)


def _compiled(tree: SourceTree | None, name: str) -> Declared | None:
    """What a tree declares; None when the folder isn't there. Mistakes end the command with exit 1."""
    from gpuctl.compile import compile_tree  # noqa: PLC0415

    if tree is None:
        return None
    compiled = compile_tree(tree)
    if compiled.declared is None:
        tell(compiled.diagnostics)
        click.echo(f"{name}: {tally(compiled.diagnostics)}; there is nothing to compare", err=True)
        raise click.exceptions.Exit(EXIT_FAILED)
    return compiled.declared
