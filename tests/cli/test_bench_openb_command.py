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


TYPED_NODES = "sn,cpu_milli,memory_mib,gpu,model\n" + "".join(
    f"n-{i:02},64000,262144,4,{('T4', 'P100', 'V100M32')[i % 3]}\n" for i in range(60)
)
TYPED_PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n" + "".join(
    f"p-{i:03},1000,1024,1,{(500, 1000, 300)[i % 3]},{('', 'T4', 'P100|V100M32', '')[i % 4]}\n" for i in range(300)
)
PAPER = ("--policy", "random", "--policy", "bestfit", "--policy", "fgd")
TABLE = """\
LIST   POLICY   AT 100 %      PUBLISHED  DIFFERENCE  AT 130 %  LEAST  MOST
typed  random   91.01 ± 1.17                         93.33     90.43  91.59
typed  bestfit  91.46 ± 2.98                         94.58     89.97  92.95
typed  fgd      94.40 ± 0.46                         94.40     94.17  94.63
"""


def test_pods_that_name_gpu_models_in_a_table(run: Run, tmp_path: Path) -> None:
    (tmp_path / "openb_node_list_gpu_node.csv").write_text(TYPED_NODES)
    (tmp_path / "openb_pod_list_typed.csv").write_text(TYPED_PODS)
    done = run("bench", "openb", "--traces", tmp_path, "--seeds", 2, *PAPER)
    assert done.exit_code == 0, done.stderr
    machine, *rows = done.stdout.splitlines()
    assert machine.endswith("; 2 runs each")
    width = rows[0].index("CPU MS A RUN")
    assert "\n".join(row[:width].rstrip() for row in rows) + "\n" == TABLE


def test_the_difference_to_what_was_published(run: Run, tmp_path: Path) -> None:
    (tmp_path / "openb_node_list_gpu_node.csv").write_text(TYPED_NODES)
    (tmp_path / "openb_pod_list_gpuspec33.csv").write_text(TYPED_PODS)
    done = run("bench", "openb", "--traces", tmp_path, "--seeds", 1, "--policy", "gpuctl", "-o", "json")
    (figure,) = json.loads(done.stdout)["figures"]
    assert (figure["published"], figure["difference"]) == (878_400, figure["mean_at_100"] - 878_400)


WRONG = """\
traces/openb_pod_list_a.csv:2:1: error GPU3910: this line can't be used: gpu_spec 'T4|' is not a list of \
GPU models: write T4|P100, or nothing for any
  2 | p-0,1,1,1,500,T4|
    | ^^^^^^^^^^^^^^^^^
help: correct the line, or remove it   more: gpuctl explain GPU3910

traces/openb_pod_list_a.csv:3:1: error GPU3910: this line can't be used: no node has the \
GPU model 'H100'; nodes have P100, T4, V100M32
  3 | p-1,1,1,1,500,H100
    | ^^^^^^^^^^^^^^^^^^
help: correct the line, or remove it   more: gpuctl explain GPU3910

traces/openb_pod_list_b.csv:3:1: error GPU3910: this line can't be used: gpu_spec 'T4 ' is not a list of \
GPU models: write T4|P100, or nothing for any
  3 | p-1,1,1,1,500,T4
    | ^^^^^^^^^^^^^^^^^
help: correct the line, or remove it   more: gpuctl explain GPU3910

"""


def test_every_wrong_gpu_spec_of_every_list_is_told(run: Run, tmp_path: Path) -> None:
    (tmp_path / "openb_node_list_gpu_node.csv").write_text(TYPED_NODES)
    header = TYPED_PODS.splitlines()[0]
    (tmp_path / "openb_pod_list_a.csv").write_text(f"{header}\np-0,1,1,1,500,T4|\np-1,1,1,1,500,H100\n")
    (tmp_path / "openb_pod_list_b.csv").write_text(f"{header}\np-0,1,1,1,500,\np-1,1,1,1,500,T4 \n")
    wrong = run("bench", "openb", "--traces", tmp_path)
    assert wrong.exit_code == 1
    assert wrong.stderr.replace(str(tmp_path), "traces") == WRONG
