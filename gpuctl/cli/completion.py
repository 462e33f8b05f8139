"""`gpuctl completion`: what a shell reads to complete command lines of gpuctl."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from gpuctl.cli.command import command
from gpuctl.cli.terminal import show

_VARIABLE = "_GPUCTL_COMPLETE"


@command(
    "completion",
    examples=(
        "gpuctl completion bash > ~/.local/share/bash-completion/completions/gpuctl",
        'gpuctl completion zsh > "${fpath[1]}/_gpuctl"',
        "gpuctl completion fish > ~/.config/fish/completions/gpuctl.fish",
    ),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a shell's completion of gpuctl's command lines.

    The script asks gpuctl for commands, options and their values: it needs no change for a newer gpuctl. Names of jobs
    and projects are those that the repository of the current folder declares. Bash needs bash-completion, or `source
    <(gpuctl completion bash)`; with `kubectl gpuctl` nothing is completed.
    """
    made = get_completion_class(shell)
    assert made is not None  # noqa: S101 - click has these three
    script = made(ctx.find_root().command, {}, "gpuctl", _VARIABLE)
    show(script.source_template % script.source_vars())
