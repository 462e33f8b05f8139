"""The compiler: any tree of files becomes what is declared, or diagnostics.

An input is one or several files: a line `#file PATH` begins one. What is before the first is `f.yaml`.
"""

from __future__ import annotations

import re
from typing import Any

from gpuctl.compile import Compiled, compile_tree
from gpuctl.diag.diagnostic import Diagnostic, has_errors
from gpuctl.diag.forms import github, gitlab, junit
from gpuctl.diag.text import json_form, text_form
from gpuctl.model.source import SourceFile, SourceTree

from .harness import YAML, Form, Target

_FILE = re.compile(rb"^#file ([^\n]*)\n", re.MULTILINE)
MOST_TOLD_BYTES = 4 << 20


def files_of(data: bytes) -> dict[str, bytes]:
    """The files of an input by their paths."""
    _, *parts = _FILE.split(b"#file f.yaml\n" + data)
    return {path.decode(errors="replace"): text for path, text in zip(parts[::2], parts[1::2], strict=True)}


def _read(data: bytes) -> Any:
    return {path: YAML.read(text) for path, text in files_of(data).items()}


def _write(tree: Any) -> bytes:
    named = tree.items() if isinstance(tree, dict) else [("f.yaml", tree)]
    return b"\n".join(f"#file {path}\n".encode(errors="replace") + YAML.write(text) for path, text in named)


def check(data: bytes) -> None:
    """Compile the files."""
    files = {path: SourceFile(content=text) for path, text in files_of(data).items()}
    compiled = compile_tree(SourceTree(cluster_dir=".", files=files))
    assert isinstance(compiled, Compiled)
    assert (compiled.declared is None) == has_errors(compiled.diagnostics)
    told_well(compiled.diagnostics)


def told_well(diagnostics: tuple[Diagnostic, ...]) -> None:
    """Diagnostics can be told in every form: in bounded text, where nothing is invisible."""
    for form in (text_form, json_form, github.workflow_commands, gitlab.code_quality, junit.junit):
        text = form(diagnostics)
        assert len(text.encode()) <= MOST_TOLD_BYTES
        assert text.replace("\n", "").isprintable()
    assert "GPU9001" not in {found.code for found in diagnostics}, text_form(diagnostics)
    assert all(found.span.line >= 1 and 1 <= found.span.column <= found.span.end_column for found in diagnostics)


TARGET = Target(
    check=check,
    form=Form(read=_read, write=_write),
    words=(b"\n#file policies/p.yaml\n", b"\n#file projects/team-a/j.yaml\n", b"#file a\xe2\x80\xae.yaml\n", b"spec: ",
           b"kind: Job\n", b"kind: Policy\n", b"cel: ", b".all(v, ", b"object.spec.", b"gpus: ", b"image: ",
           b"name: ", b"project: team-b", b"999999999d",
           b"1e30Gi", b"0.0005"),
)  # fmt: skip
