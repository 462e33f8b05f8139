"""docs/api.md is run as it stands there, from the top to the end, and so are the examples in `gpuctl.api` itself."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

from gpuctl import api

PAGE = Path(__file__).resolve().parents[2] / "docs" / "api.md"


def test_the_page_is_what_python_prints() -> None:
    code = "\n".join(re.findall(r"```pycon\n(.*?)```", PAGE.read_text(), flags=re.DOTALL))
    examples = doctest.DocTestParser().get_doctest(code, {}, PAGE.name, str(PAGE), 0)
    assert len(examples.examples) > 10
    told: list[str] = []
    doctest.DocTestRunner(verbose=False).run(examples, out=told.append)
    assert told == []


def test_examples_in_the_docstrings_are_what_python_prints() -> None:
    done = doctest.testmod(api)
    assert done.attempted
    assert not done.failed


def test_the_page_names_all_that_is_public_and_nothing_else() -> None:
    page = PAGE.read_text()
    used = set(re.findall(r"\bapi\.(\w+)\(", page))
    promised = set(re.findall(r"^\| `(\w+)` \|", page, flags=re.MULTILINE))
    assert used | promised == set(api.__all__)
