"""`gpuctl freeze`, `unfreeze` and `sync`: what an incident needs of a running controller, without a commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.command import command, context_clock
from gpuctl.cli.declared_names import project_names
from gpuctl.cli.failures import Failure
from gpuctl.cli.terminal import say
from gpuctl.diag.wording import all_of
from gpuctl.model.ids import ProjectName

if TYPE_CHECKING:
    from gpuctl.app.control import ControlObject, Part


def _cluster(function: Callable[..., Any]) -> Callable[..., Any]:
    kubeconfig = click.option("--kubeconfig", metavar="FILE", help="The cluster's kubeconfig. Default: as kubectl.")
    context = click.option("--context", metavar="NAME", help="The kubeconfig's context. Default: its current one.")
    return kubeconfig(context(function))


def _part(function: Callable[..., Any]) -> Callable[..., Any]:
    kind = click.argument("kind", type=click.Choice(["project", "cluster"]))
    name = click.argument("name", required=False, shell_complete=project_names)
    return kind(name(function))


@command(
    "freeze",
    examples=(
        "gpuctl freeze project team-a --reason 'storage is being moved' --context prod",
        "gpuctl freeze cluster --reason 'incident 4711'",
    ),
)
@_part
@click.option("--reason", required=True, help="Why, in up to 200 characters; shown in status and in a metric.")
@_cluster
def freeze(kind: str, name: str | None, reason: str, kubeconfig: str | None, context: str | None) -> None:
    """Have nothing written of a project, or of the whole cluster.

    What runs goes on, what waits waits, and no commit is applied to that part, until `gpuctl unfreeze`. It stands in
    ConfigMap gpuctl-control of namespace gpuctl-system, with your name as the API server has it.
    Role gpuctl-freezer there may write it. The embedded cluster has no controller beside it: there, end `gpuctl
    reconcile --embedded` instead.
    """
    from gpuctl.app.control import LONGEST_REASON, freeze, projects  # noqa: PLC0415

    part = _named(kind, name)
    if not reason.strip() or len(reason) > LONGEST_REASON:
        raise Failure("GPU9002", f"--reason has 1 to {LONGEST_REASON} characters", hint="gpuctl freeze --help")
    with _control(kubeconfig, context) as control:
        declared = projects(control)
        if part.project is not None and declared is not None and part.project not in declared:
            raise _undeclared(part, declared)
        made = freeze(control, part, reason.strip(), context_clock().now_ms())
    say(f"{part} is frozen by {made.by or 'a person without a name'}: {made.reason}")
    if part.project is not None and declared is None:
        say(f"note: it can't be known whether {part} is declared: not all projects can be read", err=True)
    say("gpuctl status shows it; gpuctl unfreeze ends it.", err=True)


@command(
    "unfreeze",
    examples=("gpuctl unfreeze project team-a --context prod", "gpuctl unfreeze cluster"),
)
@_part
@_cluster
def unfreeze(kind: str, name: str | None, kubeconfig: str | None, context: str | None) -> None:
    """End what `gpuctl freeze` began.

    Where nothing is frozen, nothing is written.
    """
    from gpuctl.app.control import unfreeze  # noqa: PLC0415

    part = _named(kind, name)
    with _control(kubeconfig, context) as control:
        ended = unfreeze(control, part)
    if ended is None:
        raise Failure("GPU9003", f"{part} is not frozen", hint="gpuctl status shows what is")
    say(f"{part} is no longer frozen; {ended.by or 'a person'} froze it: {ended.reason}")


@command("sync", examples=("gpuctl sync --context prod", "gpuctl sync && gpuctl status --wait"))
@_cluster
def sync(kubeconfig: str | None, context: str | None) -> None:
    """Have the controller read Git now.

    It does so every interval anyway. The right to it is the one of `gpuctl freeze`. On the embedded cluster, `gpuctl
    reconcile --embedded --once` reads Git.
    """
    from gpuctl.app.control import sync  # noqa: PLC0415

    with _control(kubeconfig, context) as control:
        sync(control, context_clock().now_ms())
    say("asked; gpuctl status --wait --commit REV waits for a commit", err=True)


@contextmanager
def _control(kubeconfig: str | None, context: str | None) -> Iterator[ControlObject]:
    """The object by which people control gpuctl. If gpuctl is not installed, its namespace is missing."""
    from gpuctl import wiring  # noqa: PLC0415 - only now
    from gpuctl.app.ports import NotFound  # noqa: PLC0415

    try:
        with wiring.control(kubeconfig, context) as control:
            yield control
    except NotFound as fault:
        said = "gpuctl is not installed in this cluster: it has no namespace gpuctl-system"
        hint = "--context names another cluster; gpuctl install prints what runs it"
        raise Failure("GPU9003", said, hint=hint) from fault


def _undeclared(part: Part, declared: tuple[ProjectName, ...]) -> Failure:
    known = f"declared are: {all_of(declared)}" if declared else "no project is declared"
    return Failure("GPU9003", f"{part} is not declared in this cluster", hint=known)


def _named(kind: str, name: str | None) -> Part:
    from gpuctl.app.control import Part  # noqa: PLC0415 - only now

    if (kind == "project") != (name is not None):
        said = "a project has a name" if kind == "project" else "there is one cluster: leave out its name"
        raise Failure("GPU9002", said, hint="gpuctl freeze --help")
    return Part(project=None if name is None else ProjectName(name))
