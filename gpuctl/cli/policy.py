"""`gpuctl policy`: what policies match and what breaks them; whether they judge their examples rightly."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuctl.cli.command import ExampleGroup, command
from gpuctl.cli.declarations import tell
from gpuctl.cli.failures import EXIT_FAILED, Failure
from gpuctl.cli.output import counted, print_json
from gpuctl.cli.terminal import say, show, show_diagnostics
from gpuctl.diag.diagnostic import has_errors
from gpuctl.diag.wording import all_of

if TYPE_CHECKING:
    from gpuctl.app.policies import PolicyTest

_EXAMPLES = ("gpuctl policy list clusters/tr4858", "gpuctl policy test")


@click.group("policy", cls=ExampleGroup, examples=_EXAMPLES)
def policy() -> None:
    """Look at policies, and test them."""


@command("list", examples=("gpuctl policy list clusters/tr4858", "gpuctl policy list clusters/tr4858 -o json"))
@click.argument("cluster_dir", type=click.Path(exists=True, file_okay=False))
@click.option("-o", "--output", type=click.Choice(["table", "wide", "json"]), default="table", show_default=True)
def list_policies(cluster_dir: str, output: str) -> None:
    """List policies: what they match, and how often they are broken.

    Breaches of a policy about a change are told by `gpuctl plan`; here they are -, in JSON null.
    """
    from gpuctl.adapters.files import read_tree  # noqa: PLC0415 - only now
    from gpuctl.app.policies import count_policies  # noqa: PLC0415
    from gpuctl.views.policies import policy_table  # noqa: PLC0415

    counts, wrong = count_policies(read_tree(cluster_dir))
    tell(wrong)
    if output == "json":
        print_json({"policies": [asdict(each) for each in counts]})
    elif counts:
        show(policy_table((asdict(each) for each in counts), wide=output == "wide"))
    else:
        say("No policies found.", err=True)


@command("test", examples=("gpuctl policy test", "gpuctl policy test policies"))
@click.argument("directory", metavar="[DIR]", type=click.Path(exists=True, file_okay=False), default="policies")
def test(directory: str) -> None:
    """Hold policies against their examples.

    DIR is a folder policies/, or a cluster. Beside a policy NAME are examples/NAME/good-*.yaml, which it allows, and
    bad-*.yaml, which break it; for a rule about a change also good-1.before.yaml.
    Exit code: 0 each verdict is as the example says, 1 it is not.
    """
    from gpuctl.adapters.files import read_tree  # noqa: PLC0415 - only now
    from gpuctl.app.policies import check_examples  # noqa: PLC0415

    tests, wrong = check_examples(read_tree(Path(directory).as_posix()))
    tell(wrong)
    if not tests and not wrong:
        raise Failure("GPU9002", f"there is no policy in {directory}", hint="gpuctl policy test policies")
    for each in tests:
        if each.diagnostics:
            show_diagnostics(each.diagnostics)
            say()
        say(f"{each.name}: {_said(each)}")
    if has_errors(wrong) or any(each.diagnostics for each in tests):
        raise click.exceptions.Exit(EXIT_FAILED)


def _said(tested: PolicyTest) -> str:
    examples = all_of(f"{count} {verdict.value}" for verdict, count in tested.examples) or "no examples"
    if tested.diagnostics:
        return f"{examples}; {counted(len(tested.diagnostics), 'mistake')}"
    return f"{examples}, as expected"


policy.add_command(list_policies)
policy.add_command(test)
