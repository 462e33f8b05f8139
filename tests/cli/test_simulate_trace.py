"""`gpuctl simulate --trace` and `gpuctl bench philly` as a user types them; the real traces where they are at hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import Run

PHILLY = Path(__file__).parents[3] / "shared" / "traces" / "philly" / "philly_2017-10-09_2017-11-05.csv"
OPENB = Path(__file__).parents[3] / "shared" / "traces" / "openb" / "openb_pod_list_default.csv"
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


@pytest.mark.parametrize(
    ("args", "code", "told"),
    [
        (("--nodes", "many"), 2, "write nodes x GPUs: 64x8"),
        (("--from", "soon"), 2, "write 2017-10-16"),
        (("--until", "2017-10-01"), 1, "GPU3913"),
        (("--format", "openb"), 1, "GPU3911"),
        (("--quotas", "nowhere.csv"), 2, "GPU3904"),
    ],
)
def test_what_is_wrong_is_told(run: Run, small: str, args: tuple[str, ...], code: int, told: str) -> None:
    result = run("simulate", "--trace", small, *args)
    assert result.exit_code == code
    assert told in result.stderr


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


@pytest.mark.skipif(
    not PHILLY.exists(), reason="the Philly trace is not beside this checkout (../shared/traces/philly)"
)
def test_a_day_of_philly(run: Run) -> None:
    result = run("bench", "philly", "--trace", str(PHILLY), "--gpus", "96", "--days", "1", "--mode", "floor",
                      "--mode", "fifo", "-o", "json")  # fmt: skip
    assert result.exit_code == 0, result.stderr
    (size,) = json.loads(result.stdout)
    assert (size["gpus"], size["jobs"], size["untilMs"] - size["fromMs"]) == (96, 1352, 86_400_000)
    assert [mode["ended"] for mode in size["modes"]] == [1352, 1352]


@pytest.mark.skipif(not OPENB.exists(), reason="the openb traces are not beside this checkout (../shared/traces/openb)")
def test_openb(run: Run) -> None:
    result = run("simulate", "--trace", str(OPENB), "--format", "openb", "--quotas", "equal", "--mode", "fifo",
                      "--nodes", "200x8", "-o", "json")  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["modes"][0]["unfinished"] == 0
