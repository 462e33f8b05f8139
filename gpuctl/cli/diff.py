"""`gpuctl diff`: the differences between a cluster and its declarations."""

from __future__ import annotations

import click

from gpuctl.cli.clusters import Where, cluster_options, tell_other_cluster
from gpuctl.cli.command import command, context_clock
from gpuctl.cli.declarations import compiled_folder, tell
from gpuctl.cli.failures import EXIT_USAGE
from gpuctl.cli.output import print_json
from gpuctl.cli.terminal import say

EXIT_DRIFT = 1


@command("diff", examples=("gpuctl diff clusters/tr4858", "gpuctl diff clusters/tr4858 --context prod -o json"))
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False))
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@cluster_options
def diff(folder: str, output: str, where: Where) -> None:
    """Show where a cluster differs from its declarations.

    The output is what the next cycle of `gpuctl reconcile` would write if DIR were the newest commit. Only fields that
    gpuctl owns are compared; nothing is written. Where gpuctl reconciles with --target, as its ledgers tell, they are
    compared as objects of that engine.

    Exit code: 0 no drift, 1 drift, 2 error, or no drift where not all could be read.
    """
    from gpuctl import wiring  # noqa: PLC0415 - only now
    from gpuctl.app.drift import drift_report  # noqa: PLC0415
    from gpuctl.views import drift as forms  # noqa: PLC0415

    declared = compiled_folder(folder, exit_code=EXIT_USAGE)
    if where.embedded is None and (lacks := wiring.lacking(where.kubeconfig, where.context)) is not None:
        say(f"note: {': '.join(lacks)}", err=True)
    with where.reading() as cluster:
        tell_other_cluster(cluster, declared)
        report = drift_report(declared, cluster, context_clock())
    if output == "json":
        print_json(forms.document(report))
    else:
        for line in forms.text(report):
            say(*line)
        tell(report.refusals)
    for why in report.unread:
        say(f"note: not compared: {why}", err=True)
    if not report.empty:
        raise click.exceptions.Exit(EXIT_DRIFT)
    if report.unread:
        raise click.exceptions.Exit(EXIT_USAGE)
