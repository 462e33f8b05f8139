"""SECURITY.md names tests that there are, and travels with the sources."""

import ast
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "SECURITY.md").read_text()


def functions_of(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_each_line_is_shown_by_a_test_that_there_is() -> None:
    table = TEXT.partition("## What stops a tenant")[2].partition("\n## ")[0]
    lines = [line for line in table.splitlines() if line.startswith("| ")][1:]
    assert lines
    for line in lines:
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", line.rpartition(" | ")[2])
        assert named, line
        for path, test in named:
            assert test.startswith("test_")
            assert test in functions_of(path), f"SECURITY.md names {path}::{test}, which is not there"


def test_every_page_at_the_top_is_in_the_source_distribution() -> None:
    include = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["sdist"][
        "include"
    ]
    assert {path.name for path in ROOT.glob("*.md")} <= set(include)
