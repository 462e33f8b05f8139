"""A job that is another controller's object, through its life: admitted, paused, resumed elsewhere, ended, removed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from stage import ZERO_MS, Stage, WithoutGit, job, project
from workloads.declarations import DECLARED_KINDS, EVERY_KIND, KINDS_OF_CLUSTER, ROWS, TF_JOB, declared

from gpuctl.app.ports import Cluster, ClusterUnavailable, ObjectList, R, T, WatchEvent
from gpuctl.k8s import kinds, names
from gpuctl.k8s.kinds import Kind
from gpuctl.k8s.objects import labels_of, mapping, resource_version, uid, with_value
from gpuctl.k8s.suspension import is_let_go
from gpuctl.model.ids import JobId, ObjectRef
from gpuctl.model.state import Body, Run

CLUSTER = (
    """apiVersion: gpuctl.dev/v1
kind: Cluster
metadata: {name: one}
spec:
  nodePools:
  - name: p
    nodes: [n1, n2]
    gpusPerNode: 4
    gpuMemory: 32Gi
    gpuProduct: Tesla
    resourcesPerNode: {cpu: 32, memory: 256Gi}
    sharing: device-plugin
"""
    + KINDS_OF_CLUSTER
)
TRAIN = JobId.parse("a/train")


SIZES: Any = {"workers": 2, "gpus": 2}
EACH = pytest.mark.parametrize("kind", EVERY_KIND, ids=lambda kind: kind[1])
ENDING = pytest.mark.parametrize("kind", [k for k, row in ROWS.items() if row.ends], ids=lambda kind: kind[1])
ENDLESS = pytest.mark.parametrize("kind", [k for k, row in ROWS.items() if not row.ends], ids=lambda kind: kind[1])
JOB_SET = pytest.mark.parametrize("kind", [kinds.JOB_SET], ids=["JobSet"])


def train_as(kind: Kind, **more: Any) -> str:
    """Preemptible whatever the kind, so that each can be made to make way."""
    return declared(kind, more={"preemptible": True, **more}, **SIZES)


@pytest.fixture
def kind() -> Kind:
    """What the job is; each test says which."""
    return kinds.JOB_SET


@pytest.fixture
def stage(tmp_path: Path, kind: Kind) -> Stage:
    made = WithoutGit(tmp_path)
    made.kinds = tuple(ROWS[kind] for kind in DECLARED_KINDS)
    made.cluster.define(made.kinds)
    made.commit({
        "c/cluster.yaml": CLUSTER,
        "c/projects/a/project.yaml": project("a", 0),
        "c/projects/a/train.yaml": train_as(kind),
        "c/projects/b/project.yaml": project("b", 8),
    })
    made.play(30)
    return made


def train(stage: Stage) -> Run:
    (found,) = [run for run in stage.state().runs if run.job == TRAIN]
    return found


def pods_of(stage: Stage) -> list[Body]:
    return [body for ref, body in stage.state().live.items() if ref.kind == "Pod" and ref.name.startswith("train")]


def asks_gpus(pod: Body) -> bool:
    return any(names.GPU_RESOURCE in mapping(each, "resources", "limits") for each in pod["spec"]["containers"])


def nodes(run: Run) -> list[str]:
    return sorted(worker.node for worker in run.placement.workers) if run.placement else []


@EACH
def test_it_is_placed_and_runs_with_its_pods_charged_as_one_gang(stage: Stage) -> None:
    run = train(stage)
    assert (run.phase, run.gpu_milli, run.starts) == ("Running", 2000, 1)
    assert nodes(run) == ["n1", "n1"]
    # Of CPU and memory each worker is charged its own and the helpers', which may be on any of its nodes.
    helpers = len([pod for pod in pods_of(stage) if not asks_gpus(pod)])
    assert (run.cpu_milli, run.mem_bytes) == (1000 + 500 * helpers, (4 + helpers) << 30)
    state = stage.state()
    assert all(node.foreign_cpu_milli == 0 for node in state.nodes)
    pods = pods_of(stage)
    assert len(pods) == 2 + helpers
    assert all(labels_of(pod)[names.RUN_LABEL] == run.digest for pod in pods)
    before = stage.version()
    stage.play(120)
    assert stage.version() == before, "at rest it costs no write"


@EACH
def test_it_makes_way_whole_and_goes_on_where_there_is_room(stage: Stage, kind: Kind) -> None:
    _, first = stage.live(kind[1], "train")
    stage.commit({"c/projects/b/k.yaml": job("k", "b", 4)})
    stage.play(60)
    stage.commit({"c/projects/b/m.yaml": job("m", "b", 4)})
    stage.play(120)
    assert stage.phases() == {"a/train": "Queued", "b/k": "Running", "b/m": "Running"}
    paused = train(stage)
    assert str(paused.paused_for) in {"b/k", "b/m"}
    assert paused.ran_ms > 0
    _, body = stage.live(kind[1], "train")
    assert not is_let_go(body, ROWS)
    on_first = nodes_of_pods(stage, "k") == {"n1"}
    stage.cluster.finish(JobId.parse("b/m" if on_first else "b/k"), 0)
    stage.play(240)
    resumed = train(stage)
    assert (resumed.phase, nodes(resumed)) == ("Running", ["n2", "n2"])
    _, second = stage.live(kind[1], "train")
    assert uid(second) != uid(first), "its pod templates can't be changed, so it is made anew at its new place"
    assert resumed.ran_ms >= paused.ran_ms
    assert resumed.starts >= 2


def nodes_of_pods(stage: Stage, name: str) -> set[str]:
    pods = [body for ref, body in stage.state().live.items() if ref.kind == "Pod"]
    return {body["spec"].get("nodeName", "") for body in pods if labels_of(body).get(names.JOB_LABEL) == name}


@EACH
def test_resumed_where_it_was_it_is_the_same_object(stage: Stage, kind: Kind) -> None:
    _, first = stage.live(kind[1], "train")
    stage.commit({"c/projects/a/train.yaml": train_as(kind, suspend=True)})
    stage.play(60)
    assert train(stage).phase == "Queued"
    stage.commit({"c/projects/a/train.yaml": train_as(kind)})
    stage.play(120)
    assert train(stage).phase == "Running"
    assert uid(stage.live(kind[1], "train")[1]) == uid(first)


@JOB_SET
def test_what_crashes_is_begun_anew_by_its_own_controller_in_its_place(stage: Stage, kind: Kind) -> None:
    stage.cluster.finish(TRAIN, 1)
    stage.play(60)
    again = train(stage)
    assert (again.phase, again.starts, nodes(again)) == ("Running", 1, ["n1", "n1"])
    _, body = stage.live(kind[1], "train")
    assert mapping(body, "status")["restarts"] == 1
    stage.cluster.finish(TRAIN, 1)
    stage.play(120)
    assert stage.phases() == {"a/train": "Failed"}


@ENDING
def test_it_ends_and_is_not_run_again(stage: Stage) -> None:
    stage.cluster.finish(TRAIN, 0)
    stage.play(60)
    assert stage.phases() == {"a/train": "Succeeded"}
    before = stage.version()
    stage.play(200)
    assert stage.version() == before
    (ledger,) = [one for one in stage.state().ledgers.values() if one.project == "a"]
    assert [run.state for run in ledger.finished.values()] == ["Succeeded"]


@EACH
def test_it_ends_when_it_has_run_for_as_long_as_it_may(stage: Stage, kind: Kind) -> None:
    stage.commit({"c/projects/a/train.yaml": train_as(kind, maxDuration="2m")})
    stage.play(400)
    (ledger,) = [one for one in stage.state().ledgers.values() if one.project == "a"]
    assert [run.state for run in ledger.finished.values()] == ["TimedOut"]
    assert not [ref for ref in stage.state().live if ref.kind == "Pod"]


@EACH
def test_it_is_pruned_with_all_that_its_controller_made(stage: Stage) -> None:
    stage.commit({"c/projects/a/train.yaml": None, "c/projects/a/other.yaml": job("other", "a")})
    stage.play(120)
    left = [ref.kind for ref in stage.state().live if ref.name.startswith("train")]
    assert left == []


@EACH
def test_one_that_a_person_removed_is_not_made_again(stage: Stage, kind: Kind) -> None:
    ref, body = stage.live(kind[1], "train")
    stage.cluster.delete(ref, uid(body), resource_version(body))
    stage.play(120)
    assert not [ref for ref in stage.state().live if ref.kind == kind[1]]


@EACH
def test_a_hand_that_resumes_a_waiting_one_is_undone(stage: Stage, kind: Kind) -> None:
    stage.commit({"c/projects/a/train.yaml": train_as(kind, suspend=True)})
    stage.play(60)
    _, body = stage.live(kind[1], "train")
    row = ROWS[kind]
    stage.cluster.update(with_value(body, row.suspension.field, 1 if row.suspension.is_count else False))
    stage.play(120)
    _, body = stage.live(kind[1], "train")
    assert not is_let_go(body, ROWS)
    assert not [ref for ref in stage.state().live if ref.kind == "Pod"]


def test_pods_that_only_claim_to_be_its_helpers_are_booked_as_others(stage: Stage) -> None:
    state = stage.state()
    driver = next(b for r, b in state.live.items() if r.kind == "Job" and "driver" in r.name)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": driver["metadata"]["name"], "uid": uid(driver)}
    stage.cluster.create({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "free-rider",
            "namespace": driver["metadata"]["namespace"],
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {
            "nodeName": "n2",
            "containers": [{"name": "x", "image": "x", "resources": {"requests": {"cpu": "8"}}}],
        },
    })
    found = {str(node.name): node.foreign_cpu_milli for node in stage.state().nodes}
    assert found["n2"] == 8000


@ENDLESS
def test_what_never_ends_is_a_service(stage: Stage, kind: Kind) -> None:
    stage.cluster.finish(TRAIN, 0)
    stage.play(120)
    assert (train(stage).phase, len(pods_of(stage))) == ("Running", 3), "its pods start again at once"
    stage.commit({
        "c/projects/a/train.yaml": declared(kind, **SIZES),
        "c/projects/a/project.yaml": project("a", 4),
        "c/projects/b/project.yaml": project("b", 4),
    })
    stage.play(180)
    assert "invalid" not in stage.events()
    stage.commit({"c/projects/b/k.yaml": job("k", "b", 4), "c/projects/b/m.yaml": job("m", "b", 4)})
    stage.play(300)
    assert train(stage).phase == "Running", "it makes no way unless it says that it is preemptible"


class Struck(BaseException):
    """The process is killed: nothing catches it."""


class Mortal:
    """The cluster for a process that is killed at its n-th write: before that is sent, or right after."""

    def __init__(self, cluster: Cluster, at_write: int, *, after: bool) -> None:
        self._cluster, self._left, self._after = cluster, at_write, after
        self.list, self.watch = cluster.list, cluster.watch

    def apply(self, body: Body, *, is_new: bool = False) -> Body:
        return self._write(lambda: self._cluster.apply(body, is_new=is_new))

    def check(self, body: Body) -> None:
        self._cluster.check(body)

    def delete(self, ref: ObjectRef, uid: str, resource_version: str) -> Body | None:
        return self._write(lambda: self._cluster.delete(ref, uid, resource_version))

    def each(self, work: Callable[[T], R], items: Sequence[T]) -> Sequence[R]:
        return [work(item) for item in items]

    def _write(self, write: Callable[[], R]) -> R:
        self._left -= 1
        if not self._left and not self._after:
            raise Struck
        done = write()
        if not self._left:
            raise Struck
        return done


@pytest.mark.parametrize("at_write", range(1, 9))
@pytest.mark.parametrize("after", [False, True])
def test_killed_at_any_write_of_a_move_it_goes_on_in_its_new_place(
    stage: Stage, kind: Kind, at_write: int, *, after: bool
) -> None:
    """It is paused, its node is taken, and where it goes on it is made anew: deleted, made, seen, let go."""
    stage.commit({"c/projects/a/train.yaml": train_as(kind, suspend=True)})
    stage.play(60)
    stage.commit({"c/projects/b/k.yaml": job("k", "b", 4)})
    stage.play(90)
    assert nodes_of_pods(stage, "k") == {"n1"}
    stage.commit({"c/projects/a/train.yaml": train_as(kind)})
    stage.through = Mortal(stage.cluster, at_write, after=after)
    with suppress(Struck):
        stage.play(120)
    stage.through = stage.cluster
    stage.play(240)
    run = train(stage)
    assert (run.phase, nodes(run), run.starts) == ("Running", ["n2", "n2"], 2)
    assert len(pods_of(stage)) == 3


DECLARED = pytest.mark.parametrize("kind", DECLARED_KINDS, ids=lambda kind: kind[1])
WITHOUT_KINDS = CLUSTER.replace(KINDS_OF_CLUSTER, "")


@DECLARED
def test_a_kind_stays_declared_until_its_jobs_are_gone(stage: Stage, kind: Kind) -> None:
    gone = {"c/cluster.yaml": WITHOUT_KINDS, "c/projects/a/train.yaml": None}
    stage.commit({**gone, "c/projects/a/other.yaml": job("other", "a")})
    stage.play(90)
    assert stage.codes("held") == ["GPU3133"]
    assert train(stage).phase == "Running"
    stage.commit({"c/cluster.yaml": CLUSTER})
    stage.play(180)
    assert not [ref for ref in stage.state().live if ref.kind == kind[1]]
    stage.commit({"c/cluster.yaml": WITHOUT_KINDS})
    stage.kinds = ()
    stage.play(270)
    assert stage.codes("held") == ["GPU3133"], "nor is the last commit held"
    assert "differs" not in stage.events(), "its pods, which outlive it, hold no more than they did"
    assert stage.phases() == {"a/other": "Running"}


JUST_TF_JOB = pytest.mark.parametrize("kind", [TF_JOB], ids=["TFJob"])


class WithoutDefinitions:
    """Machines of a cluster where definitions of kinds come with their controllers, as in a real one."""

    def __init__(self, stage: Stage) -> None:
        self.provide = stage.cluster.provide

    def define(self, declared: object) -> None:
        """Nothing."""


@JUST_TF_JOB
def test_a_kind_that_the_server_lacks_is_told_and_holds_up_nothing(stage: Stage) -> None:
    version, stage.machines = "batch.example.com/v2", WithoutDefinitions(stage)
    stage.commit({"c/cluster.yaml": CLUSTER.replace("batch.example.com/v1", version)})
    stage.play(90)
    assert stage.codes("lacking") == ["GPU7022"]
    assert train(stage).phase == "Running"
    stage.commit({"c/projects/b/k.yaml": job("k", "b")})
    stage.play(150)
    assert stage.phases()["b/k"] == "Running"


class Unconverted:
    """A cluster that can't read one kind between two times, as where the webhook that converts it is away."""

    def __init__(self, stage: Stage, kind: Kind, away: range) -> None:
        self._stage, self._kind, self._away = stage, kind, away
        self.each = stage.cluster.each
        self.check = stage.cluster.check

    def _convert(self, kind: Kind) -> None:
        if kind == self._kind and (self._stage.clock.now_ms() - ZERO_MS) // 1000 in self._away:
            raise ClusterUnavailable("GPU7001", f"list {kind[1]}: conversion webhook failed")

    def list(self, kind: Kind) -> ObjectList:
        self._convert(kind)
        return self._stage.cluster.list(kind)

    def watch(self, kind: Kind, resource_version: str, timeout_ms: int) -> Sequence[WatchEvent]:
        self._convert(kind)
        return self._stage.cluster.watch(kind, resource_version, timeout_ms)

    def apply(self, body: Body, *, is_new: bool = False) -> Body:
        self._convert((body["apiVersion"], body["kind"]))
        return self._stage.cluster.apply(body, is_new=is_new)

    def delete(self, ref: ObjectRef, uid: str, resource_version: str) -> Body | None:
        self._convert((ref.api_version, ref.kind))
        return self._stage.cluster.delete(ref, uid, resource_version)


@EACH
def test_a_kind_that_can_not_be_read_holds_up_its_own_jobs_alone(stage: Stage, kind: Kind) -> None:
    """Its run goes on, and is paused for another job when it can be read again. All other jobs start."""
    more = train_as(kind).replace("name: train", "name: more")
    files = {"c/projects/a/more.yaml": more, "c/projects/b/k.yaml": job("k", "b")}
    stage.through = Unconverted(stage, kind, range(45, 300))
    stage.at(60, lambda: stage.commit({**files, "c/projects/b/wide.yaml": job("wide", "b", 3, ", workers: 2")}))
    meanwhile: list[dict[str, str]] = []
    stage.at(290, lambda: meanwhile.append(stage.phases()))
    stage.play(600)
    assert meanwhile == [{"a/train": "Running", "b/k": "Running", "b/wide": "Queued"}]
    assert stage.phases() == {"a/train": "Queued", "a/more": "Queued", "b/k": "Running", "b/wide": "Running"}
    assert stage.codes("unread", "resolved") == ["GPU7025"] * 2
    assert stage.codes("unreachable") == []


@EACH
def test_a_removed_job_of_a_kind_that_can_not_be_read_holds_up_no_other_removal(stage: Stage, kind: Kind) -> None:
    """A right that a commit takes away is deleted after jobs are."""
    stage.commit({"c/projects/b/project.yaml": project("b", 8, ", access: [{user: ann, role: view}]")})
    stage.through = Unconverted(stage, kind, range(75, 300))
    without = {"c/projects/a/train.yaml": None, "c/projects/b/project.yaml": project("b", 8)}
    stage.at(90, lambda: stage.commit(without))
    bindings: list[int] = []
    for second in (70, 290):
        stage.at(second, lambda: bindings.append(sum(r.kind == "RoleBinding" for r in stage.state().live)))
    stage.at(290, lambda: bindings.append(len(stage.state().runs)))
    stage.play(600)
    assert bindings == [1, 0, 1]
    assert stage.phases() == {}


def test_a_process_that_never_read_a_kind_with_runs_waits_for_it(stage: Stage, kind: Kind) -> None:
    """Else it would take these runs for gone, and give their GPUs away."""
    stage.through = Unconverted(stage, kind, range(30, 100))
    stage.commit({"c/projects/b/wide.yaml": job("wide", "b", 4, ", workers: 2")})
    stage.play(90)
    assert stage.phases() == {"a/train": "Running"}
    assert set(stage.codes("unreachable")) == {"GPU7026"}
    stage.play(200)
    assert stage.phases() == {"a/train": "Queued", "b/wide": "Running"}
