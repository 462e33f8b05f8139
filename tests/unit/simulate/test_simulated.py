"""Scenarios that are about things that are not there, and what a simulation does at its edges."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuctl import wiring
from gpuctl.app.simulation import Simulated, simulate_file
from gpuctl.model.units import Instant
from gpuctl.simulate.report import SimulationReport

SCENARIO = """\
apiVersion: gpuctl.dev/v1
kind: Scenario
metadata: {name: edge}
given:
  documents:
  - {apiVersion: gpuctl.dev/v1, kind: Cluster, metadata: {name: tiny},
     spec: {nodePools: [{name: pool, nodes: [n1], gpusPerNode: 4}]}}
  - {apiVersion: gpuctl.dev/v1, kind: Project, metadata: {name: a}, spec: {quota: 4}}
  - {apiVersion: gpuctl.dev/v1, kind: Job, metadata: {name: a-1, project: a}, spec: {image: train, gpus: 2}}
"""


def simulated(rest: str) -> Simulated:
    return simulate_file("s.yaml", (SCENARIO + rest).encode(), wiring.scenario_reader(Path("s.yaml")), wiring.sandbox)


@pytest.mark.parametrize(
    ("rest", "place", "code", "words"),
    [
        ("  nodes: {n9: {ready: false}}\n", "3:18", "GPU3901", "node n9"),
        ("  queued: [{job: a/a-9, since: 0s}]\n", "10:18", "GPU3901", "job a/a-9"),
        ("  foreign: {n9: 1}\n", "10:13", "GPU3901", "node n9"),
        ("  foreign: {n1: 5}\n", "10:13", "GPU3906", "n1 has 4 GPUs for pods that are not gpuctl's, not 5"),
        (
            "  foreign: {n1: 3}\n  running: [{job: a/a-1, since: 0s, placement: [{node: n1, gpus: [0, 1]}]}]\n",
            "10:13",
            "GPU3906",
            "n1 has 2 GPUs",
        ),
        ("when: [{at: 1m, foreign: {node: n9, gpus: 1}}]\n", "10:13", "GPU3901", "node n9"),
        ("when: [{at: 1m, foreign: {node: n1, gpus: 5}}]\n", "10:13", "GPU3906", "not 5"),
        ("  running: [{job: a/a-9, since: 0s, placement: [{node: n1}]}]\n", "10:19", "GPU3901", "job a/a-9"),
        ("  running: [{job: a/a-1, since: 0s, placement: [{node: n1, gpus: [0]}]}]\n", "10:19", "GPU3902", "needs 2"),
        ("  running: [{job: a/a-1, since: 0s, placement: [{node: n1, gpus: [3, 4]}]}]\n", "10:19", "GPU3902", "0 to 3"),
        (
            "  running: [{job: a/a-1, since: 0s, placement: [{node: n2, gpus: [0, 1]}]}]\n",
            "10:19",
            "GPU3902",
            "no node",
        ),
        (
            "  running: [{job: a/a-1, since: 0s, placement: [{node: n1, gpus: [0, 1]}, {node: n1, gpus: [2, 3]}]}]\n",
            "10:19",
            "GPU3902",
            "1 worker, not 2",
        ),
        ("when: [{at: 1m, delete: [a/a-9]}]\n", "10:13", "GPU3901", "job a/a-9"),
        ("when: [{at: 1m, finish: {job: a/a-9}}]\n", "10:13", "GPU3901", "job a/a-9"),
        ("when: [{at: 1m, node: {name: n9, ready: true}}]\n", "10:13", "GPU3901", "node n9"),
        ("when: [{at: 1m, delete: [a/a-1]}, {at: 2m, idle: {job: a/a-1, since: 0s}}]\n", "10:40", "GPU3901", "a/a-1"),
        ("expect: [{at: end, projects: {b: {queued: 0}}}]\n", "10:31", "GPU3901", "project b"),
        ("expect: [{at: end, jobs: {a/a-9: {starts: 0}}}]\n", "10:27", "GPU3901", "job a/a-9"),
        ("declarations: [no/such.yaml]\n", "10:16", "GPU3904", "no/such.yaml"),
    ],
)
def test_what_is_not_there_is_told(rest: str, place: str, code: str, words: str) -> None:
    outcome = simulated(rest)
    assert outcome.report is None
    (found,) = outcome.diagnostics
    assert (f"{found.span.line}:{found.span.column}", found.code) == (place, code)
    assert words in found.message


def test_declarations_are_compiled_after_each_event() -> None:
    outcome = simulated("when: [{at: 1m, apply: [{apiVersion: gpuctl.dev/v1, kind: Job, metadata: {name: x}}]}]\n")
    assert outcome.report is None
    assert {(found.span.file, found.span.line) for found in outcome.diagnostics} == {("s.yaml", 10)}


def test_usage_is_a_warning() -> None:
    outcome = simulated("  usage: {a: 10}\n")
    assert outcome.report is not None
    assert [found.code for found in outcome.diagnostics] == ["GPU3905"]


def test_what_does_not_run_can_not_end() -> None:
    outcome = simulated("when: [{at: 1m, finish: {job: a/a-1}}, {at: 2m, finish: {job: a/a-1}}]\n")
    assert outcome.report is not None
    assert [(o.at, o.path, o.got) for o in outcome.report.failed] == [("2m", "when.finish.a/a-1", "Succeeded")]


def test_events_at_one_instant_each_have_a_checkpoint() -> None:
    twice = "{at: 1m, delete: [a/a-1]}, {at: 1m, node: {name: n1, ready: false}}"
    report = simulated(f"when: [{twice}]\nuntil: 10m\n").report
    assert report is not None
    assert [checkpoint.label for checkpoint in report.checkpoints] == [
        "start", "delete a/a-1", "node n1 is lost", "end",
    ]  # fmt: skip
    assert report.checkpoints[-1].at_ms == 600_000
    assert report.checkpoints[-1].free_milli == 0


def test_without_until_it_ends_when_the_last_thing_has_changed() -> None:
    report = simulated("durations: {a/a-1: 2h}\n").report
    assert report is not None
    ended = [t.at_ms for t in report.transitions if t.after == "Succeeded"]
    assert report.checkpoints[-1].at_ms == ended[0]
    assert 7_200_000 < ended[0] < 7_210_000


def test_the_same_scenario_gives_the_same_report() -> None:
    rest = "when: [{at: 1m, finish: {job: a/a-1, exitCode: 2}}]\n"
    assert simulated(rest) == simulated(rest)


FADING = """\
apiVersion: gpuctl.dev/v1
kind: Scenario
metadata: {name: fading}
given:
  documents:
  - {apiVersion: gpuctl.dev/v1, kind: Cluster, metadata: {name: tiny},
     spec: {nodePools: [{name: pool, nodes: [n1], gpusPerNode: 8}], scheduling: {fairness: {halfLife: 24h}}}}
  - {apiVersion: gpuctl.dev/v1, kind: Project, metadata: {name: a}, spec: {quota: 0, overQuotaWeight: 1}}
  - {apiVersion: gpuctl.dev/v1, kind: Project, metadata: {name: b}, spec: {quota: 0, overQuotaWeight: 1}}
""" + "".join(
    f"  - {{apiVersion: gpuctl.dev/v1, kind: Job, metadata: {{name: {team}-{index}, project: {team}}},"
    " spec: {image: train, gpus: 1}}\n"
    for team in "ab"
    for index in range(6)
)


def fading(rest: str) -> SimulationReport:
    read = wiring.scenario_reader(Path("s.yaml"))
    report = simulate_file("s.yaml", (FADING + "  usage: {a: 138.5}\n" + rest).encode(), read, wiring.sandbox).report
    assert report is not None
    return report


def pauses(report: SimulationReport) -> list[tuple[Instant, str]]:
    return [(each.at_ms, each.job.project) for each in report.transitions if each.evicted]


def test_past_use_that_has_faded_enough_is_seen_though_nothing_happens() -> None:
    """Two looks at other times find it at the same time: it is found out when it is, not looked at now and then."""
    (seen,) = pauses(fading("until: 48h\n"))
    assert seen[1] == "b"
    (again,) = pauses(fading("until: 47h\nexpect: [{at: 11h, projects: {a: {allocated: 3}}}]\n"))
    assert abs(again[0] - seen[0]) <= 1000
    assert not pauses(fading(f"until: {seen[0] // 1000 - 2}s\n"))


def test_a_run_that_shares_by_turns_does_so_until_the_end_that_is_told_and_not_for_ever() -> None:
    assert fading("").stable
    month = fading("until: 672h\n")
    assert month.stable
    assert 1 <= len(pauses(month)) <= 10
    assert month.cycles < 100
