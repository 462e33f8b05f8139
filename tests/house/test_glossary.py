"""The engine speaks the words of docs/glossary.md."""

from __future__ import annotations

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
    texts = (path.read_text() for path in (ROOT / "gpuctl" / "engine").rglob("*.py"))
    return sorted({name for text in texts for name in re.findall(r"^ *class (\w+)[:(\[]", text, flags=re.MULTILINE)})


@pytest.mark.parametrize("name", class_names())
def test_class_names_of_the_engine_are_made_of_the_glossarys_words(name: str) -> None:
    words = {word.lower() for word in re.findall(r"[A-Z][a-z]*", name)}
    assert words <= terms()
