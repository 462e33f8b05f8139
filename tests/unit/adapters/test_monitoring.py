"""Alerts and panels against the metrics that there are, and where Prometheus is installed, against Prometheus."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml
from controlplane.ports import free_port

from gpuctl.adapters.metrics_server import MetricsServer
from gpuctl.adapters.prometheus import PrometheusMeters
from gpuctl.app.metrics import Amount, Measurements, Sort, ToldStatus
from gpuctl.compile import DeclaredSize
from gpuctl.install.monitoring import ALERTS, PANELS, grafana_dashboard, operator_objects, rule_groups
from gpuctl.model.decision import FairShare
from gpuctl.model.ids import DomainName, PoolName, ProjectName
from gpuctl.model.utilisation import ProjectUse

TEAM, POOL = ProjectName("team-a"), PoolName("v100")
NOW_MS = 1_596_000_000_000
SORT = Sort(TEAM, "training", POOL)
SHARE = FairShare(
    domain=DomainName("v100"), project=TEAM, quota_milli=4_000, demand_milli=4_000, share_milli=4_000,
    allocated_milli=2_000, guarantee_milli=4_000,
)  # fmt: skip
MEASURED = Measurements(
    duration_ms=30,
    decisions={("pending", "GPU5010"): 1},
    shares=(SHARE,),
    unmet={(TEAM, SHARE.domain): 2_000},
    queued={SORT: Amount(1, 2_000)},
    running={SORT: Amount(1, 2_000)},
    problems={(TEAM, "ErrImagePull"): 1},
    waits=((TEAM, "training", 30_000),),
    pauses={(TEAM, "GPU5041"): 1},
    starts=1,
    forecast_errors=(5_000, -5_000),
    uses={TEAM: ProjectUse(held_milli=2_000, busy_milli=1_500)},
    used_at_ms=1,
    size=DeclaredSize(jobs={TEAM: 91}, text_bytes={TEAM: 1}, most_jobs=100),
)
FAULTS = {
    "GpuctlNoLeader": ('gpuctl_leader{instance="a"}', "1 0x40 1x40", "critical", {}),
    "GpuctlNoCycle": ("gpuctl_last_good_cycle_timestamp_seconds", "0+60x5 300x35 2400+60x40", "critical", {}),
    "GpuctlGitNotRead": ("gpuctl_last_good_fetch_timestamp_seconds", "0+60x5 300x35 2400+60x40", "warning", {}),
    "GpuctlNotApplied": ("gpuctl_ready", "0x80 1x40", "warning", {}),
    "GpuctlRefusal": ('gpuctl_problems{code="GPU6001"}', "1x40 0x40", "warning", {"code": "GPU6001"}),
    "GpuctlRunsNotStarting": (
        'gpuctl_failing_runs{project="a",reason="ErrImagePull"}', "1x40 0x40", "warning",
        {"project": "a", "reason": "ErrImagePull"},
    ),
    "GpuctlGuaranteeUnmet": (
        'gpuctl_unmet_guarantee_gpus{project="a",domain="p"}', "2x40 0x40", "warning", {"project": "a", "domain": "p"},
    ),
    "GpuctlDeclaredJobsNearLimit": ('gpuctl_declared_jobs{project="a"}', "91x40 90x40", "warning", {}),
    "GpuctlPredictionFailed": ('gpuctl_prediction_checks_total{result="bug"}', "0x20 1x100", "info", {}),
    "GpuctlBug": ('gpuctl_problems{code="GPU9001"}', "1x40 0x40", "warning", {}),
}  # fmt: skip
"""Of each alert: a series that makes it fire, what its values are minute by minute, and the alert's labels."""
LEADS = {"series": 'gpuctl_leader{instance="z"}', "values": "1x200"}
LIMIT = {"series": "gpuctl_declared_jobs_limit", "values": "100x200"}


def needs(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed: Debian has it in package prometheus")
    return found


class Watched(PrometheusMeters):
    """Measurements of a replica that leads until a test says otherwise."""

    def __init__(self) -> None:
        self.leads = True
        super().__init__(lambda: self.leads)


@contextmanager
def measured() -> Iterator[tuple[Watched, int]]:
    """The metrics of a replica that leads, with something in each, and their port."""
    meters = Watched()
    with MetricsServer(meters, "127.0.0.1:0") as server:
        meters.cycle(MEASURED)
        meters.request("patch", "Job", 200, 1)
        meters.standing({"GPU6001": 1})
        meters.status(ToldStatus(ready=True, fetched_ms=NOW_MS, cycled_ms=NOW_MS))
        yield meters, server.port


def expressions() -> list[str]:
    return [alert.expr for alert in ALERTS] + [expr for panel in PANELS for expr in panel.lines.values()]


def test_every_metric_that_is_asked_for_is_there() -> None:
    with measured() as (_, port), urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        there = set(re.findall(r"^([a-z_]+)", answer.read().decode(), re.MULTILINE))
    asked = {name for expr in expressions() for name in re.findall(r"\b(?:gpuctl|process)_[a-z_]+", expr)}
    assert asked <= there


def test_every_alert_says_what_to_do_and_every_panel_has_a_place_of_its_own() -> None:
    assert all(alert.what and alert.do for alert in ALERTS)
    assert len({alert.name for alert in ALERTS}) == len(ALERTS)
    assert FAULTS.keys() == {alert.name for alert in ALERTS}
    board = json.loads(grafana_dashboard())
    assert len({(p["gridPos"]["x"], p["gridPos"]["y"]) for p in board["panels"]}) == len(PANELS)
    rule, monitor = operator_objects()
    assert rule["spec"] == rule_groups()
    assert monitor["spec"]["endpoints"][0]["port"] == "metrics"


def test_promtool_finds_no_mistake_in_the_rules(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rule_groups()))
    done = subprocess.run(
        [needs("promtool"), "check", "rules", "rules.yaml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"SUCCESS: {len(ALERTS)} rules found" in done.stdout


def test_every_alert_fires_when_its_fault_is_there_and_clears_after_it(tmp_path: Path) -> None:
    """By Prometheus' own evaluation of series, a minute a sample: no time passes."""
    judged(tmp_path, [scenario(name) for name in FAULTS])


@pytest.mark.parametrize(
    ("jobs", "text", "more", "fires"),
    [
        ((45, 46), (0, 0), ["jobs_limit 100", "text_limit_bytes 100"], True),
        ((45, 45), (0, 0), ["jobs_limit 100", "text_limit_bytes 100"], False),
        ((1, 1), (91, 0), ["jobs_limit 100", "text_limit_bytes 100"], True),
        ((1, 1), (90, 0), ["jobs_limit 100", "text_limit_bytes 100"], False),
        ((5000, 5000), (5000, 5000), [], False),
    ],
)
def test_what_all_projects_declare_together_is_near_its_limit_where_there_is_one(
    tmp_path: Path, jobs: tuple[int, int], text: tuple[int, int], more: list[str], *, fires: bool
) -> None:
    told = [f'{what}{{project="{name}"}} {amount}' for what, amounts in (("jobs", jobs), ("text_bytes", text))
            for name, amount in zip("ab", amounts, strict=True)]  # fmt: skip
    pairs = [line.split(" ") for line in told + more]
    judged(tmp_path, [{
        "interval": "1m",
        "input_series": [LEADS, *({"series": f"gpuctl_declared_{name}", "values": f"{n}x30"} for name, n in pairs)],
        "promql_expr_test": [{
            "expr": 'count(ALERTS{alertname="GpuctlDeclaredJobsNearLimit",alertstate="firing"})',
            "eval_time": "20m",
            "exp_samples": [{"labels": "{}", "value": 1}] if fires else [],
        }],
    }])  # fmt: skip


def judged(folder: Path, tests: list[dict[str, Any]]) -> None:
    """promtool finds that all tests of the rules hold."""
    promtool = needs("promtool")
    (folder / "rules.yaml").write_text(yaml.safe_dump(rule_groups()))
    whole = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests}
    (folder / "test.yaml").write_text(yaml.safe_dump(whole))
    done = subprocess.run(
        [promtool, "test", "rules", "test.yaml"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def scenario(name: str) -> dict[str, Any]:
    series, values, severity, labels = FAULTS[name]
    (alert,) = (alert for alert in ALERTS if alert.name == name)
    told = {"summary": alert.what, "description": alert.do}
    for label, value in labels.items():
        told = {key: text.replace(f"{{{{ $labels.{label} }}}}", value) for key, text in told.items()}
    firing = {"exp_labels": {"severity": severity, **labels}, "exp_annotations": told}
    fires, clears = {"GpuctlNotApplied": ("70m", "100m"), "GpuctlPredictionFailed": ("25m", "90m")}.get(
        name, ("25m", "70m")
    )
    return {
        "interval": "1m",
        "input_series": [
            {"series": series, "values": values},
            *([] if name == "GpuctlNoLeader" else [LEADS, LIMIT]),
        ],
        "alert_rule_test": [
            {"eval_time": fires, "alertname": name, "exp_alerts": [firing]},
            {"eval_time": clears, "alertname": name, "exp_alerts": []},
        ],
    }


def test_in_a_real_prometheus_all_alerts_fire_and_clear(tmp_path: Path) -> None:
    """The rules as they are, but that nothing has to last: times are told to the metrics instead.

    tests/cluster/test_seen_by_prometheus.py has a whole process in place of the metrics alone, for faults that need not
    last ten minutes. A prediction that failed is told for an hour: the last clears by promtool only, above.
    """
    program = needs("prometheus")
    with measured() as (meters, port):
        scrape = {"job_name": "gpuctl", "scrape_interval": "1s", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
        groups = rule_groups()
        groups["groups"][0]["rules"] = [{**rule, "for": "0s"} for rule in groups["groups"][0]["rules"]]
        (tmp_path / "rules.yaml").write_text(yaml.safe_dump(groups))
        config = {"global": {"evaluation_interval": "1s"}, "rule_files": ["rules.yaml"], "scrape_configs": [scrape]}
        (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
        own = free_port()
        line = [program, "--config.file=config.yaml", f"--web.listen-address=127.0.0.1:{own}"]
        with subprocess.Popen([*line, "--storage.tsdb.path=data", "--log.level=error"], cwd=tmp_path) as process:
            try:
                meters.standing({"GPU6001": 1, "GPU9001": 1})
                meters.status(ToldStatus(ready=False, fetched_ms=NOW_MS, cycled_ms=NOW_MS))
                late = {"GpuctlNoLeader", "GpuctlPredictionFailed"}
                await_firing(own, set(FAULTS) - late)
                meters.predicted("bug", {})
                await_firing(own, set(FAULTS) - {"GpuctlNoLeader"})
                now_ms = time.time_ns() // 1_000_000
                meters.standing({})
                meters.status(ToldStatus(ready=True, fetched_ms=now_ms, cycled_ms=now_ms))
                small = replace(MEASURED.size, jobs={TEAM: 90})
                meters.cycle(replace(MEASURED, problems={}, unmet={(TEAM, SHARE.domain): 0}, size=small))
                await_firing(own, {"GpuctlPredictionFailed"})
                meters.leads = False
                await_firing(own, late)
            finally:
                process.kill()


def await_firing(port: int, names: set[str]) -> None:
    until = time.monotonic() + 180
    while (found := firing(port)) != names:
        assert time.monotonic() < until, found
        time.sleep(0.3)


def firing(port: int) -> set[str]:
    """None while it is not up."""
    with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/api/v1/alerts", timeout=60) as answer:
        return {alert["labels"]["alertname"] for alert in json.load(answer)["data"]["alerts"]}
    return set()
