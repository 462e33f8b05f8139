"""The stable form of declarations, for `gpuctl fmt`: two spaces a level, keys in the order of the schema, quotes only
where they are needed, a list below its key and not indented, at most one empty line, two spaces before a comment.

The text is processed once, from beginning to end, so that each comment is met once and stays with the field below or
beside it. Values stay as written, except for quotes and the spaces inside brackets; a value that can't be joined to one
line keeps its lines.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from gpuctl.compile.declarations import KINDS
from gpuctl.compile.reading import read_file
from gpuctl.compile.shape import fields_at
from gpuctl.compile.text import SourceText, diagnose
from gpuctl.diag.diagnostic import has_errors
from gpuctl.edit.documents import BOM, Refused, alike
from gpuctl.edit.nodes import BREAK, Form, Node, comments, root_of
from gpuctl.edit.values import INDENT, is_plain

WIDTH = 100
"""A value in brackets over several lines is joined to one line if that is no longer than this."""
_MOST_ROUNDS = 6
_NOTE = re.compile(r"(?:^|(?<=[ \t]))#.*")
_NOTE_LINES = re.compile(r"(?:^|(?<=\s))#[^\n]*", re.MULTILINE)
_BESIDE = re.compile(r"[ \t]+(#[^\n]*)|[ \t]*(?=\n|\Z)")
_HEADER_INDENT = re.compile(r"[|>][-+]?[1-9]")


class _Unusual(ValueError):
    """A form of YAML that this module does not change; the message says which."""


def format_file(path: str, content: bytes) -> bytes:
    """The file in the stable form; unchanged if it has that form. Raises Refused if the result would have another
    meaning, or if the file is not valid YAML. Cost: linear in the file, some hundred times the cost of parsing it."""
    whole = content.decode("utf-8", errors="surrogateescape")
    bom = BOM if whole.startswith(BOM) else ""
    text = whole.removeprefix(BOM)
    read = read_file(path, content)
    if has_errors(read.diagnostics):
        raise Refused(read.diagnostics[0])
    breaks = {found.group() for found in BREAK.finditer(text)}
    if not breaks <= {"\n", "\r\n"}:
        raise _refusal(path, text, "it has line breaks of other systems")
    first = BREAK.search(text)
    broken = first.group() if first else "\n"
    wanted = [document.data for document in read.documents]
    for ordered in (True, False):
        try:
            made = _settled(path, text.replace("\r\n", "\n"), ordered=ordered)
        except _Unusual as error:
            raise _refusal(path, text, str(error)) from None
        if made is None:
            continue
        result = f"{bom}{made.replace(chr(10), broken)}".encode(errors="surrogateescape")
        if result == content:
            return content
        again = read_file(path, result)
        same = not again.diagnostics and alike([document.data for document in again.documents], wanted)
        if same and sorted(_notes(path, made)) == sorted(_notes(path, text.replace("\r\n", "\n"))):
            return result
    raise _refusal(path, text, "its layout is unusual, and would not say the same")


def _settled(path: str, text: str, *, ordered: bool) -> str | None:
    """The text laid out again and again until nothing changes; None if it does not settle.

    A second round is needed if the order of fields has moved a comment below another one.
    """
    for _ in range(_MOST_ROUNDS):
        made = _formatted(path, text, ordered=ordered)
        if made == text:
            return made
        text = made
    return None


def _refusal(path: str, text: str, why: str) -> Refused:
    source = SourceText(path, text)
    return Refused(diagnose(source, "GPU6121", source.span(1, 1), {"path": path, "why": why}))


def _formatted(path: str, text: str, *, ordered: bool) -> str:
    """The text of all documents, and the lines between them."""
    out, at = list[str](), 0
    for document in read_file(path, text.encode(errors="surrogateescape")).documents:
        out.extend(_between(text[at : document.start]))
        kind = document.data.get("kind") if isinstance(document.data, dict) else None
        order = _Order(kind if ordered and isinstance(kind, str) else "")
        out.extend(_Layout(text[document.start : document.end], order).lines())
        at = document.end
    out.extend(_between(text[at:]))
    lines = "\n".join(out).strip("\n")
    return f"{lines}\n" if lines else ""


def _between(text: str) -> list[str]:
    """The comments and marks outside of documents."""
    lines = [line.rstrip() for line in text.removesuffix("\n").split("\n")]
    return _squeezed(lines) if any(lines) else []


def _notes(path: str, text: str) -> list[str]:
    """All comments of a text, without the spaces after them."""
    found, at = list[str](), 0
    for document in read_file(path, text.encode(errors="surrogateescape")).documents:
        part = text[document.start : document.end]
        found.extend(_NOTE_LINES.findall(text[at : document.start]))
        found.extend(comments(part, root_of(part), 0, len(part)))
        at = document.end
    found.extend(_NOTE_LINES.findall(text[at:]))
    return [note.rstrip() for note in found]


@dataclass(frozen=True, slots=True)
class _Order:
    """The order of the fields of a kind; "" keeps the order of the text."""

    kind: str

    def sorted(self, path: tuple[str | int, ...], entries: Sequence[_Entry]) -> list[_Entry]:
        """Entries in the order of the schema; unknown ones come last, in their own order."""
        fields = _fields(self.kind, tuple(0 if isinstance(step, int) else step for step in path))
        return sorted(entries, key=lambda entry: fields.get(entry.key, len(fields)))


@lru_cache(maxsize=512)
def _fields(kind: str, path: tuple[str | int, ...]) -> Mapping[str, int]:
    """The position of each field of the mapping at a path."""
    model = KINDS.get(kind)
    return {name: at for at, name in enumerate(fields_at(model, path))} if model is not None else {}


@dataclass(slots=True)
class _Entry:
    """A field or an entry of a list: comments and empty lines above, its own lines, and comments that belong below."""

    key: str
    above: list[str]
    lines: list[str]
    below: list[str] = field(default_factory=list)


class _Layout:
    """Lays out one document. `_at`: how far its text has been processed."""

    def __init__(self, text: str, order: _Order) -> None:
        self._text = text
        self._order = order
        self._at = 0

    def lines(self) -> list[str]:
        """The document's lines, with its mark and the comments at its end."""
        text, root = self._text, root_of(self._text)
        head = list[str]()
        if text.startswith("%"):
            raise _Unusual("it has a YAML directive")
        if text.startswith("---"):
            beside = _BESIDE.match(text, 3)
            note = beside[1] if beside else None
            head.append(f"--- {note.rstrip()}" if note else "---")
            self._at = beside.end() if beside else 3
        above = self._gap(root.start if not root.form.is_mapping or root.form.is_flow else root.pairs[0][0].start)
        body = self._block(root, 0, ()) if _is_block_collection(root) else self._own_line(root)
        tail = [f"{'  ' if line.startswith(' ') else ''}{line.strip()}" for line in self._rest()]
        return [*head, *_tidy(above, first=True), *body, *tail]

    def _own_line(self, root: Node) -> list[str]:
        lines = self._value(root, 0, 0, "", ())
        lines[-1] += self._beside(root.end)
        return [lines[0].lstrip(" "), *lines[1:]]

    def _block(self, node: Node, column: int, path: tuple[str | int, ...]) -> list[str]:
        """The lines of a mapping or a list, each entry with its comments."""
        entries = list[_Entry]()
        old_column = node.column if node.pairs else _dash_column(self._text, node.items[0])
        children = node.pairs or [(item, item) for item in node.items]
        for at, (key, value) in enumerate(children):
            gap = self._gap(key.start)
            below, above = _divided(gap, old_column) if entries else ([], gap)
            if entries:
                entries[-1].below = below
            entry = self._pair(key, value, column, path) if node.pairs else self._item(value, column, (*path, at))
            entry.above = [*above, *entry.above]
            entries.append(entry)
        first_above = entries[0].above if not path else []
        if not path:
            entries[0].above = []
        if node.pairs:
            entries = self._order.sorted(path, entries)
        pad = " " * column
        lines = [*_tidy(first_above, first=True)]
        for at, entry in enumerate(entries):
            lines.extend(f"{pad}{line}" if line else "" for line in _tidy(entry.above, first=not at))
            lines.extend(entry.lines)
            lines.extend(f"{pad}{' ' * INDENT}{line}" if line else "" for line in _tidy(entry.below, first=True))
        return lines

    def _pair(self, key: Node, value: Node, column: int, path: tuple[str | int, ...]) -> _Entry:
        name = self._scalar(key)
        self._at = key.end
        lead, above = f"{' ' * column}{name}:", list[str]()
        colon = self._text.index(":", key.end) + 1
        self._at = colon
        here = (*path, key.text)
        if _is_block_collection(value):
            lead += self._decoration(value)
            lead += self._beside(self._after_decoration(value))
            inner = column if value.form.is_list else column + INDENT
            return _Entry(key.text, above, [lead, *self._block(value, inner, here)])
        if not value.is_empty:
            above = [line.strip() for line in self._gap(value.start) if line.strip()]
        lines = self._value(value, column, key.column, lead, here)
        lines[-1] += self._beside(max(colon, value.end)) if value.form is not Form.BLOCK_SCALAR else ""
        return _Entry(key.text, above, lines)

    def _item(self, value: Node, column: int, path: tuple[str | int, ...]) -> _Entry:
        pad = " " * column
        if not _is_block_collection(value):
            lines = self._value(value, column, _dash_column(self._text, value), f"{pad}-", path)
            lines[-1] += self._beside(value.end) if value.form is not Form.BLOCK_SCALAR else ""
            return _Entry("", [], lines)
        if value.decorated:
            lead = f"{pad}-{self._decoration(value)}"
            self._at = self._after_decoration(value)
            return _Entry("", [], [lead + self._beside(self._at), *self._block(value, column + INDENT, path)])
        lines = self._block(value, column + INDENT, path)
        first = next(at for at, line in enumerate(lines) if line.strip() and not line.strip().startswith("#"))
        joined = f"{pad}- {lines[first].strip(' ')}"
        return _Entry("", [line.strip() for line in lines[:first] if line.strip()], [joined, *lines[first + 1 :]])

    def _value(self, node: Node, column: int, old_column: int, lead: str, path: tuple[str | int, ...]) -> list[str]:
        """The lines of a value behind its key or dash, which moves from `old_column` to `column`."""
        if node.is_empty:
            return [lead]
        text = self._text[node.start : node.end]
        self._at = node.end
        if node.form is Form.BLOCK_SCALAR:
            return self._block_scalar(node, column, old_column, lead)
        if node.form.is_flow:
            joined = self._flow(node, path)
            if joined is not None and ("\n" not in text or len(lead) + 1 + len(joined) <= WIDTH):
                return [f"{lead} {joined}"]
        elif "\n" not in text:
            return [f"{lead} {self._scalar(node)}"]
        first, *rest = text.split("\n")
        return [f"{lead} {first.rstrip()}", *(_shifted(line, column - old_column) for line in rest)]

    def _block_scalar(self, node: Node, column: int, old_column: int, lead: str) -> list[str]:
        header, *content = self._text[node.start : node.end].removesuffix("\n").split("\n")
        filled = [line for line in content if line.strip(" ")]
        delta = column - old_column
        if filled and not _HEADER_INDENT.search(header.split("#")[0]):
            delta = column + INDENT - (len(filled[0]) - len(filled[0].lstrip(" ")))
        return [f"{lead} {header.rstrip()}", *(_shifted(line, delta, keep=True) for line in content)]

    def _flow(self, node: Node, path: tuple[str | int, ...]) -> str | None:
        """A value in brackets on one line; None if it contains comments, or values on lines of their own."""
        if comments(self._text, node, node.start, node.end):
            return None
        if node.is_empty or (not node.form.is_flow and "\n" in self._text[node.start : node.end]):
            return None
        if not node.form.is_flow:
            return self._scalar(node)
        lead = self._decoration(node).strip()
        parts = list[_Entry]()
        for at, (key, value) in enumerate(node.pairs or [(item, item) for item in node.items]):
            shown = self._flow(value, (*path, key.text if node.pairs else at))
            if shown is None or (node.pairs and key.form.is_flow):
                return None
            parts.append(_Entry(key.text, [], [f"{self._scalar(key)}: {shown}" if node.pairs else shown]))
        if node.pairs:
            parts = self._order.sorted(path, parts)
        opened, closed = "{}" if node.form is Form.FLOW_MAPPING else "[]"
        return f"{f'{lead} ' if lead else ''}{opened}{', '.join(part.lines[0] for part in parts)}{closed}"

    def _scalar(self, node: Node) -> str:
        """A scalar or an alias as written, without unneeded quotes."""
        if node.form is Form.QUOTED and not node.decorated and is_plain(node.text):
            return node.text
        return (
            " ".join(self._text[node.start : node.end].split(" "))
            if node.decorated
            else self._text[node.start : node.end]
        )

    def _decoration(self, node: Node) -> str:
        words = self._text[node.start : self._after_decoration(node)].split() if node.decorated else []
        return "".join(f" {word}" for word in words)

    def _after_decoration(self, node: Node) -> int:
        """Where the anchor and tag of a collection end; without them, where processing goes on."""
        if not node.decorated:
            return self._at
        found = re.compile(r"[&!][^\s,\[\]{}]*(?:[ \t]+[&!][^\s,\[\]{}]*)?").match(self._text, node.start)
        return found.end() if found else self._at

    def _beside(self, offset: int) -> str:
        """The comment beside a value that ends at this offset."""
        found = _BESIDE.match(self._text, offset)
        self._at = max(self._at, found.end() if found else offset)
        return f"  {found[1].rstrip()}" if found and found[1] else ""

    def _gap(self, until: int) -> list[str]:
        """Comments, with the spaces before them, and empty lines up to an offset."""
        gap, self._at = self._text[self._at : until], max(self._at, until)
        if "?" in _NOTE_LINES.sub("", gap):
            raise _Unusual("it has keys after a question mark")
        lines = gap.split("\n")
        kept = list[str]()
        for at, line in enumerate(lines):
            note = _NOTE.search(line)
            if note is not None:
                kept.append(f"{' ' * note.start()}{note.group().rstrip()}")
            elif not line.strip() and 0 < at < len(lines) - 1:
                kept.append("")
        return kept

    def _rest(self) -> list[str]:
        """Comments behind the last value."""
        kept = self._gap(len(self._text))
        while kept and not kept[-1]:
            kept.pop()
        return _squeezed(kept)


def _is_block_collection(node: Node) -> bool:
    return node.form in {Form.BLOCK_MAPPING, Form.BLOCK_LIST}


def _divided(gap: list[str], column: int) -> tuple[list[str], list[str]]:
    """The lines of a gap that belong below the entry before, by their indentation; and those above the next entry."""
    count = next((at for at, line in enumerate(gap) if not line or len(line) - len(line.lstrip()) <= column), len(gap))
    return [line.strip() for line in gap[:count]], gap[count:]


def _tidy(lines: Sequence[str], *, first: bool) -> list[str]:
    """Comments without the spaces before them, at most one empty line between them, none at a block's beginning."""
    kept = _squeezed([line.strip() for line in lines])
    while first and kept and not kept[0]:
        kept = kept[1:]
    return kept


def _squeezed(lines: Sequence[str]) -> list[str]:
    return [line for at, line in enumerate(lines) if line or (at and lines[at - 1]) or not at]


def _shifted(line: str, delta: int, *, keep: bool = False) -> str:
    """A line moved right or left, as far as it has spaces. `keep`: spaces at its end are part of a value."""
    if not line.strip(" "):
        return line[max(0, -delta) :] if keep and delta < 0 else f"{' ' * delta}{line}" if keep and line else ""
    moved = f"{' ' * delta}{line}" if delta > 0 else line[min(-delta, len(line) - len(line.lstrip(" "))) :]
    return moved if keep else moved.rstrip()


def _dash_column(text: str, value: Node) -> int:
    """The column of the dash before a list's entry."""
    start = text.rfind("\n", 0, text.rfind("-", 0, value.start)) + 1
    return text.rfind("-", 0, value.start) - start
