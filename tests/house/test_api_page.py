"""docs/api.md is run as it stands there, from the top to the end, and so are the examples in `gpuctl.api` itself."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

from gpuctl import api

PAGE = Path(__file__).resolve().parents[2] / "docs" / "api.md"


def test_the_page_is_what_python_prints_and_what_it_promises_is_there() -> None:
    names: dict[str, object] = {}
    code = "\n".join(re.findall(r"```pycon\n(.*?)```", PAGE.read_text(), flags=re.DOTALL))
    examples = doctest.DocTestParser().get_doctest(code, names, PAGE.name, str(PAGE), 0)
    assert len(examples.examples) > 10
    told: list[str] = []
    doctest.DocTestRunner(verbose=False).run(examples, out=told.append, clear_globs=False)
    assert told == []
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", PAGE.read_text(), flags=re.MULTILINE)
    made = {type(value).__name__: value for value in examples.globs.values()}
    missing = {name: set(re.findall(r"`([\w.]+)`", fields)) - _reached(made[name], 3) for name, fields in rows}
    assert {name: fields for name, fields in missing.items() if fields} == {}


def _reached(value: object, depth: int) -> set[str]:
    """The names of a value's public fields, and of those below it, alone and with the name that they are below."""
    found: set[str] = set()
    for name in (name for name in dir(value) if not name.startswith(("_", "model_"))):
        below = getattr(value, name)
        is_list = isinstance(below, list | tuple) and not hasattr(below, "_fields")
        first = next(iter(below), None) if is_list else below
        inner = _reached(first, depth - 1) if depth > 1 and type(first).__module__.startswith("gpuctl") else set()
        found |= {name} | inner | {f"{name}.{each}" for each in inner}
    return found


def test_examples_in_the_docstrings_are_what_python_prints() -> None:
    done = doctest.testmod(api)
    assert done.attempted
    assert not done.failed


def test_the_page_names_all_that_is_public_and_nothing_else() -> None:
    page = PAGE.read_text()
    used = set(re.findall(r"\bapi\.(\w+)\(", page))
    promised = set(re.findall(r"^\| `(\w+)` \|", page, flags=re.MULTILINE))
    assert used | promised == set(api.__all__)
