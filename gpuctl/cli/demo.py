"""`gpuctl demo`: the report's story on the embedded cluster, from Git commits, in seconds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from shlex import quote

import click

from gpuctl.app.demo import Ending, Opening, Step
from gpuctl.cli.amounts import DurationType
from gpuctl.cli.command import command
from gpuctl.cli.failures import EXIT_FAILED, Failure
from gpuctl.cli.output import print_json
from gpuctl.cli.storyboard import Storyboard
from gpuctl.cli.terminal import say
from gpuctl.model.decision import JobState
from gpuctl.model.units import format_gpus
from gpuctl.simulate.report import document
from gpuctl.views.styled import Segment

TEXT_WIDTH = 20
NEXT = (
    "gpuctl demo --keep story      # keeps the repository, to look at and to change",
    "gpuctl init gpus --cluster prod --pool name=dgx,nodes=dgx1-[1-2],gpus=8,memory=32Gi",
)
NEXT_THERE = (
    "cd {keep} && git log --oneline",
    "gpuctl plan clusters/tr4858 --base HEAD~1 --head HEAD      # what the last commit did",
)
"""What to try after the story: without the repository, and in the repository that is kept."""


@command("demo", examples=("gpuctl demo", "gpuctl demo --keep story -o json", "gpuctl demo --kubeconfig kwok.yaml"))
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--keep", metavar="DIR", type=click.Path(path_type=Path), help="Keep the Git repository in this folder.")
@click.option(
    "--slow",
    "pause_ms",
    type=DurationType(),
    is_flag=False,
    flag_value="1s",
    default=0,
    help="Wait after each line, for an audience: a second, or as long as this.",
)
@click.option("--kubeconfig", metavar="FILE", help="Play it on this cluster, which must have KWOK and no nodes.")
@click.option("--context", metavar="NAME", help="The kubeconfig's context. Default: its current one.")
def demo(output: str, keep: Path | None, pause_ms: int, kubeconfig: str | None, context: str | None) -> None:
    """Watch four teams share 16 GPUs, in seconds.

    The story of NetApp's report TR-4858, sections 4.8 to 4.10, from Git commits.
    Four teams share two DGX-1 with 16 GPUs. Every commit goes through the reconciler, against the embedded cluster in
    virtual time; or, with --kubeconfig, against a real API server whose two nodes KWOK simulates: then each commit's
    line shows the time until the cluster was at rest.
    Exit code 1 when a section does not end as in the report.
    """
    from gpuctl import wiring  # noqa: PLC0415 - only now

    if keep is not None and keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise Failure("GPU9002", f"{keep} is not an empty folder", hint="gpuctl demo --keep NEW_DIR")
    live = kubeconfig is not None or context is not None
    target = wiring.Target(kubeconfig=kubeconfig, context=context) if live else None
    with wiring.demo(keep, target) as told:
        board = Storyboard(TEXT_WIDTH + (9 if live else 0))
        for part in told.steps():
            if output == "text":
                _show(part, board, timed=live)
                time.sleep(pause_ms / 1000)
        report = told.report()
    if output == "json":
        print_json(document(report))
    elif report.ok:
        say()
        say("next:")
        for line in NEXT if keep is None else NEXT_THERE:
            say(f"  {line.format(keep=quote(str(keep)))}")
    if not report.ok:
        raise click.exceptions.Exit(EXIT_FAILED)


def _show(part: Opening | Step | Ending, board: Storyboard, *, timed: bool) -> None:
    if isinstance(part, Opening):
        say()
        board.open(f"{part.label}  {part.title}")
    elif isinstance(part, Step):
        took = f"{part.took_ms / 1000:5.2f} s  " if timed else ""
        board.show(took + part.text, part.moment, part.news)
    else:
        _print_ending(part)


def _print_ending(ending: Ending) -> None:
    """The state at the end of a section, in one line, and failed expectations below it."""
    checkpoint = ending.checkpoint
    wrong = [outcome for outcome in ending.outcomes if not outcome.ok]
    running = sum(row.state is JobState.RUNNING for row in checkpoint.jobs)
    held = sum(row.allocated_milli for row in checkpoint.projects)
    total = held + checkpoint.free_milli
    queued = [name for row in checkpoint.projects for name in row.pending]
    mark = Segment("as in the report", "good") if not wrong else Segment("not as in the report", "bad")
    say(
        mark,
        f": {running} jobs run on {format_gpus(held)} of {format_gpus(total)} GPUs; {_waits(queued)}",
    )
    for outcome in wrong:
        say(f"  {outcome.path}: want {outcome.want}, got {outcome.got}")


def _waits(queued: Sequence[str]) -> str:
    if not queued:
        return "no job waits"
    return f"{', '.join(queued)} {'waits' if len(queued) == 1 else 'wait'}"
