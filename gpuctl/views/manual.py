"""Manual pages in the format of `man`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpuctl.diag.escapes import printable


@dataclass(frozen=True, slots=True, kw_only=True)
class ManualPage:
    """A command. `words`: its command line; `options` and `below`: names with their descriptions; `see`: other
    pages."""

    words: str
    synopsis: str
    summary: str
    paragraphs: Sequence[str] = ()
    options: Sequence[tuple[str, str]] = ()
    below: Sequence[tuple[str, str]] = ()
    examples: Sequence[str] = ()
    see: Sequence[str] = ()

    @property
    def name(self) -> str:
        """The page's name: `gpuctl-top-node`."""
        return self.words.replace(" ", "-")


def manual_page(page: ManualPage, version: str) -> str:
    """The page in section 1, the same bytes for the same page."""
    return "\n".join(_lines(page, version)) + "\n"


def _lines(page: ManualPage, version: str) -> Iterator[str]:
    yield f'.TH "{page.name.upper()}" "1" "" "gpuctl {version}" "gpuctl"'
    yield from (".SH NAME", f"{_text(page.name)} \\- {_text(page.summary)}")
    yield from (".SH SYNOPSIS", f".B {_text(page.words)}", _text(page.synopsis))
    if page.paragraphs:
        yield ".SH DESCRIPTION"
        for paragraph in page.paragraphs:
            yield from (".PP", _text(paragraph))
    for title, entries in (("OPTIONS", page.options), ("COMMANDS", page.below)):
        if entries:
            yield f".SH {title}"
            for name, text in entries:
                yield from (".TP", f"\\fB{_escaped(name)}\\fR", _text(text))
    if page.examples:
        yield from (".SH EXAMPLES", ".nf", *map(_text, page.examples), ".fi")
    if page.see:
        yield from (".SH SEE ALSO", ", ".join(f"\\fB{_escaped(name)}\\fR(1)" for name in page.see))


def _text(text: str) -> str:
    """A line of text, escaped so that its beginning is not read as a request of `man`."""
    escaped = _escaped(text)
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def _escaped(text: str) -> str:
    return re.sub(r"[\\-]", lambda found: "\\e" if found[0] == "\\" else "\\-", printable(" ".join(text.split())))
