"""Texts of declarations as people write them, for the tests of edits."""

from __future__ import annotations

from functools import cache

from draws import among, shuffled
from hypothesis import strategies as st

NOTES = st.sampled_from(["", "", "  # why", "\t# by ana", " #x"])
LINES = st.sampled_from(["", "", "", "# a note", "  # a deep note", "# key: value", "#"])
VALUES = {
    "type": ["training", '"interactive"', "'inference'", "&t training", "!!str training"],
    "image": ["registry.example.com/train:1", '"a # b"', "'x'", "&i a/b@sha256:00"],
    "gpus": ["1", "0.5", "4  ", "&g 2"],
    "suspend": ["false", "true", "False"],
    "priority": ["3", "-1", "0x10"],
    "args": [
        "[--a, 'b # c']", "[]", "\n{pad}- one\n{pad}- 'two # x'", "\n{pad}- |\n{pad}  text # no comment\n{pad}- x",
        "[a,\n{pad}  b]",
    ],
    "command": ["[sh, -c]", "&c [sh]"],
    "env": [
        "{A: 'x', B: y}", "\n{pad}  A: 'x'\n{pad}  # inner\n{pad}  B: |\n{pad}    two\n{pad}    lines\n", "{}",
    ],
    "resources": ["{cpu: 4}", "\n{pad}  cpu: 4\n{pad}  memory: 1Gi"],
    "maxDuration": ["8h", "null", "~", ""],
    "retries": ["0", ">-\n{pad}  1"],
}  # fmt: skip


KEYS = st.sets(st.sampled_from(sorted(VALUES)), max_size=6)
OTHERS = st.sets(st.sampled_from(["x", "y"]))


@cache
@st.composite
def jobs(draw: st.DrawFn, name: str = "train") -> str:
    """One document that declares job `name` of team-a, with keys, comments and blank lines in any order and layout."""
    if draw(st.integers(0, 5)) == 0:
        spec = ", ".join(f"{key}: {value}" for key, value in draw(_fields(flow=True)))
        spec = f"spec: {{{spec}}}"
        return _joined(draw, [*_head(name), spec])
    indent = " " * draw(among(1, 2, 2, 4))
    body = []
    for key, value in draw(_fields(flow=False)):
        written = value.replace("{pad}", indent)
        note = draw(NOTES) if not written.startswith("\n") and "|" not in written and ">" not in written else ""
        body.append(f"{indent}{key}:{'' if written.startswith(chr(10)) or not written else ' '}{written}{note}")
        body.append(draw(LINES))
    return _joined(draw, [*_head(name), "spec:", *(line for line in body if line)])


@cache
@st.composite
def _fields(draw: st.DrawFn, *, flow: bool) -> list[tuple[str, str]]:
    keys = draw(shuffled(("image", *sorted(draw(KEYS)))))
    chosen = [(key, draw(among(*VALUES[key]))) for key in dict.fromkeys(keys)]
    return [pair for pair in chosen if not flow or not set("\n#") & set(pair[1])]


def _head(name: str) -> list[str]:
    return ["apiVersion: gpuctl.dev/v1", "kind: Job", f"metadata: {{name: {name}, project: team-a}}  # whose"]


def _joined(draw: st.DrawFn, lines: list[str]) -> str:
    first = draw(LINES)
    return "\n".join([*([first] if first else []), *lines])


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """A file with job team-a/train among others, with any line break, byte order mark or none, any end."""
    names = draw(shuffled(("train", *sorted(draw(OTHERS)))))
    documents = [draw(jobs(name)) for name in names]
    text = draw(among("\n---\n", "\n--- # next\n", "\n\n---\n")).join(documents)
    begin, end = (
        draw(among("", "---\n", "# header\n\n")),
        draw(among("", "\n", "\n\n", "\n# end")),
    )
    text = f"{begin}{text}{end}".replace("\n", draw(among("\n", "\n", "\r\n")))
    mark: str = draw(among("", "", "\ufeff"))
    return f"{mark}{text}".encode()
