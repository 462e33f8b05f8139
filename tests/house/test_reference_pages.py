"""The reference pages of docs/ are made of the catalogue, the schemas and the help; `--update-golden` writes them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from reference import ROOT, commands_page, decisions_page, errors_page, fields_page

from gpuctl.cli.main import COMMANDS
from gpuctl.compile.jsonschema import schemas
from gpuctl.diag.codes import CODES

DOCS = ROOT / "docs"
PAGES = {
    "errors.md": errors_page,
    "commands.md": commands_page,
    "fields.md": fields_page,
    "adr/index.md": decisions_page,
}
Golden = Callable[[Path, str], None]


@pytest.mark.parametrize("page", PAGES)
def test_a_reference_page_is_current(page: str, golden: Golden) -> None:
    golden(DOCS / page, PAGES[page]())


def test_each_code_command_and_field_has_its_place() -> None:
    headings = set(re.findall(r"^#+ (.+)$", "".join(make() for make in PAGES.values()), flags=re.MULTILINE))
    assert headings >= CODES.keys()
    assert headings >= {f"gpuctl {name}" for name in COMMANDS}
    assert headings >= schemas().keys()
