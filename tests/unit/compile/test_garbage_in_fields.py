"""A list or a mapping in the place of any value is told as a mistake, where a set that is looked in holds neither."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from trees import CLUSTER, project, tree_of

from gpuctl.compile import compile_tree
from gpuctl.diag.text import text_form

TESTS = Path(__file__).parents[2]
YAML_BLOCK = re.compile(r"```yaml[^\n]*\n(.*?)```", re.DOTALL)
BESIDE = {"c.yaml": CLUSTER, "p.yaml": project("team-a")}
GARBAGE: tuple[Any, ...] = ([], {}, [[]])


def paths(value: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where anything stands in a document, from the outside in."""
    yield at
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, below in steps:
        yield from paths(below, (*at, step))


def replaced(value: Any, at: tuple[str | int, ...], by: Any) -> Any:
    """The document with another value in one place."""
    if not at:
        return by
    copied: Any = dict(value) if isinstance(value, dict) else list(value)
    copied[at[0]] = replaced(value[at[0]], at[1:], by)
    return copied


def spoiled(document: Any) -> Iterator[str]:
    """The document with each piece of garbage in each place of it, one at a time, under a name of its own."""
    for number, at in enumerate(paths(document)):
        for which, garbage in enumerate(GARBAGE):
            found = replaced(document, at, garbage)
            if isinstance(found, dict) and isinstance(found.get("metadata"), dict) and at != ("metadata", "name"):
                found = replaced(found, ("metadata",), {**found["metadata"], "name": f"j{which}-{number}"})
            yield json.dumps(found, default=str)


def examples() -> Iterator[list[Any]]:
    """The documents of each example of a diagnostic, of the reference of all fields, and of a template with its job.

    Without texts with aliases: such a value can hold itself.
    """
    files = [*(TESTS / "diagnostics").glob("GPU*/input.yaml"), TESTS / "fuzz/corpus/compile/templates"]
    blocks = YAML_BLOCK.findall((TESTS.parent / "docs/declare.md").read_text())
    for text in (*(path.read_text(errors="replace") for path in files), *blocks):
        with suppress(yaml.YAMLError):
            yield list(yaml.safe_load_all(text)) if "&" not in text else []


def test_garbage_in_any_place_is_told() -> None:
    tried = 0
    for example in examples():
        whole = {f"{number}.yaml": json.dumps(document, default=str) for number, document in enumerate(example)}
        for document in example:
            files = {f"f{number}.yaml": text for number, text in enumerate(spoiled(document))}
            found = compile_tree(tree_of({**BESIDE, **whole, **files})).diagnostics
            assert "GPU9001" not in (told := text_form(found)), told
            tried += len(files)
    assert tried > 5_000
