"""`gpuctl demo`: the report's story on the embedded cluster, from Git commits, in seconds."""

from __future__ import annotations

from pathlib import Path

import click

from gpuctl.app.demo import Ending, Opening, Step
from gpuctl.cli.command import command
from gpuctl.cli.failures import EXIT_FAILED, Failure
from gpuctl.cli.output import print_json
from gpuctl.cli.terminal import paint, painted
from gpuctl.model.decision import JobState
from gpuctl.model.units import format_gpus
from gpuctl.simulate.report import document
from gpuctl.views.bars import teams
from gpuctl.views.story import heading, moment_line, sentences

TEXT_WIDTH = 20


@command("demo", examples=("gpuctl demo", "gpuctl demo --keep story", "gpuctl demo -o json"))
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--keep", metavar="DIR", type=click.Path(path_type=Path), help="Keep the Git repository there.")
def demo(output: str, keep: Path | None) -> None:
    """Tell the story of NetApp's report TR-4858, sections 4.8 to 4.10, from Git commits.

    Four teams share two DGX-1 with 16 GPUs. Every commit goes through the reconciler, against the embedded cluster in
    virtual time. Exit code 1 when a section does not end as it does in the report.
    """
    from gpuctl import wiring  # noqa: PLC0415 - only now

    if keep is not None and keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise Failure("GPU9002", f"{keep} is not an empty folder", hint="gpuctl demo --keep NEW_DIR")
    with wiring.demo(keep) as told:
        printer = _Printer()
        for part in told.steps():
            if output == "text":
                printer.show(part)
        report = told.report()
    if output == "json":
        print_json(document(report))
    elif keep is not None:
        click.echo(f"\nThe repository: git -C {keep} log --stat")
    if not report.ok:
        raise click.exceptions.Exit(EXIT_FAILED)


class _Printer:
    """Prints the story part by part: a line a commit, with what it did in words beside or below it."""

    def __init__(self) -> None:
        self.title_due = True

    def show(self, part: Opening | Step | Ending) -> None:
        """Print one part."""
        if isinstance(part, Opening):
            click.echo(f"\n{paint(f'{part.label}  {part.title}', 'strong')}")
            self.title_due = True
        elif isinstance(part, Ending):
            _print_ending(part)
        else:
            self._step(part)

    def _step(self, step: Step) -> None:
        drawn = teams(step.projects)
        if self.title_due:
            click.echo(" " * (TEXT_WIDTH + 2) + painted(heading(step.nodes, drawn)).rstrip())
            self.title_due = False
        said = list(sentences(step.news))
        line = f"{step.text:<{TEXT_WIDTH}}  {painted(moment_line(step.moment, step.nodes, drawn))}"
        if len(said) == 1:
            name, _, rest = said[0].partition(" ")
            line += rest if name in step.text else said[0]
            said.clear()
        click.echo(line.rstrip())
        for sentence in said:
            click.echo(" " * (TEXT_WIDTH + 2) + sentence)


def _print_ending(ending: Ending) -> None:
    """The state that was reached, in one line; what was expected and is not so, below it."""
    checkpoint = ending.checkpoint
    wrong = [outcome for outcome in ending.outcomes if not outcome.ok]
    held = "  ".join(
        f"{row.name} {format_gpus(row.allocated_milli)}/{format_gpus(row.quota_milli)}" for row in checkpoint.projects
    )
    queued = ", ".join(name for row in checkpoint.projects for name in row.pending) or "nobody"
    running = sum(row.state is JobState.RUNNING for row in checkpoint.jobs)
    mark = paint("as in the report", "good") if not wrong else paint("not as in the report", "bad")
    click.echo(f"{ending.label}: {held}  queued: {queued}  running: {running}  {mark}")
    for outcome in wrong:
        click.echo(f"  {outcome.path}: want {outcome.want}, got {outcome.got}")
