from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gpuctl.compile import syntax
from gpuctl.compile.builder import Read
from gpuctl.compile.document import Document, Path
from gpuctl.compile.reading import parse_documents, read_file
from gpuctl.model.source import MAX_FILE_BYTES

PARSERS = [syntax.FastParser, syntax.PlainParser]


def read(text: str | bytes, parser: syntax.Parser = syntax.FastParser) -> Read:
    return read_file("f.yaml", text.encode() if isinstance(text, str) else text, parser=parser)


def document(text: str) -> Document:
    (found,) = read(text).documents
    return found


def places(text: str | bytes, parser: syntax.Parser = syntax.FastParser) -> list[tuple[str, int, int]]:
    return [(d.code, d.span.line, d.span.column) for d in read(text, parser).diagnostics]


@pytest.mark.parametrize("parser", PARSERS)
@pytest.mark.parametrize("text", ["", "\n", "# only this\n", "---\n", "---\n---\n", "\ufeff", "~\n"])
def test_empty_files_declare_nothing(text: str, parser: syntax.Parser) -> None:
    assert read(text, parser) == Read(begun=read(text, parser).begun)


@pytest.mark.parametrize("parser", PARSERS)
def test_data_is_exact(parser: syntax.Parser) -> None:
    text = "a: 0.10\nb: [yes, 'true', 010, ~, !!str 5]\nc: {d: |\n  x\n}\n"
    found = read(text.replace("c: {d: |\n  x\n}", "c:\n  d: |\n    x"), parser).documents[0].data
    assert found == {"a": Decimal("0.10"), "b": ["yes", "true", 10, None, "5"], "c": {"d": "x\n"}}


TREE = """\
apiVersion: v1   # a comment
spec:
  list:
  - name: one
    flow: {a: 1, "b": [x, yy]}
  - two
  empty:
"""


@pytest.mark.parametrize(
    ("path", "line", "column", "end"),
    [
        (("apiVersion",), 1, 13, 15),
        (("spec",), 2, 1, 5),
        (("spec", "list"), 3, 3, 7),
        (("spec", "list", 0), 4, 5, 14),
        (("spec", "list", 0, "name"), 4, 11, 14),
        (("spec", "list", 0, "flow"), 5, 11, 31),
        (("spec", "list", 0, "flow", "b", 1), 5, 27, 29),
        (("spec", "list", 1), 6, 5, 8),
        (("spec", "empty"), 7, 3, 8),
        (("spec", "missing"), 2, 1, 5),
    ],
)
def test_places_of_values(path: Path, line: int, column: int, end: int) -> None:
    span = document(TREE).span(path)
    assert (span.line, span.column, span.end_column) == (line, column, end)


def test_places_of_keys() -> None:
    span = document(TREE).key_span(("spec", "list", 0, "flow", "b"))
    assert (span.line, span.column, span.end_column) == (5, 18, 21)


def test_places_in_later_documents_and_after_dashes() -> None:
    documents = read("a: 1\n--- {b: 2}\n...\n%YAML 1.2\n---\n- c: 3\n").documents
    spans = [documents[0].span(("a",)), documents[1].span(("b",)), documents[2].span((0, "c"))]
    assert [(span.line, span.column) for span in spans] == [(1, 4), (2, 9), (6, 6)]


@pytest.mark.parametrize("parser", PARSERS)
def test_columns_after_crlf_bom_and_wide_characters(parser: syntax.Parser) -> None:
    text = "\ufeffa: é\r\nb: {漢: .nan}\r\nc: .inf\r\n"
    assert places(text, parser) == [("GPU1014", 2, 8), ("GPU1014", 3, 4)]
    assert read(text, parser).diagnostics[0].source_line == "b: {漢: .nan}"


@pytest.mark.parametrize("parser", PARSERS)
def test_documents_around_a_broken_one_are_read(parser: syntax.Parser) -> None:
    for broken in (
        "b: [\n",
        "b: 'x\n",
        "b: c: d\n",
        "b:\n\tc: 1\n",
        "b: &x\n- *y\n  z\n",
        "%YAML 9.9\n",
        "b\nc: d\n",
        "@\n",
    ):
        found = read(f"a: 1\n---\n{broken}---\nc: 3\n", parser)
        assert [one.data for one in found.documents] == [{"a": 1}, {"c": 3}], broken
        assert {d.span.line for d in found.diagnostics} <= {3, 4, 5}, broken
        assert found.diagnostics, broken


def test_a_byte_that_is_not_utf8_and_a_control_character_lose_their_documents_only() -> None:
    found = read(b"a: 1\n---\nb: caf\xe9 \xff\n---\nc: 3\n---\nd: \x00\x01\n---\ne: 5\n")
    assert [one.data for one in found.documents] == [{"a": 1}, {"c": 3}, {"e": 5}]
    assert [(d.code, d.span.line, d.span.column) for d in found.diagnostics] == [("GPU1005", 3, 7), ("GPU1006", 7, 4)]


def test_a_value_of_ten_megabytes_is_not_read() -> None:
    assert places(b"a: " + b"x" * 10_000_000) == [("GPU1007", 1, 1)]


def test_a_long_line_is_read_and_not_quoted() -> None:
    found = read("a: [" + "x, " * 10_000 + ".nan]\n")
    assert [d.source_line for d in found.diagnostics] == [""]


def test_the_largest_file_is_read_in_linear_time() -> None:
    text = b"a: 1\n---\n" * 2000
    assert len(read(text).documents) == 2000
    assert len(text) < MAX_FILE_BYTES


def test_documents_are_counted_whatever_they_hold() -> None:
    for one in (b"---\n", b"---\n@\n", b"---\n\x01\n"):
        assert [code for code, _, _ in places(one * 20_002)][-1] == "GPU1016"


def test_nesting_is_limited_however_deep() -> None:
    for depth in (51, 1000, 100_000):
        assert places("[" * depth) == [("GPU1008", 1, 51)]
    assert places("[" * 50 + "]" * 50) == []
    block = "".join("  " * level + "a:\n" for level in range(100))
    assert places(block) == [("GPU1008", 51, 101)]


@pytest.mark.parametrize("parser", PARSERS)
def test_aliases_stand_for_their_values(parser: syntax.Parser) -> None:
    found = read("a: &x {b: [1]}\nc: *x\nd: &y text\n*y : 1\n", parser)
    assert found.diagnostics == []
    assert found.documents[0].data == {"a": {"b": [1]}, "c": {"b": [1]}, "d": "text", "text": 1}
    assert found.documents[0].span(("c", "b", 0)).line == 1


def test_alias_bombs_are_stopped_before_they_grow() -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    for before, name in zip("abcdefghijklmnop", "bcdefghijklmnopq", strict=True):
        lines.append(f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]")
    assert [code for code, _, _ in places("\n".join(lines))] == ["GPU1009"]


def _texts(value: Any, path: Path = ()) -> list[tuple[Path, str]]:
    if isinstance(value, dict):
        return [found for key, below in value.items() for found in _texts(below, (*path, key))]
    if isinstance(value, list):
        return [found for index, below in enumerate(value) for found in _texts(below, (*path, index))]
    return [(path, value)]


_WORDS = st.text(alphabet="abcxyz é漢", min_size=1, max_size=8).map(str.strip).filter(bool)
_VALUES = st.recursive(
    _WORDS,
    lambda below: st.lists(below, min_size=1, max_size=3) | st.dictionaries(_WORDS, below, min_size=1, max_size=3),
)


@given(
    st.dictionaries(_WORDS, _VALUES, min_size=1, max_size=4), st.sampled_from([True, False]), st.sampled_from("\n\r")
)
def test_every_place_holds_its_value(data: dict[str, Any], flow: bool, newline: str) -> None:  # noqa: FBT001 - drawn
    text = yaml.safe_dump(data, default_flow_style=flow, allow_unicode=True, width=10_000)
    text = text.replace("\n", "\r\n") if newline == "\r" else text
    found = document(text)
    assert found.data == data
    for path, word in _texts(data):
        span = found.span(path)
        assert found.source.line(span.line)[span.column - 1 : span.end_column - 1].strip("'\"") == word


@given(st.binary(max_size=200) | st.text(alphabet="ab:-[]{}&*!|>'\"%@#,?~ \n\t\r.0", max_size=60).map(str.encode))
def test_both_parsers_read_the_same_and_neither_raises(content: bytes) -> None:
    fast, plain = (read(content, parser) for parser in PARSERS)
    if not fast.diagnostics and not plain.diagnostics:
        assert [d.data for d in fast.documents] == [d.data for d in plain.documents]
    for found in (*fast.diagnostics, *plain.diagnostics):
        assert 1 <= found.span.column < found.span.end_column
        assert found.span.line >= 1


def test_parse_documents_is_the_same_for_others() -> None:
    documents, diagnostics = parse_documents("f.yaml", b"a: 1\n---\nb: [\n")
    assert [one.data for one in documents] == [{"a": 1}]
    assert [d.code for d in diagnostics] == ["GPU1001"]
