"""Scenario files that name what can't be read, or numbers that nothing could be: each is told at its place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuctl import wiring
from gpuctl.app.simulation import Simulated, simulate_file
from gpuctl.simulate.reading import read

HEAD = "apiVersion: gpuctl.dev/v1\nkind: Scenario\nmetadata: {name: s}\n"
CLUSTER = (
    "apiVersion: gpuctl.dev/v1\nkind: Cluster\nmetadata: {name: tiny}\n"
    "spec: {nodePools: [{name: pool, nodes: [n1], gpusPerNode: 4}]}\n"
)


def simulated(folder: Path, rest: str) -> Simulated:
    path = folder / "s.yaml"
    return simulate_file(str(path), (HEAD + rest).encode(), wiring.scenario_reader(path), wiring.sandbox)


@pytest.mark.parametrize(
    ("named", "code"),
    [
        ("a" * 5000, "GPU2018"),
        ("a" * 300, "GPU3904"),
        ("a/" * 2000, "GPU3904"),
        ('"a\\0b"', "GPU2023"),
        ('"a\\eb"', "GPU2023"),
        ('""', "GPU2018"),
        ("gone.yaml", "GPU3904"),
        ("pipe", "GPU3904"),
        ("loop", "GPU3904"),
        ("closed", "GPU3904"),
        ("file.yaml/x", "GPU3904"),
        ("/dev/zero", "GPU3904"),
        ("/dev/tty", "GPU3904"),
        ("large.yaml", "GPU1007"),
        ("endless.yaml", "GPU1007"),
    ],
)
def test_declarations_that_can_not_be_read_are_told(tmp_path: Path, named: str, code: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "closed").symlink_to("/proc/self/mem")
    (tmp_path / "endless.yaml").symlink_to("large.yaml")
    (tmp_path / "file.yaml").write_text(CLUSTER)
    with (tmp_path / "large.yaml").open("wb") as file:
        file.truncate(1 << 40)
    outcome = simulated(tmp_path, f"declarations: [{named}]\n")
    assert outcome.report is None
    assert code in {found.code for found in outcome.diagnostics}


def test_a_folder_that_holds_nothing_and_a_pipe_in_a_folder_are_told(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "pipes").mkdir()
    os.mkfifo(tmp_path / "pipes" / "pipe.yaml")
    for folder, codes in (("empty", {"GPU3001"}), ("pipes", {"GPU3001", "GPU1019"})):
        outcome = simulated(tmp_path, f"declarations: [{folder}]\n")
        assert outcome.report is None
        assert {found.code for found in outcome.diagnostics} == codes


@pytest.mark.parametrize(
    "rest",
    [
        "given: {foreign: {n1: 2147483648}}",
        "given: {running: [{job: a/j, since: 0s, placement: [{node: n1, gpus: [2147483648]}]}]}",
        "given: {running: [{job: a/j, since: 0s, placement: [{node: n1, gpus: [-1]}]}]}",
        f"given: {{running: [{{job: a/j, since: 0s, placement: [{{node: n1, gpus: [{'0, ' * 1025}]}}]}}]}}",
        "given: {running: [{job: a/j, since: -999999999d, placement: [{node: n1}]}]}",
        "given: {queued: [{job: a/j, since: -36501d}]}",
        "given: {usage: {a: 1e17}}",
        f"durations: {{a/j: {'9' * 30}d}}",
        "until: 999999999d",
        "when: [{at: 999999999d, delete: [a/j]}]",
        "when: [{at: 1m, foreign: {node: n1, gpus: 2147483648}}]",
        "expect: [{at: 36501d}]",
        f"when: [{'{at: 1m, delete: [a/j]}, ' * 2001}]",
        f"given: {{documents: [{'{}, ' * 2001}]}}",
        f"when: [{'{at: 1m, apply: [{}, {}]}, ' * 1001}]",
        f"expect: [{'{at: 1m}, ' * 2001}]",
        f"declarations: [{'a, ' * 101}]",
        "why: x" + "\n" * 50_001,
    ],
)
def test_numbers_and_lists_of_a_scenario_are_bounded(rest: str) -> None:
    scenario, diagnostics = read("s.yaml", (HEAD + rest).encode())
    assert scenario is None
    assert {d.code for d in diagnostics} <= {"GPU2017", "GPU2018", "GPU2014", "GPU3907", "GPU1015"}


def test_a_scenario_of_many_documents_is_read_in_linear_time() -> None:
    documents = "".join(f"  - {{kind: Job, metadata: {{name: j{n}, project: a}}, spec: {{image: {'x' * 900}}}}}\n"
                        for n in range(2000))  # fmt: skip
    scenario, diagnostics = read("s.yaml", f"{HEAD}given:\n  documents:\n{documents}".encode())
    assert diagnostics == ()
    assert scenario is not None
    texts = [document.file.content for document in scenario.given.documents]
    assert all(text.lstrip().startswith(b"{kind: Job") and text.endswith(b"}}") for text in texts)


def test_documents_stand_in_a_scenario_as_they_do_by_themselves() -> None:
    text = f"""{HEAD}given:
  documents:
  - kind: Job
    metadata: {{name: one}}
    spec:
      args:
      - a
  - {{kind: Job, metadata: {{name: two}}}}
when:
- at: 1m
  apply:
  - kind: Job
    metadata: {{name: three}}
- apply: [{{kind: Job, metadata: {{name: four}}}}, {{kind: Job, metadata: {{name: five}}}}]
  at: 2m
until: 3m
"""
    scenario, diagnostics = read("s.yaml", text.encode())
    assert diagnostics == ()
    assert scenario is not None
    assert [d.name for d in scenario.given.documents] == ["one", "two"]
    lines = text.split("\n")
    for document in scenario.given.documents:
        told = document.file.content.decode().split("\n")
        assert lines[: len(told)][-1].endswith(told[-1].strip())
        assert document.name in document.file.content.decode()
