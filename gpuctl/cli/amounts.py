"""Amounts on the command line, as declarations write them."""

from __future__ import annotations

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
