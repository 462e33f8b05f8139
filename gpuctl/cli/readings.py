"""A cluster that is read again and again, for commands that follow it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from gpuctl.cli.clusters import Where, told_live, with_other_engine
from gpuctl.cli.command import context_clock

if TYPE_CHECKING:
    from gpuctl.app.inspect import Live
    from gpuctl.app.ports import Cluster

EVERY_MS = 2_000
SHARE = 10
"""A reading takes at most one part in so many of the time: a large cluster is read less often."""


def readings(where: Where, project: str | None = None) -> Iterator[tuple[Live, int]]:
    """The cluster now, and how long to wait for the next reading; without end. The first one tells what is left out.

    `project`: only what belongs to it is wanted. Raises WorldFault, Failure.
    """
    from gpuctl import wiring  # noqa: PLC0415 - only now

    clock = wiring.passing_clock()
    began_ms = clock.now_ms()
    with where.looking(project) as (cluster, sessions):
        first = with_other_engine(cluster, told_live(cluster, sessions))
    yield first, _wait_ms(clock.now_ms() - began_ms)
    if where.embedded is not None:  # a copy is opened for each reading: a controller may write the file meanwhile
        while True:
            with where.looking(project) as (cluster, _):
                yield _read(cluster)
    with where.looking(project) as (cluster, _):
        while True:
            yield _read(cluster)


def _read(cluster: Cluster) -> tuple[Live, int]:
    from gpuctl.app.inspect import live, measured  # noqa: PLC0415
    from gpuctl.app.kueue_words import with_words  # noqa: PLC0415
    from gpuctl.app.ports import Forbidden  # noqa: PLC0415

    began_ms = context_clock().now_ms()
    found = live(cluster)
    with suppress(Forbidden):  # the first reading has told that
        found = with_words(cluster, found)
    now_ms = context_clock().now_ms()
    return measured(found, now_ms), _wait_ms(now_ms - began_ms)


def _wait_ms(took_ms: int) -> int:
    return max(EVERY_MS, SHARE * took_ms)
