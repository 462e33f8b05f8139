"""Measurements and probes as a scraper gets them, over loopback."""

from __future__ import annotations

import re
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from threading import Event, Semaphore

import pytest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from gpuctl.adapters.http_server import BriefHandler
from gpuctl.adapters.metrics_server import MOST_AT_ONCE, MetricsServer
from gpuctl.adapters.prometheus import PrometheusMeters
from gpuctl.app.metrics import Amount, Measurements, Sort, ToldStatus
from gpuctl.app.ports import WorldFault
from gpuctl.compile import DeclaredSize
from gpuctl.model.decision import FairShare
from gpuctl.model.ids import DomainName, PoolName, ProjectName, Revision
from gpuctl.observe.freezes import decode_frozen

TEAM, POOL = ProjectName("team-a"), PoolName("v100")
SHARE = FairShare(
    domain=DomainName("v100"),
    project=TEAM,
    quota_milli=2_500,
    demand_milli=4_000,
    share_milli=3_000,
    allocated_milli=500,
)
MEASURED = Measurements(
    duration_ms=30,
    decisions={("keep", "GPU5001"): 3, ("pending", "GPU5010"): 2},
    shares=(SHARE,),
    queued={Sort(TEAM, "training", POOL): Amount(2, 4_000)},
    running={Sort(TEAM, "interactive", POOL): Amount(1, 500)},
    waits=((TEAM, "training", 30_000),),
    problems={(TEAM, "ErrImageNeverPull"): 1},
    failures={(TEAM, "OOMKilled"): 1},
    writes={("create", "ok"): 4, ("update", "GPU7004"): 1},
    starts=2,
    pauses={(TEAM, "GPU5041"): 1},
    drift=1,
)


@dataclass
class Scene:
    """A replica that leads as long as `leads` says so, and its address."""

    meters: PrometheusMeters
    port: int = 0
    leads: bool = True

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, refusal.read().decode()

    def samples(self) -> dict[str, float]:
        """By name and labels, as in `gpuctl_writes_total{action="create",code="ok"}`."""
        found = {}
        for family in text_string_to_metric_families(self.get("/metrics")[1]):
            for sample in family.samples:
                labels = ",".join(f'{key}="{value}"' for key, value in sorted(sample.labels.items()))
                found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
        return found


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene(PrometheusMeters(lambda: made.leads))
    with MetricsServer(made.meters, "127.0.0.1:0") as server:
        made.port = server.port
        yield made


class Slow(Collector):
    """A measurement that waits, and counts how often it was made, and how often at once."""

    def __init__(self) -> None:
        self.made, self.now, self.most = 0, 0, 0
        self.begun, self.goes_on = Semaphore(0), Event()

    def describe(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("slow", "How often")

    def collect(self) -> Iterator[Metric]:
        self.made, self.now = self.made + 1, self.now + 1
        self.most = max(self.most, self.now)
        self.begun.release()
        assert self.goes_on.wait(60)
        yield GaugeMetricFamily("slow", "How often", value=self.made)
        self.now -= 1


def is_counted(name: str) -> bool:
    """Whether a series only grows: it does no harm where nothing adds to it."""
    return name.startswith(("gpuctl_wait_seconds_", "gpuctl_pauses_total", "gpuctl_failed_runs_total"))


def test_a_cycle_is_told(scene: Scene) -> None:
    scene.meters.cycle(MEASURED)
    scene.meters.cycle(MEASURED)
    told = scene.samples()
    wanted = {
        "gpuctl_cycle_seconds_count": 2,
        'gpuctl_cycle_seconds_bucket{le="0.025"}': 0,
        'gpuctl_cycle_seconds_bucket{le="0.05"}': 2,
        'gpuctl_decisions{code="GPU5001",kind="keep"}': 3,
        'gpuctl_queued_jobs{pool="v100",project="team-a",type="training"}': 2,
        'gpuctl_queued_gpus{pool="v100",project="team-a",type="training"}': 4,
        'gpuctl_running_gpus{pool="v100",project="team-a",type="interactive"}': 0.5,
        'gpuctl_wait_seconds_bucket{le="60.0",project="team-a",type="training"}': 2,
        'gpuctl_wait_seconds_bucket{le="10.0",project="team-a",type="training"}': 0,
        'gpuctl_failing_runs{project="team-a",reason="ErrImageNeverPull"}': 1,
        'gpuctl_quota_gpus{domain="v100",project="team-a"}': 2.5,
        'gpuctl_demand_gpus{domain="v100",project="team-a"}': 4,
        'gpuctl_share_gpus{domain="v100",project="team-a"}': 3,
        'gpuctl_allocated_gpus{domain="v100",project="team-a"}': 0.5,
        'gpuctl_writes_total{action="create",code="ok"}': 8,
        'gpuctl_writes_total{action="update",code="GPU7004"}': 2,
        "gpuctl_starts_total": 4,
        'gpuctl_pauses_total{code="GPU5041",project="team-a"}': 2,
        "gpuctl_drift_repaired_total": 2,
        "gpuctl_leader": 1,
    }
    assert {name: told.get(name) for name in wanted} == wanted
    assert told["process_resident_memory_bytes"] > 0


def test_the_limits_are_told_where_they_are_known(scene: Scene) -> None:
    size = DeclaredSize(jobs={TEAM: 7}, text_bytes={TEAM: 300})
    limits = {"gpuctl_declared_jobs_limit", "gpuctl_declared_text_limit_bytes"}
    scene.meters.cycle(replace(MEASURED, size=size))
    told = scene.samples()
    assert told['gpuctl_declared_jobs{project="team-a"}'] == 7
    assert told['gpuctl_declared_text_bytes{project="team-a"}'] == 300
    assert limits.isdisjoint(told)
    scene.meters.cycle(replace(MEASURED, size=replace(size, most_jobs=100)))
    told = scene.samples()
    assert [told[name] for name in sorted(limits)] == [100, (8 * 100 + 1024) << 10]
    scene.leads = False
    assert limits.isdisjoint(scene.samples())


def test_counters_have_no_time_of_their_own(scene: Scene) -> None:
    scene.meters.cycle(MEASURED)
    assert not [name for name in scene.samples() if "_created" in name]


def test_counters_stand_at_0_before_they_first_count(scene: Scene) -> None:
    """Of a series that begins at 1 Prometheus sees no increase: the first pause of a project would never be shown."""
    scene.meters.cycle(replace(MEASURED, pauses={}, waits=()))
    told = scene.samples()
    assert told['gpuctl_pauses_total{code="GPU5030",project="team-a"}'] == 0
    assert told['gpuctl_wait_seconds_count{project="team-a",type="training"}'] == 0


def test_the_number_of_series_is_that_of_projects_not_of_jobs(scene: Scene) -> None:
    """10,000 jobs of 10 projects, each of which waits, runs, was let go and paused."""
    projects = [ProjectName(f"p{number}") for number in range(10)]
    sorts = {Sort(name, kind, POOL): Amount(500, 1) for name in projects for kind in ("training", "interactive")}
    waits = tuple((projects[number % 10], "training", number) for number in range(10_000))
    pauses = {(name, "GPU5041"): 1_000 for name in projects}
    few = Measurements(duration_ms=1, waits=waits[:10], pauses=pauses, queued=sorts, running=sorts)
    scene.meters.cycle(few)
    before = len(scene.samples())
    scene.meters.cycle(replace(few, waits=waits))
    assert len(scene.samples()) == before < 400


def test_a_follower_says_nothing_of_projects(scene: Scene) -> None:
    scene.meters.cycle(MEASURED)
    scene.leads = False
    told = scene.samples()
    assert told["gpuctl_leader"] == 0
    assert not [name for name in told if "team-a" in name and not is_counted(name)]


def test_a_project_that_is_gone_is_not_told_of(scene: Scene) -> None:
    scene.meters.cycle(MEASURED)
    scene.meters.cycle(Measurements(duration_ms=1))
    assert not [name for name in scene.samples() if "team-a" in name and not is_counted(name)]


def test_git_the_api_server_and_what_stands_wrong(scene: Scene) -> None:
    scene.meters.fetched(well=True)
    scene.meters.fetched(well=False)
    scene.meters.request("patch", "Job", 200, 12)
    scene.meters.request("patch", "Job", 0, 12)
    scene.meters.standing({"GPU7001": 1, "GPU8001": 2})
    scene.meters.following(Revision("5eed" * 10), 1_596_000_000_500)
    told = scene.samples()
    wanted = {
        'gpuctl_git_fetches_total{result="ok"}': 1,
        'gpuctl_git_fetches_total{result="failed"}': 1,
        'gpuctl_api_requests_total{code="200",kind="Job",verb="patch"}': 1,
        'gpuctl_api_requests_total{code="0",kind="Job",verb="patch"}': 1,
        'gpuctl_api_request_seconds_count{kind="Job",verb="patch"}': 2,
        'gpuctl_problems{code="GPU8001"}': 2,
        f'gpuctl_revision_info{{revision="{"5eed" * 10}"}}': 1,
        "gpuctl_revision_timestamp_seconds": 1_596_000_000.5,
    }
    assert {name: told.get(name) for name in wanted} == wanted
    scene.meters.standing({})
    assert not [name for name in scene.samples() if name.startswith("gpuctl_problems{")]


def test_no_label_can_grow_without_bound(scene: Scene) -> None:
    """Those that take values from outside are named here, each with what bounds it."""
    scene.meters.cycle(MEASURED)
    scene.meters.request("patch", "Job", 200, 1)
    scene.meters.standing({"GPU7001": 1})
    scene.meters.following(Revision("1" * 40), 0)
    labels = {label for name in scene.samples() for label in re.findall(r'(\w+)="', name) if name.startswith("gpuctl")}
    declared = {"project", "pool", "domain"}
    ours = {"kind", "code", "action", "verb", "result", "le", "version", "reason", "type", "direction"}
    one = {"revision"}
    assert labels == declared | ours | one


def test_no_text_of_a_person_keeps_the_metrics_from_being_written(scene: Scene) -> None:
    """Who may freeze writes this annotation, and JSON has halves of characters, which are no UTF-8."""
    said = '{"project/x\\ud800": {"by": "\\ud800", "reason": "a\\nb\\u202e", "sinceMs": 7000}}'
    scene.meters.status(ToldStatus(frozen=decode_frozen(said)))
    told = [name for name in scene.samples() if name.startswith("gpuctl_frozen")]
    assert told == ["gpuctl_frozen_timestamp_seconds" + r'{by="\ud800",project="x\ud800",reason="a\nb\u202e"}']


def test_many_scrapes_at_once_are_made_one_at_a_time_and_shared() -> None:
    """Else whoever reaches the port takes the loop's time: each scrape of 300 projects is 0.1 s of a processor."""
    meters = PrometheusMeters()
    slow = Slow()
    meters.registry.register(slow)
    with ThreadPoolExecutor(20) as threads:
        first = threads.submit(meters.exposition, "")
        slow.begun.acquire()
        others = [threads.submit(meters.exposition, "") for _ in range(19)]
        time.sleep(2)  # all of them ask
        slow.goes_on.set()
        assert b"slow 1.0" in first.result()[0]
        assert not any(b"slow 1.0" in each.result()[0] for each in others)  # it was begun before they asked
    assert slow.most == 1
    assert slow.made < 10  # 2, but for threads that begin late


def test_probes(scene: Scene) -> None:
    assert scene.get("/healthz") == (200, "ok\n")
    assert scene.get("/readyz") == (503, "the cluster was not read yet\n")
    scene.meters.synced()
    scene.leads = False
    assert scene.get("/readyz") == (200, "ok\n")
    assert scene.get("/readyz?verbose")[0] == 200
    assert scene.get("/else")[0] == 404


def test_a_loop_that_hangs_is_not_healthy() -> None:
    meters = PrometheusMeters(stale_after_ms=0)
    with MetricsServer(meters, "127.0.0.1:0") as server:
        scene = Scene(meters, server.port)
        meters.beat()
        assert scene.get("/healthz") == (503, "the loop hangs\n")


@pytest.mark.parametrize("address", ["8080", "localhost", "127.0.0.1:http", "127.0.0.1:70000", "256.1.1.1:80", ""])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(WorldFault) as refusal:
        MetricsServer(PrometheusMeters(), address)
    assert refusal.value.code == "GPU7031"
    assert str(refusal.value).startswith(f"{address}: ")


def test_a_taken_port_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(WorldFault, match="in use"):
        MetricsServer(PrometheusMeters(), f"127.0.0.1:{taken.getsockname()[1]}")


def halves_of_requests(server: MetricsServer, stack: ExitStack) -> list[socket.socket]:
    """As many connections as are served at once, each with a request that has not ended."""
    address = "127.0.0.1", server.port
    clients = [stack.enter_context(socket.create_connection(address, timeout=60)) for _ in range(MOST_AT_ONCE)]
    for each in clients:
        each.sendall(b"GET /metrics HTTP/1.1\r\n")
    return clients


def test_slow_clients_of_metrics_end_and_leave_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BriefHandler, "timeout", 1.0)
    with ExitStack() as stack:
        server = stack.enter_context(MetricsServer(PrometheusMeters(), "127.0.0.1:0"))
        slow = halves_of_requests(server, stack)
        assert [each.recv(1) for each in slow] == [b""] * MOST_AT_ONCE
        within(lambda: _answers(server.port))


def test_silent_clients_keep_no_probe_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else whoever reaches the port could have the kubelet restart the controller, for as long as they like."""
    monkeypatch.setattr(BriefHandler, "timeout", 120.0)  # so none of them ends by itself
    with ExitStack() as stack:
        server = stack.enter_context(MetricsServer(PrometheusMeters(), "127.0.0.1:0"))
        silent = halves_of_requests(server, stack)
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=60) as answered:
            assert answered.status == 200
        assert silent[0].recv(1) == b""
        silent[-1].sendall(b"\r\n")
        assert silent[-1].recv(8) == b"HTTP/1.0"


def test_answers_that_take_long_are_few_whoever_asks() -> None:
    """A connection that is cut ends no thread that makes its answer: there must not be one more for each that comes."""
    meters = PrometheusMeters()
    slow = Slow()
    meters.registry.register(slow)
    with ExitStack() as stack:
        server = stack.enter_context(MetricsServer(meters, "127.0.0.1:0"))
        stack.callback(slow.goes_on.set)
        address = "127.0.0.1", server.port
        last = None
        for _ in range(4 * MOST_AT_ONCE):
            last = stack.enter_context(socket.create_connection(address, timeout=60))
            with suppress(OSError):  # it is cut already
                last.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert last is not None
        assert _is_cut(last)
        made = [each for each in threading.enumerate() if "process_request_thread" in each.name]
        assert MOST_AT_ONCE <= len(made) <= 2 * MOST_AT_ONCE
        slow.goes_on.set()
        within(lambda: _answers(server.port))


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answered:
            return bool(answered.status == 200)
    except OSError:
        return False


def _is_cut(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def within(holds: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)
