"""`gpuctl simulate --trace` and `gpuctl bench philly` as a user types them; the real traces where they are at hand."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from commands import Run

HEADER = "timestamp,duration,num_gpus,gpu_time,cluster\n"


@pytest.fixture
def small(tmp_path: Path) -> str:
    path = tmp_path / "small.csv"
    rows = [f"2017-10-09 {hour:02d}:00:00,7200.0,{gpus},0,{vc}" for hour, gpus, vc in
            [(0, 8, "6214e9"), (0, 8, "6214e9"), (1, 4, "7f04ca"), (5, 1, "11cb48"), (23, 2, "7f04ca")]]  # fmt: skip
    path.write_text(HEADER + "\n".join(rows) + "\n")
    return str(path)


def test_modes_side_by_side(run: Run, small: str) -> None:
    result = run("simulate", "--trace", small, "--nodes", "2x8", "--mode", "floor", "--mode", "fair")
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0].startswith("philly: 5 jobs of 46 GPU-hours on 2x8 = 16 GPUs, 2017-10-09 00:00 to 2017-10-09 23:00")
    assert [line.split()[0] for line in lines[1:]] == ["MODE", "floor", "fair"]


def test_json_is_one_document(run: Run, small: str) -> None:
    result = run("simulate", "--trace", small, "--nodes", "2x8", "--until", "12h", "-o", "json")
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    assert (report["kind"], report["jobs"], report["workGpuMs"]) == ("ReplayReport", 4, 42 * 3_600_000)
    assert [mode["mode"] for mode in report["modes"]] == ["fair"]
    assert report["modes"][0]["ended"] == 4


@pytest.mark.parametrize(("output", "begins"), [("chart", "fair\n16 "), ("svg", "<svg ")])
def test_charts(run: Run, small: str, output: str, begins: str) -> None:
    result = run("simulate", "--trace", small, "--nodes", "2x8", "-o", output)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith(begins)


def test_drawings_of_several_modes_are_one_document(run: Run, small: str) -> None:
    result = run("simulate", "--trace", small, "--nodes", "2x8", "--mode", "fair", "--mode", "fifo", "-o", "svg")
    assert result.exit_code == 0, result.stderr
    sheet = ElementTree.fromstring(result.stdout)
    svg = "{http://www.w3.org/2000/svg}"
    assert [each.text for each in sheet.findall(f"{svg}text")] == ["fair", "fifo"]
    assert [each.get("y") for each in sheet.findall(f"{svg}svg")] == ["20", "460"]


@pytest.mark.parametrize(
    ("args", "code", "told"),
    [
        (("--nodes", "many"), 2, "write nodes x GPUs: 64x8"),
        (("--from", "soon"), 2, "write 2017-10-16"),
        (("--until", "2017-10-01"), 1, "GPU3913"),
        (("--format", "openb"), 1, "GPU3911"),
        (("--quotas", "nowhere.csv"), 2, "GPU3904"),
        (("--format", "helios"), 2, "'helios' is not one of"),
        (("--until", "99999999999h"), 2, "write 2017-10-16"),
        (("--stop", "-5s"), 2, "write 30s"),
        (("--nodes", "0x8"), 2, "write nodes x GPUs"),
    ],
)
def test_what_is_wrong_is_told(run: Run, small: str, args: tuple[str, ...], code: int, told: str) -> None:
    result = run("simulate", "--trace", small, *args)
    assert result.exit_code == code
    assert told in result.stderr


@pytest.mark.parametrize(
    ("content", "place", "code"),
    [
        (b"", "1:1", "GPU3915"),
        (HEADER.encode(), "1:1", "GPU3915"),
        (b'{"jobs": []}\n', "1:1", "GPU3914"),
        (b"\x7fELF\x00\xff\n\x00", "1:1", "GPU3914"),
        (b"timestamp,duration,num_gpus\n2017-10-09,1,1\n", "1:1", "GPU3914"),
        (HEADER.encode() + b"2017-10-09 00:00:00,60,-8,0,a\n", "2:1", "GPU3910"),
        (HEADER.encode() + b"2017-10-09 00:00:00,-60,8,0,a\n", "2:1", "GPU3910"),
    ],
)
def test_a_file_that_is_no_trace_is_told_with_a_place(
    run: Run, tmp_path: Path, content: bytes, place: str, code: str
) -> None:
    path = tmp_path / "bad.csv"
    path.write_bytes(content)
    result = run("simulate", "--trace", str(path), "--nodes", "2x8")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"{path}:{place}: error {code}: ")


def test_the_format_is_known_by_the_columns_and_quotas_are_alike_without_a_history(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "pods.csv"
    path.write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
        "p-0,12000,16384,1,500,,LS,Running,0,3600,61\np-1,6000,12288,8,1000,,BE,Running,0,7200,\n"
    )
    result = run("simulate", "--trace", str(path), "--nodes", "2x8", "--mode", "fair", "--mode", "static")
    assert result.exit_code == 0, result.stderr
    first, _, fair, _ = result.stdout.splitlines()
    assert first.startswith("openb: 2 jobs of 16 GPU-hours on 2x8 = 16 GPUs, 1970-01-01 00:00 to 1970-01-01 02:00;")
    assert first.endswith("quotas equal")
    assert fair.split()[13] == "51.56%", "of two hours, since all came at once"
    assert run("simulate", "--trace", str(path), "--quotas", "from-history").exit_code == 1


def test_a_trace_or_scenarios(run: Run, small: str) -> None:
    assert run("simulate").exit_code == 2
    assert run("simulate", small, "--trace", small).exit_code == 2


def test_quotas_of_ones_own(run: Run, small: str, tmp_path: Path) -> None:
    quotas = tmp_path / "quotas.csv"
    quotas.write_text("project,quota\n6214e9,12\n7f04ca,4\n")
    result = run("simulate", "--trace", small, "--nodes", "2x8", "--quotas", str(quotas), "-o", "json")
    assert result.exit_code == 0, result.stderr
    projects = json.loads(result.stdout)["modes"][0]["projects"]
    assert {p["name"]: p["quotaGpuMilli"] for p in projects} == {"11cb48": 0, "6214e9": 12_000, "7f04ca": 4000}


@pytest.fixture
def contended(tmp_path: Path) -> str:
    """On 16 GPUs the job of the third line takes those of the older run: the other is 30 s old, and spared.

    The last line is a day later.
    """
    path = tmp_path / "contended.csv"
    path.write_text(
        HEADER
        + "2017-10-09 00:00:00,7200.0,8,0,6214e9\n2017-10-09 00:59:30,7200.0,8,0,6214e9\n"
        + "2017-10-09 01:00:00,3600.0,4,0,7f04ca\n2017-10-10 00:00:00,60.0,1,0,7f04ca\n"
    )
    return str(path)


PHILLY_TABLE = """\
philly: 3 jobs of 36 GPU-hours on 2x8 = 16 GPUs, 2017-10-09 00:00 to 2017-10-10 00:00; a paused job stops within 30s; \
quotas by usage before
MODE   MEAN WAIT  P95  OF FLOOR  UNFAIR  BELOW QUOTA  VIOLATIONS  LONGEST  PAUSES  YOUNG  STARTS  DISPLACED  \
WASTED  USED   NEVER RAN
floor  20m        60m  1.00      11.11%  11.11%       1           60m      0       -      1       0.00%      \
0.00%   9.38%  0
fair   20m        60m  1.02      11.30%  0.09%        0           30s      1       0.00%  2       22.22%     \
0.19%   9.38%  0
"""


def test_philly_between_two_instants(run: Run, contended: str) -> None:
    result = run("bench", "philly", "--trace", contended, "--gpus", "16", "--mode", "floor", "--mode", "fair",
                 "--until", "2017-10-10")  # fmt: skip
    assert result.exit_code == 0, result.stderr
    *lines, cpu, empty = result.stdout.splitlines()
    assert "\n".join(lines) + "\n" == PHILLY_TABLE
    assert (cpu.split()[0], empty) == ("CPU:", "")
    by_days = [
        run("bench", "philly", "--trace", contended, "--gpus", "16", "--mode", "fair", "-o", "json", *span)
        for span in (("--until", "1d"), ("--days", "1"), ("--from", "2017-10-09", "--until", "2017-10-10"))
    ]
    found = [{**json.loads(each.stdout)[0], "cpuMs": None} for each in by_days]
    assert found[0] == found[1] == found[2]


def test_philly_with_quotas_of_ones_own(run: Run, contended: str, tmp_path: Path) -> None:
    quotas = tmp_path / "quotas.csv"
    quotas.write_text("project,quota\n6214e9,16\n7f04ca,0\n")
    options = (
        "bench",
        "philly",
        "--trace",
        contended,
        "--gpus",
        "16,24",
        "--mode",
        "fair",
        "-o",
        "json",
        "--from",
        "30m",
    )
    result = run(*options, "--quotas", quotas)
    assert result.exit_code == 0, result.stderr
    small, large = json.loads(result.stdout)
    assert (small["jobs"], small["quotasFrom"], small["gpus"], large["gpus"]) == (3, str(quotas), 16, 24)
    assert [p["quotaGpuMilli"] for p in small["modes"][0]["projects"]] == [16_000, 0]
    equal = json.loads(run(*options, "--quotas", "equal").stdout)
    assert [[p["quotaGpuMilli"] for p in size["modes"][0]["projects"]] for size in equal] == [
        [8000, 8000],
        [12_000, 12_000],
    ]


@pytest.mark.parametrize(
    ("args", "code", "told"),
    [
        (("--from", "soon"), 2, "write 2017-10-16, 2017-10-16T12:00:00 (UTC), or 7d after 2017-10-09 00:00"),
        (("--until", "2d", "--days", "2"), 2, "give --until or --days, not both"),
        (("--from", "3d"), 1, "GPU3913"),
        (("--quotas", "nowhere.csv"), 2, "GPU3904"),
        (("--gpus", "12"), 2, "multiples of 8"),
    ],
)
def test_what_is_wrong_with_philly_is_told(
    run: Run, contended: str, args: tuple[str, ...], code: int, told: str
) -> None:
    result = run("bench", "philly", "--trace", contended, *args)
    assert result.exit_code == code
    assert told in result.stderr


def test_a_day_of_philly(run: Run, traces: Path) -> None:
    trace = traces / "philly" / "philly_2017-10-09_2017-11-05.csv"
    result = run("bench", "philly", "--trace", str(trace), "--gpus", "96", "--days", "1", "--mode", "floor",
                      "--mode", "fifo", "-o", "json")  # fmt: skip
    assert result.exit_code == 0, result.stderr
    (size,) = json.loads(result.stdout)
    assert (size["gpus"], size["jobs"], size["untilMs"] - size["fromMs"]) == (96, 1352, 86_400_000)
    assert [mode["ended"] for mode in size["modes"]] == [1352, 1352]


def test_openb(run: Run, traces: Path) -> None:
    trace = traces / "openb" / "openb_pod_list_default.csv"
    result = run("simulate", "--trace", str(trace), "--format", "openb", "--quotas", "equal", "--mode", "fifo",
                      "--nodes", "200x8", "-o", "json")  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["modes"][0]["unfinished"] == 0
