"""Monitoring of gpuctl by Prometheus: alerts, a dashboard for Grafana, and the objects of the Prometheus operator.

The tables here are the one source of all alerts and panels. Tests check that they use exactly the existing metrics.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuctl.install.installation import LABELS, NAME, made
from gpuctl.k8s import names
from gpuctl.model.state import Body

_SCHEMA = 39
"""The schema version of Grafana 11 and later."""
_SOURCE = {"type": "prometheus", "uid": "${source}"}
_WIDTH, _HEIGHT = 12, 8
_NEVER = "min(process_start_time_seconds and on (instance) gpuctl_leader == 1)"
"""Stands for the last good time while there has been none: the leader's start."""
_STATUS = "gpuctl status says what is wrong, and what to do."

_BOUNDED = (
    ("gpuctl_declared_jobs", "gpuctl_declared_jobs_limit"),
    ("gpuctl_declared_text_bytes", "gpuctl_declared_text_limit_bytes"),
)
"""The declared amounts, each with the amount that there is memory for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """Fires once the expression has had a value for `lasts`. `what` and `do`: for the person who is alerted."""

    name: str
    expr: str
    lasts: str
    severity: str
    what: str
    do: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A chart: its expressions by the names of their lines. `unit`: in Grafana's words."""

    title: str
    lines: Mapping[str, str]
    unit: str = "short"


ALERTS = (
    Alert(
        name="GpuctlNoLeader",
        expr="(sum(gpuctl_leader) or vector(0)) < 1",
        lasts="2m",
        severity="critical",
        what="No replica of gpuctl leads. Running jobs keep running; none is started.",
        do="kubectl -n gpuctl-system get lease,pods, and their logs.",
    ),
    Alert(
        name="GpuctlNoCycle",
        expr=f"time() - (max(gpuctl_last_good_cycle_timestamp_seconds) or {_NEVER}) > 600",
        lasts="1m",
        severity="critical",
        what="For ten minutes nothing could be read from or applied to the cluster.",
        do=_STATUS,
    ),
    Alert(
        name="GpuctlGitNotRead",
        expr=f"time() - (max(gpuctl_last_good_fetch_timestamp_seconds) or {_NEVER}) > 600",
        lasts="1m",
        severity="warning",
        what="Git was not read for ten minutes; what was last good is enforced.",
        do=_STATUS,
    ),
    Alert(
        name="GpuctlNotApplied",
        expr="max(gpuctl_ready) == 0",
        lasts="1h",
        severity="warning",
        what="The newest commit is not applied whole for an hour: a part is held back, frozen or refused.",
        do=_STATUS,
    ),
    Alert(
        name="GpuctlRefusal",
        expr='sum by (code) (gpuctl_problems{code=~"GPU60.."}) > 0',
        lasts="10m",
        severity="warning",
        what="A guard refuses a part of a commit ({{ $labels.code }}).",
        do="gpuctl status has the line that confirms it; gpuctl explain {{ $labels.code }}.",
    ),
    Alert(
        name="GpuctlRunsNotStarting",
        expr="sum by (project, reason) (gpuctl_failing_runs) > 0",
        lasts="10m",
        severity="warning",
        what="Pods of {{ $labels.project }} do not run, or are not ready: {{ $labels.reason }}.",
        do="gpuctl list -p {{ $labels.project }}; gpuctl explain JOB says what to do.",
    ),
    Alert(
        name="GpuctlGuaranteeUnmet",
        expr="sum by (project, domain) (gpuctl_unmet_guarantee_gpus) > 0",
        lasts="5m",
        severity="warning",
        what="A job of {{ $labels.project }} waits for five minutes though its project's quota would hold it.",
        do="gpuctl list -p {{ $labels.project }}; gpuctl explain JOB: nodes may be lost, or too fragmented for it.",
    ),
    Alert(
        name="GpuctlDeclaredJobsNearLimit",
        expr=" or ".join(f"sum({taken}) / sum({limit}) > 0.9" for taken, limit in _BOUNDED),
        lasts="5m",
        severity="warning",
        what="Over 90 % of the jobs, or of their text, that there is memory for is declared; more will be held back.",
        do="gpuctl_declared_jobs says whose they are: remove jobs that have ended, or raise gpuctl install --jobs.",
    ),
    Alert(
        name="GpuctlPredictionFailed",
        expr='sum(increase(gpuctl_prediction_checks_total{result="bug"}[1h])) > 0',
        lasts="0m",
        severity="info",
        what="A commit did something else than was predicted, without a cause.",
        do="gpuctl status names the commit; report it as a bug.",
    ),
    Alert(
        name="GpuctlBug",
        expr='sum(gpuctl_problems{code="GPU9001"}) > 0',
        lasts="1m",
        severity="warning",
        what="gpuctl met a bug of its own, and goes on.",
        do="The log has the line: report it.",
    ),
)

_AGE = "time() - max(gpuctl_last_good_{}_timestamp_seconds)"
PANELS = (
    Panel(title="GPUs by project", lines={"{{project}}": "sum by (project) (gpuctl_allocated_gpus)"}),
    Panel(title="GPUs by pool and type", lines={"{{pool}} {{type}}": "sum by (pool, type) (gpuctl_running_gpus)"}),
    Panel(
        title="Fair share less allocation",
        lines={"{{project}} {{domain}}": "sum by (project, domain) (gpuctl_share_gpus - gpuctl_allocated_gpus)"},
    ),
    Panel(
        title="Quota and demand",
        lines={
            "{{project}} quota": "sum by (project) (gpuctl_quota_gpus)",
            "{{project}} demand": "sum by (project) (gpuctl_demand_gpus)",
        },
    ),
    Panel(
        title="Part of the measured GPUs that works",
        unit="percentunit",
        lines={"{{project}}": "sum by (project) (gpuctl_busy_gpus) / sum by (project) (gpuctl_measured_gpus)"},
    ),
    Panel(title="GPUs of idle jobs", lines={"{{project}}": "sum by (project) (gpuctl_idle_gpus)"}),
    Panel(
        title="GPUs that jobs wait for and quotas would hold",
        lines={"{{project}} {{domain}}": "sum by (project, domain) (gpuctl_unmet_guarantee_gpus)"},
    ),
    Panel(title="Jobs that wait", lines={"{{project}} {{type}}": "sum by (project, type) (gpuctl_queued_jobs)"}),
    Panel(title="Jobs that run", lines={"{{project}} {{type}}": "sum by (project, type) (gpuctl_running_jobs)"}),
    Panel(
        title="Declared jobs, and how many there is memory for",
        lines={"{{project}}": "sum by (project) (gpuctl_declared_jobs)", "limit": "max(gpuctl_declared_jobs_limit)"},
    ),
    Panel(
        title="Text in declared jobs, and how much there is memory for",
        unit="bytes",
        lines={
            "{{project}}": "sum by (project) (gpuctl_declared_text_bytes)",
            "limit": "max(gpuctl_declared_text_limit_bytes)",
        },
    ),
    Panel(
        title="Wait until the start, 95th percentile of an hour",
        unit="s",
        lines={
            "{{project}}": "histogram_quantile(0.95, sum by (project, le) (increase(gpuctl_wait_seconds_bucket[1h])))"
        },
    ),
    Panel(
        title="First forecast of a start against the start, median of a day",
        unit="s",
        lines={
            "{{direction}}": "histogram_quantile(0.5, sum by (direction, le) "
            "(increase(gpuctl_start_forecast_error_seconds_bucket[1d])))"
        },
    ),
    Panel(
        title="Pauses an hour",
        lines={"{{project}} {{code}}": "sum by (project, code) (increase(gpuctl_pauses_total[1h]))"},
    ),
    Panel(title="Reasons that jobs wait for", lines={"{{code}}": 'sum by (code) (gpuctl_decisions{kind="pending"})'}),
    Panel(
        title="What stands wrong",
        lines={"{{code}}": "sum by (code) (gpuctl_problems)", "all": "sum(gpuctl_problems) or vector(0)"},
    ),
    Panel(
        title="Since Git was read, since a cycle",
        unit="s",
        lines={"Git": _AGE.format("fetch"), "cycle": _AGE.format("cycle")},
    ),
    Panel(
        title="Time of a cycle, 95th percentile",
        unit="s",
        lines={"cycle": "histogram_quantile(0.95, sum by (le) (rate(gpuctl_cycle_seconds_bucket[5m])))"},
    ),
    Panel(
        title="Requests to the API server a second",
        unit="reqps",
        lines={"{{verb}} {{code}}": "sum by (verb, code) (rate(gpuctl_api_requests_total[5m]))"},
    ),
    Panel(
        title="Memory",
        unit="bytes",
        lines={"{{instance}}": "process_resident_memory_bytes and on (instance) gpuctl_leader"},
    ),
)


def rule_groups() -> dict[str, Any]:
    """The alerts as a file of rules for Prometheus."""
    rules = [
        {
            "alert": each.name,
            "expr": each.expr,
            "for": each.lasts,
            "labels": {"severity": each.severity},
            "annotations": {"summary": each.what, "description": each.do},
        }
        for each in ALERTS
    ]
    return {"groups": [{"name": NAME, "rules": rules}]}


def operator_objects() -> tuple[Body, ...]:
    """The alerts for the Prometheus operator, and the object by which it reads the metrics."""
    home, version = names.SYSTEM_NAMESPACE, "monitoring.coreos.com/v1"
    monitor = {
        "selector": {"matchLabels": LABELS},
        "endpoints": [{"port": "metrics", "path": "/metrics", "interval": "30s"}],
    }
    return (
        made((version, "PrometheusRule"), NAME, {"spec": rule_groups()}, namespace=home),
        made((version, "ServiceMonitor"), NAME, {"spec": monitor}, namespace=home),
    )


def grafana_dashboard() -> str:
    """The dashboard as a file that Grafana imports."""
    source = {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    board = {
        "uid": NAME,
        "title": NAME,
        "schemaVersion": _SCHEMA,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [source]},
        "panels": [_panel(number, panel) for number, panel in enumerate(PANELS)],
    }
    return json.dumps(board, indent=2) + "\n"


def _panel(number: int, panel: Panel) -> Mapping[str, Any]:
    row, column = divmod(number, 2)
    targets = [
        {"refId": chr(ord("A") + index), "expr": expr, "legendFormat": name, "datasource": _SOURCE}
        for index, (name, expr) in enumerate(panel.lines.items())
    ]
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "datasource": _SOURCE,
        "gridPos": {"x": column * _WIDTH, "y": row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": targets,
    }
