"""A whole terminal, drawn by curses: shows lines, perhaps more than fit, and takes keys."""

from __future__ import annotations

import curses
from collections.abc import Sequence
from contextlib import suppress
from typing import Self

from gpuctl.diag.escapes import printable
from gpuctl.views.screen import ScreenLine

_QUIT = frozenset({ord("q"), ord("Q"), 27})
_SHADES = {"strong": curses.A_BOLD, "dim": curses.A_DIM, "head": curses.A_REVERSE}


class Screen:
    """The terminal, between `__enter__` and `__exit__`."""

    def __enter__(self) -> Self:
        """Take the terminal."""
        self._window = curses.initscr()
        curses.noecho()
        curses.cbreak()
        self._window.keypad(True)  # noqa: FBT003 - so it is called
        with suppress(curses.error):  # a terminal that can't hide its cursor shows it
            curses.curs_set(0)
        self._top = 0
        return self

    def __exit__(self, *_: object) -> None:
        """Give the terminal back as it was."""
        curses.nocbreak()
        self._window.keypad(False)  # noqa: FBT003
        curses.echo()
        curses.endwin()

    @property
    def width(self) -> int:
        """The columns of the terminal now."""
        return self._window.getmaxyx()[1]

    def show(self, lines: Sequence[ScreenLine], wait_ms: int) -> bool:
        """Show lines for a time; the arrows scroll them. Returns early with False if the user quits, and with True if
        the terminal's size has changed."""
        while True:
            self._draw(lines)
            self._window.timeout(wait_ms)
            key = self._window.getch()
            if key in _QUIT:
                return False
            if key in {-1, curses.KEY_RESIZE}:
                return True
            self._move(key, len(lines))

    def _move(self, key: int, count: int) -> None:
        height = self._window.getmaxyx()[0]
        steps = {
            curses.KEY_DOWN: 1, curses.KEY_UP: -1, curses.KEY_NPAGE: height, curses.KEY_PPAGE: -height,
            curses.KEY_HOME: -count, curses.KEY_END: count,
        }  # fmt: skip
        self._top = max(0, min(self._top + steps.get(key, 0), count - height))

    def _draw(self, lines: Sequence[ScreenLine]) -> None:
        height, width = self._window.getmaxyx()
        self._window.erase()
        for row, line in enumerate(lines[self._top : self._top + height]):
            try:
                self._window.addnstr(row, 0, printable(line.text), width - 1, _SHADES.get(line.style, curses.A_NORMAL))
            except curses.error:
                break  # the terminal has become smaller since it was asked
        self._window.refresh()
