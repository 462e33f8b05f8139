"""A small cluster for docs/operate.md, installed as the page says, and the troubles that it may have."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import warm
from controlplane.programs import FOR_GO
from controlplane.server import ADMIN, ControlPlane, node
from deployment import HOME, Pod
from guide import blocks
from unattended import PATIENCE_S, at_last

from gpuctl.adapters.git import WorkingCopy

_HEAD = "apiVersion: gpuctl.dev/v1\nkind: "
_HERE = "clusters/prod"
JOBS = "/apis/batch/v1/namespaces/gpu-{project}/jobs"
MERGE = "application/merge-patch+json"
STEADY, TRAIN = "team-b/steady", "team-a/train"


def cluster(more: str = "", nodes: str = "dgx-1") -> dict[str, str | None]:
    """The file of the cluster; its deleteGuard is small, so that few jobs are too many."""
    pool = "selector: {matchLabels: {gpuctl.dev/pool: dgx}}, gpusPerNode: 8, gpuMemory: 32Gi, sharing: device-plugin"
    spec = f"spec:\n  nodePools: [{{name: dgx, nodes: [{nodes}], {pool}}}]\n  scheduling: {{deleteGuard: 2}}\n{more}"
    return {f"{_HERE}/cluster.yaml": f"{_HEAD}Cluster\nmetadata: {{name: prod}}\n{spec}"}


def project(name: str, more: str = "") -> dict[str, str | None]:
    """The file of a project of 2 GPUs."""
    spec = f"spec: {{quota: 2{more}}}"
    return {f"{_HERE}/projects/{name}/project.yaml": f"{_HEAD}Project\nmetadata: {{name: {name}}}\n{spec}\n"}


def job(name: str, more: str = "") -> dict[str, str | None]:
    """The file of a job of one GPU; `name` is PROJECT/JOB."""
    owner, _, own = name.partition("/")
    meta = f"metadata: {{name: {own}, project: {owner}}}"
    return {path_of(name): f"{_HEAD}Job\n{meta}\nspec: {{image: 'x:1', gpus: 1{more}}}\n"}


def path_of(name: str) -> str:
    return f"{_HERE}/projects/{name}.yaml"


class Scene:
    """The control plane, the repository, a folder to run commands in, and gpuctl's pod."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane = plane
        self.folder = folder
        plane.call("POST", "/api/v1/nodes", node("dgx-1", labels={"gpuctl.dev/pool": "dgx"}))
        self.copy = WorkingCopy.create(folder / "gpus.git")
        about = {"server": plane.url, "certificate-authority": str(plane.ca_file)}
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "prod",
            "clusters": [{"name": "prod", "cluster": about}], "users": [{"name": "x", "user": {"token": ADMIN}}],
            "contexts": [{"name": "prod", "context": {"cluster": "prod", "user": "x"}}],
        }  # fmt: skip
        (folder / "kubeconfig").write_text(json.dumps(config))
        self.env = {
            "PATH": f"{folder}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(folder),
            "KUBECONFIG": str(folder / "kubeconfig"), "GIT_CONFIG_COUNT": "2",
            "GIT_CONFIG_KEY_0": f"url.{folder}/.insteadOf", "GIT_CONFIG_VALUE_0": "https://git.example.com/",
            "GIT_CONFIG_KEY_1": f"url.{folder}/.insteadOf", "GIT_CONFIG_VALUE_1": "https://127.0.0.1/acme/", **FOR_GO,
        }  # fmt: skip
        warm.write_command(folder / "bin")
        self.instead = {"https://git.example.com/gpus.git": "https://127.0.0.1/acme/gpus.git"}
        self._pod: Pod | None = None
        self.commit(cluster(), project("team-a"), project("team-b"), job(STEADY), job(TRAIN))

    @property
    def pod(self) -> Pod:
        """The pod that runs."""
        assert self._pod is not None
        return self._pod

    def commit(self, *files: Mapping[str, str | None], text: str = "change") -> str:
        """Commit files; None removes one."""
        for path, content in ((path, content) for each in files for path, content in each.items()):
            if content is None:
                self.copy.remove(path)
            else:
                self.copy.write(path, content.encode())
        return self.copy.commit(text, time.time_ns() // 1_000_000)

    def git(self, *words: str) -> str:
        """Run Git in the repository."""
        line = ["git", "-C", str(self.copy.folder), "-c", "user.name=x", "-c", "user.email=ann@example.com", *words]
        done = subprocess.run(line, check=True, capture_output=True, text=True)
        self.copy = WorkingCopy(self.copy.folder)
        return done.stdout.strip()

    def confirm(self) -> None:
        """Push an empty commit with the line that /status shows."""
        (line,) = at_last(lambda: {each["confirm"] for each in self.pod.status().get("refusals", ())}, self.told)
        self.git("commit", "-q", "--allow-empty", "-m", f"It is meant\n\n{line}")

    def run(self, line: str) -> str:
        """Run a command as the page has it. Returns its output."""
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", line], cwd=self.folder, env=self.env, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{line}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        return done.stdout

    def secret(self, name: str, **data: str) -> None:
        """Fill a Secret, as its annotation says."""
        encoded = {key.replace("_", "-"): base64.b64encode(text.encode()).decode() for key, text in data.items()}
        self.plane.call("PATCH", f"{HOME}/secrets/{name}", {"data": encoded}, media=MERGE)
        self.pod.refresh()

    def start(self) -> None:
        """Start gpuctl by the Deployment as it is now, in place of the running one; wait until all is well."""
        if self._pod is not None:
            self._pod.end()
        self._pod = Pod(self.plane, self.folder / "pod", self.env, self.instead)
        at_last(self.is_well, self.told)

    def end(self) -> None:
        if self._pod is not None:
            self._pod.end()

    def is_well(self) -> bool:
        """Whether the newest commit is applied whole, and there are no problems."""
        found = self.pod.status()
        head = self.copy.folder / ".git/refs/heads/main"
        if not found or not head.exists() or found["commit"]["applied"] != head.read_text().strip():
            return False
        return bool(found["ready"]) and not (found["problems"] or found["pools"])

    def told(self) -> object:
        return self.pod.status(), self.pod.log.read_text()[-4000:]

    def jobs(self, name: str) -> list[Any]:
        """The Job objects of a job: one for each run that has one."""
        owner, _, own = name.partition("/")
        listed: list[Any] = self.plane.call("GET", JOBS.format(project=owner))["items"]
        return [each for each in listed if each["metadata"]["labels"]["gpuctl.dev/job"] == own]

    def runs(self, name: str) -> list[str]:
        """The uids of a job's running pods."""
        owner, _, own = name.partition("/")
        listed: list[Any] = self.plane.call("GET", f"/api/v1/namespaces/gpu-{owner}/pods")["items"]
        mine = [pod for pod in listed if pod["metadata"]["labels"].get("gpuctl.dev/job") == own]
        return [pod["metadata"]["uid"] for pod in mine if pod["status"].get("phase") == "Running"]


Mend = Callable[[], object]
Fault = Callable[[Scene], Mend]
"""Makes trouble; the function it returns ends it."""


def breaks_one_project(scene: Scene) -> Mend:
    scene.commit({path_of(TRAIN): "kind: [\n"}, job("team-b/other"))
    at_last(lambda: scene.runs("team-b/other"), scene.told)
    assert scene.runs(TRAIN)
    return lambda: scene.commit(job(TRAIN), {path_of("team-b/other"): None})


def cannot_be_reached(scene: Scene) -> Mend:
    shutil.move(scene.copy.folder, scene.folder / "away")
    return lambda: shutil.move(scene.folder / "away", scene.copy.folder)


def has_more_than_is_read(scene: Scene) -> Mend:
    large = {f"{_HERE}/large-{number}.yaml": f"#{number}" + "x" * 4_000_000 for number in range(9)}
    scene.commit(large)
    return lambda: scene.commit(dict.fromkeys(large))


def idles_unmeasured(scene: Scene) -> Mend:
    scene.commit(project("team-a", ", interactive: {idleTimeout: 1s}"), job("team-a/notebook", ", type: interactive"))
    return lambda: scene.commit(project("team-a"), {path_of("team-a/notebook"): None})


def damages_a_ledger(scene: Scene) -> Mend:
    path = f"{HOME}/configmaps/ledger.prod.team-b"
    data = scene.plane.call("GET", path)["data"]
    scene.plane.call("PATCH", path, {"data": {"seen": "{broken"}}, media=MERGE)
    return lambda: scene.plane.call("PATCH", path, {"data": {"seen": data["seen"]}}, media=MERGE)


def rewrites_the_branch(scene: Scene) -> Mend:
    scene.git("commit", "-q", "--amend", "--allow-empty", "-m", "otherwise")
    return bool


def moves_the_path(scene: Scene) -> Mend:
    scene.git("mv", "clusters", "elsewhere")
    scene.git("commit", "-q", "-m", "moved")
    return lambda: scene.git("revert", "--no-edit", "HEAD")


def removes_a_project(scene: Scene) -> Mend:
    scene.commit(project("team-c"), job("team-c/last"))
    at_last(lambda: scene.runs("team-c/last"), scene.told)
    scene.commit({path_of("team-c/last"): None, **dict.fromkeys(project("team-c"))})
    return scene.confirm


def ends_most_jobs(scene: Scene) -> Mend:
    second = ("team-a/second", ", workers: 2")
    scene.commit(job(*second))
    at_last(lambda: len(scene.runs("team-a/second")) == 2, scene.told)
    scene.commit({path_of(TRAIN): None, path_of("team-a/second"): None})

    def declares_them_again() -> None:
        assert scene.runs(TRAIN)
        scene.commit(job(TRAIN), job(*second))
        at_last(scene.is_well, scene.told)
        scene.commit({path_of("team-a/second"): None})

    return declares_them_again


def removes_many_jobs(scene: Scene) -> Mend:
    waiting = [f"team-a/waits-{number}" for number in range(3)]
    scene.commit(*(job(name, ", suspend: true") for name in waiting))
    at_last(lambda: all(map(scene.jobs, waiting)), scene.told)
    scene.commit({path_of(name): None for name in waiting})
    return scene.confirm


def removes_a_job_in_a_window(scene: Scene) -> Mend:
    """Remove a job in the page's first freeze window, which is open now."""
    (shown,) = blocks("yaml")["Freeze windows"]
    hour = time.gmtime().tm_hour
    (window,) = [line for line in shown.splitlines() if "reason: weekend" in line]
    open_now = window.replace('"0 18 * * 5"', f'"0 {hour} * * *"').replace("62h", "2h").replace("Europe/Berlin", "UTC")
    scene.commit(cluster(f"  freeze:\n{open_now}\n"), job("team-a/short"))
    at_last(lambda: scene.runs("team-a/short"), scene.told)
    scene.commit({path_of("team-a/short"): None})

    def confirmed() -> None:
        assert scene.runs("team-a/short")
        scene.confirm()
        at_last(lambda: not scene.runs("team-a/short"), scene.told)
        scene.commit(cluster())

    return confirmed


def removes_what_has_ended(scene: Scene) -> Mend:
    done = "team-a/done"
    scene.commit(job(done, ", env: {RUN_FOR: 0s}"))
    at_last(lambda: [each for each in scene.jobs(done) if each["status"].get("succeeded")], scene.told)
    at_last(scene.is_well, scene.told)
    (gone,) = (each["metadata"]["name"] for each in scene.jobs(done))
    scene.plane.call("DELETE", f"{JOBS.format(project='team-a')}/{gone}?propagationPolicy=Background")
    scene.commit(job("team-a/after"))
    at_last(lambda: scene.runs("team-a/after"), scene.told)
    assert scene.jobs(done) == []

    def again() -> None:
        scene.commit(job(done, ", env: {RUN_FOR: 0s}, runIndex: 2"), {path_of("team-a/after"): None})
        at_last(lambda: scene.jobs(done), scene.told)
        scene.commit({path_of(done): None})

    return again


def declares_a_node_that_is_not_there(scene: Scene) -> Mend:
    scene.commit(cluster(nodes="dgx-1, dgx-2"))
    return lambda: scene.commit(cluster())


def has_a_damaged_history(scene: Scene) -> Mend:
    scene.pod.end()
    (file,) = (scene.folder / "pod").rglob("history.db")
    for each in file.parent.iterdir():
        each.unlink()
    file.write_bytes(b"no database at all" * 99)
    scene.start()
    at_last(file.with_name("history.db.damaged").exists, scene.told)
    return bool


def is_changed_back(scene: Scene) -> Mend:
    """Act as a client that takes gpuctl's label from a namespace whenever it is there."""
    path = "/api/v1/namespaces/gpu-team-b"
    told, until = len(scene.pod.lines()), time.monotonic() + PATIENCE_S
    while "GPU7007" not in scene.pod.codes(told) and time.monotonic() < until:
        scene.plane.call("PATCH", path, {"metadata": {"labels": {"gpuctl.dev/project": None}}}, media=MERGE)
        time.sleep(0.1)
    return bool


HERE: Mapping[str, Fault] = {
    "the disk of the history is full, slow or gone, or its file is damaged": has_a_damaged_history,
    "a commit breaks one project": breaks_one_project,
    "the remote can't be reached, or takes the connection and is silent": cannot_be_reached,
    "a commit has more in it than is read of a cluster, or takes minutes to compile": has_more_than_is_read,
    "nothing measures which GPUs are idle, and a job has an `idleTimeout`": idles_unmeasured,
    "an object can't be read": damages_a_ledger,
    "the branch was rewritten": rewrites_the_branch,
    "the path is missing, the tree is empty": moves_the_path,
    "a project is gone that has running jobs, or claims, gpuctl's or people's": removes_a_project,
    "a commit would end more than half of the running GPUs (`scheduling.stopGuard`)": ends_most_jobs,
    "a commit would remove more than 100 jobs that have not ended (`scheduling.deleteGuard`)": removes_many_jobs,
    "a commit would pause or remove jobs in a freeze window": removes_a_job_in_a_window,
    "a finished job's object is removed": removes_what_has_ended,
    "nodes differ from the declared inventory": declares_a_node_that_is_not_there,
    "another client keeps changing an object back, or an admission policy changes it in each write": is_changed_back,
}
"""The troubles that are made on this cluster, by the page's words."""
PASSING = frozenset({has_a_damaged_history, is_changed_back, rewrites_the_branch, removes_what_has_ended})
"""Troubles after which nothing is wrong until they are ended: they are reported as they happen, or not at all."""
SILENT = frozenset({has_a_damaged_history, removes_what_has_ended})
"""Troubles that the command line or a file tells, not a code."""
