"""The page of a plan in the Markdown of GitHub and GitLab, for a pull or merge request.

The order is a reviewer's: the verdict; what is destroyed or paused, with the owners of those projects; the changes of
each project; starts; waits; and the objects, folded. A page that is too long loses objects first, then rows; totals
stay. Security: only `owners`, as base declares them, become mentions, so a change can't make it mention others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from gpuctl.diag.escapes import markdown_code, markdown_text
from gpuctl.diag.wording import all_of
from gpuctl.views.plan_page import MOST_ROWS, TEXT_CHARS, JobRows, Lines, PlanPage, ProjectRows

GITHUB_CHARS = 65_536
"""The longest comment that GitHub accepts; GitLab accepts 1,000,000 characters."""
LEAST_CHARS = 32_768
"""Any page without its rows fits into this."""
_OWNERS = 30
_OWNER = re.compile(r"@[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)?")
_EVERYONE = frozenset({"@all", "@everyone", "@here", "@channel"})
_FIRST = re.compile(r"^(\d*)([!-/:-@^{}])")
_PROJECT_HEADINGS = ("project", "quota", "limit", "weight", "in use", "fair share", "capacity")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The most objects, and the most rows of each table or list."""

    objects: int
    rows: int


def marker(cluster: str) -> str:
    """The hidden first line by which a comment is found again. No two clusters have the same."""
    return f"<!-- gpuctl plan {re.sub('[^a-z0-9.-]', lambda each: f'_{ord(each[0]):x}_', cluster)} -->"


def markdown(page: PlanPage, most_chars: int = GITHUB_CHARS, *, origin: str = "") -> str:
    """The comment, at most `most_chars` long. Raises ValueError for less than LEAST_CHARS if it does not fit.

    `origin`: where the page comes from, if it was read from a file. Anybody may have made such a page, so its owners
    are not mentioned. Cost: the page is written once, and up to 12 times more if it is too long.
    """
    fitting, too_long = 0, 2 * MOST_ROWS
    text = _text_within(page, 2 * MOST_ROWS, origin)
    if len(text) <= most_chars:
        return text
    text = _text_within(page, fitting, origin)
    if len(text) > most_chars:
        raise ValueError(f"{len(text)} characters without any row, {most_chars} wanted")
    while too_long - fitting > 1:
        middle = (fitting + too_long) // 2
        longer = _text_within(page, middle, origin)
        if len(longer) <= most_chars:
            fitting, text = middle, longer
        else:
            too_long = middle
    return text


def _text_within(page: PlanPage, size: int, origin: str) -> str:
    """The page with this many rows of each table or list; beyond MOST_ROWS, with so many objects more."""
    bounds = Bounds(objects=max(0, size - MOST_ROWS), rows=min(size, MOST_ROWS))
    return "".join(f"{line}\n" for line in _lines(page, bounds, origin))


def _lines(page: PlanPage, bounds: Bounds, origin: str) -> Iterator[str]:
    yield marker(page.cluster)
    yield ""
    yield f"**gpuctl plan{page.cluster and f' of {_text(page.cluster)}'}**: {_verdict(page)}"
    yield ""
    changes = "no changes" if page.empty else _text(page.counts)
    yield f"{markdown_code(page.base)} → {markdown_code(page.head)}: {changes}"
    for line in (*((origin,) if origin else ()), *page.remarks):
        yield ""
        yield _line(line)
    if not page.empty:
        yield from _refusals(page, bounds)
        yield from _changes(page, bounds, mentions=not origin)
    for line in page.identity:
        yield ""
        yield f"<sub>{_text(line)}</sub>"


def _verdict(page: PlanPage) -> str:
    """What a reviewer has to know first."""
    if page.empty:
        return "nothing changes"
    codes = ", ".join(sorted({each.code for each in page.refused.shown}))
    gates = ",".join(each.gate for each in page.failed)
    said = [f"**refused** ({_text(codes)})"] if codes else []
    said += [f"**fails** {markdown_code(f'--fail-on {gates}')}"] if gates else []
    said += map(_text, page.verdict)
    return "; ".join(said) or "no effect on jobs is known"


def _refusals(page: PlanPage, bounds: Bounds) -> Iterator[str]:
    left_out = 0
    for word, notices, most in (
        ("refused", page.refused, max(bounds.rows, 5)),
        ("confirmed by a commit", page.confirmed, bounds.rows),
        ("refused already", page.refused_already, bounds.rows),
    ):
        shown = notices.shown[:most]
        left_out += notices.total - len(shown)
        for refusal in shown:
            said = f"> **{word}** {_text(refusal.code)}: {_text(refusal.message)}"
            yield ""
            yield from [said] if notices is page.confirmed else [f"{said}  ", f"> {_help(refusal.help)}"]
    for each in page.failed:
        yield ""
        yield f"> **failed** {markdown_code(f'--fail-on {each.gate}')}: {_text(each.names)}"
    yield from _more(left_out)


def _changes(page: PlanPage, bounds: Bounds, *, mentions: bool) -> Iterator[str]:
    yield from _jobs("**Paused, ended, restarted, moved or deleted**", "job or object", page.losses, bounds)
    if page.owners:
        yield ""
        yield f"Owners: {_owners(page.owners, mentions=mentions)}"
    yield from _projects(page.projects, bounds)
    yield from _jobs("**Starts**", "job", page.starts, bounds)
    yield from _jobs("**Waits**", "job", page.waits, bounds)
    if page.effect:
        yield ""
        yield _line(page.effect)
    for caption, lines in (("Limits", page.limits), ("Settings", page.settings), ("Policies", page.policies)):
        yield from _list(f"**{caption}**", lines, bounds)
    yield from _objects(page.objects, bounds)


def _owners(names: Sequence[str], *, mentions: bool) -> str:
    """The owners, as mentions if they are people or teams of the code host."""
    shown = [owner if mentions and _is_mention(owner) else _text(owner) for owner in names[:_OWNERS]]
    return all_of([*shown, f"{len(names) - _OWNERS} more"] if len(names) > _OWNERS else shown)


def _is_mention(owner: str) -> bool:
    return _OWNER.fullmatch(owner) is not None and len(owner) <= 253 and owner.lower() not in _EVERYONE


def _projects(rows: ProjectRows, bounds: Bounds) -> Iterator[str]:
    """The table of projects, without empty columns."""
    kept = [at for at, _ in enumerate(_PROJECT_HEADINGS) if at == 0 or any(row[at] for row in rows.shown)]
    headings = [_PROJECT_HEADINGS[at] for at in kept]
    cells = [[row[at] for at in kept] for row in rows.shown]
    yield from _table("**Projects**, in GPUs", headings, (rows.total, cells), bounds)


def _jobs(caption: str, first: str, rows: JobRows, bounds: Bounds) -> Iterator[str]:
    yield from _table(caption, (first, "GPUs", "what happens"), (rows.total, rows.shown), bounds)


def _table(
    caption: str, headings: Sequence[str], rows: tuple[int, Sequence[Sequence[str]]], bounds: Bounds
) -> Iterator[str]:
    """A caption with the number of all rows, and the table; nothing if there are no rows."""
    total, shown = rows[0], rows[1][: bounds.rows]
    if not total:
        return
    yield ""
    yield f"{caption} ({total})"
    if shown:
        yield ""
        yield f"| {' | '.join(headings)} |"
        yield f"|{'|'.join('---:' if _is_amount(heading) else '---' for heading in headings)}|"
    for cells in shown:
        yield f"| {' | '.join(map(_text, cells))} |"
    yield from _more(total - len(shown))


def _list(caption: str, lines: Lines, bounds: Bounds) -> Iterator[str]:
    if not lines.total:
        return
    shown = lines.shown[: bounds.rows]
    yield ""
    yield f"{caption} ({lines.total})"
    yield ""
    for line in shown:
        yield f"- {_line(line)}"
    yield from _more(lines.total - len(shown))


def _objects(lines: Lines, bounds: Bounds) -> Iterator[str]:
    if not lines.total:
        return
    shown = lines.shown[: bounds.objects]
    yield ""
    yield f"<details><summary>{lines.total} {'object' if lines.total == 1 else 'objects'}</summary>"
    yield ""
    if shown:
        yield "```diff"
        for line in shown:
            yield _cut(line, _in_fence)
        yield "```"
    yield from _more(lines.total - len(shown))
    yield ""
    yield "</details>"


def _more(left_out: int) -> Iterator[str]:
    """How many rows were cut off."""
    if left_out > 0:
        yield ""
        yield f"… and {left_out} more, left out here; `gpuctl plan -o json` has all."


def _is_amount(heading: str) -> bool:
    return heading in {"GPUs", "capacity"}


def _in_fence(text: str) -> str:
    """A line of a fenced block, escaped so that it can't end the block."""
    return markdown_code(text)[1:-1]


@lru_cache(maxsize=1 << 14)
def _text(text: str) -> str:
    """Text within a line, escaped and bounded. Cached for the next time that the page is written: a page with 300 rows
    in each table takes 0.04 s of processor time instead of 0.25."""
    return _cut(text, markdown_text)


def _line(text: str) -> str:
    """Text as a paragraph: its beginning is no heading, list or quote, nor a command to GitLab."""
    return _FIRST.sub(r"\1\\\2", _text(text))


def _help(text: str) -> str:
    """A paragraph in which words in backticks are code, so that a line to copy looks like one."""
    parts = text[:TEXT_CHARS].split("`")
    if len(parts) % 2 == 0 or not all(parts[1::2]):
        return _line(text)
    first, *rest = parts
    shown = _line(first) + "".join(_text(each) if at % 2 else markdown_code(each) for at, each in enumerate(rest))
    return shown if len(shown) <= TEXT_CHARS else _line(text)


def _cut(text: str, escape: Callable[[str], str]) -> str:
    """The escaped text; if it is too long, as much of its beginning as fits."""
    most = TEXT_CHARS
    while len(escaped := escape(text[:most])) > TEXT_CHARS:
        most //= 2
    return escaped if most >= len(text) else f"{escaped}…"
