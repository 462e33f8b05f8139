"""What `gpuctl install` prints, applied again by kubectl on a real API server: unchanged, and never a conflict.

The chart and the Kustomize base give the same objects (tests/cli/test_install_files.py).
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from controlplane.server import ControlPlane

from gpuctl.cli.main import gpuctl

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = (
    "--repo", "https://git.example.com/x.git", "--path", "c", "--guard", "--policies", str(ROOT / "policies"),
    "--notify", "--push-from", "ingress-nginx", "--dashboard", "--utilisation-prometheus", "http://prometheus.x:9090",
)  # fmt: skip
ALWAYS_SENT = ["poddisruptionbudget.policy/gpuctl configured"]
"""kubectl sends the selector of any PodDisruptionBudget whole at each apply, and calls that so (`patchStrategy:
replace`); the server then finds nothing to change."""


def printed(*more: str) -> str:
    made = CliRunner().invoke(gpuctl, ["install", *OPTIONS, *more])
    assert made.exit_code == 0, made.output
    return made.stdout


class Applied:
    """A control plane on which manifests are applied, and what is then there."""

    def __init__(self, plane: ControlPlane) -> None:
        self.kubectl = ["kubectl", "--kubeconfig", str(plane.kubeconfig)]

    def apply(self, manifests: str, *more: str) -> list[str]:
        """kubectl's lines, one an object."""
        line = [*self.kubectl, "apply", *more, "-f", "-"]
        done = subprocess.run(line, input=manifests, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    def declared(self, manifests: str) -> dict[str, Any]:
        """Each object's version without what the server's own controllers write; by its kind and name."""
        line = [*self.kubectl, "get", "-o", "json", "--show-managed-fields", "-f", "-"]
        done = subprocess.run(line, input=manifests, capture_output=True, text=True, check=True)
        return {
            f"{each['kind']} {each['metadata']['name']}": [
                field["time"] for field in each["metadata"]["managedFields"] if field["manager"].startswith("kubectl")
            ]
            for each in json.loads(done.stdout)["items"]
        }


@pytest.fixture
def cluster(new_control_plane: Callable[[], ControlPlane]) -> Applied:
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl on this machine: it says what it changes")
    return Applied(new_control_plane())


def test_a_second_apply_says_unchanged_and_a_later_one_meets_no_conflict(cluster: Applied) -> None:
    manifests = printed("--image", "x:1")
    made = cluster.apply(manifests)
    before = cluster.declared(manifests)
    again = cluster.apply(manifests)
    assert len(again) == len(made) > 40
    assert [line for line in again if not line.endswith(" unchanged")] == ALWAYS_SENT
    assert cluster.declared(manifests) == before
    upgraded = cluster.apply(printed("--image", "x:2", "--controller", "y"), "--server-side")
    assert len(upgraded) == len(made)
