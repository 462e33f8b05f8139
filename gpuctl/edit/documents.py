"""Edits of declarations in the bytes of a file: set a field, add a document, remove one.

Each edit is checked by reading its result: all documents must say the same as before, except for the wanted change. An
edit that fails this is refused with a diagnostic, and the file stays as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from gpuctl.compile.builder import Read
from gpuctl.compile.declarations import KINDS
from gpuctl.compile.document import Document
from gpuctl.compile.reading import read_file
from gpuctl.compile.shape import fields_at
from gpuctl.compile.text import NO_PARAMS, Params, SourceText, diagnose
from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.edit.nodes import BREAK, root_of
from gpuctl.edit.splices import REMOVED, NotSpliced, Path, Splice, applied, change
from gpuctl.edit.values import Value, block

BOM = "\ufeff"
Changes = Mapping[Path, Any]
"""Values by path; REMOVED removes the field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The names of a declaration; `project`: only for a job."""

    kind: str
    name: str
    project: str = ""

    def __str__(self) -> str:
        return f"{self.kind.lower()} {self.project}/{self.name}" if self.project else f"{self.kind.lower()} {self.name}"

    def is_in(self, document: Document) -> bool:
        """Whether the document declares the target, with or without mistakes."""
        data = document.data
        metadata = data.get("metadata") if isinstance(data, dict) else None
        if not isinstance(metadata, dict) or data.get("kind") != self.kind or metadata.get("name") != self.name:
            return False
        return not self.project or metadata.get("project") == self.project


class Refused(Exception):
    """The edit can't be made. The diagnostic says why, and where."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(diagnostic.message)
        self.diagnostic = diagnostic


def set_fields(path: str, content: bytes, target: Target, changes: Changes) -> bytes:
    """The file with other values in the one declaration that is the target.

    `path`: the file's name in diagnostics. Raises Refused. Cost: linear in the file for each field.
    """
    for to in changes.items():
        content = set_field(path, content, [target], to)
    return content


def set_field(path: str, content: bytes, targets: Sequence[Target], to: tuple[Path, Any]) -> bytes:
    """The file with one field set in each of several declarations. Raises Refused. Cost: linear in the file, for any
    number of declarations."""
    file, (field, value) = _File.read(path, content), to
    wanted = [each.data for each in file.read_of.documents]
    splices = []
    for target in dict.fromkeys(targets):
        at, document = file.only(target)
        splice = _splice(document, target, field, value)
        if splice is not None:
            wanted[at] = _with(wanted[at], field, value)
            splices.append(splice)
    return file.checked(splices, wanted, file.only(targets[0])[1], _all(path, targets)) if splices else content


def _splice(document: Document, target: Target, field: Path, value: Any) -> Splice | None:
    """The change of a field, with its offsets in the file; None if nothing changes."""
    text = document.source.text[document.start : document.end]
    try:
        splice = change(text, root_of(text), field, value, partial(_order, target.kind))
    except NotSpliced as error:
        line, column = document.source.position(document.start + error.at)
        params = {"what": str(target), "why": str(error)}
        raise Refused(document.diagnostic("GPU6101", document.source.span(line, column), params)) from None
    if splice is None:
        return None
    return Splice(document.start + splice.start, document.start + splice.end, splice.text)


def remove(path: str, content: bytes, *targets: Target) -> bytes | None:
    """The file without the declarations; None if it declares nothing else. Raises Refused. Cost: linear."""
    file = _File.read(path, content)
    found = dict(map(file.only, targets))
    if file.read_of.begun == len(found) and not file.read_of.fragments:
        return None
    text = next(iter(found.values())).source.text
    splices = list[Splice]()
    for document in sorted(found.values(), key=lambda each: each.start):
        begin = splices.pop().start if splices and splices[-1].end == document.start else document.start
        splices.append(Splice(begin, document.end, ""))
    start, end, _ = splices[-1]
    if end == len(text) and not text.endswith(("\n", "\r")):  # keep the last line without a line break
        splices[-1] = Splice(len(text[:start].rstrip("\r\n")), end, "")
    wanted = [each.data for at, each in enumerate(file.read_of.documents) if at not in found]
    return file.checked(splices, wanted, min(found.values(), key=lambda each: each.start), _all(path, targets))


def _all(path: str, targets: Sequence[Target]) -> str:
    """The name of the declarations in messages."""
    return str(targets[0]) if len(targets) == 1 else path


def add(path: str, content: bytes | None, body: Mapping[str, Value]) -> bytes:
    """The file with one more document at its end; without `content`, a new file. Raises Refused."""
    lines = block(body)
    if content is None:
        made = "".join(f"{line}\n" for line in lines).encode()
        return _same(path, made, [dict(body)], lambda: _refusal(SourceText(path, ""), "GPU6102", {"what": path}))
    file = _File.read(path, content)
    text = file.text
    found = BREAK.search(text)
    broken = found.group() if found else "\n"
    ends_open = bool(text) and not text.endswith(("\n", "\r"))
    joined = broken.join([*(["---"] if text else []), *lines])
    new = f"{broken}{joined}" if ends_open else f"{joined}{broken}"
    wanted = [*(each.data for each in file.read_of.documents), dict(body)]
    return file.checked([Splice(len(text), len(text), new)], wanted, None, path)


@dataclass(frozen=True, slots=True, eq=False)
class _File:
    """A file that is edited. `text`: without the byte order mark; `named`: its documents with their positions, by kind
    and name."""

    path: str
    bom: str
    text: str
    read_of: Read
    named: Mapping[tuple[str, str], Sequence[tuple[int, Document]]]

    @staticmethod
    def read(path: str, content: bytes) -> _File:
        text = content.decode("utf-8", errors="surrogateescape")
        bom = BOM if text.startswith(BOM) else ""
        read, named = read_file(path, content), dict[tuple[str, str], list[tuple[int, Document]]]()
        for at, document in enumerate(read.documents):
            named.setdefault(_names(document.data), []).append((at, document))
        return _File(path, bom, text.removeprefix(BOM), read, named)

    def only(self, target: Target) -> tuple[int, Document]:
        """The one document that declares the target, and its position. Raises Refused for none or several."""
        found = [each for each in self.named.get((target.kind, target.name), ()) if target.is_in(each[1])]
        if len(found) != 1:
            why = "it is not declared in this file" if not found else "it is declared twice in this file"
            raise _refusal(SourceText(self.path, self.text), "GPU6101", {"what": str(target), "why": why})
        return found[0]

    def checked(self, splices: Iterable[Splice], wanted: Sequence[Any], document: Document | None, what: str) -> bytes:
        """The file's bytes after splices, if they have the wanted content and no new mistakes; else raises Refused."""
        after = f"{self.bom}{applied(self.text, splices)}".encode(errors="surrogateescape")
        source = SourceText(self.path, self.text)

        def refusal() -> Refused:
            span = document.name if document is not None else source.span(1, 1)
            return Refused(diagnose(source, "GPU6102", span, {"what": what}))

        before = [found.code for found in self.read_of.diagnostics]
        return _same(self.path, after, wanted, refusal, before)


def _names(data: Any) -> tuple[str, str]:
    """Kind and name of a document, as far as it has them."""
    kind, metadata = (data.get("kind"), data.get("metadata")) if isinstance(data, dict) else (None, None)
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return kind if isinstance(kind, str) else "", name if isinstance(name, str) else ""


def _same(
    path: str, made: bytes, wanted: Sequence[Any], refusal: Callable[[], Refused], before: Sequence[str] = ()
) -> bytes:
    read = read_file(path, made)
    says = [document.data for document in read.documents]
    mistakes = Counter(found.code for found in read.diagnostics) - Counter(before)
    if mistakes or not alike(says, list(wanted)):
        raise refusal()
    return made


def alike(one: Any, other: Any) -> bool:
    """Whether two values are equal and of one type: true is not 1."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(alike, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _with(data: Any, path: Path, value: Any) -> Any:
    """The data with another value at a path; a mapping without any key left stays, empty."""
    if not path:
        return value
    key, rest = path[0], path[1:]
    here = dict(data) if isinstance(data, dict) else {}
    if not rest and value is REMOVED:
        here.pop(key, None)
    else:
        here[key] = _with(here.get(key), rest, value)
    return here


def _order(kind: str, path: Path) -> Sequence[str]:
    return fields_at(KINDS[kind], path)


def _refusal(source: SourceText, code: str, params: Params = NO_PARAMS) -> Refused:
    return Refused(diagnose(source, code, source.span(1, 1), params))
