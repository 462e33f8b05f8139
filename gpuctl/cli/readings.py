"""A cluster that is read again and again, for commands that follow it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, nullcontext, suppress
from typing import TYPE_CHECKING, NamedTuple

from gpuctl.app.ports import Forbidden, WorldFault
from gpuctl.cli.clusters import Where, told_live, with_other_engine
from gpuctl.cli.command import context_clock
from gpuctl.cli.failures import Failure

if TYPE_CHECKING:
    from gpuctl.app.inspect import Live
    from gpuctl.app.ports import Cluster

EVERY_MS = 2_000
SHARE = 10
"""A reading takes at most one part in so many of the time: a large cluster is read less often."""


class Reading(NamedTuple):
    """The cluster as last read, and how long to wait before the next reading.

    `fault`: why it could not be read just now; "" if it could.
    """

    current: Live
    wait_ms: int
    fault: str = ""


def readings(where: Where, project: str | None = None) -> Iterator[Reading]:
    """The cluster, read again and again without end. The first reading reports what is left out, and raises WorldFault
    or Failure. Faults of later ones are part of the reading, since a followed view outlives a restart of the API
    server.

    `project`: only its objects are wanted.
    """
    from gpuctl import wiring  # noqa: PLC0415 - only now

    clock = wiring.passing_clock()
    began_ms = clock.now_ms()
    with where.looking(project) as (cluster, sessions):
        current = with_other_engine(cluster, told_live(cluster, sessions))
    yield Reading(current, _wait_ms(clock.now_ms() - began_ms))
    with ExitStack() as stack:
        # An embedded cluster is copied for each reading: a controller may write the file meanwhile.
        kept = None if where.embedded is not None else stack.enter_context(where.looking(project))[0]
        while True:
            try:
                with where.looking(project) if kept is None else nullcontext((kept, None)) as (cluster, _):
                    found = _read(cluster)
            except (WorldFault, Failure) as fault:
                found = Reading(current, EVERY_MS, f"{fault.code}: {fault}")
            current = found.current
            yield found


def _read(cluster: Cluster) -> Reading:
    from gpuctl.app.inspect import live, measured  # noqa: PLC0415
    from gpuctl.app.kueue_words import with_words  # noqa: PLC0415

    began_ms = context_clock().now_ms()
    found = live(cluster)
    with suppress(Forbidden):  # already reported by the first reading
        found = with_words(cluster, found)
    now_ms = context_clock().now_ms()
    return Reading(measured(found, now_ms), _wait_ms(now_ms - began_ms))


def _wait_ms(took_ms: int) -> int:
    return max(EVERY_MS, SHARE * took_ms)
