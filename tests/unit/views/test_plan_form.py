"""What `gpuctl plan -o json` prints is what its published schema says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from gpuctl.views.plan_form import PlanReportV1, schema

ROOT = Path(__file__).parents[3]
REPORTS = sorted((ROOT / "tests" / "golden" / "plan").glob("*.json"))


def test_the_schema_file_is_current(golden: Callable[[Path, str], None]) -> None:
    Draft202012Validator.check_schema(schema())
    golden(ROOT / "schemas/gpuctl.dev/v1/planreport.json", json.dumps(schema(), indent=2) + "\n")


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.stem)
def test_every_golden_report_has_exactly_these_fields(path: Path) -> None:
    PlanReportV1.model_validate_json(path.read_text())
    assert not list(Draft202012Validator(schema()).iter_errors(json.loads(path.read_text())))


def test_fields_may_be_added() -> None:
    report = {**json.loads(REPORTS[0].read_text()), "later": 1}
    assert not list(Draft202012Validator(schema()).iter_errors(report))
