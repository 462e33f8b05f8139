"""What happens outside while the loop runs: Git's faults, the cluster's, bad commits. What runs keeps running."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from stage import BASE, CLUSTER, IN_GIT, ZERO_MS, Flaky, Stage, WithoutGit, job, project

from gpuctl.adapters.signals import StopOnSignal
from gpuctl.app.timekeeping import LAST_RETRY_MS, retry_ms
from gpuctl.k8s import names
from gpuctl.k8s.objects import ref_of
from gpuctl.model.declared import NodePool
from gpuctl.model.state import Body, RunPhase

RUNNING = {"a/j1": "Running", "b/j2": "Running"}
BROKEN = "apiVersion: gpuctl.dev/v1\nkind: Job\nmetadata: {name: j1, project: a}\nspec: {image: x, gpuss: 1}\n"


@pytest.fixture
def sort() -> type[Stage]:
    """The sort of stage."""
    return WithoutGit


@pytest.fixture
def stage(tmp_path: Path, sort: type[Stage]) -> Stage:
    made = sort(tmp_path)
    made.commit(BASE)
    return made


def test_it_starts_what_is_declared_and_then_is_silent(stage: Stage) -> None:
    stage.play(25)
    assert stage.phases() == RUNNING
    version, lines = stage.version(), len(stage.lines)
    stage.at(60, lambda: stage.commit({"README.md": "words"}))
    stage.at(80, lambda: stage.commit({"c/projects/a/j1.yaml": "# moved\n" + BASE["c/projects/a/j1.yaml"]}))
    stage.play(300)
    assert stage.version() == version
    assert stage.events()[lines:] == ["following"] * 3
    assert stage.codes() == []


@IN_GIT
def test_an_unreachable_remote_is_asked_less_and_less_often_and_what_runs_is_enforced(stage: Stage) -> None:
    away = stage.folder / "away"
    stage.at(20, lambda: shutil.move(stage.copy.folder, away))
    stage.at(45, lambda: _edit(stage))
    stage.at(1000, lambda: _is_put_back(stage))
    stage.at(2000, lambda: shutil.move(away, stage.copy.folder))
    stage.at(2310, lambda: stage.commit({"c/projects/b/j3.yaml": job("j3", "b")}))
    stage.play(2340)
    assert stage.events().count("source") == stage.events().count("resolved") == 1
    gaps = [later - earlier for earlier, later in zip(stage.fetches[3:], stage.fetches[4:], strict=False)]
    trouble = [gap for gap in gaps if gap != 10]
    assert trouble == sorted(trouble)
    assert max(gaps) == LAST_RETRY_MS // 1000
    assert stage.phases() == RUNNING | {"b/j3": "Running"}


def _edit(stage: Stage) -> None:
    _, body = stage.live("Job", "j1")
    stage.cluster.update({**body, "spec": {**body["spec"], "backoffLimit": 5}})


def _is_put_back(stage: Stage) -> None:
    _, body = stage.live("Job", "j1")
    assert body["spec"]["backoffLimit"] == 0


@IN_GIT
def test_a_restart_without_the_remote_enforces_what_the_ledgers_name(stage: Stage) -> None:
    stage.play(25)
    shutil.move(stage.copy.folder, stage.folder / "away")
    _edit(stage)
    stage.play(60)
    _is_put_back(stage)
    assert stage.phases() == RUNNING


@IN_GIT
def test_a_first_start_without_the_remote_changes_nothing_and_says_so(stage: Stage) -> None:
    shutil.rmtree(stage.copy.folder)
    assert stage.play(25, once=True) == 1
    assert stage.phases() == {}
    assert set(stage.codes()) >= {"GPU8012"}


@IN_GIT
def test_a_deleted_branch_keeps_what_runs(stage: Stage) -> None:
    stage.git("branch", "spare")
    stage.git("checkout", "-q", "spare")
    stage.at(20, lambda: stage.git("branch", "-D", "main"))
    stage.play(60)
    assert stage.phases() == RUNNING
    assert stage.codes("source") == ["GPU8002"]


@IN_GIT
def test_a_rewritten_branch_is_followed_with_a_warning(stage: Stage) -> None:
    stage.commit({"c/projects/b/j3.yaml": job("j3", "b")})
    old = stage.git("rev-parse", "HEAD")

    def rewrite() -> None:
        stage.git("reset", "-q", "--hard", "HEAD~1")
        stage.commit({"c/projects/a/j4.yaml": job("j4", "a")})

    stage.at(20, rewrite)
    stage.play(60)
    new = stage.git("rev-parse", "HEAD")
    told = [line for line in stage.lines if line["event"] == "rewritten"]
    assert [(line["old"], line["new"], line["code"]) for line in told] == [(old, new, "GPU8007")]
    assert set(stage.phases()) == {"a/j1", "a/j4", "b/j2"}


@IN_GIT
def test_a_branch_rewritten_while_the_loop_was_down_is_noticed(stage: Stage) -> None:
    stage.play(20)
    stage.git("checkout", "-q", "--orphan", "fresh")
    stage.git("rm", "-q", "-r", "--cached", ".")
    stage.commit({**BASE, "c/projects/a/j4.yaml": job("j4", "a")})
    stage.git("branch", "-f", "main", "fresh")
    stage.play(60)
    assert stage.codes("rewritten") == ["GPU8007"]
    assert set(stage.phases()) == {"a/j1", "a/j4", "b/j2"}


@IN_GIT
def test_a_missing_path_keeps_what_runs(stage: Stage) -> None:
    stage.at(20, lambda: stage.git("mv", "c", "d"))
    stage.at(20, lambda: stage.git("-c", "user.name=x", "-c", "user.email=x", "commit", "-qm", "moved"))
    stage.at(300, lambda: stage.git("mv", "d", "c"))
    stage.at(300, lambda: stage.git("-c", "user.name=x", "-c", "user.email=x", "commit", "-qm", "moved back"))
    stage.at(301, lambda: stage.commit({"c/projects/b/j3.yaml": job("j3", "b")}))
    stage.play(325)
    assert stage.phases() == RUNNING | {"b/j3": "Running"}
    assert stage.codes("unreadable") == ["GPU8003"]


def test_a_tree_without_a_cluster_keeps_what_runs(stage: Stage) -> None:
    stage.at(20, lambda: stage.commit({**dict.fromkeys(BASE), "c/.gitkeep": ""}))
    stage.play(60)
    assert stage.phases() == RUNNING
    assert "GPU8009" in stage.codes("invalid")


@IN_GIT
def test_a_tree_without_projects_is_refused_until_it_is_confirmed(stage: Stage) -> None:
    none = {path: None for path in BASE if path != "c/cluster.yaml"}
    stage.at(20, lambda: stage.commit(none))
    stage.play(60)
    assert stage.phases() == RUNNING
    assert stage.codes("refused") == ["GPU6001", "GPU6001"]
    trailers = [
        line["help"].rpartition("`")[0].rpartition("`")[2] for line in stage.lines if line["event"] == "refused"
    ]
    stage.commit({"README.md": "it is meant"}, "Remove everything\n\n" + "\n".join(trailers) + "\n")
    stage.play(300)
    assert stage.phases() == {}
    assert [ref for ref in stage.state().live if ref.namespace.startswith("gpu-")] == []


@IN_GIT
def test_a_project_that_came_back_is_not_removed_by_the_confirmation_before(stage: Stage) -> None:
    mine = {path: BASE[path] for path in BASE if path.startswith("c/projects/b/")}
    stage.at(20, lambda: stage.commit(dict.fromkeys(mine)))
    stage.play(60)
    told = [line["help"].split("`")[1] for line in stage.lines if line["event"] == "refused"]
    stage.commit({}, f"It is meant\n\n{told[0]}\n")
    stage.play(200)
    assert stage.phases() == {"a/j1": "Running"}
    stage.commit(mine)
    stage.play(400)
    assert stage.phases() == RUNNING
    stage.lines.clear()
    stage.commit(dict.fromkeys(mine))
    stage.play(500)
    assert (stage.phases(), stage.codes("refused")) == (RUNNING, ["GPU6002"])
    stage.commit({}, f"It is meant again\n\n{told[0]}\n")
    stage.play(640)
    assert stage.phases() == {"a/j1": "Running"}


ALL_CHANGED = {path: BASE[path].replace("image: x", "image: y") for path in BASE if "kind: Job" in BASE[path]}


@pytest.mark.parametrize(
    ("change", "code"),
    [(dict.fromkeys(path for path in BASE if path.startswith("c/projects/b/")), "GPU6002"), (ALL_CHANGED, "GPU6007")],
    ids=["a project is removed", "all jobs are changed"],
)
@IN_GIT
def test_a_confirmation_counts_with_the_change_and_after_it(
    stage: Stage, change: dict[str, str | None], code: str
) -> None:
    before = {path: BASE[path] for path in change}
    stage.at(20, lambda: stage.commit(change))
    stage.play(60)
    (told,) = {line["help"].split("`")[1] for line in stage.lines if line["event"] == "refused"}
    runs = {run.digest for run in stage.state().runs if run.phase is RunPhase.RUNNING}
    stage.commit(before)
    stage.commit({"README.md": "any"}, f"Written before there is such a change\n\n{told}\n")
    stage.play(120)
    stage.lines.clear()
    stage.commit(change)
    stage.play(200)
    assert (stage.phases(), set(stage.codes("refused"))) == (RUNNING, {code})
    stage.commit({}, f"It is meant\n\n{told}\n")
    stage.commit({"README.md": "another"})
    stage.lines.clear()
    stage.play(400)
    assert stage.codes("refused") == []
    assert stage.phases() == ({"a/j1": "Running"} if code == "GPU6002" else RUNNING)
    assert {run.digest for run in stage.state().runs}.isdisjoint(runs) is (code == "GPU6007")


def test_a_bad_commit_in_one_project_holds_no_other_back(stage: Stage) -> None:
    bad = {"c/projects/a/j1.yaml": BROKEN, "c/projects/b/j3.yaml": job("j3", "b")}
    stage.at(20, lambda: stage.commit(bad))
    stage.play(60)
    assert stage.phases() == RUNNING | {"b/j3": "Running"}
    told = [line for line in stage.lines if line["event"] == "invalid"]
    assert any(line["place"].startswith("c/projects/a/j1.yaml:4:") for line in told)
    assert "GPU8009" in stage.codes("invalid")
    stage.play(90)
    assert stage.phases() == RUNNING | {"b/j3": "Running"}
    stage.at(100, lambda: stage.commit({"c/projects/a/j1.yaml": BASE["c/projects/a/j1.yaml"]}))
    stage.play(150)
    assert stage.phases() == RUNNING | {"b/j3": "Running"}
    assert stage.play(160, once=True) == 0


def test_a_team_that_declares_a_job_of_another_project_holds_only_itself_back(stage: Stage) -> None:
    squat = {
        "c/projects/a/0.yaml": job("j2", "b", 2),
        "c/projects/a/j4.yaml": job("j4", "a"),
        "c/projects/b/j3.yaml": job("j3", "b"),
    }
    stage.at(20, lambda: stage.commit(squat))
    stage.play(60)
    assert stage.phases() == RUNNING | {"b/j3": "Running"}
    told = [line for line in stage.lines if line["event"] == "invalid"]
    assert {line["code"] for line in told} == {"GPU3008", "GPU8009"}
    assert {line["place"].partition(":")[0] for line in told} == {"c/projects/a/0.yaml"}
    assert next(line["message"] for line in told if line["code"] == "GPU8009").startswith("project a ")
    stage.play(90)
    assert stage.phases() == RUNNING | {"b/j3": "Running"}
    stage.at(100, lambda: stage.commit({"c/projects/a/0.yaml": None}))
    stage.play(150)
    assert stage.phases() == RUNNING | {"b/j3": "Running", "a/j4": "Running"}


def test_of_a_great_many_mistakes_the_journal_has_the_first(stage: Stage) -> None:
    broken = {name: BROKEN.replace("project: a", f"project: {name}") for name in "ab"}
    many = {
        f"c/projects/{name}/many.yaml": "---\n".join(text.replace("j1", f"k{n}") for n in range(510))
        for name, text in broken.items()
    }
    stage.at(20, lambda: stage.commit(many))
    stage.play(40)
    told = [line for line in stage.lines if line["event"] == "invalid"]
    assert told[0]["code"] == "GPU8009"
    assert len(told) == 1001
    assert told[-1]["more"] == 22
    assert stage.phases() == RUNNING


def test_a_bad_cluster_file_keeps_the_old_one(stage: Stage) -> None:
    bad = {"c/cluster.yaml": CLUSTER.replace("gpusPerNode", "gpus"), "c/projects/b/j3.yaml": job("j3", "b")}
    stage.at(20, lambda: stage.commit(bad))
    stage.play(60)
    assert stage.phases() == RUNNING | {"b/j3": "Running"}
    assert any(line.get("place", "").startswith("c/cluster.yaml:") for line in stage.lines)


@IN_GIT
def test_a_link_out_of_the_tree_is_an_error_of_its_project_alone(stage: Stage) -> None:
    def link() -> None:
        (stage.copy.folder / "c/projects/a/out.yaml").symlink_to("/etc/passwd")
        stage.git("add", "-A")
        stage.commit({"c/projects/b/j3.yaml": job("j3", "b")})

    stage.at(20, link)
    stage.play(60)
    assert stage.phases() == RUNNING | {"b/j3": "Running"}
    assert any(line.get("place", "").startswith("c/projects/a/out.yaml") for line in stage.lines)


def test_a_cluster_that_was_never_good_is_told_once_and_taken_when_it_is(stage: Stage) -> None:
    stage.commit({"c/cluster.yaml": "kind: Clustr\n"})
    stage.at(60, lambda: stage.commit({"c/cluster.yaml": CLUSTER}))
    stage.play(100)
    assert stage.phases() == RUNNING
    assert stage.events().count("following") == 2
    assert stage.codes("idle") == ["GPU8012"]


def test_a_project_that_was_never_good_is_absent_and_hurts_no_other(stage: Stage) -> None:
    stage.commit({"c/projects/z/project.yaml": project("z", quota=0), "c/projects/z/j.yaml": BROKEN})
    stage.play(60)
    assert stage.phases() == RUNNING


def test_an_api_server_that_is_away_is_asked_less_often_and_then_served(stage: Stage) -> None:
    flaky = Flaky(stage, 15, 100)
    stage.through = flaky
    stage.at(20, lambda: stage.commit({"c/projects/b/j3.yaml": job("j3", "b")}))
    stage.play(300)
    assert stage.phases() == RUNNING | {"b/j3": "Running"}
    assert stage.codes("unreachable") == ["GPU7001"]
    assert len(flaky.tries) < 20


class Buggy:
    """Machines that fail as no port may, until a time: a bug of gpuctl itself."""

    def __init__(self, stage: Stage, until: int) -> None:
        self._stage = stage
        self._until = until

    def provide(self, pools: Sequence[NodePool]) -> None:
        if self._stage.clock.now_ms() < ZERO_MS + self._until * 1000:
            raise RuntimeError("a bug")
        self._stage.cluster.provide(pools)

    def define(self, declared: object) -> None:
        """Nothing."""


def test_a_bug_in_a_cycle_is_told_and_the_loop_goes_on(stage: Stage) -> None:
    stage.machines = Buggy(stage, 60)
    stage.play(300)
    assert stage.codes("bug") == ["GPU9001"]
    assert any("RuntimeError: a bug (test_faults.py:" in line.get("message", "") for line in stage.lines)
    assert stage.phases() == RUNNING


class Rival:
    """A cluster in which somebody else changes every Job right after gpuctl wrote it."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.list = stage.cluster.list
        self.watch = stage.cluster.watch
        self.delete = stage.cluster.delete
        self.each = stage.cluster.each
        self.check = stage.cluster.check
        self.writes = 0
        self.gives_way = False

    def give_way(self) -> None:
        self.gives_way = True

    def apply(self, body: Body, *, is_new: bool = False) -> Body:
        stored = self._stage.cluster.apply(body, is_new=is_new)
        if body["kind"] == "Job" and not self.gives_way:
            self.writes += 1
            (now,) = [b for b in self.list(("batch/v1", "Job")).items if ref_of(b) == ref_of(body)]
            self._stage.cluster.update({**now, "spec": {**now["spec"], "backoffLimit": 5}})
        return stored


def test_a_rival_that_never_gives_way_is_told_and_not_fought_at_full_speed(stage: Stage) -> None:
    stage.through = rival = Rival(stage)
    stage.play(300)
    assert stage.codes("restless") == ["GPU7007", "GPU7007"]  # one for each Job
    (told, _) = [line["message"] for line in stage.lines if line["event"] == "restless"]
    assert "drift: spec.backoffLimit" in told
    assert rival.writes < 2 * 16
    assert stage.phases() == RUNNING


def test_a_run_whose_object_is_changed_back_makes_way_all_the_same(stage: Stage) -> None:
    """A tenant may write on its own Job as often as it likes, and keeps no GPUs by that."""
    stage.through = Rival(stage)
    stage.commit({"c/projects/b/big.yaml": job("big", "b", gpus=3), "c/projects/b/j2.yaml": None})
    stage.play(120)
    assert stage.phases() == {"a/j1": "Running", "b/big": "Running"}
    stage.commit({"c/projects/a/new.yaml": job("new", "a")})
    stage.play(150)
    assert stage.phases() == {"a/j1": "Running", "a/new": "Running", "b/big": "Queued"}


def test_replicas_that_a_tenant_raises_again_and_again_are_put_right_at_once(stage: Stage) -> None:
    seen: list[int] = []

    def edit() -> None:
        _, body = stage.live("Deployment", "s-")
        stage.cluster.update({**body, "spec": {**body["spec"], "replicas": 3}})

    stage.commit({"c/projects/b/s.yaml": job("s", "b", more=", type: inference")})
    for turn in range(12):
        stage.at(60 + 20 * turn, edit)
        stage.at(66 + 20 * turn, lambda: seen.append(stage.live("Deployment", "s-")[1]["spec"]["replicas"]))
    stage.play(300)
    assert seen == [1] * 12


class Rewriter(Rival):
    """As that, but what is changed is a label of one job and, where it is `bold`, whether it is suspended."""

    def __init__(self, stage: Stage, *, bold: bool) -> None:
        super().__init__(stage)
        self._bold = bold
        self.all_writes = 0

    def apply(self, body: Body, *, is_new: bool = False) -> Body:
        self.all_writes += 1
        stored = self._stage.cluster.apply(body, is_new=is_new)
        if body["kind"] == "Job" and "big-" in body["metadata"]["name"]:
            self.writes += 1
            (now,) = [b for b in self.list(("batch/v1", "Job")).items if ref_of(b) == ref_of(body)]
            meta = {**now["metadata"], "labels": {**now["metadata"]["labels"], names.TYPE_LABEL: "mine"}}
            spec = {**now["spec"], "suspend": False} if self._bold else now["spec"]
            self._stage.cluster.update({**now, "metadata": meta, "spec": spec})
        return stored


def test_a_run_that_its_owner_writes_on_without_end_is_paused_at_once(stage: Stage) -> None:
    """It was left alone, its GPUs with it, until a minute after the first of twelve writes."""
    stage.commit({"c/projects/b/big.yaml": job("big", "b", gpus=3), "c/projects/b/j2.yaml": None})
    stage.play(60)
    stage.through = rewriter = Rewriter(stage, bold=False)
    _, body = stage.live("Job", "big-")
    stage.cluster.update({**body, "spec": {**body["spec"], "backoffLimit": 5}})
    stage.at(75, lambda: stage.commit({"c/projects/a/new.yaml": job("new", "a")}))
    stage.play(100)
    assert rewriter.writes >= 12
    assert stage.phases() == {"a/j1": "Running", "a/new": "Running", "b/big": "Queued"}


def test_a_run_that_its_owner_resumes_without_end_is_paused_again_and_again_but_not_without_end(stage: Stage) -> None:
    stage.commit({"c/projects/b/big.yaml": job("big", "b", gpus=3), "c/projects/b/j2.yaml": None})
    stage.play(60)
    stage.through = rewriter = Rewriter(stage, bold=True)
    stage.commit({"c/projects/a/new.yaml": job("new", "a")})
    stage.play(360)
    assert 12 * 5 < rewriter.writes < 12 * 5 * 2
    assert rewriter.all_writes < 12 * 5 * 2 * 3


def test_a_difference_is_put_right_at_once_after_the_rival_has_stopped(stage: Stage) -> None:
    def edit() -> None:
        _, body = stage.live("Job", "j1-")
        stage.cluster.update({**body, "spec": {**body["spec"], "backoffLimit": 7}})

    stage.through = rival = Rival(stage)
    stage.at(120, rival.give_way)
    stage.at(600, edit)
    stage.play(606)
    assert stage.events().count("resolved") == 2
    assert stage.live("Job", "j1-")[1]["spec"]["backoffLimit"] == 0


def test_the_delays_after_failures_grow_and_are_bounded() -> None:
    delays = [retry_ms(n) for n in range(1, 100)]
    assert delays[:4] == [1000, 2000, 4000, 8000]
    assert delays == sorted(delays)
    assert delays[-1] == LAST_RETRY_MS


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_wait_at_once_and_handlers_are_put_back(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with StopOnSignal() as stop:
        assert not stop.wait(1)
        os.kill(os.getpid(), number)
        began = time.monotonic()
        assert stop.wait(300_000)
        assert stop.requested()
        assert time.monotonic() - began < 60
    assert signal.getsignal(number) == before
