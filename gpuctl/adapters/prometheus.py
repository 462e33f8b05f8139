"""Measurements in Prometheus' form, and the answers of the two probes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from threading import Lock

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, Summary, disable_created_metrics
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from gpuctl import __version__
from gpuctl.app.metrics import PAUSES, Measurements, ToldStatus
from gpuctl.app.predictions import Result
from gpuctl.compile import DeclaredSize
from gpuctl.diag.escapes import printable
from gpuctl.model.ids import ProjectName, Revision
from gpuctl.model.units import DurationMs, Instant
from gpuctl.model.utilisation import ProjectUse

STALE_AFTER_MS: DurationMs = 300_000
"""A loop that last came round this long ago hangs: it is longer than a fetch and its retries ever take."""

USELESS_AFTER_MS: DurationMs = 600_000
"""A leader that could apply nothing for this long is not ready."""

_CYCLE_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_WAIT_SECONDS = (1, 10, 60, 300, 900, 3_600, 14_400, 86_400)
_MS_NS = 1_000_000


def always() -> bool:
    """True: a controller that shares its cluster with no other always leads."""
    return True


class PrometheusMeters:
    """Implements the port Meters in a registry of its own. `leads`: whether this replica may write now.

    Only the leader reports the present state of projects, so that sums over replicas count nothing twice. Counters of
    projects stay when a project is gone; their number is bounded by the projects that there ever were.
    """

    def __init__(
        self,
        leads: Callable[[], bool] = always,
        *,
        stale_after_ms: DurationMs = STALE_AFTER_MS,
        useless_after_ms: DurationMs = USELESS_AFTER_MS,
    ) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call] # the library has no type there
        self.registry = CollectorRegistry()
        self._cycles = Histogram(
            "gpuctl_cycle_seconds",
            "Time of a reconcile cycle; gpuctl bench engine says what is usual",
            buckets=_CYCLE_SECONDS,
            registry=self.registry,
        )
        self._writes = self._counter(
            "gpuctl_writes", "Changes asked of the API server; gpuctl explain CODE", "action", "code"
        )
        self._requests = self._counter("gpuctl_api_requests", "Requests to the API server", "verb", "kind", "code")
        self._latency = Summary(
            "gpuctl_api_request_seconds", "Time to the API server's answer", ["verb", "kind"], registry=self.registry
        )
        self._starts = self._counter("gpuctl_starts", "Runs that were let go")
        self._waits = Histogram(
            "gpuctl_wait_seconds",
            "How long runs had waited that were let go; gpuctl explain JOB says for what one waits",
            ["project", "type"],
            buckets=_WAIT_SECONDS,
            registry=self.registry,
        )
        self._forecasts = _forecast_errors(self.registry)
        self._failures = self._counter("gpuctl_failed_runs", "Failed runs; gpuctl explain JOB", "project", "reason")
        self._pauses = self._counter("gpuctl_pauses", "Runs paused; gpuctl explain CODE says why", "project", "code")
        self._drift = self._counter(
            "gpuctl_drift_repaired", "Objects put back as Git has them; the log names who wrote them"
        )
        self._predictions = self._counter(
            "gpuctl_prediction_checks", "Commits by how their prediction ended; bug: report it", "result"
        )
        for end in Result:
            self._predictions.labels(end.value)
        self._differences = self._counter(
            "gpuctl_prediction_differences", "Differences of prediction and result, by cause", "cause"
        )
        self._fetches = self._counter("gpuctl_git_fetches", "Times Git was asked", "result")
        for result in ("ok", "failed"):
            self._fetches.labels(result)
        self._notifications = self._counter(
            "gpuctl_notifications", "Messages to receivers outside, by how they ended", "receiver", "result"
        )
        self._now = _Now(leads)
        self.registry.register(self._now)
        ProcessCollector(registry=self.registry)
        self._synced = False
        self._useless_ns: int | None = None
        self._shared = _Shared()
        self.document = b""
        """The answer of /status; empty while nothing is known."""
        self._stale_after_ns, self._useless_after_ns = stale_after_ms * _MS_NS, useless_after_ms * _MS_NS
        self._beat_ns = time.monotonic_ns()

    def beat(self) -> None:
        """Note that the loop is alive."""
        self._beat_ns = time.monotonic_ns()

    def synced(self) -> None:
        """Note that the whole cluster was read."""
        self._synced = True

    def fetched(self, *, well: bool) -> None:
        """Count a fetch from Git."""
        self._fetches.labels("ok" if well else "failed").inc()

    def following(self, revision: Revision, at_ms: Instant) -> None:
        """Note the revision that was taken up."""
        self._now.revision = (revision, at_ms)

    def cycle(self, measured: Measurements) -> None:
        """Take the measurements of a cycle that has ended."""
        self._now.measured = measured
        self._cycles.observe(measured.duration_ms / 1000)
        self._begin_series(measured)
        for labels, count in measured.writes.items():
            self._writes.labels(*labels).inc(count)
        self._starts.inc(measured.starts)
        for (project, reason), count in measured.failures.items():
            self._failures.labels(project, reason).inc(count)
        for (project, code), count in measured.pauses.items():
            self._pauses.labels(project, code).inc(count)
        for project, of_type, wait_ms in measured.waits:
            self._waits.labels(project, of_type).observe(wait_ms / 1000)
        for error_ms in measured.forecast_errors:
            self._forecasts.labels("early" if error_ms < 0 else "late").observe(abs(error_ms) / 1000)
        self._drift.inc(measured.drift)

    def _begin_series(self, measured: Measurements) -> None:
        """Begin counters at 0 before they first count: Prometheus sees no increase in a series that begins at 1."""
        for sort in measured.queued:
            self._waits.labels(sort.project, sort.type)
        for row in measured.shares:
            for code in PAUSES:
                self._pauses.labels(row.project, code)

    def predicted(self, result: str, causes: Mapping[str, int]) -> None:
        """Count a prediction that has ended."""
        self._predictions.labels(result).inc()
        for cause, count in causes.items():
            self._differences.labels(cause).inc(count)

    def notified(self, receiver: str, result: str) -> None:
        """Count a message to a receiver outside, by its result. From any thread."""
        self._notifications.labels(receiver, result).inc()

    def standing(self, codes: Mapping[str, int]) -> None:
        """Take how many problems of each code there are now."""
        self._now.problems = dict(codes)

    def enforced(self, *, well: bool) -> None:
        """Note whether something could be applied, or nothing had to be."""
        since_ns = self._useless_ns or time.monotonic_ns()
        self._useless_ns = None if well else since_ns

    def status(self, told: ToldStatus) -> None:
        """Take the changed status."""
        self.document, self._now.status = told.document, told

    def request(self, verb: str, kind: str, code: int, duration_ms: DurationMs) -> None:
        """Count a request to the API server; code 0: it got no answer. From any thread."""
        self._requests.labels(verb, kind, str(code)).inc()
        self._latency.labels(verb, kind).observe(duration_ms / 1000)

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """All metrics in a form that the client accepts, and the form's media type."""
        encode, kind = choose_encoder(accept)
        return self._shared(kind, lambda: encode(self.registry)), kind

    def alive(self) -> bool:
        """Whether the loop came round lately."""
        return time.monotonic_ns() - self._beat_ns < self._stale_after_ns

    def unready(self) -> str:
        """The reason why this replica is not ready; empty if it is. A standby is ready once it has read the cluster."""
        since_ns = self._useless_ns
        if not self._synced:
            return "the cluster was not read yet"
        if since_ns is not None and time.monotonic_ns() - since_ns >= self._useless_after_ns:
            return "nothing could be applied for ten minutes"
        return ""

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)


class _Shared:
    """Makes one text for all requests that came before it was begun, and one text at a time. So the loop has half of
    the interpreter, however many requests come. Safe for threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._begun = 0
        self._last = (0, "", b"")

    def __call__(self, kind: str, make: Callable[[], bytes]) -> bytes:
        """A text of this kind that was begun after the call."""
        asked = self._begun
        with self._lock:
            number, known, text = self._last
            if number > asked and known == kind:
                return text
            self._begun = number = self._begun + 1
            text = make()
            self._last = number, kind, text
            return text


class _Now(Collector):
    """The gauges of the present state. They are made anew for each scrape, so that a project that is gone
    disappears."""

    def __init__(self, leads: Callable[[], bool]) -> None:
        self._leads = leads
        self.measured: Measurements | None = None
        self.problems: Mapping[str, int] = {}
        self.revision: tuple[Revision, Instant] | None = None
        self.status = ToldStatus()

    def collect(self) -> Iterator[Metric]:
        """All gauges."""
        leads, measured, revision = self._leads(), self.measured, self.revision
        yield _gauge("gpuctl_build_info", "The version", ("version",), [((__version__,), 1)])
        yield _gauge(
            "gpuctl_leader",
            "1: this replica may write; without one: kubectl -n gpuctl-system get lease,pods",
            (),
            [((), int(leads))],
        )
        problems = [((code,), count) for code, count in sorted(self.problems.items())]
        yield _gauge(
            "gpuctl_problems",
            "What stands wrong: gpuctl status has the words, gpuctl explain CODE what to do",
            ("code",),
            problems,
        )
        if revision is not None:
            name, at_ms = revision
            yield _gauge("gpuctl_revision_info", "The commit that is enforced", ("revision",), [((name,), 1)])
            yield _gauge("gpuctl_revision_timestamp_seconds", "When it was taken up", (), [((), at_ms / 1000)])
        status = self.status
        for which, text, since_ms in (
            ("fetch", "When Git was last read well; gpuctl status says what is wrong with it", status.fetched_ms),
            ("cycle", "When a cycle last went well; gpuctl status says what is wrong", status.cycled_ms),
        ):
            if since_ms is not None:
                yield _gauge(f"gpuctl_last_good_{which}_timestamp_seconds", text, (), [((), since_ms / 1000)])
        if leads:
            yield _gauge(
                "gpuctl_ready",
                "1: the newest commit is applied whole; 0: gpuctl status says why not",
                (),
                [((), int(status.ready))],
            )
            frozen = [
                # Security: people write these texts, and half a character in one would keep all metrics from being
                # written.
                (tuple(map(printable, (each.project or "", each.by, each.reason))), (each.since_ms or 0) / 1000)
                for each in status.frozen
            ]
            told = "Since when a project, or with none the cluster, is frozen; gpuctl unfreeze ends it"
            yield _gauge("gpuctl_frozen_timestamp_seconds", told, ("project", "by", "reason"), frozen)
        if leads and measured is not None:
            yield from _of_projects(measured)


def _forecast_errors(registry: CollectorRegistry) -> Histogram:
    found = Histogram(
        "gpuctl_start_forecast_error_seconds",
        "How far the first forecast of a start was off; late: jobs without a maxDuration hold GPUs for longer",
        ["direction"],
        buckets=_WAIT_SECONDS,
        registry=registry,
    )
    for direction in ("early", "late"):
        found.labels(direction)
    return found


def _of_projects(measured: Measurements) -> Iterator[Metric]:
    yield _gauge("gpuctl_decisions", "Jobs by the last decision", ("kind", "code"), measured.decisions.items())
    for state, jobs, gpus, found in (
        ("queued", "Jobs that wait; gpuctl explain JOB", "What waiting jobs ask for", measured.queued),
        ("running", "Runs that hold GPUs", "What runs hold", measured.running),
    ):
        counts = [(sort, amount.jobs) for sort, amount in found.items()]
        yield _gauge(f"gpuctl_{state}_jobs", jobs, ("project", "type", "pool"), counts)
        held = [(sort, amount.gpu_milli / 1000) for sort, amount in found.items()]
        yield _gauge(f"gpuctl_{state}_gpus", f"{gpus}, in GPUs", ("project", "type", "pool"), held)
    failing = "Runs whose pods do not run; gpuctl list names them, gpuctl explain JOB what to do"
    yield _gauge("gpuctl_failing_runs", failing, ("project", "reason"), measured.problems.items())
    amounts: tuple[tuple[str, str], ...] = (
        ("quota", "What a project is entitled to"),
        ("demand", "What its jobs ask for"),
        ("share", "Its fair share now"),
        ("allocated", "What its jobs are given"),
        ("guarantee", "What it keeps whatever others ask for, in whole GPUs where its jobs ask for those"),
    )
    for name, text in amounts:
        values = [((row.project, row.domain), getattr(row, f"{name}_milli") / 1000) for row in measured.shares]
        yield _gauge(f"gpuctl_{name}_gpus", f"{text}, in GPUs", ("project", "domain"), values)
    unmet = [(key, milli / 1000) for key, milli in measured.unmet.items()]
    told = "GPUs of waiting jobs that the project's quota would hold; gpuctl explain JOB says what they wait for"
    yield _gauge("gpuctl_unmet_guarantee_gpus", told, ("project", "domain"), unmet)
    yield from _of_size(measured.size)
    if measured.used_at_ms is not None:
        yield from _of_uses(measured.uses, measured.used_at_ms)


def _of_size(size: DeclaredSize) -> Iterator[Metric]:
    """The declared jobs and text, and their limits where known: without `--jobs` there are none."""
    of_jobs = "Declared jobs that are in force, each of a sweep; gpuctl explain GPU3035 says what too many are"
    of_text = "Text in declared jobs: commands, environment, manifests"
    for name, told, amounts in (("jobs", of_jobs, size.jobs), ("text_bytes", of_text, size.text_bytes)):
        found = [((project,), amount) for project, amount in amounts.items()]
        yield _gauge(f"gpuctl_declared_{name}", told, ("project",), found)
    for name, told, most in (
        ("jobs_limit", "Declared jobs that there is memory for: gpuctl install --jobs", size.most_jobs),
        ("text_limit_bytes", "Text that there is memory for: it follows from --jobs", size.most_text_bytes),
    ):
        if most is not None:
            yield _gauge(f"gpuctl_declared_{name}", told, (), [((), most)])


def _of_uses(uses: Mapping[ProjectName, ProjectUse], at_ms: Instant) -> Iterator[Metric]:
    told = "When the use of GPUs was last measured well; gpuctl status says what is wrong with it"
    yield _gauge("gpuctl_last_good_utilisation_timestamp_seconds", told, (), [((), at_ms / 1000)])
    for name, field, text in (
        ("measured", "held_milli", "GPUs of runs of which all GPUs are measured"),
        ("busy", "busy_milli", "How many of these worked; gpuctl top job says of which jobs"),
        ("idle", "idle_milli", "GPUs of runs that are idle for five minutes; gpuctl top job names them"),
    ):
        found = [((project,), getattr(use, field) / 1000) for project, use in uses.items()]
        yield _gauge(f"gpuctl_{name}_gpus", text, ("project",), found)
    memory = [((project,), use.used_bytes) for project, use in uses.items()]
    yield _gauge("gpuctl_gpu_memory_used_bytes", "Memory in use of measured GPUs", ("project",), memory)


def _gauge(name: str, text: str, labels: tuple[str, ...], values: Iterable[tuple[Sequence[str], float]]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for key, value in values:
        family.add_metric(key, value)
    return family
