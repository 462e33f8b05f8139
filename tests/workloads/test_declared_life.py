"""The life of a job of a kind that only the Cluster declares, on a real API server, with its installation's rights.

The kind's controller is the test: it makes and removes pods as the account that `--controller` names.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))

from controlplane.known import DEFINITIONS, define
from controlplane.server import ControlPlane
from killing import STEP_WITHIN_S, WITHIN_S, Declarations, Story, in_a_process, reconcile
from town import MERGE, Town, running, town_on
from unattended import account_kubeconfig, at_last, install, provide_all, typed, within

from gpuctl.adapters.kubernetes.paths import collection
from gpuctl.app.overview import overview_of
from gpuctl.app.report import of_lacking
from gpuctl.compile import compile_tree
from gpuctl.install import Duties
from gpuctl.k8s import kinds, names
from gpuctl.k8s.objects import labels_of, text, uid
from gpuctl.k8s.overview import encode_overview
from gpuctl.k8s.workload_table import BUILT_IN
from gpuctl.model.ids import Revision
from workloads.declarations import KINDS_OF_CLUSTER, ROWS, TF_JOB, TRAINING_RUN, manifest
from workloads.declarations import declared as job_of_kind
from workloads.definitions import a_like_of, definition

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("declared")]
CONTROLLER = "system:serviceaccount:training:controller"
NOTHING = {"name": "main", "image": "x"}
RBAC = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture(scope="module")
def plane(new_control_plane: Callable[..., ControlPlane]) -> ControlPlane:
    """gpuctl was installed before the Cluster declared the kinds; one of the two is there."""
    made = new_control_plane()
    install(made, controllers=(CONTROLLER,))
    define(made, definition(TRAINING_RUN), a_like_of("ray.io", "RayService"))
    for user in (CONTROLLER, "ann"):
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
        binding = {"metadata": {"name": user.rpartition(":")[2]}, "roleRef": role, "subjects": [subject]}
        made.call("POST", f"{RBAC}/clusterrolebindings", binding)
    return made


@pytest.fixture
def town(plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[Town]:
    with town_on(plane, request.node.name) as made:
        made.more_of_pool = ", resourcesPerNode: {cpu: 8, memory: 64Gi}"
        made.more_of_cluster = KINDS_OF_CLUSTER
        made.jobs["train"] = f"\n  manifest: {json.dumps(manifest(TRAINING_RUN))}"
        yield made


def told(town: Town) -> list[tuple[str, str]]:
    cache = town.context.object_cache
    entries = [entry.fields for entry in of_lacking(cache.absent, cache.refused)]
    return [(str(facts["code"]), str(facts["message"]).partition(" of ")[0].split()[-1]) for facts in entries]


def test_without_rights_and_without_a_definition_it_is_told_and_other_jobs_run(town: Town) -> None:
    town.jobs["other"] = ", gpus: 1"
    town.until(lambda: town.phases() == {"other": "Running"})
    assert told(town) == [("GPU7022", "TFJob"), ("GPU7021", "TrainingRun")]
    (waits,) = [each for each in town.cycle().schedule.decisions if each.job.name == "train"]
    assert waits.reason is not None
    assert waits.reason.code == "GPU5074"
    town.until(lambda: town.cycle().settled)


def runs_of(town: Town | Told) -> str:
    return f"/apis/{TRAINING_RUN[0]}/namespaces/{town.namespace}/trainingruns"


def the_run(town: Town | Told) -> Any:
    (found,) = town.plane.call("GET", runs_of(town))["items"]
    return found


def pods(town: Town | Told) -> list[Any]:
    found: list[Any] = town.plane.call("GET", f"/api/v1/namespaces/{town.namespace}/pods")["items"]
    return [pod for pod in found if labels_of(pod).get(names.JOB_LABEL) == "train"]


def control(town: Town | Told) -> None:
    """What the kind's controller does. It looks for pods first: a run that is there after that lacks them."""
    path, own = f"/api/v1/namespaces/{town.namespace}/pods", pods(town)
    run = the_run(town)
    owner = {"apiVersion": run["apiVersion"], "kind": run["kind"], "name": run["metadata"]["name"], "uid": uid(run)}
    if run["spec"].get("paused"):
        for pod in own:
            town.plane.call("DELETE", f"{path}/{pod['metadata']['name']}?gracePeriodSeconds=0", user=CONTROLLER)
    elif not own:
        for group in run["spec"]["groups"]:
            for number in range(group["pods"].get("count", 1)):
                name = f"{run['metadata']['name']}-{group['name']}-{number}"
                template = group["pods"]["template"]
                meta = {**template["metadata"], "name": name, "ownerReferences": [{**owner, "controller": True}]}
                town.plane.call("POST", path, {"metadata": meta, "spec": template["spec"]}, user=CONTROLLER)
    left = len(pods(town)) if bool(own) is bool(run["spec"].get("paused")) else len(own)
    tells(town, run, "Paused" if run["spec"].get("paused") and not left else "Running", left)


def tells(town: Town | Told, run: Any, phase: str, left: int) -> None:
    """Say how it stands with a run, where it does not say so already."""
    status = {"phase": phase, "running": left}
    if run.get("status") != status:
        path = f"{runs_of(town)}/{run['metadata']['name']}/status"
        town.plane.call("PATCH", path, {"status": status}, media=MERGE, user=CONTROLLER)


def nothing_is_made_by_hand(town: Town) -> None:
    """By a person with all rights: not the kind, no change of a run, no pod under one or after it, nor what else the
    controller of a built-in kind may make pods of."""
    made = {"apiVersion": TRAINING_RUN[0], "kind": "TrainingRun", "metadata": {"name": "by-hand"}, "spec": {}}
    service = {"apiVersion": "ray.io/v1", "kind": "RayService", "metadata": {"name": "by-hand"}}
    owners = pods(town)[0]["metadata"]["ownerReferences"]
    under_it = {"metadata": {"name": "by-hand", "ownerReferences": owners}, "spec": {"containers": [NOTHING]}}
    run = text(the_run(town), "metadata", "name")
    in_git, no_owner = "declared in Git", "owners that are workloads"
    for method, path, body, words in (
        ("POST", runs_of(town), made, in_git),
        ("PATCH", f"{runs_of(town)}/{run}", {"spec": {"paused": True}}, in_git),
        ("DELETE", f"{runs_of(town)}/{run}", {"propagationPolicy": "Orphan", "dryRun": ["All"]}, "deleted with it"),
        ("POST", f"/apis/ray.io/v1/namespaces/{town.namespace}/rayservices", service, in_git),
        ("POST", f"/api/v1/namespaces/{town.namespace}/pods", under_it, no_owner),
    ):
        media = MERGE if method == "PATCH" else ""

        def said(method: str = method, path: str = path, body: object = body, media: str = media) -> str:
            refused = town.plane.refused(method, f"{path}?dryRun=All", body, user="ann", media=media)
            return refused[1] if refused else ""

        assert words in at_last(said)


def test_it_is_admitted_placed_paused_resumed_and_ended_and_none_is_made_by_hand(town: Town) -> None:
    rows = tuple(ROWS[kind] for kind in (TF_JOB, TRAINING_RUN))
    install(town.plane, controllers=(CONTROLLER,), duties=Duties(kinds=rows))
    declared, until = town.jobs.pop("train"), time.monotonic() + 2 * WITHIN_S
    town.until(lambda: told(town) == [("GPU7022", "TFJob")])
    while not is_counted(town):
        assert time.monotonic() < until, "the server does not count the kind"
    town.jobs["train"] = declared
    town.until(lambda: town.plane.call("GET", runs_of(town))["items"])
    assert the_run(town)["spec"]["paused"] is True, "it is born without pods"
    assert pods(town) == []

    def goes_on() -> bool:
        control(town)
        return town.phases() == {"train": "Running"} and len([pod for pod in pods(town) if running(pod)]) == 3

    town.until(goes_on)
    (run,) = town.state().runs
    assert (run.gpu_milli, run.cpu_milli, run.starts) == (1000, 1500, 1)
    workers = [pod["spec"]["nodeName"] for pod in pods(town) if "workers" in pod["metadata"]["name"]]
    assert sorted(workers) == sorted(worker.node for worker in run.placement.workers) if run.placement else False
    assert all(node.foreign_cpu_milli == 0 for node in town.state().nodes if node.labels.get("town") == town.name)

    nothing_is_made_by_hand(town)

    town.jobs["train"] = f"\n  suspend: true{declared}"

    def is_paused() -> bool:
        control(town)
        return town.phases() == {"train": "Queued"}

    town.until(is_paused)
    before = uid(the_run(town))
    town.jobs["train"] = declared
    town.until(goes_on)
    assert uid(the_run(town)) == before, "in the same place it is the same object"
    seen_by_people(town)

    for pod in pods(town):
        path = f"/api/v1/namespaces/{town.namespace}/pods/{pod['metadata']['name']}"
        town.plane.call("DELETE", f"{path}?gracePeriodSeconds=0", user=CONTROLLER)
    tells(town, the_run(town), "Done", 0)
    town.until(lambda: town.ended() == {"train": "Succeeded"})
    del town.jobs["train"]
    town.until(lambda: not town.plane.call("GET", runs_of(town))["items"])


COUNTED = "count/trainingruns.batch.example.com"


def counted(plane: ControlPlane, quota: str) -> Any:
    """What a quota counts, once it does. A pause before, as the server looks for new kinds each 30 seconds."""
    time.sleep(1)
    return at_last(lambda: plane.call("GET", quota).get("status", {}).get("used"))


def quota_of(town: Town | Told) -> str:
    return f"/api/v1/namespaces/{town.namespace}/resourcequotas/{names.QUOTA_NAME}"


def is_counted(town: Town) -> bool:
    """The server counts a new kind some time after it serves it, in quotas that are made then; else it refuses it."""
    path = quota_of(town)
    town.until(lambda: town.plane.refused("GET", path) is None)
    town.plane.call("DELETE", path)
    town.until(lambda: town.plane.refused("GET", path) is None)
    return COUNTED in counted(town.plane, path)


def seen_by_people(town: Town) -> None:
    """`list` and `get` know of the kind by what the leader publishes."""
    report = town.cycle()
    body = encode_overview(overview_of(report.declared, report.state, report.schedule, {}))
    path = f"/api/v1/namespaces/gpuctl-system/configmaps/{body['metadata']['name']}?fieldManager=gpuctl&force=true"
    town.plane.call("PATCH", path, body)
    listed = typed(town.plane.kubeconfig, "list")
    (line,) = [line for line in listed.output.splitlines() if " train " in line or line.startswith("train")]
    assert "Running" in line
    assert typed(town.plane.kubeconfig, "get", "a/train").exit_code == 0


@pytest.fixture
def likes(plane: ControlPlane) -> Iterator[ControlPlane]:
    """Where the built-in kinds are served, and a namespace that is a project's."""
    bodies = [a_like_of(kinds.group_of(kind), kind[1], kind[0].rpartition("/")[2]) for kind in BUILT_IN]
    define(plane, *bodies)
    plane.call("POST", SPACES, {"metadata": {"name": "gpu-likes", "labels": {names.MANAGED_LABEL: "true"}}})
    every = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    plane.call("POST", f"{RBAC}/namespaces/gpu-likes/roles", {"metadata": {"name": "all"}, "rules": [every]})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "all"}
    bob = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}
    binding = {"metadata": {"name": "bob"}, "roleRef": role, "subjects": [bob]}
    plane.call("POST", f"{RBAC}/namespaces/gpu-likes/rolebindings", binding)
    at_last(lambda: plane.refused("GET", f"{SPACES}/gpu-likes/secrets", user="bob") is None)
    yield plane
    for path in (*(f"{DEFINITIONS}/{body['metadata']['name']}" for body in bodies), f"{SPACES}/gpu-likes"):
        plane.call("DELETE", path)


SPACES = "/api/v1/namespaces"


def test_none_of_a_built_in_kind_is_made_scaled_or_left_behind_by_hand(likes: ControlPlane) -> None:
    """By a person with all rights in the namespace."""
    name, labels = "train-0123abcd", {names.JOB_LABEL: "train"}
    for kind in BUILT_IN:
        path = collection(kind, "gpu-likes")
        body = {"apiVersion": kind[0], "kind": kind[1], "metadata": {"name": name, "labels": labels}}
        spec = {"spec": {"replicas": 1}}
        at_last(lambda: likes.refused("POST", path, {**body, **spec}, user=CONTROLLER) is None)  # noqa: B023 - here
        for method, where, change, words in (
            ("POST", path, {**body, "metadata": {"name": "by-hand"}}, "declared in Git"),
            ("PATCH", f"{path}/{name}", {"spec": {"replicas": 2}}, "declared in Git"),
            ("PATCH", f"{path}/{name}/scale", {"spec": {"replicas": 2}}, "change its replicas in Git"),
            ("PATCH", f"{path}/{name}", {"metadata": {"finalizers": ["example.com/x"]}}, "a finalizer would keep"),
            ("PATCH", f"{path}/{name}", {"metadata": {"labels": {names.JOB_LABEL: None}}}, "without a label"),
            ("DELETE", f"{path}/{name}", {"propagationPolicy": "Orphan", "dryRun": ["All"]}, "deleted with it"),
        ):
            media = MERGE if method == "PATCH" else ""
            _, said = likes.refused(method, f"{where}?dryRun=All", change, user="bob", media=media) or (0, "")
            assert words in said, (kind, where, said)
        likes.call("DELETE", f"{path}/{name}", user="bob")


# SIGKILL after every write

HEAD = "apiVersion: gpuctl.dev/v1\nkind: "
FIRST, JUST_ONE = KINDS_OF_CLUSTER.index("  - apiVersion"), KINDS_OF_CLUSTER.index(f"  - apiVersion: {TRAINING_RUN[0]}")
JUST_TRAINING_RUN = KINDS_OF_CLUSTER[:FIRST] + KINDS_OF_CLUSTER[JUST_ONE:]
KILLED_CLUSTER = (
    f"{HEAD}Cluster\nmetadata: {{{{name: {{name}}}}}}\nspec:\n  namespacePrefix: gpu-{{name}}-\n  nodePools:\n"
    "  - {{name: p, selector: {{matchLabels: {{gpuctl.dev/pool: {name}}}}}, nodes: [{name}-1], gpusPerNode: 2,\n"
    "      gpuMemory: 32Gi, resourcesPerNode: {{cpu: 8, memory: 64Gi}}, sharing: device-plugin}}\n"
) + JUST_TRAINING_RUN.replace("{", "{{").replace("}", "}}")
OF_B = {
    "b.yaml": f"{HEAD}Project\nmetadata: {{name: b}}\nspec: {{quota: 2}}\n",
    "a.yaml": f"{HEAD}Project\nmetadata: {{name: a}}\nspec: {{quota: 0}}\n",
}
TRAIN = {"train.yaml": job_of_kind(TRAINING_RUN, more={"preemptible": True})}
OWN = {"k.yaml": f"{HEAD}Job\nmetadata: {{name: k, project: b}}\nspec: {{image: x, gpus: 2}}\n"}
STORY: Story = (
    ("projects", OF_B),
    ("admission", OF_B | TRAIN),
    ("pause", OF_B | TRAIN | OWN),
    ("resume", OF_B | TRAIN),
    ("prune", OF_B),
)


@dataclass
class Told:
    """One telling of the story. `pods`: the uids of all pods of the job that were ever seen."""

    plane: ControlPlane
    name: str
    pods: set[str] = field(default_factory=set)
    kills: int = 0
    ends: list[Any] = field(default_factory=list)

    @property
    def namespace(self) -> str:
        return f"gpu-{self.name}-a"

    def play(self, *, doomed: bool) -> None:
        kubeconfig = account_kubeconfig(self.plane)
        compiled = compile_tree(self._source(0).tree(Revision("0" * 40)))
        assert compiled.declared is not None
        provide_all(self.plane, compiled.declared.cluster.pools)
        with in_the_background(self._control):
            for number, (step, _) in enumerate(STORY):
                until = time.monotonic() + STEP_WITHIN_S
                while not in_a_process(lambda: reconcile(kubeconfig, self._source(number), doomed=doomed)):  # noqa: B023
                    self.kills += 1
                    self._look()
                    assert time.monotonic() < until, step
                within(WITHIN_S, self._is_counted)
                self._look()
                self.ends.append([(run["spec"].get("paused"), starts_of(run)) for run in self._runs()])

    def _is_counted(self) -> bool:
        """Before, the server refuses every object of the kind."""
        return COUNTED in self.plane.call("GET", quota_of(self)).get("status", {}).get("used", {})

    def _source(self, number: int) -> Declarations:
        return Declarations(KILLED_CLUSTER, STORY, self.name, number)

    def _runs(self) -> list[Any]:
        found: list[Any] = self.plane.call("GET", runs_of(self))["items"]
        return found

    def _look(self) -> None:
        self.pods |= {uid(pod) for pod in pods(self)}

    def _control(self) -> None:
        self.plane.leave_connections()
        while True:
            with suppress(HTTPError, ValueError):  # something changed meanwhile, or there is no run
                control(self)
            time.sleep(0.1)


def counts_the_kind(plane: ControlPlane) -> bool:
    quotas = "/api/v1/namespaces/default/resourcequotas"
    plane.call("POST", quotas, {"metadata": {"name": "probe"}, "spec": {"hard": {COUNTED: "1", "pods": "1"}}})
    used = counted(plane, f"{quotas}/probe")
    plane.call("DELETE", f"{quotas}/probe")
    return COUNTED in used


def starts_of(run: Any) -> str:
    return text(run, "metadata", "annotations", names.STARTS_ANNOTATION)


@contextmanager
def in_the_background(work: Callable[[], None]) -> Iterator[None]:
    """While the block runs, in a process of its own."""
    child = os.fork()
    if child == 0:  # pragma: no cover - another process
        try:
            work()
        finally:
            os._exit(1)
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_killed_after_every_write_it_comes_to_the_same_end(plane: ControlPlane) -> None:
    install(plane, controllers=(CONTROLLER,), duties=Duties(kinds=(ROWS[TRAINING_RUN],)))
    within(2 * WITHIN_S, lambda: counts_the_kind(plane))
    calm, killed = Told(plane, "calm"), Told(plane, "killed")
    calm.play(doomed=False)
    assert calm.ends == [[], [(False, "1")], [(True, "1")], [(False, "2")], []]
    assert len(calm.pods) == 6, "three pods for each start"
    killed.play(doomed=True)
    assert killed.kills >= 20
    assert killed.ends == calm.ends
    assert len(killed.pods) == len(calm.pods)
