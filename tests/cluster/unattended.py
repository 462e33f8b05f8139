"""`gpuctl reconcile` as a process in a real cluster, as `gpuctl install` sets it up, and its effects.

Every process has its own token of the installed ServiceAccount, so that the audit log tells who wrote what.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.error import HTTPError

import warm
from click.testing import CliRunner, Result
from controlplane.known import await_rights
from controlplane.ports import free_port
from controlplane.server import ControlPlane, node, pauses
from journal import journal

from gpuctl.adapters.git import WorkingCopy
from gpuctl.adapters.kubernetes.machines import played
from gpuctl.adapters.kubernetes.paths import collection, item
from gpuctl.cli.main import gpuctl
from gpuctl.install import Duties, Installation, all_objects
from gpuctl.k8s import kinds
from gpuctl.k8s.names import PUBLISHED
from gpuctl.k8s.objects import condition, ref_of
from gpuctl.model.declared import NodePool
from gpuctl.model.state import Body
from gpuctl.wiring import blueprint

T = TypeVar("T")
WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
LEASE = "/apis/coordination.k8s.io/v1/namespaces/gpuctl-system/leases/gpuctl"
_EMPTY = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "gpuctl"}}
_NOT_OURS = frozenset({"Deployment", "NetworkPolicy", "PodDisruptionBudget"})
"""Objects that nothing runs here: the test takes the Deployment's place."""
_HEAD = "apiVersion: gpuctl.dev/v1\nkind: "
PATIENCE_S = 180.0
"""How long a test waits for the last effect: more than it takes on a machine that is busy with other tests."""


def within(seconds: float, look: Callable[[], T], told: Callable[[], object] = str) -> T:
    """The result of `look`, as soon as it is true."""
    until, waits = time.monotonic() + seconds, pauses()
    while not (found := look()):
        assert time.monotonic() < until, told()
        time.sleep(next(waits))
    return found


def at_last(look: Callable[[], T], told: Callable[[], object] = str) -> T:
    """The result of `look`, as soon as it is true, for tests where time does not matter."""
    return within(PATIENCE_S, look, told)


def typed(kubeconfig: Path | str, *words: Path | str) -> Result:
    """Run a command as a person types it, in this process: one of its own would take half a second to start."""
    return CliRunner().invoke(gpuctl, [*map(str, words), "--kubeconfig", str(kubeconfig)], prog_name="gpuctl")


def install(
    plane: ControlPlane, *, guard: bool = True, controllers: tuple[str, ...] = (), duties: Duties | None = None
) -> None:
    """Apply gpuctl's installation as an administrator does."""
    repo = "https://git.example.com/x.git"
    wanted = Installation(image="x", repo=repo, path="c", guard=guard, controllers=controllers)
    for body in all_objects(wanted, duties or Duties()):
        if body["kind"] not in _NOT_OURS:
            plane.call("PATCH", f"{item(ref_of(body))}?fieldManager=kubectl", body)
    await_rights(plane, account_token(plane), "gpuctl-system", "leases", "nodes")


def account_token(plane: ControlPlane) -> str:
    """A new token of the installed ServiceAccount."""
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    account = "/api/v1/namespaces/gpuctl-system/serviceaccounts/gpuctl"
    token: str = plane.call("POST", f"{account}/token", request)["status"]["token"]
    return token


def account_kubeconfig(plane: ControlPlane) -> str:
    """The path of a kubeconfig of the installed ServiceAccount."""
    return str(plane.write_kubeconfig(plane.folder / "gpuctl.kubeconfig", account_token(plane)))


def provide(plane: ControlPlane, body: Body) -> None:
    """Make a node or a slice for KWOK, or a device class. Another test may have made the class: all tests share it."""
    try:
        plane.call("POST", collection((body["apiVersion"], body["kind"]), ""), played(body))
    except HTTPError as error:
        error.close()
        if body["kind"] != "DeviceClass":
            raise


def provide_all(plane: ControlPlane, pools: Sequence[NodePool]) -> None:
    """Make the machines of pools, and wait until pods may be placed on them: a new node is tainted at first."""
    bodies = blueprint(pools)
    for body in bodies:
        provide(plane, body)
    paths = [item(ref_of(body)) for body in bodies if body["kind"] == "Node"]
    at_last(lambda: all(_takes_pods(plane.call("GET", path)) for path in paths))


def _takes_pods(node: Body) -> bool:
    return bool(condition(node, "Ready")) and not node["spec"].get("taints")


def abandon(plane: ControlPlane, namespace: str) -> None:
    """Delete all objects of a namespace that gpuctl or a controller looks at. The namespace then is no project's, and
    stays: its name is used by no other test, and to remove it the server would ask for seventy collections, as much
    work as a small test."""
    for kind in kinds.OBSERVED:
        if kind not in kinds.OF_OTHERS and kind not in kinds.CLUSTER_SCOPED:
            query = "propagationPolicy=Background&gracePeriodSeconds=0"
            plane.call("DELETE", f"{collection(kind, namespace)}?{query}")
    media = "application/merge-patch+json"
    plane.call("PATCH", f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": None}}, media=media)


def job(name: str, gpus: int = 1, project: str = "a", more: str = "") -> dict[str, str]:
    """The file of a job."""
    meta = f"metadata: {{name: {name}, project: {project}}}"
    return {f"c/{project}-{name}.yaml": f"{_HEAD}Job\n{meta}\nspec: {{image: x, gpus: {gpus}{more}}}\n"}


def project(name: str, quota: int) -> dict[str, str]:
    """The file of a project."""
    return {f"c/{name}.yaml": f"{_HEAD}Project\nmetadata: {{name: {name}}}\nspec: {{quota: {quota}}}\n"}


@dataclass
class Site:
    """A cluster that gpuctl keeps: its node, its namespaces, its repository. `leave` removes all of it.

    No other cluster on the control plane has its name, so no test waits until its namespaces are gone.
    """

    plane: ControlPlane
    folder: Path
    name: str
    gpus: int = 32
    _processes: list[Process] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.since = time.time_ns() / 1e9
        with suppress(HTTPError):
            self.plane.call("DELETE", LEASE)
        self.plane.call("POST", LEASE.removesuffix("/gpuctl"), _EMPTY)
        self.plane.call("POST", "/api/v1/nodes", node(f"{self.name}-1", gpus=self.gpus, labels={"site": self.name}))
        self.copy = WorkingCopy.create(self.folder / "repo")
        pool = (
            f"{{name: p, selector: {{matchLabels: {{site: {self.name}}}}}, nodes: [{self.name}-1], "
            f"gpusPerNode: {self.gpus}, gpuMemory: 32Gi, gpuProduct: Tesla, sharing: device-plugin}}"
        )
        spec = f"spec:\n  nodePools: [{pool}]\n  namespacePrefix: gpu-{self.name}-\n"
        self.files = {"c/cluster.yaml": f"{_HEAD}Cluster\nmetadata: {{name: {self.name}}}\n{spec}"}

    def commit(self, *files: Mapping[str, str | None]) -> str:
        """Commit files; None removes one."""
        changed = {path: text for each in files for path, text in each.items()}
        if not self.copy.folder.joinpath("c").exists():
            changed = {**self.files, **changed}
        for path, text in changed.items():
            if text is None:
                self.copy.remove(path)
            else:
                self.copy.write(path, text.encode())
        return self.copy.commit("change", time.time_ns() // 1_000_000)

    def git(self, *args: str) -> None:
        """Run Git in the repository."""
        self.git_at(self.copy.folder, *args)
        self.copy = WorkingCopy(self.copy.folder)

    def git_at(self, folder: Path, *args: str) -> None:
        """Run Git in another folder."""
        author = ("-c", "user.name=x", "-c", "user.email=x")
        subprocess.run(["git", "-C", str(folder), *author, *args], check=True, capture_output=True)

    def start(self, *more: str, url: str = "", repo: str = "", interval: str = "1s") -> Process:
        """Start a process with more options; `url`: its way to the server."""
        folder = self.folder / f"process-{len(self._processes)}"
        process = Process(self, folder, url, repo, ["--interval", interval, *more])
        self._processes.append(process)
        return process

    def pods(self, project: str = "a") -> dict[str, list[str]]:
        """The uids of each job's running pods."""
        listed = self._get(f"/api/v1/namespaces/{self.namespace(project)}/pods")
        found: dict[str, list[str]] = {}
        for pod in listed:
            if pod["status"].get("phase") == "Running":
                found.setdefault(pod["metadata"]["labels"]["gpuctl.dev/job"], []).append(pod["metadata"]["uid"])
        return found

    def await_pods(self, *jobs: str, project: str = "a") -> dict[str, list[str]]:
        """Wait until exactly these jobs run. Returns the uids of their pods."""
        at_last(lambda: sorted(self.pods(project)) == sorted(jobs), lambda: (jobs, self.logs()))
        return self.pods(project)

    def jobs(self, project: str = "a") -> list[Any]:
        """All Jobs of a project."""
        return self._get(f"/apis/batch/v1/namespaces/{self.namespace(project)}/jobs")

    def starts(self, project: str = "a") -> dict[str, str]:
        """How often each job's run was let go, by its Job."""
        metas = [each["metadata"] for each in self.jobs(project)]
        return {meta["labels"]["gpuctl.dev/job"]: meta["annotations"].get("gpuctl.dev/starts", "0") for meta in metas}

    def await_pods_ever(self, wanted: Mapping[str, int], project: str = "a") -> None:
        """Wait until exactly this many pods were made for each job: the events that tell it come after the pods."""
        at_last(lambda: self.pods_ever(project) == wanted, lambda: (self.pods_ever(project), self.logs()))

    def pods_ever(self, project: str = "a") -> Counter[str]:
        """How many pods were made for each job, by the Job controller's events; pods that are gone count too."""
        names = {each["metadata"]["name"]: each["metadata"]["labels"]["gpuctl.dev/job"] for each in self.jobs(project)}
        told = self._get(f"/api/v1/namespaces/{self.namespace(project)}/events")
        made = [e for e in told if e["reason"] == "SuccessfulCreate" and e["involvedObject"]["kind"] == "Job"]
        return Counter({names[e["involvedObject"]["name"]]: int(e.get("count") or 1) for e in made})

    def namespace(self, project: str) -> str:
        """The namespace of a project."""
        return f"gpu-{self.name}-{project}"

    def logs(self) -> str:
        """The ends of the journals, for whoever looks at a failure."""
        return "\n".join(process.log.read_text()[-3000:] for process in self._processes)

    def all_told(self, project: str = "a") -> str:
        """The ends of the journals, with the state of the node and of a project's Jobs, pods and events."""
        namespace = self.namespace(project)
        paths = [f"/apis/batch/v1/namespaces/{namespace}/jobs"]
        paths += [f"/api/v1/namespaces/{namespace}/{kind}" for kind in ("pods", "events")]
        machine = self.plane.call("GET", f"/api/v1/nodes/{self.name}-1")
        found = [body for path in paths for body in self._get(path)]
        return "\n".join([self.logs(), *map(json.dumps, [machine, *found])])

    def end(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.kill()

    def leave(self) -> None:
        """End the processes, and remove what they made."""
        self.end()
        labelled = f"labelSelector=gpuctl.dev%2Fcluster%3D{self.name}"
        kept = "/api/v1/namespaces/gpuctl-system/configmaps"
        for body in self._get(f"{kept}?{labelled}"):
            self.plane.call("DELETE", f"{kept}/{body['metadata']['name']}")
        left = [each["metadata"]["name"] for each in self._get(f"/api/v1/namespaces?{labelled}")]
        for name in left:
            abandon(self.plane, name)
        self.plane.call("DELETE", f"/api/v1/nodes/{self.name}-1")

    def _get(self, path: str) -> list[Any]:
        found: list[Any] = self.plane.call("GET", path)["items"]
        return found


class Process:
    """One `gpuctl reconcile` as a replica in a cluster runs, with its journal and its measurements."""

    def __init__(self, site: Site, folder: Path, url: str, repo: str, options: Sequence[str]) -> None:
        folder.mkdir()
        plane = site.plane
        self.token = account_token(plane)
        claims = self.token.split(".")[1]
        self.credential = f"JTI={json.loads(base64.urlsafe_b64decode(claims + '=' * (-len(claims) % 4)))['jti']}"
        self.plane = plane
        kubeconfig = plane.write_kubeconfig(folder / "kubeconfig", self.token, url=url)
        self.metrics_address = f"127.0.0.1:{free_port()}"
        self.log = folder / "journal"
        command = ["reconcile", "--repo", repo or str(site.copy.folder), "--path", "c"]
        command += ["--branch", "main", "--kubeconfig", str(kubeconfig), "--workdir", str(folder / "work")]
        command += ["--metrics-address", self.metrics_address, "--log-format", "json", *options]
        with self.log.open("wb") as log:
            self._process = warm.Begun(command, log)
        self.pid = self._process.pid

    def lines(self) -> list[dict[str, Any]]:
        """The process' journal. A line that is none fails the test."""
        return journal(self.log)

    def codes(self) -> set[str]:
        """The codes of all its journal's faults."""
        return {line["code"] for line in self.lines() if "code" in line and line["event"] != "resolved"}

    def metrics(self) -> dict[str, float]:
        """The process' measurements, by name with labels."""
        with urllib.request.urlopen(f"http://{self.metrics_address}/metrics", timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        return {name: float(value) for name, _, value in (x.rpartition(" ") for x in lines if not x.startswith("#"))}

    def total(self, name: str, *labels: str) -> float:
        """The sum of all series of a name that have these labels, written as Prometheus writes them."""
        found = self.metrics().items()
        return sum(v for key, v in found if key.partition("{")[0] == name and all(label in key for label in labels))

    def leads(self) -> bool:
        """Whether the process says that it may write."""
        try:
            return self.metrics()["gpuctl_leader"] == 1
        except OSError:
            return False

    def audited(self, since: int = 0) -> list[Mapping[str, Any]]:
        """The process' requests, as the server saw them; `since`: how many of all requests to leave out."""
        key = "authentication.kubernetes.io/credential-id"
        found = self.plane.audit.requests(since, told=self.credential)
        return [r for r in found if r["user"].get("extra", {}).get(key) == [self.credential]]

    def cpu_s(self) -> float:
        """The processor time that the process has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mib(self) -> int:
        """The memory that the process holds."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20

    def signal(self, number: int) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def end(self) -> None:
        """End the process as a pod is ended, and wait for it."""
        self._process.terminate()
        assert self._process.wait(PATIENCE_S) == 0, self.log.read_text()

    def kill(self) -> None:
        """Kill the process by SIGKILL, even if it is stopped, and wait for it."""
        self._process.kill()
        self._process.wait()


def writes_of(requests: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The requests that changed something, without the Lease, Events and what the leader publishes about itself."""
    return [r for r in all_writes_of(requests) if r["objectRef"].get("name") not in PUBLISHED]


def all_writes_of(requests: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The requests that changed something, without the Lease and Events."""
    beside = {"leases", "events"}
    return [r for r in requests if r["verb"] in WRITES and r["objectRef"]["resource"] not in beside]
