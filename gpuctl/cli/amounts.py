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
            self.fail(f"{value!r} is not a duration; write 30s, 5m or 1h", param, ctx)


class NumberType(click.ParamType[int]):
    """A whole number that a declaration may have."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number of a text."""
        from gpuctl.compile.scalars import MAX_EXPONENT  # noqa: PLC0415 - only when there is one to read

        number: int = click.INT.convert(value, param, ctx)
        if abs(number) >= 10**MAX_EXPONENT:
            self.fail(f"{value} has more than {MAX_EXPONENT} digits", param, ctx)
        return number


def write_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that bound the controller's writes, `write_qps` and `write_burst`; None: the default."""
    qps = click.option(
        "--write-qps",
        metavar="N",
        type=click.IntRange(1, 10_000),
        help="The most writes a second to the API server. Default: 400.",
    )
    burst = click.option(
        "--write-burst",
        metavar="N",
        type=click.IntRange(1, 100_000),
        help="The most writes in a burst. Default: twice --write-qps.",
    )
    return qps(burst(function))
