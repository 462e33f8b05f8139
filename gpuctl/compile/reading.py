"""Bytes to documents. Never raises for a file's content: every mistake is a diagnostic, and the rest is still read.

After a mistake that ends a document's YAML, reading goes on at the next line that begins with `---`: such a line begins
a document wherever it is.
"""

from __future__ import annotations

import re

from gpuctl.compile import syntax
from gpuctl.compile.builder import MAX_DOCUMENTS, Builder, Fragment, Read
from gpuctl.compile.document import Document
from gpuctl.compile.text import NO_PARAMS, Params, SourceText, diagnose
from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.diag.span import SourceSpan
from gpuctl.model.ids import NO_REVISION, Revision
from gpuctl.model.source import MAX_FILE_BYTES

_NOT_TEXT = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_CONFLICT = re.compile(r"^(?:<{7}|\|{7}|={7}|>{7})(?=[ \r\n]|\Z)", re.MULTILINE)
_DOCUMENT_LINE = re.compile(r"^---(?=[ \t\r\n]|\Z)", re.MULTILINE)


def read_file(
    path: str,
    content: bytes,
    revision: Revision = NO_REVISION,
    parser: syntax.Parser = syntax.FastParser,
    told: int = 0,
) -> Read:
    """Read one file. `told`: how many mistakes are reported before its own. Cost: linear in its size."""
    if len(content) > MAX_FILE_BYTES:
        source = SourceText(path, "", revision)
        read = Read(fragments=[Fragment(source, 0, 0)])
        read.diagnostics.append(diagnose(source, "GPU1007", source.span(1, 1), {"limit": MAX_FILE_BYTES}))
        return read
    text = content.decode("utf-8", errors="surrogateescape").removeprefix("\ufeff")
    return _Reader(SourceText(path, text, revision), parser, told).read()


def parse_documents(path: str, content: bytes) -> tuple[list[Document], list[Diagnostic]]:
    """The readable documents of one file, and the mistakes in its YAML."""
    read = read_file(path, content)
    return read.documents, read.diagnostics


class _Reader:
    """Reads a text piece by piece; a piece ends where a document's YAML does."""

    def __init__(self, source: SourceText, parser: syntax.Parser, told: int) -> None:
        self.source = source
        self.told = told
        self.parser = parser
        self.out = Read()
        self.piecewise = _NOT_TEXT.search(source.text) is not None

    def read(self) -> Read:
        """Read all of the text: first in one piece, and after a mistake document by document, so that the cost is
        linear."""
        text, offset = self.source.text, 0
        while offset < len(text):
            end = self._next_document(offset + 1) if self.piecewise else len(text)
            bad = _NOT_TEXT.search(text, offset, end) if self.piecewise else None
            offset = self._piece(offset, end) if bad is None else self._lose(offset, end, bad)
        return self.out

    def _lose(self, start: int, end: int, bad: re.Match[str]) -> int:
        """Skip a document that is not text."""
        self.out.begun += 1
        if self.out.begun > MAX_DOCUMENTS:
            return self._too_many(start)
        self._not_text(bad)
        self.out.fragments.append(Fragment(self.source, start, end))
        return end

    def _piece(self, start: int, end: int) -> int:
        """Read documents; returns where to go on: `end`, or after a document that can't be read."""
        builder = Builder(self.source, self.out, start, self.told)
        try:
            if not builder.take(syntax.events(self.source.text[start:end], self.parser)):
                is_too_many = self.out.begun > MAX_DOCUMENTS
                return self._too_many(builder.begin) if is_too_many else self._skip(builder.begin, builder.begin)
        except syntax.NotYaml as error:
            stopped = builder.first_line + error.stopped
            mark = _CONFLICT.search(self.source.text, builder.begin, self.source.offset(stopped + 1))
            if mark is not None:
                self._in_conflict(mark)
            else:
                self._not_yaml(error, builder.first_line + error.line, builder.unclosed())
            return self._skip(builder.begin, self.source.offset(stopped))
        return end

    def _next_document(self, offset: int) -> int:
        """Where the next document begins, or the end of the text."""
        found = _DOCUMENT_LINE.search(self.source.text, offset)
        return found.start() if found else len(self.source.text)

    def _skip(self, begin: int, search_from: int) -> int:
        """Skip the document that begins at `begin`; returns where the next one begins."""
        self.piecewise = True
        end = self._next_document(max(begin + 1, search_from))
        self.out.fragments.append(Fragment(self.source, begin, end))
        return end

    def _report(self, code: str, line: int, column: int, params: Params = NO_PARAMS) -> None:
        self.out.diagnostics.append(diagnose(self.source, code, self.source.span(line, column), params))

    def _not_yaml(self, error: syntax.NotYaml, line: int, unclosed: SourceSpan | None) -> None:
        text = self.source.line(line)
        indent = text[: len(text) - len(text.lstrip())]
        if "\t" in indent:
            self._report("GPU1002", line, indent.index("\t") + 1)
            return
        span, problem, fix = self.source.span(line, error.column + 1), error.problem, error.fix
        if unclosed is not None and unclosed.line != line:
            span, problem, fix = unclosed, *syntax.UNCLOSED
        self.out.diagnostics.append(diagnose(self.source, "GPU1001", span, {"problem": problem}, fix))

    def _in_conflict(self, mark: re.Match[str]) -> None:
        line, column = self.source.position(mark.start())
        span = self.source.span(line, column, column + len(mark.group()))
        self.out.diagnostics.append(diagnose(self.source, "GPU1025", span, {"mark": mark.group()}))

    def _not_text(self, bad: re.Match[str]) -> None:
        line, column = self.source.position(bad.start())
        code_point = ord(bad.group())
        if 0xDC80 <= code_point <= 0xDCFF:
            self._report("GPU1005", line, column, {"byte": f"0x{code_point - 0xDC00:02x}"})
        else:
            self._report("GPU1006", line, column, {"character": f"U+{code_point:04X}"})

    def _too_many(self, begin: int) -> int:
        line, _ = self.source.position(begin)
        self._report("GPU1016", line, 1, {"limit": MAX_DOCUMENTS})
        self.out.fragments.append(Fragment(self.source, begin, len(self.source.text)))
        return len(self.source.text)
