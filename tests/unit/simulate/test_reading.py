"""Scenario files: what is read, and every mistake at its line and column."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuctl.simulate.reading import read
from gpuctl.simulate.scenario import Apply, Delete, Finish, SetForeign, SetIdle, SetNode

WHOLE = """\
apiVersion: gpuctl.dev/v1
kind: Scenario
metadata: {name: whole}
why: Every field once.
declarations: [../clusters/one]
given:
  documents:
  - {apiVersion: gpuctl.dev/v1, kind: Project, metadata: {name: team-a}}
  - apiVersion: gpuctl.dev/v1
    kind: Job
    metadata: {name: a-1, project: team-a}
    spec:
      image: train
  nodes: {n2: {ready: false}}
  running:
  - {job: team-a/a-1, since: -10m, placement: [{node: n1, gpus: [0, 1]}]}
  queued: [{job: team-a/a-2, since: -3m}]
  usage: {team-a: 120}
  foreign: {n2: 3}
durations: {team-a/a-1: 2h}
when:
- {at: 9m, idle: {job: team-a/a-1, since: 7m}}
- {at: 1m, apply: [{apiVersion: gpuctl.dev/v1, kind: Job, metadata: {name: a-3, project: team-a}}]}
- {at: 5m, delete: [team-a/a-1]}
- {at: 6m, finish: {job: team-a/a-1, exitCode: 1}}
- {at: 7m, node: {name: n1, ready: false}}
- {at: 8m, foreign: {node: n1, gpus: 2}}
until: 30m
expect:
- at: end
  projects: {team-a: {allocated: 0.5, pending: [b, a]}}
  jobs: {team-a/a-1: {state: Running, starts: 1, node: n1}}
  evictions: [{job: team-a/a-1, for: team-b/b-1}, {job: team-a/a-2}]
- at: 3m
"""


def test_every_field_is_read() -> None:
    scenario, diagnostics = read("s.yaml", WHOLE.encode())
    assert diagnostics == ()
    assert scenario is not None
    assert (scenario.name, scenario.until_ms) == ("whole", 1_800_000)
    assert [type(event.what) for event in scenario.events] == [Apply, Delete, Finish, SetNode, SetForeign, SetIdle]
    assert [event.at_ms for event in scenario.events] == [60_000, 300_000, 360_000, 420_000, 480_000, 540_000]
    assert {str(job): since for job, since in scenario.given.since_ms.items()} == {
        "team-a/a-1": -600_000,
        "team-a/a-2": -180_000,
    }
    assert scenario.given.running[0].placement.workers[0].gpus == (0, 1)
    assert [(each.node, each.gpus) for each in scenario.given.foreign] == [("n2", 3)]
    assert scenario.given.usage_milli_hours == {"team-a": 120_000}
    end, later = scenario.expectations
    assert end.at_ms is None
    assert later.at_ms == 180_000
    assert end.projects == {"team-a": {"allocated": 0.5, "pending": ["a", "b"]}}
    assert end.evictions is not None
    assert [str(eviction.beneficiary) for eviction in end.evictions] == ["team-b/b-1", "None"]


def test_documents_keep_their_line_and_column() -> None:
    scenario, _ = read("s.yaml", WHOLE.encode())
    assert scenario is not None
    flow, block = scenario.given.documents
    assert (
        flow.file.content.decode()
        == "\n" * 7 + "    {apiVersion: gpuctl.dev/v1, kind: Project, metadata: {name: team-a}}"
    )
    lines, original = block.file.content.decode().splitlines(), WHOLE.splitlines()
    assert lines[8] == original[8].replace("-", " ", 1)
    assert lines[9:13] == original[9:13]
    assert (block.kind, block.project, block.name) == ("Job", "team-a", "a-1")


@pytest.mark.parametrize(
    ("old", "new", "place", "code"),
    [
        ("why:", "because:", "4:1", "GPU2004"),
        ("since: -10m", "since: 10m", "16:30", "GPU2018"),
        ("since: -10m", "since: soon", "16:30", "GPU2014"),
        ("job: team-a/a-1, since: -10m", "job: a-1, since: -10m", "16:11", "GPU2023"),
        ("state: Running", "state: running", "32:30", "GPU2023"),
        ("at: 5m, delete: [team-a/a-1]", "at: 5m", "24:3", "GPU2019"),
        (
            "{at: 5m, delete: [team-a/a-1]",
            "{at: 5m, node: {name: n, ready: true}, delete: [team-a/a-1]",
            "24:18",
            "GPU2019",
        ),
        ("exitCode: 1", "exitCode: 256", "25:48", "GPU2018"),
        ("allocated: 0.5", "allocated: 0.0005", "31:34", "GPU2012"),
        ("at: end", "at: finally", "30:7", "GPU2014"),
        ("foreign: {n2: 3}", "foreign: {n2: -3}", "19:17", "GPU2017"),
        ("node: n1, gpus: 2}", "node: n1, gpus: two}", "27:38", "GPU2006"),
        ("durations: {team-a/a-1: 2h}", "durations: {a-1: 2h}", "20:13", "GPU2023"),
    ],
)
def test_a_mistake_is_told_at_its_place(old: str, new: str, place: str, code: str) -> None:
    assert old in WHOLE
    scenario, diagnostics = read("s.yaml", WHOLE.replace(old, new, 1).encode())
    assert scenario is None
    assert [(f"{d.span.line}:{d.span.column}", d.code) for d in diagnostics] == [(place, code)]


def test_a_file_holds_one_scenario() -> None:
    scenario, diagnostics = read("s.yaml", f"{WHOLE}---\n{WHOLE}".encode())
    assert (scenario, [d.code for d in diagnostics]) == (None, ["GPU3903"])
    assert [d.code for d in read("s.yaml", b"")[1]] == ["GPU3903"]


@given(st.binary(max_size=200))
def test_no_bytes_raise(content: bytes) -> None:
    assert read("s.yaml", content)[0] is None


@given(st.text(st.sampled_from("{}[]:,-# \nabcatwhen"), max_size=60), st.integers(0, len(WHOLE)))
def test_no_damage_raises(damage: str, at: int) -> None:
    read("s.yaml", (WHOLE[:at] + damage + WHOLE[at:]).encode())
