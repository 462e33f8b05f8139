"""The metrics of the loop over time: the report's story and its faults, as Prometheus' own promtool judges them."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import partial
from pathlib import Path

import pytest
import yaml
from prometheus_client import generate_latest
from stage import BASE, Stage, job

from gpuctl.adapters.prometheus import PrometheusMeters
from gpuctl.install.monitoring import ALERTS, rule_groups
from gpuctl.model.state import Body

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "clusters/tr4858"
_SAMPLE = re.compile(r"^(gpuctl_\w+(?:\{.*\})?) (\S+)$", re.MULTILINE)


def example() -> dict[str, str]:
    return {f"c/{path.relative_to(EXAMPLE)}": path.read_text() for path in EXAMPLE.rglob("*.yaml")}


class Scraped:
    """Metrics once a minute of virtual time, as series of promtool."""

    def __init__(self, stage: Stage, minutes: int) -> None:
        self.meters = PrometheusMeters()
        stage.meters = self.meters
        self.series: dict[str, list[str]] = {}
        self._minutes = minutes
        for minute in range(minutes):
            stage.at(60 * minute + 30, partial(self._scrape, minute))

    def _scrape(self, minute: int) -> None:
        for name, value in _SAMPLE.findall(generate_latest(self.meters.registry).decode()):
            self.series.setdefault(name, ["_"] * self._minutes)[minute] = f"{float(value):.0f}"

    def input(self) -> list[dict[str, str]]:
        """A sample a minute. Times are counted from the start of the test, as promtool's are from 1970."""
        zero_s = 1_596_000_000
        found = []
        for name, values in sorted(self.series.items()):
            shifted = [
                str(int(value) - zero_s) if "timestamp" in name and value != "_" and int(value) > zero_s else value
                for value in values
            ]
            found.append({"series": name, "values": " ".join(shifted)})
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
