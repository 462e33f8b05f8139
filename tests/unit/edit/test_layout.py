"""The stable form: once formatted, twice formatted; the same said, with all comments."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from texts import files

from gpuctl.compile.reading import read_file
from gpuctl.edit import Refused, format_file
from gpuctl.edit.documents import alike
from gpuctl.edit.layout import _notes

ROOT = Path(__file__).resolve().parents[3]
SAMPLES = [*sorted((ROOT / "clusters").rglob("*.yaml")), *sorted((ROOT / "policies").rglob("*.yaml"))]
OTHERS = sorted((ROOT / "tests/scenarios").rglob("*.yaml"))
HEAD = "apiVersion: gpuctl.dev/v1\nkind: Job\nmetadata:\n  name: train\n  project: team-a\nspec:\n"


def check(content: bytes) -> str:
    """Format it, and show what must hold for each file; "" where it is refused."""
    try:
        made = format_file("f.yaml", content)
    except Refused as refused:
        return refused.diagnostic.code
    assert format_file("f.yaml", made) == made
    before, after = read_file("f.yaml", content), read_file("f.yaml", made)
    assert not after.diagnostics
    assert alike([each.data for each in before.documents], [each.data for each in after.documents])
    texts = [each.decode("utf-8-sig").replace("\r\n", "\n") for each in (content, made)]
    assert sorted(_notes("f", texts[0])) == sorted(_notes("f", texts[1]))
    assert made.endswith(b"\n") or not texts[1]
    assert content.startswith(b"\xef\xbb\xbf") == made.startswith(b"\xef\xbb\xbf")
    assert not any(line != line.rstrip() for line in texts[1].split("\n") if "|" not in texts[1])
    return ""


@settings(max_examples=400)
@given(content=files())
def test_what_is_said_stays_and_a_second_time_changes_nothing(content: bytes) -> None:
    refused = check(content)
    event(refused or "formatted")
    # A comment that stands deeper than its field, below a block of text, could become a part of the text.
    assert refused == "" or (refused == "GPU6121" and b"# a deep note" in content and b">-" in content)


WORDS = st.sampled_from([
    "a: 1", "b:", "- x", "- y: 1", "  c: 'd'", "# n", "  # m", "", "    e: [1,", "      2]", "f: {a: b}  # o", "---",
    "  - |", "    text", "g: &h", "i: *h", "  ? k", "  : v", "- - z", "j: >-", "kind: Job", "spec:", "\tq: 1", "...",
])  # fmt: skip


@settings(max_examples=600)
@given(lines=st.lists(WORDS, max_size=12), broken=st.sampled_from(["\n", "\r\n"]))
def test_any_yaml_is_formatted_or_refused(lines: list[str], broken: str) -> None:
    event(check(broken.join(lines).encode()) or "formatted")


@settings(max_examples=300)
@given(content=st.binary(max_size=60))
def test_any_bytes_are_formatted_or_refused(content: bytes) -> None:
    event(check(content) or "formatted")


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_our_own_files_have_the_form(path: Path) -> None:
    assert format_file(path.name, path.read_bytes()).decode() == path.read_text()


def test_files_of_other_forms_stay_what_they_are() -> None:
    assert [path.name for path in OTHERS[::4] if check(path.read_bytes())] == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("  gpus: 1\n  image: a\n", "  image: a\n  gpus: 1\n"),
        ("    image:   'a'\n", "  image: a\n"),
        ("  image: 'yes'\n", "  image: 'yes'\n"),
        ("  image: a\n  args:\n    - a\n    - 'b'\n", "  image: a\n  args:\n  - a\n  - b\n"),
        ("  image: a\n  args: [ 'a' ,\"b c\",\n    \"7\" ]\n", "  image: a\n  args: [a, b c, \"7\"]\n"),
        ("  image: a\n  args: [a,  # one\n    b]\n", "  image: a\n  args: [a,  # one\n    b]\n"),
        ("  # on g\n  gpus: 1 # one\n  # on i\n  image: a\n", "  # on i\n  image: a\n  # on g\n  gpus: 1  # one\n"),
        ("  image: a\n\n\n\n  gpus: 1\n", "  image: a\n\n  gpus: 1\n"),
        ("   image: a\n   env:\n      A: |\n        x\n", "  image: a\n  env:\n    A: |\n      x\n"),
        ("  image: a\n  volumes:\n    - mountPath: /x\n      claim: c\n",
         "  image: a\n  volumes:\n  - claim: c\n    mountPath: /x\n"),
        ("  gpus: &g 1\n  image: a\n  retries: *g", "  image: a\n  gpus: &g 1\n  retries: *g\n"),
        ("  retries: &g 1\n  image: a\n  gpus: *g\n", "  retries: &g 1\n  image: a\n  gpus: *g\n"),
    ],
)  # fmt: skip
def test_the_form(before: str, after: str) -> None:
    assert format_file("f.yaml", (HEAD + before).encode()).decode() == HEAD + after


@pytest.mark.parametrize(
    ("text", "code"),
    [("a: [1\n", "GPU1001"), ("a: 1\na: 2\n", "GPU1003"), ("%YAML 1.2\n---\na: 1\n", "GPU6121"), ("? a\n", "GPU6121")],
)
def test_what_is_not_formatted(text: str, code: str) -> None:
    assert check(text.encode()) == code
