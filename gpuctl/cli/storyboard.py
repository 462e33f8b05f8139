"""Print a story on the terminal: a line for each moment, with what happened in words beside or below it."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill

from gpuctl.cli.terminal import say, show
from gpuctl.views.story import Moment, News, heading, moment_line, sentences
from gpuctl.views.styled import Segment, plain

LINE_WIDTH = 100


class Storyboard:
    """Prints moments under one heading. `text_width`: the width of the first column."""

    def __init__(self, text_width: int, most_sentences: int = 8) -> None:
        self._text_width = text_width
        self._most_sentences = most_sentences
        self._heading_due = True

    def open(self, title: str) -> None:
        """Begin a part; its heading is printed with its first moment."""
        say(Segment(title, "strong"))
        self._heading_due = True

    def show(self, text: str, moment: Moment, news: Sequence[News]) -> None:
        """Print one moment."""
        width = self._text_width
        if self._heading_due:
            say(" " * (width + 2), *heading(moment))
            self._heading_due = False
        said = list(sentences(news))
        label = text if len(text) <= width else f"{text[: width - 1]}…"
        shown = (Segment(f"{label:<{width}}  "), *moment_line(moment))
        beside = said[0] if len(said) == 1 else ""
        if len(news) == 1 and news[0].job.name in text:
            beside = beside.removeprefix(f"{news[0].job.name} ")
        if beside and len(plain(shown)) + len(beside) <= LINE_WIDTH:
            shown, said = (*shown, Segment(beside)), []
        say(*shown)
        if len(said) > self._most_sentences:
            said[self._most_sentences :] = [f"and {len(said) - self._most_sentences} more"]
        if said:
            indent = " " * (width + 2)
            show(fill("; ".join(said), LINE_WIDTH, initial_indent=indent, subsequent_indent=indent) + "\n")
