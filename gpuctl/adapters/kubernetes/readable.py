"""Which of several streams can be read, whatever their numbers: select.select accepts none above 1,023."""

from __future__ import annotations

import select
from collections.abc import Sequence
from typing import Any


def readable(sources: Sequence[Any], wait_s: float | None = None) -> list[Any]:
    """The sockets and numbers that can be read or have ended; empty after the wait."""
    by_number = {each if isinstance(each, int) else each.fileno(): each for each in sources}
    asked = select.poll()
    for number in by_number:
        asked.register(number, select.POLLIN)
    return [by_number[number] for number, _ in asked.poll(None if wait_s is None else 1000 * wait_s)]
