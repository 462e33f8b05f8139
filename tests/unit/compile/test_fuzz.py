"""No input makes the compiler raise; what it says has a place in the file."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from trees import CLUSTER, job, project, tree_of

from gpuctl.compile import compile_tree
from gpuctl.diag.diagnostic import has_errors
from gpuctl.diag.forms import github, gitlab, junit
from gpuctl.diag.text import json_form, text_form

FIXTURES = sorted((Path(__file__).parents[2] / "diagnostics").glob("GPU*/input.yaml"))
GOOD: dict[str, str | bytes] = {"c.yaml": CLUSTER, "p.yaml": project("team-a")}
FULL = job(
    "train",
    "{image: x, type: interactive, gpus: 0.5, workers: 2, minWorkers: 1, env: {A: b, B: {secret: s, key: k}},"
    " volumes: [{claim: c, mountPath: /c}, {newClaim: {size: 1Gi}, mountPath: /n}], expose: [{port: 80}],"
    " maxDuration: 8h, nodePools: [dgx], resources: {cpu: 1, memory: 1Gi}, command: [a], args: ['b']}",
)
SNIPPETS = st.sampled_from(
    ["\t", "---\n", "- ", ": ", "[", "]", "{", "}", "&a ", "*a", "<<: ", "!!x ", "'", '"', "|\n", "yes", ".nan",
     "1e400", "-1", "0.0005", "null", "\x00", "\ufeff", "\r", "\u2028", "é", "漢", "\\", "%", "#", "? ", "~", "9" * 30,
     "name: ", "kind: Cluster\n", "spec: ", "gpus: ", "x" * 70]
)  # fmt: skip
EDITS = st.lists(
    st.tuples(st.integers(0, 4000), st.integers(0, 12), SNIPPETS | st.text(max_size=3)), min_size=1, max_size=4
)


def check(files: dict[str, str | bytes]) -> None:
    compiled = compile_tree(tree_of(files))
    assert (compiled.declared is None) == has_errors(compiled.diagnostics)
    for found in compiled.diagnostics:
        assert found.code != "GPU9001", found.message
        assert found.span.file in files or found.code == "GPU3001"
        assert 1 <= found.span.column < found.span.end_column or found.code == "GPU3001"
    for form in (text_form, json_form, github.workflow_commands, gitlab.code_quality, junit.junit):
        form(compiled.diagnostics).encode()
    assert compiled == compile_tree(tree_of(dict(reversed(files.items()))))


@given(st.binary(max_size=300))
def test_bytes(content: bytes) -> None:
    check({**GOOD, "f.yaml": content})


@given(
    st.sampled_from([FULL, CLUSTER, project("team-a"), *(path.read_text("utf-8", "replace") for path in FIXTURES)]),
    EDITS,
)
@settings(max_examples=300)
def test_edited_declarations(text: str, edits: list[tuple[int, int, str]]) -> None:
    for place, cut, snippet in edits:
        start = place % (len(text) + 1)
        text = text[:start] + snippet + text[start + cut :]
    check({**GOOD, "f.yaml": text.encode("utf-8", "surrogatepass")})


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=5), below, max_size=3),
    max_leaves=5,
)
FIELDS = ["image", "type", "gpus", "gpuMemory", "workers", "minWorkers", "env", "volumes", "expose", "resources",
          "maxDuration", "nodePools", "command", "priority", "preemptible", "runIndex"]  # fmt: skip


@given(st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=5))
def test_any_value_in_any_field(spec: dict[str, object]) -> None:
    fields = ", ".join(f"{name}: {_flow(value)}" for name, value in spec.items())
    check({**GOOD, "f.yaml": job("train", f"{{{fields}}}").encode("utf-8", "surrogatepass")})


def _flow(value: object) -> str:
    """The value as YAML in one line."""
    match value:
        case None | bool() | int() | float():
            return {"nan": ".nan", "inf": ".inf", "-inf": "-.inf", "None": "null"}.get(str(value), str(value).lower())
        case list():
            return f"[{', '.join(map(_flow, value))}]"
        case dict():
            return f"{{{', '.join(f'{_flow(key)}: {_flow(below)}' for key, below in value.items())}}}"
        case _:
            return "'" + str(value).replace("'", "''") + "'"
