"""`gpuctl bench openb`, as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

from commands import Run

NODES = "sn,cpu_milli,memory_mib,gpu,model\n" + "".join(f"n-{i},64000,262144,4,T4\n" for i in range(60))
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\n" + "".join(
    f"p-{i:03},1000,1024,1,{(500, 1000, 300)[i % 3]}\n" for i in range(300)
)


def _folder(tmp_path: Path) -> Path:
    (tmp_path / "openb_node_list_gpu_node.csv").write_text(NODES)
    (tmp_path / "openb_pod_list_small.csv").write_text(PODS)
    return tmp_path


def test_figures_of_every_policy(run: Run, tmp_path: Path) -> None:
    done = run("bench", "openb", "--traces", _folder(tmp_path), "--seeds", 1, "-o", "json")
    assert done.exit_code == 0, done.stderr
    figures = json.loads(done.stdout)["figures"]
    assert [(each["pod_list"], each["policy"]) for each in figures] == [
        ("small", "random"), ("small", "bestfit"), ("small", "fgd"), ("small", "gpuctl"),
    ]  # fmt: skip
    assert all(500_000 < each["mean_at_100"] <= 1_000_000 for each in figures)


def test_a_table(run: Run, tmp_path: Path) -> None:
    done = run("bench", "openb", "--traces", _folder(tmp_path), "--policy", "gpuctl", "--seeds", 2, "--processes", 2)
    assert done.exit_code == 0, done.stderr
    assert "small  gpuctl" in done.stdout


def test_a_missing_list_and_a_wrong_line(run: Run, tmp_path: Path) -> None:
    missing = run("bench", "openb", "--traces", _folder(tmp_path), "--list", "none")
    assert missing.exit_code == 2
    assert "GPU3904" in missing.stderr
    (tmp_path / "openb_pod_list_small.csv").write_text(PODS + "p-x,1,1,2,500\n")
    wrong = run("bench", "openb", "--traces", tmp_path)
    assert wrong.exit_code == 1
    assert "GPU3910" in wrong.stderr
