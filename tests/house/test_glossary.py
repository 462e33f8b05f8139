"""The engine speaks the words of docs/glossary.md."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def terms() -> set[str]:
    """All words of the glossary's first column, as they are and in the singular."""
    rows = re.findall(r"^\| ([^|]+) \|", (ROOT / "docs" / "glossary.md").read_text(), flags=re.MULTILINE)
    words = {word.lower() for row in rows for word in re.findall(r"[A-Za-z]+", row)}
    return words | {word.removesuffix("s") for word in words} | {word + "s" for word in words}


def class_names() -> list[str]:
    """Every class of the engine."""
    trees = (ast.parse(path.read_text()) for path in sorted((ROOT / "gpuctl" / "engine").rglob("*.py")))
    return sorted({node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)})


@pytest.mark.parametrize("name", class_names())
def test_class_names_of_the_engine_are_made_of_the_glossarys_words(name: str) -> None:
    words = {word.lower() for word in re.findall(r"[A-Z][a-z]*", name)}
    assert words <= terms()
