"""A list or a mapping in the place of any value is told as a mistake, where a set that is looked in holds neither."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from trees import CLUSTER, project, tree_of

from gpuctl.compile import compile_tree
from gpuctl.diag.text import text_form

FIXTURES = sorted((Path(__file__).parents[2] / "diagnostics").glob("GPU*/input.yaml"))
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
    copied = dict(value) if isinstance(value, dict) else list(value)
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


def documents_of(fixture: Path) -> list[Any]:
    """The documents of a fixture that is YAML, without aliases: these can hold themselves."""
    with suppress(yaml.YAMLError, UnicodeDecodeError):
        text = fixture.read_text()
        return list(yaml.safe_load_all(text)) if "&" not in text else []
    return []


def test_garbage_in_any_place_is_told() -> None:
    tried = 0
    for fixture in FIXTURES:
        for document in documents_of(fixture):
            files = {f"f{number}.yaml": text for number, text in enumerate(spoiled(document))}
            found = compile_tree(tree_of({**BESIDE, **files})).diagnostics
            assert text_form(found), fixture
            tried += len(files)
    assert tried > 5_000
