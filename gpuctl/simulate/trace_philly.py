"""Read the trace of Microsoft's Philly cluster, 2017: jobs of its virtual clusters, as a table by Pollux's authors.

Columns: timestamp, duration (seconds), num_gpus, gpu_time, cluster. Times without a zone are read as UTC; lines may
be in any order.
Source: msr-fiddle/philly-traces, CC-BY-4.0; petuum/adaptdl, simulator/traces/philly.csv.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation

from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.model.ids import ProjectName
from gpuctl.model.units import WHOLE_GPU, Instant
from gpuctl.simulate.trace import Table, Trace, TraceJob

COLUMNS = ("timestamp", "duration", "num_gpus", "cluster")
MOST_GPUS = 100_000
MOST_SECONDS = 10**9
LATEST_MS: Instant = 10**13
"""The largest instant; a line with a larger one is wrong."""

_MOST_DIGITS = 9
_LONGEST_NAME = 253

HISTORY_UNTIL_MS: Instant = 1_507_507_200_000
"""2017-10-09 00:00:00."""

HISTORY_GPU_HOURS = {
    "0e4a51": 18064, "103959": 7276, "11cb48": 1380, "23dbec": 157, "2869ce": 24379, "6214e9": 28268,
    "6c71a0": 21899, "7f04ca": 88422, "b436b2": 72052, "e13805": 2213, "ed69ec": 2156, "ee9e8c": 43360,
}  # fmt: skip
"""What each virtual cluster used in the five weeks from 2017-09-04 on: 17,314 jobs of the same table."""


def read_philly(path: str, content: bytes) -> tuple[Trace | None, tuple[Diagnostic, ...]]:
    """Read the jobs of a table, by time. A table of these clusters from HISTORY_UNTIL_MS on gets the history above."""
    table = Table(path, content, COLUMNS)
    jobs: list[TraceJob] = []
    for number, (timestamp, duration, gpus, cluster) in table.rows():
        job = _job(timestamp, duration, gpus, cluster)
        if isinstance(job, str):
            table.wrong(number, job)
        else:
            jobs.append(job)
    if not jobs and not table.mistakes:
        table.nothing("no line follows the first")
    if table.mistakes:
        return None, tuple(table.mistakes)
    jobs.sort(key=lambda job: job.submitted_ms)
    known = jobs[0].submitted_ms >= HISTORY_UNTIL_MS and any(job.project in HISTORY_GPU_HOURS for job in jobs)
    history = {ProjectName(vc): hours * WHOLE_GPU * 3_600_000 for vc, hours in HISTORY_GPU_HOURS.items() if known}
    return Trace(name="philly", jobs=tuple(jobs), history=history), ()


def _job(timestamp: str, duration: str, gpus: str, cluster: str) -> TraceJob | str:
    """The job of a line, or what is wrong with it."""
    submitted_ms = instant_of(timestamp)
    if submitted_ms is None or not 0 <= submitted_ms < LATEST_MS:
        return f"{timestamp!r} is not a time from 1970 on"
    try:
        seconds = Decimal(duration)
        duration_ms = int(seconds * 1000) if 0 < seconds < MOST_SECONDS else 0
    except InvalidOperation:
        duration_ms = 0
    if not duration_ms:
        return f"{duration!r} is not a duration in seconds"
    if not gpus.isdecimal() or len(gpus) > _MOST_DIGITS or not 0 < int(gpus) <= MOST_GPUS:
        return f"{gpus!r} is not a number of GPUs"
    if not cluster.strip() or not cluster.isprintable() or len(cluster) > _LONGEST_NAME:
        return "cluster is empty" if not cluster.strip() else f"{cluster!r} is not a cluster name"
    return TraceJob(
        project=ProjectName(cluster),
        submitted_ms=submitted_ms,
        duration_ms=duration_ms,
        gpu_milli=WHOLE_GPU * int(gpus),
    )


def instant_of(text: str) -> Instant | None:
    """An ISO 8601 date or time, in UTC where it names no zone, to the second; None for anything else."""
    try:
        when = datetime.fromisoformat(text)
        return int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()) * 1000
    except (ValueError, OverflowError):
        return None
