"""The metrics of the loop over time: the report's story and its faults, as Prometheus' own promtool judges them."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
import yaml
from prometheus_client import generate_latest
from stage import BASE, CLUSTER, Flaky, Stage, Turns, job, project

from gpuctl.adapters.prometheus import PrometheusMeters
from gpuctl.app.loop import LoopSettings
from gpuctl.app.ports import Note
from gpuctl.install.monitoring import ALERTS, rule_groups
from gpuctl.model.ids import JobId, NodeName
from gpuctl.model.state import Body

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "clusters/tr4858"
_SAMPLE = re.compile(r"^(gpuctl_\w+(?:\{.*\})?) (\S+)$", re.MULTILINE)


def example() -> dict[str, str]:
    return {f"c/{path.relative_to(EXAMPLE)}": path.read_text() for path in EXAMPLE.rglob("*.yaml")}


class Scraped:
    """Metrics once a minute of virtual time, as series of promtool."""

    def __init__(self, stage: Stage, minutes: int) -> None:
        self.meters = PrometheusMeters(stage.leadership.held)
        stage.meters, stage.rhythm = self.meters, LoopSettings(interval_ms=30_000, react_ms=10_000)
        self.series: dict[str, list[str]] = {}
        self._minutes = minutes
        for minute in range(minutes):
            stage.at(60 * minute + 30, partial(self._scrape, minute))

    def _scrape(self, minute: int) -> None:
        for name, value in _SAMPLE.findall(generate_latest(self.meters.registry).decode()):
            self.series.setdefault(name, ["_"] * self._minutes)[minute] = f"{float(value):.0f}"

    def input(self) -> list[dict[str, str]]:
        """A sample a minute; where a series is gone, Prometheus marks that, or its last value would count on.

        Times are counted from the start of the test, as promtool's are from 1970.
        """
        zero_s = 1_596_000_000
        found = []
        for name, values in sorted(self.series.items()):
            shifted = [
                str(int(value) - zero_s) if "timestamp" in name and value != "_" and int(value) > zero_s else value
                for value in values
            ]
            began = next(minute for minute, value in enumerate(values) if value != "_")
            told = [value if value != "_" or minute < began else "stale" for minute, value in enumerate(shifted)]
            found.append({"series": name, "values": " ".join(told)})
        return found


def judged(folder: Path, scraped: Scraped, expected: dict[int, set[str]]) -> None:
    """Of each minute, which alerts fire and that no other does."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed: Debian has it in package prometheus")
    (folder / "rules.yaml").write_text(yaml.safe_dump(rule_groups()))
    # An alert with other labels or texts would be another: here it counts whether it fires at all.
    names = "|".join(alert.name for alert in ALERTS)
    tests = [
        {
            "expr": f'count by (alertname) (ALERTS{{alertname=~"{names}",alertstate="firing"}})',
            "eval_time": f"{minute}m",
            "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(firing)],
        }
        for minute, firing in expected.items()
    ]
    story = {"interval": "1m", "input_series": scraped.input(), "promql_expr_test": tests}
    whole = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [story]}
    (folder / "test.yaml").write_text(yaml.safe_dump(whole, width=10_000))
    done = subprocess.run(
        [promtool, "test", "rules", "test.yaml"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[:4000]


def test_the_reports_story_raises_no_alert_and_its_fault_does_until_it_is_mended(tmp_path: Path) -> None:
    """13 jobs, two more for team-d that pause others; then team-b is removed with running jobs, and brought back."""
    stage = Stage(tmp_path)
    scraped = Scraped(stage, 60)
    stage.commit(example())
    more = {f"c/projects/team-d/{name}.yaml": job(name, "team-d", 2) for name in ("d-2-gg", "d-3-gg")}
    stage.at(300, lambda: stage.commit({path: text for path, text in more.items() if "d-2" in path}))
    stage.at(420, lambda: stage.commit({path: text for path, text in more.items() if "d-3" in path}))
    gone = [path for path in example() if path.startswith("c/projects/team-b/")]
    stage.at(900, lambda: stage.commit(dict.fromkeys(gone)))
    stage.at(2_400, lambda: stage.commit({path: example()[path] for path in gone}))
    stage.play(3_600)
    judged(tmp_path, scraped, {14: set(), 20: set(), 35: {"GpuctlRefusal"}, 55: set()})


class Flawed(list[object]):
    """A recorder of events with a bug, while it is wanted."""

    def __init__(self) -> None:
        self.is_broken = False

    def record(self, notes: Sequence[Note]) -> None:
        if self.is_broken:
            raise RuntimeError("a bug")
        self.extend(notes)


def test_each_fault_in_the_loop_raises_its_own_alert_until_it_is_mended(tmp_path: Path) -> None:
    """All that can go wrong outside, one after the other, beside a project that stays broken for more than an hour.

    A prediction that fails without a cause is a bug of gpuctl itself, which no fault outside can make: it is told to
    the meters as the loop would.
    """
    stage, turns, recorder = Stage(tmp_path), Turns(), Flawed()
    stage.leadership, stage.recorder = turns, recorder
    stage.through = Flaky(stage, 48 * 60, 61 * 60)
    scraped = Scraped(stage, 82)
    stage.commit(BASE)

    def at(minute: float, action: Callable[[], object]) -> None:
        stage.at(int(60 * minute), action)

    at(3, turns.pass_on)
    at(8, turns.pass_on)
    other = {"c/projects/other/project.yaml": project("other", 0)}
    at(10, lambda: stage.commit({**other, "c/projects/other/broken.yaml": "kind: [\n"}))
    at(12, lambda: stage.cluster.set_stuck(JobId.parse("a/stuck"), "ErrImagePull"))
    at(12, lambda: stage.commit({"c/projects/a/stuck.yaml": job("stuck", "a")}))
    at(24, lambda: stage.cluster.set_stuck(JobId.parse("a/stuck"), None))
    repo, away = stage.copy.folder, tmp_path / "away"
    at(28, lambda: repo.rename(away))
    at(41, lambda: away.rename(repo))
    at(61.5, lambda: stage.cluster.set_strangers(NodeName("n1"), 1))
    at(62, lambda: stage.commit({"c/projects/b/j3.yaml": job("j3", "b")}))
    at(69.5, lambda: stage.cluster.set_strangers(NodeName("n1"), 0))
    at(72, lambda: setattr(recorder, "is_broken", True))
    at(72, lambda: stage.commit({"c/projects/b/j3.yaml": None, "c/projects/a/more.yaml": job("more", "a")}))
    at(75.5, lambda: setattr(recorder, "is_broken", False))
    at(75.5, lambda: stage.commit({"c/projects/other/broken.yaml": None, "c/projects/a/more.yaml": None}))
    at(78.5, lambda: scraped.meters.predicted("bug", {"bug": 1}))
    stage.play(82 * 60)
    judged(
        tmp_path,
        scraped,
        {
            2: set(), 7: {"GpuctlNoLeader"}, 10: set(), 23: {"GpuctlRunsNotStarting"}, 27: set(),
            40: {"GpuctlGitNotRead"}, 47: set(), 60: {"GpuctlNoCycle"}, 62: set(), 69: {"GpuctlGuaranteeUnmet"},
            72: {"GpuctlNotApplied"}, 75: {"GpuctlNotApplied", "GpuctlBug"}, 78: set(), 81: {"GpuctlPredictionFailed"},
        },
    )  # fmt: skip


def test_what_is_declared_is_near_what_there_is_memory_for_until_there_is_less(tmp_path: Path) -> None:
    """13 jobs, for 14 of which there is memory; a sweep of three is held back; then two jobs are removed."""
    stage = Stage(tmp_path)
    stage.most_jobs = 14
    scraped = Scraped(stage, 40)
    gone = [path for path in sorted(example()) if "/team-c/jobs/" in path][:2]
    stage.commit({path: text for path, text in example().items() if path not in gone})
    stage.at(300, lambda: stage.commit({path: example()[path] for path in gone}))
    sweep = job("s", "team-d", 1, ", sweep: {completions: 3}")
    stage.at(900, lambda: stage.commit({"c/projects/team-d/jobs/s.yaml": sweep}))
    stage.at(1_500, lambda: stage.commit({"c/projects/team-d/jobs/s.yaml": None, **dict.fromkeys(gone)}))
    stage.at(1_800, lambda: stage.commit({"c/projects/team-d/jobs/s.yaml": sweep}))
    stage.play(2_400)
    near = {"GpuctlDeclaredJobsNearLimit"}
    judged(tmp_path, scraped, {5: set(), 13: near, 23: near, 28: set(), 38: near})
    jobs = {name: values for name, values in scraped.series.items() if name.startswith("gpuctl_declared_jobs{")}
    totals = [sum(int(values[minute]) for values in jobs.values()) for minute in (4, 13, 23, 28, 38)]
    assert totals == [11, 13, 13, 11, 14]
    assert {int(value) for value in scraped.series["gpuctl_declared_jobs_limit"][1:]} == {14}
    lines = [line for line in stage.lines if line.get("code") == "GPU7097"]
    assert [(line["level"], line["event"]) for line in lines] == [
        ("warning", "full"), ("info", "resolved"), ("warning", "full"),
    ]  # fmt: skip
    assert lines[0]["message"] == (
        '13 jobs are declared, and the reconciler has memory for 14; project "team-c" declares 5 of them'
    )


TWO_NODES = CLUSTER.replace("nodes: [n1], gpusPerNode: 4", "nodes: [n1, n2], gpusPerNode: 2, placement: spread")


def test_what_a_quota_leaves_over_after_whole_jobs_is_no_guarantee_unmet(tmp_path: Path) -> None:
    """A quota of 3 holds one job of 2 GPUs; the second waits for good, though the project asks for more than it has."""
    stage = Stage(tmp_path)
    scraped = Scraped(stage, 10)
    stage.commit({
        "c/cluster.yaml": TWO_NODES,
        "c/projects/a/project.yaml": project("a", 3),
        **{f"c/projects/a/j{number}.yaml": job(f"j{number}", "a", 2) for number in (1, 2)},
        "c/projects/b/project.yaml": project("b", 1),
        "c/projects/b/k1.yaml": job("k1", "b"),
    })
    stage.play(600)
    judged(tmp_path, scraped, {9: set()})
    assert sorted(stage.phases().values()) == ["Queued", "Running", "Running"]
    assert scraped.series['gpuctl_guarantee_gpus{domain="*",project="a"}'][-1] == "3"


def test_a_job_within_its_quota_that_finds_no_node_is_a_guarantee_unmet(tmp_path: Path) -> None:
    """All nodes are there and 2 GPUs are free, but not together: jobs that can't be moved are on both nodes."""
    stage = Stage(tmp_path)
    scraped = Scraped(stage, 20)
    fixed = [f"c/projects/b/fixed{number}.yaml" for number in (1, 2)]
    stage.commit({
        "c/cluster.yaml": TWO_NODES,
        "c/projects/a/project.yaml": project("a", 2),
        "c/projects/b/project.yaml": project("b", 2),
        **{path: job(Path(path).stem, "b", 1, ", preemptible: false") for path in fixed},
    })
    stage.at(120, lambda: stage.commit({"c/projects/a/j.yaml": job("j", "a", 2)}))
    stage.at(720, lambda: stage.commit({fixed[0]: None}))
    stage.play(1_200)
    judged(tmp_path, scraped, {2: set(), 10: {"GpuctlGuaranteeUnmet"}, 16: set()})
    assert stage.phases() == {"a/j": "Running", "b/fixed2": "Running"}


def test_a_forecast_is_held_against_the_start(tmp_path: Path) -> None:
    """The first job may run for two minutes; the second waits for it."""
    stage = Stage(tmp_path)
    published: list[Body] = []
    stage.publish = published.append
    scraped = Scraped(stage, 5)
    alone = {path: text for path, text in BASE.items() if not path.endswith("j2.yaml")}
    stage.commit({**alone, "c/projects/a/j1.yaml": job("j1", "a", 4, ", maxDuration: 2m")})
    stage.at(30, lambda: stage.commit({"c/projects/b/j3.yaml": job("j3", "b", 4)}))
    stage.play(300)
    assert published
    assert stage.phases()["b/j3"] == "Running"
    text = generate_latest(scraped.meters.registry).decode()
    known = dict(re.findall(r'forecast_error_seconds_(count\{direction="\w+"\}|sum\{direction="\w+"\}) (\S+)', text))
    counts = sum(float(value) for name, value in known.items() if name.startswith("count"))
    assert counts == 1
    assert sum(float(value) for name, value in known.items() if name.startswith("sum")) < 60
