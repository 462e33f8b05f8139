"""`gpuctl status`: how the reconciler is, at a glance and for machines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from gpuctl.app.ports import ClusterUnavailable, WorldFault
from gpuctl.cli.amounts import DurationType
from gpuctl.cli.clusters import Where, cluster_options
from gpuctl.cli.command import command, context_clock
from gpuctl.cli.failures import EXIT_FAILED, Failure, world_failure
from gpuctl.cli.terminal import say, show

if TYPE_CHECKING:
    from gpuctl.app.ports import Cluster, Reference
    from gpuctl.app.status import Published

LOOK_AGAIN_MS = 1_000
_HASH = re.compile(r"[0-9a-f]{4,64}")
_PASSING = frozenset({"GPU7080"})
"""Problems that waiting may end."""


def _hash(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """A commit's hash from the command line. Names of branches are refused: the cluster knows only hashes."""
    del context, parameter
    if value is not None and not _HASH.fullmatch(value.lower()):
        raise click.BadParameter(f"{value} is no commit's hash; git rev-parse {value} says it")
    return value


@command(
    "status",
    examples=(
        "gpuctl status",
        "gpuctl status --wait --timeout 5m --commit $(git rev-parse HEAD)",
        "gpuctl status -o json",
    ),
)
@click.option("--wait", "waits", is_flag=True, help="Wait until it is ready.")
@click.option("--commit", metavar="REV", callback=_hash, help="Ready only with this commit, by its full or short hash.")
@click.option("--timeout", type=DurationType(), default="10m", show_default=True, help="The longest wait.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@cluster_options
def status(commit: str | None, timeout: int, output: str, where: Where, *, waits: bool) -> None:
    """Show the commit applied, and what is held back or wrong.

    This is what the leader publishes in ConfigMap gpuctl-status of namespace gpuctl-system. Exit 0: the newest commit
    that it read is applied whole, and nothing stands wrong. Exit 1: not so, or nothing is published.
    `gpuctl schema Status` prints the JSON Schema.
    """
    from gpuctl import wiring  # noqa: PLC0415 - only now
    from gpuctl.views.status import document, text_lines  # noqa: PLC0415

    clock = wiring.passing_clock()
    until_ms = clock.now_ms() + (timeout if waits else 0)
    while True:
        found = _read(where, patient=clock.now_ms() < until_ms)
        is_ready = found is not None and found.status.ready and _is_of(found, commit)
        if is_ready or clock.now_ms() >= until_ms:
            break
        clock.advance_to(min(clock.now_ms() + LOOK_AGAIN_MS, until_ms))
    assert found is not None  # noqa: S101 - without patience there is a status or a failure
    if output == "json":
        show(document(found.status).decode() + "\n")
    else:
        show("".join(text_lines(found.status, found.now_ms, found.renewed_ms)))
    if commit and not _is_of(found, commit):
        say(f"note: commit {commit} is not the one that is applied", err=True)
    raise click.exceptions.Exit(0 if is_ready else EXIT_FAILED)


def _is_of(found: Published, commit: str | None) -> bool:
    applied = found.status.commit.applied
    return commit is None or (applied is not None and applied.startswith(commit.lower()))


def _read(where: Where, *, patient: bool) -> Published | None:
    """The status; with `patient`, None if it is worth asking again."""
    from gpuctl.app.status import read_status  # noqa: PLC0415

    try:
        with _opened(where) as (cluster, reference):
            return read_status(cluster, context_clock(), reference)
    except (WorldFault, Failure) as fault:
        if patient and (fault.code in _PASSING or isinstance(fault, ClusterUnavailable)):
            return None
        failure = fault if isinstance(fault, Failure) else world_failure(fault)
        failure.exit_code = EXIT_FAILED  # type: ignore[misc] # click reads it off the instance
        raise failure from fault


@contextmanager
def _opened(where: Where) -> Iterator[tuple[Cluster, Reference]]:
    from gpuctl import wiring  # noqa: PLC0415 - only now
    from gpuctl.app.timekeeping import NO_REFERENCE  # noqa: PLC0415

    if where.embedded is not None:
        with where.reading() as cluster:
            yield cluster, NO_REFERENCE
    else:
        with wiring.reading_status(where.kubeconfig, where.context) as found:
            yield found
