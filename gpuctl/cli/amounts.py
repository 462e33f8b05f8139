"""Amounts on the command line: durations as declarations write them, and limits that several commands take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


class DurationType(click.ParamType[int]):
    """A duration as declarations write them: 30s, 5m, 1h30m. Becomes milliseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The milliseconds of a text."""
        from gpuctl.compile.amounts import duration  # noqa: PLC0415 - only when there is one to read

        if isinstance(value, int):
            return value
        try:
            return duration(value)
        except ValueError:
            self.fail(f"{value!r} is no duration; write 30s, 5m or 1h", param, ctx)


def write_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that bound the controller's writes, `write_qps` and `write_burst`; None as usual."""
    qps = click.option(
        "--write-qps",
        metavar="N",
        type=click.IntRange(1, 10_000),
        help="Writes a second to the API server at most. Default: 400.",
    )
    burst = click.option(
        "--write-burst",
        metavar="N",
        type=click.IntRange(1, 100_000),
        help="As many writes may go out at once first. Default: twice --write-qps.",
    )
    return qps(burst(function))
