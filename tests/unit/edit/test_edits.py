"""An edit changes its own lines only, and the result says exactly what was asked, or the edit is refused."""

from __future__ import annotations

import difflib
import re
import time
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from texts import files

from gpuctl.compile.reading import read_file
from gpuctl.edit import REMOVED, Refused, Target, add, remove, set_field, set_fields
from gpuctl.edit.documents import alike
from gpuctl.edit.values import block, inline, is_plain

TRAIN = Target(kind="Job", name="train", project="team-a")
CHANGES: list[tuple[tuple[str, ...], Any]] = [
    (("spec", "suspend"), True),
    (("spec", "suspend"), REMOVED),
    (("spec", "gpus"), Decimal("0.25")),
    (("spec", "image"), "other # image"),
    (("spec", "args"), ["--lr=0.1", "yes"]),
    (("spec", "env"), {"A": "1", "B": {"secret": "s", "key": "k"}}),
    (("spec", "maxDuration"), "2h"),
    (("spec", "resources", "memory"), "2Gi"),
    (("spec", "resources", "cpu"), REMOVED),
    (("spec", "runIndex"), 2),
]


def says(content: bytes) -> list[Any]:
    read = read_file("f.yaml", content)
    assert not read.diagnostics
    return [document.data for document in read.documents]


def lines(content: bytes) -> list[str]:
    return content.decode("utf-8-sig").splitlines()


def notes(content: bytes) -> list[str]:
    """The comments of the samples, none of which is in a value."""
    return re.findall(r"# (?:why|by ana|a note|a deep note|key|inner|whose|next|header|end)", content.decode())


def changed(before: bytes, after: bytes) -> tuple[list[str], list[str]]:
    """The lines that are gone, and those that are new."""
    codes = difflib.SequenceMatcher(None, lines(before), lines(after), autojunk=False).get_opcodes()
    gone = [line for tag, a, b, _, _ in codes if tag != "equal" for line in lines(before)[a:b]]
    new = [line for tag, _, _, a, b in codes if tag != "equal" for line in lines(after)[a:b]]
    return gone, new


@settings(max_examples=400)
@given(content=files(), what=st.sampled_from(CHANGES))
def test_an_edit_changes_its_own_field_and_no_other_line(content: bytes, what: tuple[tuple[str, ...], Any]) -> None:
    path, value = what
    before = says(content)
    try:
        after = set_fields("f.yaml", content, TRAIN, {path: value})
    except Refused as refused:
        event(f"refused: {refused.diagnostic.code}")
        return
    event("made")
    for document in before:
        if document["metadata"]["name"] == "train":
            _set(document, path, value)
    assert alike(says(after), before)
    assert content.startswith(b"\xef\xbb\xbf") == after.startswith(b"\xef\xbb\xbf")
    assert (b"\r\n" in content) == (b"\r\n" in after) or content.count(b"\n") == 0
    assert content.endswith((b"\n", b"\r")) == after.endswith((b"\n", b"\r"))
    if value is not REMOVED:
        assert notes(after) == notes(content)
    gone, new = changed(content, after)
    assert len(new) <= 1 or any(line.startswith("spec") for line in gone)
    if value is not REMOVED and not any(line.endswith((":", "|", ">-", ",")) for line in gone):
        assert len(gone) <= 1, (gone, new)


def _set(document: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    here = document
    for key in path[:-1]:
        if value is REMOVED and not here.get(key):
            return
        here[key] = dict(here.get(key) or {})
        here = here[key]
    if value is REMOVED:
        here.pop(path[-1], None)
    else:
        here[path[-1]] = value


@settings(max_examples=300)
@given(content=files())
def test_a_removed_document_leaves_the_others_as_they_are(content: bytes) -> None:
    before = says(content)
    try:
        after = remove("f.yaml", content, TRAIN)
    except Refused as refused:
        event(f"refused: {refused.diagnostic.code}")
        return
    others = [document for document in before if document["metadata"]["name"] != "train"]
    assert (after is None) == (not others)
    if after is not None:
        assert alike(says(after), others)
        assert not changed(content, after)[1]
        assert content.endswith((b"\n", b"\r")) == after.endswith((b"\n", b"\r"))


@settings(max_examples=200)
@given(content=files())
def test_several_documents_are_removed_as_one_after_another(content: bytes) -> None:
    """All jobs but the last that there is, and all."""
    jobs = [
        Target(kind="Job", name=each["metadata"]["name"], project="team-a")
        for each in says(content)
        if each["kind"] == "Job"
    ]
    for some in (jobs[:-1], jobs):
        one_by_one: bytes | None = content
        try:
            for job in some:
                one_by_one = None if one_by_one is None else remove("f.yaml", one_by_one, job)
            together = remove("f.yaml", content, *some) if some else content
        except Refused as refused:
            event(f"refused: {refused.diagnostic.code}")
            continue
        assert (together is None) == (one_by_one is None)
        assert together is None or one_by_one is None or alike(says(together), says(one_by_one))


@settings(max_examples=200)
@given(content=files(), what=st.sampled_from(CHANGES))
def test_several_documents_are_changed_as_one_after_another(content: bytes, what: tuple[tuple[str, ...], Any]) -> None:
    jobs = [
        Target(kind="Job", name=each["metadata"]["name"], project="team-a")
        for each in says(content)
        if each["kind"] == "Job"
    ]
    one_by_one = content
    try:
        for job in jobs:
            one_by_one = set_fields("f.yaml", one_by_one, job, dict([what]))
        together = set_field("f.yaml", content, jobs, what)
    except Refused as refused:
        event(f"refused: {refused.diagnostic.code}")
        return
    assert together == one_by_one


def test_many_documents_are_edited_in_the_time_of_one() -> None:
    """Each edit read the whole file: 500 jobs took 17 s, 1,000 took 68 s."""
    text = "kind: Job\nmetadata: {name: j%d, project: team-a}\nspec: {image: x}\n"
    content = "---\n".join(text % number for number in range(600)).encode()
    jobs = [Target(kind="Job", name=f"j{number}", project="team-a") for number in range(600)]
    began = time.process_time()
    after = set_field("f.yaml", content, jobs, (("spec", "suspend"), True))
    assert remove("f.yaml", after, *jobs) is None
    assert remove("f.yaml", after, *jobs[1:]) == content[: content.index(b"---")].replace(b"x}", b"x, suspend: true}")
    assert time.process_time() - began < 8


@settings(max_examples=200)
@given(content=files())
def test_an_added_document_leaves_the_others_as_they_are(content: bytes) -> None:
    spec = {"image": "a:1", "gpus": Decimal("0.5"), "args": ["--x", "12:30"]}
    body: dict[str, Any] = {"kind": "Job", "metadata": {"name": "new", "project": "team-a"}, "spec": spec}
    after = add("f.yaml", content, body)
    assert after.startswith(content)
    assert alike(says(after), [*says(content), body])
    assert content.endswith((b"\n", b"\r")) == after.endswith((b"\n", b"\r"))
    removed = remove("f.yaml", after, Target(kind="Job", name="new", project="team-a"))
    assert removed is not None
    assert alike(says(removed), says(content))


ODD = ["yes", "12:30", "0x1f", "1_000", "~", "7d", "16Gi", "2024-01-01", "=", "<<", "null", ".5", "1e3", "0o7"]
TEXT = st.text(max_size=12) | st.sampled_from([*ODD, "- a", "a: b", "a #b", "", " "])
KEYS = st.text("abcXYZ_-", min_size=1, max_size=5)
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers(-10**9, 10**9) | TEXT | st.decimals(0, 1000, places=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


def _readable(value: Any) -> bool:
    if isinstance(value, str):
        return all(c.isprintable() or c in "\n\t" for c in value)
    if isinstance(value, dict):
        return all(map(_readable, value.values()))
    return not isinstance(value, list) or all(map(_readable, value))


@settings(max_examples=400)
@given(value=VALUE.filter(_readable))
def test_a_value_is_written_so_that_it_is_read_again(value: Any) -> None:
    for text in (f"k: {inline(value)}", f"{{k: {inline(value, in_flow=True)}, z: 1}}", "\n".join(block({"k": value}))):
        (document,) = says(text.encode())
        assert alike(document["k"], value), text
    assert "\n" not in inline(value)


@given(text=TEXT)
def test_what_is_written_without_quotes_is_no_other_value_in_any_version(text: str) -> None:
    import yaml  # noqa: PLC0415

    if is_plain(text):
        assert yaml.safe_load(f"k: {text}") == {"k": text}
        assert yaml.safe_load(f"[{text}]") == [text]


@pytest.mark.parametrize(
    ("before", "path", "value", "after"),
    [
        ("spec:\n  image: a\n  retries: 1\n", ("suspend",), True, "spec:\n  image: a\n  retries: 1\n  suspend: true\n"),
        ("spec:\n  retries: 2  # x\n  image: a", ("gpus",), 1, "spec:\n  retries: 2  # x\n  image: a\n  gpus: 1"),
        ("spec: {image: a}\n", ("suspend",), True, "spec: {image: a, suspend: true}\n"),
        ("spec:\n  suspend: false # x\n  image: a\n", ("suspend",), True, "spec:\n  suspend: true # x\n  image: a\n"),
        ("spec:\n  image: a\n  suspend: true\n", ("suspend",), REMOVED, "spec:\n  image: a\n"),
        ("spec:\n  image: a\n  args:\n  - b\n  - c\n", ("args",), ["d"], "spec:\n  image: a\n  args: [d]\n"),
        ("spec:\n  image: a\n  env: # none\n", ("env", "A"), "b", "spec:\n  image: a\n  env: # none\n    A: b\n"),
    ],
)  # fmt: skip
def test_edits_read_as_if_a_person_had_made_them(before: str, path: tuple[str, ...], value: Any, after: str) -> None:
    head = "apiVersion: gpuctl.dev/v1\nkind: Job\nmetadata: {name: train, project: team-a}\n"
    made = set_fields("f.yaml", (head + before).encode(), TRAIN, {("spec", *path): value})
    assert made.decode() == head + after


@pytest.mark.parametrize(
    ("spec", "path", "code"),
    [
        ("spec: {gpus: &g 1, retries: *g, image: a}", ("spec", "gpus"), "GPU6102"),
        ("spec: {env: &e {A: a}, image: a, resources: *e}", ("spec", "resources", "cpu"), "GPU6101"),
        ("spec:\n  image: a\n  args:\n  - a  # first\n  - b\n", ("spec", "args"), "GPU6101"),
        ("spec: [a]", ("spec", "gpus"), "GPU6101"),
        ("x: 1\n---\nkind: Job\nmetadata: {name: train, project: team-a}\n", ("spec", "gpus"), "GPU6101"),
    ],
)
def test_what_would_change_more_is_refused(spec: str, path: tuple[str, ...], code: str) -> None:
    content = f"kind: Job\nmetadata: {{name: train, project: team-a}}\n{spec}\n".encode()
    with pytest.raises(Refused) as refused:
        set_fields("f.yaml", content, TRAIN, {path: 2})
    assert refused.value.diagnostic.code == code


def test_what_is_wrong_can_be_corrected_and_removed() -> None:
    content = b"kind: Job\nmetadata: {name: train, project: team-a}\nspec: {gpus: .nan}\n---\nkind: Job\n"
    assert b"{gpus: 1}" in set_fields("f.yaml", content, TRAIN, {("spec", "gpus"): 1})
    assert remove("f.yaml", content, TRAIN) == b"---\nkind: Job\n"
