"""The report's story through the whole pipe, each section in one commit, under other names and in another order."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuctl import wiring
from gpuctl.app.simulation import simulate_file
from gpuctl.diag.text import text_form

HERE = Path(__file__).parent
STORY = HERE / "tr4858" / "whole-story-in-batches.yaml"
TEAMS = ("team-a", "team-b", "team-c", "team-d")


def inline_story() -> dict[str, Any]:
    """The story with everything it declares inside it."""
    scenario: dict[str, Any] = yaml.safe_load(STORY.read_bytes())
    files = [STORY.parent / name for name in scenario["declarations"]]
    documents = [document for path in files for document in yaml.safe_load_all(path.read_bytes())]
    return scenario | {"declarations": [], "given": {"documents": documents}}


JOBS = sorted(set(re.findall(r"\b[a-d]-\d(?:-1)?-[a-z]+[0-9]*", yaml.safe_dump(inline_story()))))


@given(
    st.permutations(["ant", "bee", "cat", "dog"]), st.permutations(range(len(JOBS))), st.randoms(use_true_random=False)
)
@settings(max_examples=8)
def test_the_story_ends_the_same_under_any_names_in_any_order(words: list[str], numbers: list[int], order: Any) -> None:
    scenario = inline_story()
    order.shuffle(scenario["given"]["documents"])
    for event in scenario["when"]:
        order.shuffle(event.get("apply", []))
    names = dict(zip(TEAMS, words, strict=True)) | {job: f"j{n:02d}" for job, n in zip(JOBS, numbers, strict=True)}
    text = yaml.safe_dump(scenario, sort_keys=False, width=10_000)
    renamed = re.sub(r"[a-z0-9]+(?:-[a-z0-9]+)+", lambda found: names.get(found[0], found[0]), text)
    simulated = simulate_file(str(STORY), renamed.encode(), wiring.scenario_reader(STORY), wiring.sandbox)
    assert simulated.report is not None, text_form(simulated.diagnostics)
    assert simulated.report.failed == ()
