"""What is read of DCGM exporters and of Prometheus, and that nothing they answer costs more than its bound."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
import yaml
from controlplane.ports import free_port
from exporters import MIB, Answers, answering, drops, exposition, matrix

from gpuctl.adapters.utilisation import fetching, prometheus_api
from gpuctl.adapters.utilisation.dcgm import sample_of
from gpuctl.adapters.utilisation.exporters import Exporters, samples_of
from gpuctl.adapters.utilisation.prometheus_api import Prometheus
from gpuctl.app.utilisation import Unread
from gpuctl.model.utilisation import Gauge, Sample

NOW_MS = 1_800_000_000_000
RECORDED = (Path(__file__).parent / "dcgm-exporter.prom").read_bytes()
GPU = "GPU-c2f76b33-7953-256e-8f33-1343419b1a1"
LABELS = {"__name__": "DCGM_FI_DEV_GPU_UTIL", "UUID": "GPU-1", "namespace": "gpu-a", "pod": "p"}


@pytest.fixture
def server() -> Iterator[Answers]:
    with answering(Answers()) as answers:
        yield answers


def told(found: object) -> str:
    return str(found)


def test_an_exporters_output_is_read_by_pod_and_device() -> None:
    found = list(samples_of(RECORDED, NOW_MS))
    assert found[:2] == [
        Sample(Gauge.BUSY, "gpu-a", "train-0-x7k2p", f"{GPU}0/", NOW_MS, 970),
        Sample(Gauge.BUSY, "gpu-a", "notebook-0-9zq4m", f"{GPU}1/", NOW_MS, 0),
    ]
    assert Sample(Gauge.USED, "gpu-a", "notebook-0-9zq4m", f"{GPU}1/", NOW_MS, 29_515 * MIB) in found
    assert [s for s in found if s.namespace == "gpu-b"] == [
        Sample(Gauge.ACTIVE, "gpu-b", "small-0-aaaaa", f"{GPU}3/1", NOW_MS, 250),
        Sample(Gauge.ACTIVE, "gpu-b", "small-1-bbbbb", f"{GPU}3/2", NOW_MS, 0),
    ]
    assert all(sample.pod for sample in found)


NOWHERE = 'container="",namespace="",pod=""'
THERE = 'container="main",namespace="gpu-a",pod="p"'
AS_RECORDED = {
    "NVIDIA/gpu-monitoring-tools#138, December 2020: no machine": (
        'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1",device="nvidia0",WHERE} 44', (Gauge.BUSY, "GPU-1/", 440),
    ),
    "NVIDIA/dcgm-exporter#58, March 2022: model and exporter's pod": (
        'DCGM_FI_DEV_FB_USED{gpu="1",UUID="GPU-1",device="nvidia1",modelName="NVIDIA TITAN V",Hostname="x",WHERE} 3',
        (Gauge.USED, "GPU-1/", 3 * MIB),
    ),
    "NVIDIA/dcgm-exporter#68, May 2022: a MIG slice": (
        'DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="0",UUID="GPU-1",GPU_I_PROFILE="2g.12gb",GPU_I_ID="1",WHERE} 0.381',
        (Gauge.ACTIVE, "GPU-1/1", 381),
    ),
    "run-ai/fake-gpu-operator#93, September 2024: labels by name": (
        'DCGM_FI_DEV_FB_FREE{Hostname="dcgm-exporter-x",UUID="GPU-1",device="nvidia1",gpu="1",WHERE} 11441',
        (Gauge.FREE, "GPU-1/", 11_441 * MIB),
    ),
}  # fmt: skip
"""The forms of lines that people have reported of their machines; names and values of ours. There `pod` was empty."""


@pytest.mark.parametrize("source", AS_RECORDED)
def test_lines_as_machines_have_been_seen_to_say_them_are_read(source: str) -> None:
    line, (gauge, device, amount) = AS_RECORDED[source]
    assert list(samples_of(line.replace("WHERE", NOWHERE).encode() + b"\n", NOW_MS)) == []
    assert list(samples_of(line.replace("WHERE", THERE).encode() + b"\n", NOW_MS)) == [
        Sample(gauge, "gpu-a", "p", device, NOW_MS, amount)
    ]


OLD_NAMES = (
    'dcgm_gpu_utilization{gpu="0",UUID="GPU-1",device="nvidia0",Hostname="x",container="main",namespace="a",pod="p"} 7',
    'dcgm_fi_prof_gr_engine_active{gpu="0",uuid="GPU-1",container_name="m",pod_name="p",pod_namespace="a"} 0.5',
)
"""Of NVIDIA/dcgm-exporter#188 and #272."""


@pytest.mark.parametrize("line", OLD_NAMES)
def test_metrics_by_the_names_of_before_are_not_read(line: str) -> None:
    assert list(samples_of(line.encode() + b"\n", NOW_MS)) == []


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 100.6, 1e300, 9223372036854775792.0])
def test_what_no_gpu_can_have_is_no_sample(value: float) -> None:
    assert sample_of("DCGM_FI_DEV_GPU_UTIL", LABELS, NOW_MS, value) is None
    assert sample_of("DCGM_FI_DEV_GPU_UTIL", LABELS, NOW_MS, 100.0) is not None


def test_a_gpu_without_a_uuid_is_known_by_its_machine_in_either_spelling() -> None:
    for name in ("Hostname", "hostname"):
        found = sample_of("DCGM_FI_DEV_GPU_UTIL", {**LABELS, "UUID": "", name: "n1", "gpu": "3"}, NOW_MS, 5)
        assert found is not None
        assert found.device == "n1/3/"


SCRAPED = {**LABELS, "pod": "exporter-x", "namespace": "ops"}


@pytest.mark.parametrize(
    ("labels", "pod"),
    [
        ({**SCRAPED, "exported_pod": "p", "exported_namespace": "gpu-a"}, "gpu-a/p"),
        ({**SCRAPED, "exported_pod": "", "exported_namespace": ""}, None),
        ({**SCRAPED, "exported_exported_pod": "p", "exported_pod": "other", "exported_namespace": "gpu-a"}, "gpu-a/p"),
        (LABELS, "gpu-a/p"),
    ],
)
def test_the_exporters_labels_win_over_those_of_the_scrape(
    server: Answers, labels: dict[str, str], pod: str | None
) -> None:
    """Prometheus renames them where it has some of its own; a tenant's label of the new name moves them further."""
    server.body = matrix((labels, [(NOW_MS / 1000, "40")]))
    with closing(Prometheus(server.url)) as source:
        found = [f"{sample.namespace}/{sample.pod}" for sample in source.read(NOW_MS).samples]
    assert found == ([] if pod is None else [pod])


def test_an_exporter_that_is_asked_itself_renames_nothing() -> None:
    """It may copy labels of pods: one that a tenant calls `exported_pod` names no other pod."""
    labels = 'UUID="GPU-1",exported_pod="other",exported_namespace="gpu-b",namespace="gpu-a",pod="p"'
    (found,) = samples_of(f"DCGM_FI_DEV_GPU_UTIL{{{labels}}} 5\n".encode(), NOW_MS)
    assert (found.namespace, found.pod) == ("gpu-a", "p")


def test_prometheus_is_asked_once_for_all_samples_with_their_times(server: Answers) -> None:
    server.body = matrix((LABELS, [(NOW_MS / 1000 - 30, "40"), (NOW_MS / 1000, "0")]), ({"__name__": "up"}, [(1, "1")]))
    with closing(Prometheus(f"{server.url}/prom/", 'job="dcgm"', lambda: "s3cret")) as source:
        found = source.read(NOW_MS).samples
    assert [(sample.at_ms, sample.value) for sample in found] == [(NOW_MS - 30_000, 400), (NOW_MS, 0)]
    (query,) = server.queries()
    assert query.endswith(',job="dcgm"}[2m]')
    assert "DCGM_FI_DEV_GPU_UTIL" in query
    path, headers = server.asked[0]
    assert path.startswith("/prom/api/v1/query?")
    assert {name.lower(): value for name, value in headers.items()}["authorization"] == "Bearer s3cret"


@pytest.mark.parametrize(
    "body",
    [
        b"", b"<html>", b"[]", b"{}", b"null", b'{"status": "error"}', b"[" * 100_000,
        b'{"status": "success", "data": {"resultType": "matrix", "result": [{"metric": 5, "values": [[1, "1"]]}]}}',
        matrix((LABELS, [(float("inf"), "1")])),
        matrix((LABELS, [(1, "much")])),
    ],
)  # fmt: skip
def test_an_answer_that_is_none_of_prometheus_is_told(server: Answers, body: bytes) -> None:
    server.body = body
    with closing(Prometheus(server.url)) as source, pytest.raises(Unread, match="something else than a result"):
        source.read(NOW_MS)


def test_a_refusal_is_told_without_what_is_secret(server: Answers) -> None:
    server.status = 401
    url = f"http://user:hidden@127.0.0.1:{server.port}"
    with closing(Prometheus(url, token=lambda: "s3cret")) as source, pytest.raises(Unread) as raised:
        source.read(NOW_MS)
    assert told(raised.value) == f"http://127.0.0.1:{server.port}/api/v1/query: it answers 401"


def test_a_redirect_is_not_followed(server: Answers) -> None:
    server.status, server.headers = 302, {"location": "http://169.254.169.254/"}
    with closing(Prometheus(server.url)) as source, pytest.raises(Unread, match="it answers 302"):
        source.read(NOW_MS)


def test_an_endless_answer_ends_at_its_bound(server: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus_api, "MOST_BYTES", 1 << 20)
    server.pieces = lambda: iter(lambda: b"x" * 65_536, b"")
    with closing(Prometheus(server.url)) as source, pytest.raises(Unread, match="more than 1 MiB"):
        source.read(NOW_MS)


def test_a_slow_answer_ends_at_its_bound(server: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "WHOLE_S", 0.3)
    server.pieces = lambda: drops(0.05)
    began_s = time.monotonic()
    with closing(Prometheus(server.url)) as source, pytest.raises(Unread, match="takes more than"):
        source.read(NOW_MS)
    assert time.monotonic() - began_s < 60


def test_compressed_answers_are_not_unpacked(server: Answers) -> None:
    server.headers, server.body = {"content-encoding": "gzip"}, b"\x1f\x8b" + b"\0" * 100
    with closing(Prometheus(server.url)) as source, pytest.raises(Unread):
        source.read(NOW_MS)


def test_each_address_of_an_exporters_name_is_asked(server: Answers) -> None:
    server.body = exposition(("gpu-a", "p", "GPU-1", 50, 10, 20))
    two = ["127.0.0.1", "127.0.0.2"]
    with closing(Exporters([f"http://exporter.ops:{server.port}/metrics"], lambda *_: two)) as source:
        reading = source.read(NOW_MS)
    assert [sample.value for sample in reading.samples] == [500, 10 * MIB, 20 * MIB]
    assert "127.0.0.2" in reading.lacking, "one listens on 127.0.0.1 alone"
    assert {name.lower(): value for name, value in server.asked[0][1].items()}["host"] == f"exporter.ops:{server.port}"


def test_no_exporter_at_all_is_told() -> None:
    with closing(Exporters(["http://127.0.0.1:1/metrics"])) as source, pytest.raises(Unread, match="can't be reached"):
        source.read(NOW_MS)


@pytest.mark.parametrize(
    "body",
    [
        b"DCGM_FI_DEV_GPU_UTIL{pod=\n",
        b"DCGM_FI_DEV_GPU_UTIL \xff\xfe\n",
        b'DCGM_FI_DEV_GPU_UTIL{gpu="0",\r="h"} 97\n',
    ],
)
def test_an_exporter_that_breaks_the_format_is_told(server: Answers, body: bytes) -> None:
    server.body = body
    with closing(Exporters([server.url])) as source, pytest.raises(Unread, match="something else than metrics"):
        source.read(NOW_MS)


def test_only_lines_of_the_metrics_that_count_are_parsed() -> None:
    """An exporter may write a hundred other metrics, and a long line is none of its own."""
    long = b'DCGM_FI_DEV_GPU_UTIL{pod="' + b"p" * 20_000 + b'"} 1\n'
    (first, *_) = samples_of(b"nonsense {{{\n" + long + exposition(("gpu-a", "p", "G", 1, 2, 3)), NOW_MS)
    assert first.value == 10


def test_a_real_prometheus_that_scrapes_an_exporter_gives_its_samples(server: Answers, tmp_path: Path) -> None:
    """It keeps labels of the target under the exporter's names, so these are renamed; a matcher selects the job."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is not installed")
    server.body = exposition(("gpu-a", "train-0", "GPU-1", 40, 100, 900), ("", "", "GPU-2", 0, 0, 1000))
    target = {"targets": [f"127.0.0.1:{server.port}"], "labels": {"namespace": "ops", "pod": "exporter-x"}}
    scrape = {"job_name": "dcgm", "scrape_interval": "1s", "static_configs": [target]}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"scrape_configs": [scrape]}))
    own = free_port()
    line = [program, "--config.file=config.yaml", f"--web.listen-address=127.0.0.1:{own}"]
    with subprocess.Popen([*line, "--storage.tsdb.path=data", "--log.level=error"], cwd=tmp_path) as process:
        try:
            found = _read(own, 'job="dcgm"')
            now_ms = int(time.time_ns() // 1_000_000)
            nobodys = ("ops", "exporter-x", "GPU-2/")  # of the exporter's own pod, which is no job's
            assert {(s.namespace, s.pod, s.device) for s in found} == {("gpu-a", "train-0", "GPU-1/"), nobodys}
            assert {(s.gauge, s.value) for s in found if s.namespace == "gpu-a"} == {
                (Gauge.BUSY, 400), (Gauge.USED, 100 * MIB), (Gauge.FREE, 900 * MIB),
            }  # fmt: skip
            assert all(now_ms - 60_000 < sample.at_ms <= now_ms for sample in found)
            with closing(Prometheus(f"http://127.0.0.1:{own}", 'job="other"')) as source:
                assert source.read(NOW_MS).samples == []
            with closing(Prometheus(f"http://127.0.0.1:{own}", "job=")) as source, pytest.raises(Unread, match="400"):
                source.read(NOW_MS)
        finally:
            process.kill()


def _read(port: int, matching: str) -> list[Sample]:
    until = time.monotonic() + 60
    with closing(Prometheus(f"http://127.0.0.1:{port}", matching)) as source:
        while True:
            with suppress(Unread):
                if found := list(source.read(NOW_MS).samples):
                    return found
            assert time.monotonic() < until
            time.sleep(0.3)
