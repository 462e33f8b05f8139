"""docs/install.md, executed: each command in its order, on two control planes; the test is the Deployment's pods."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import warm
from controlplane.programs import FOR_GO
from controlplane.server import ADMIN, ControlPlane, node
from unattended import PATIENCE_S, account_token, at_last

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "install.md").read_text()
BLOCK = re.compile(
    r"^## (?P<section>[^\n]+)$|^(?P<elsewhere><!-- elsewhere -->\n)?```sh\n(?P<lines>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
SECRET = "/api/v1/namespaces/gpuctl-system/secrets/gpuctl-git"
ELSEWHERE = ["docker", "docker", "ssh-keyscan", "kubectl", "now", "b64", "claims", "jwt", "curl"]
"""The commands that are not run here, by their first word."""


def sections(*, elsewhere: bool) -> dict[str, list[str]]:
    """The lines of a page's blocks, by section."""
    found: dict[str, list[str]] = {}
    section = ""
    for block in BLOCK.finditer(PAGE):
        if block["section"]:
            section = block["section"]
        elif bool(block["elsewhere"]) is elsewhere:
            found.setdefault(section, []).extend(block["lines"].splitlines())
    return found


def test_what_is_not_run_here_is_marked() -> None:
    lines = [line for each in sections(elsewhere=True).values() for line in each]
    assert [re.split(r"[ =(]", line)[0] for line in lines] == ELSEWHERE


class Guide:
    """A folder in which the lines are run, and what runs gpuctl as the Deployment's pods would."""

    def __init__(self, folder: Path, planes: dict[str, ControlPlane]) -> None:
        self.folder = folder
        self.planes = planes
        self.processes: dict[str, warm.Begun] = {}
        clusters, contexts = [], []
        for name, plane in planes.items():
            about = {"server": plane.url, "certificate-authority": str(plane.ca_file)}
            clusters.append({"name": name, "cluster": about})
            contexts.append({"name": name, "context": {"cluster": name, "user": "admin"}})
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "prod", "clusters": clusters, "contexts": contexts,
            "users": [{"name": "admin", "user": {"token": ADMIN}}],
        }  # fmt: skip
        (folder / "kubeconfig").write_text(json.dumps(config))
        self.env = {
            "PATH": f"{folder}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(folder),
            "TOKEN": "secret",
            "KUBECONFIG": str(folder / "kubeconfig"), "GIT_AUTHOR_NAME": "ann", "GIT_AUTHOR_EMAIL": "ann@example.com",
            "GIT_COMMITTER_NAME": "ann", "GIT_COMMITTER_EMAIL": "ann@example.com",
            "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": f"url.{folder}/service/.insteadOf",
            "GIT_CONFIG_VALUE_0": "https://git.example.com/", **FOR_GO,
        }  # fmt: skip
        warm.write_command(folder / "bin")
        self.repository = folder / "service" / "gpus.git"
        """The empty one that waits at the Git service."""
        line = ["git", "init", "-q", "--bare", "--initial-branch", "main", str(self.repository)]
        subprocess.run(line, check=True, capture_output=True)

    def run(self, section: str) -> None:
        """The commands of a section, one after the other; none may fail."""
        for line in sections(elsewhere=False)[section]:
            done = subprocess.run(
                ["bash", "-o", "pipefail", "-c", line], cwd=self.folder, env=self.env, capture_output=True, text=True,
                check=False,
            )  # fmt: skip
            assert done.returncode == 0, f"{line}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"

    def start(self, name: str) -> None:
        """Gpuctl in a cluster, with its account."""
        plane = self.planes[name]
        kubeconfig = plane.write_kubeconfig(self.folder / f"{name}.account", account_token(plane))
        command = ["reconcile", "--repo", str(self.repository), "--path"]
        command += ["clusters/prod", "--kubeconfig", str(kubeconfig), "--workdir", str(self.folder / f"{name}.work")]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = warm.Begun([*command, "--interval", "1s"], log)

    def end(self, name: str) -> None:
        """As its pods are ended."""
        process = self.processes.pop(name)
        process.terminate()
        process.wait(PATIENCE_S)

    def pods(self, name: str) -> list[str]:
        """The uids of running pods of jobs."""
        listed: list[Any] = self.planes[name].call("GET", "/api/v1/namespaces/gpu-team-a/pods")["items"]
        return sorted(pod["metadata"]["uid"] for pod in listed if pod["status"].get("phase") == "Running")

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()[-3000:]


@pytest.fixture
def guide(new_control_plane: Callable[[], ControlPlane], tmp_path: Path) -> Iterator[Guide]:
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl on this machine: the page's commands need it")
    planes = {"prod": new_control_plane(), "restored": new_control_plane()}
    for plane in planes.values():
        plane.call("POST", "/api/v1/nodes", node("dgx-1"))
    made = Guide(tmp_path, planes)
    yield made
    for name in list(made.processes):
        made.processes[name].kill()
        made.processes[name].wait()


def test_the_page_leads_from_a_build_to_removal_and_no_job_is_restarted(guide: Guide) -> None:
    guide.run("Begin a repository")
    guide.run("Install")
    guide.run("Credentials for Git")
    secret = guide.planes["prod"].call("GET", SECRET)
    assert secret["data"].keys() == {".netrc"}
    guide.start("prod")
    guide.run("The first commit")
    at_last(lambda: guide.pods("prod"), lambda: guide.log("prod"))
    before = guide.pods("prod")
    guide.end("prod")
    guide.run("Upgrade, and the way back")
    guide.start("prod")
    guide.run("The first commit")
    assert guide.pods("prod") == before
    assert guide.planes["prod"].call("GET", SECRET)["data"] == secret["data"]
    guide.end("prod")
    guide.run("Back up, and restore after etcd is lost")
    guide.start("restored")
    at_last(lambda: guide.pods("restored"), lambda: guide.log("restored"))
    guide.run("Several clusters")
    guide.run("Remove gpuctl, and leave the jobs running")
    time.sleep(1)
    assert guide.pods("prod") == before
