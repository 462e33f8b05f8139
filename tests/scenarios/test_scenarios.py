"""Every scenario file in this folder comes true, and the order in which its documents are written means nothing."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuctl import wiring
from gpuctl.app.simulation import simulate_file, staged_file
from gpuctl.diag.text import text_form
from gpuctl.simulate.report import SimulationReport, document

HERE = Path(__file__).parent
FILES = sorted(path for path in HERE.rglob("*.yaml") if path.parent.name != "clusters")


def named(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


@pytest.fixture(
    scope="module",
    params=[pytest.param(path, id=named(path), marks=pytest.mark.xdist_group(named(path))) for path in FILES],
)
def path(request: pytest.FixtureRequest) -> Path:
    """A scenario: its tests follow each other in one process, which simulates it once."""
    found: Path = request.param
    return found


@lru_cache(maxsize=2)
def reported(path: Path, content: bytes) -> SimulationReport:
    outcome = simulate_file(str(path), content, wiring.scenario_reader(path), wiring.sandbox)
    assert outcome.report is not None, text_form(outcome.diagnostics)
    return outcome.report


def test_what_is_expected_comes_true(path: Path) -> None:
    report = reported(path, path.read_bytes())
    assert report.failed == ()
    assert report.stable
    assert report.why, "a scenario says why it is there"
    assert report.outcomes, "a scenario expects something"


def test_the_order_of_documents_means_nothing(path: Path) -> None:
    """They declare the same, but for where it is written: to the order of each mapping, so that the same is simulated.
    That a place means nothing either is tried with one scenario of each folder, as it takes a simulation."""
    backwards = reversed_documents(path)
    assert declared(path, backwards) == declared(path, path.read_bytes())
    if path == next(each for each in FILES if each.parent == path.parent):
        assert facts(reported(path, backwards)) == facts(reported(path, path.read_bytes()))


def reversed_documents(path: Path) -> bytes:
    scenario: dict[str, Any] = yaml.load(path.read_bytes(), yaml.CSafeLoader)
    scenario.get("given", {}).get("documents", []).reverse()
    scenario.get("declarations", []).reverse()
    for event in scenario.get("when", []):
        event.get("apply", []).reverse()
    return yaml.dump(scenario, Dumper=yaml.CSafeDumper, sort_keys=False, width=10_000, encoding="utf-8")


def declared(path: Path, content: bytes) -> str:
    """All that is declared at each stage, without places."""
    staged = staged_file(str(path), content, wiring.scenario_reader(path))
    assert staged.stages, text_form(staged.diagnostics)
    return re.sub(r"SourceSpan\([^)]*\)", "", repr(staged.stages))


def facts(report: SimulationReport) -> dict[str, Any]:
    """The report without labels, which name documents in the order they are written."""
    checkpoints = tuple(replace(checkpoint, label="") for checkpoint in report.checkpoints)
    return document(replace(report, checkpoints=checkpoints))


def test_the_report_has_its_three_states_one_by_one_and_at_once() -> None:
    names = {path.stem for path in (HERE / "tr4858").glob("*.yaml")}
    sections = ("4.8", "4.9", "4.10")
    assert {f"{section}-{how}" for section in sections for how in ("one-by-one", "at-once")} < names
