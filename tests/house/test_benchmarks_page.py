"""The figures of docs/benchmarks.md are those of the recorded runs; `--update-golden` writes them there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest
from benchmarks import FACTS, PAGE, Record, filled, named_in, records

RECORDS = records()
Golden = Callable[[Path, str], None]


def test_the_figures_are_those_of_the_records(golden: Golden) -> None:
    golden(PAGE, filled(PAGE.read_text(encoding="utf-8"), RECORDS))


def test_each_record_is_shown_once() -> None:
    assert Counter(named_in(PAGE.read_text(encoding="utf-8"))) == Counter(RECORDS.keys())


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS.keys())
def test_a_record_says_what_was_run_when_and_where(record: Record) -> None:
    assert all(record[fact].strip() for fact in FACTS)
    date.fromisoformat(record["date"])
    assert ("output" in record) != ("rows" in record)
    assert "output" in record or all(len(row) == len(record["columns"]) for row in record["rows"])


def test_another_figure_in_a_record_is_another_page() -> None:
    page = "before\n<!-- figures one -->\nanything\n<!-- /figures -->\nafter\n"
    record = {
        "command": "c",
        "date": "2026-11-26",
        "machine": "m",
        "version": "v",
        "columns": ["a", ""],
        "rows": [["1", ""]],
    }
    shown = filled(page, {"one": record})
    assert "| a | |\n| --- | --- |\n| 1 | |\n" in shown
    assert shown == filled(shown, {"one": record})
    assert shown != filled(shown, {"one": {**record, "rows": [["2", ""]]}})
