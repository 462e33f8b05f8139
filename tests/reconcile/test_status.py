"""The status that the leader publishes, as the loop goes through good and bad commits, faults and other leaders."""

from __future__ import annotations

from pathlib import Path

from stage import BASE, CLUSTER, Stage, job, project

from gpuctl.adapters.prometheus import PrometheusMeters
from gpuctl.app.ports import ClusterUnavailable, WorldFault
from gpuctl.app.status import REF, Direct, read_status
from gpuctl.model.state import Body
from gpuctl.views.status import text_lines
from gpuctl.views.status_form import StatusV1, parsed


class Board:
    """Publishes on the stage's cluster, and counts."""

    def __init__(self, stage: Stage) -> None:
        self._direct = Direct(stage.cluster)
        self.published: list[Body] = []

    def publish(self, body: Body) -> None:
        self.published.append(body)
        self._direct.publish(body)

    def latest(self) -> Body | None:
        return self._direct.latest()

    def now(self) -> Body | None:
        return self._direct.now()


def staged(tmp_path: Path) -> tuple[Stage, Board]:
    stage = Stage(tmp_path)
    stage.publisher = board = Board(stage)
    stage.commit(BASE)
    return stage, board


def read(stage: Stage) -> StatusV1:
    return read_status(stage.cluster, stage.clock).status


def test_a_good_commit_is_ready_and_then_written_again_every_five_minutes(tmp_path: Path) -> None:
    stage, board = staged(tmp_path)
    stage.play(60)
    status = read(stage)
    assert (status.ready, status.cluster, status.why_not) == (True, "one", [])
    assert status.commit.applied == status.commit.head == stage.git("rev-parse", "HEAD")
    count, version = len(board.published), stage.version()
    assert count <= 4
    stage.play(600)
    assert len(board.published) == count + 2  # another process says so at once
    assert int(stage.version()) - int(version) == 2


def test_a_status_that_was_deleted_by_hand_is_there_again(tmp_path: Path) -> None:
    stage, _ = staged(tmp_path)
    stage.play(60)
    stage.at(90, lambda: stage.cluster.delete(REF, "", ""))
    stage.at(91, lambda: missing.append(Direct(stage.cluster).now()))
    missing: list[Body | None] = []
    stage.play(420)
    assert missing == [None]
    assert read(stage).ready


def test_a_broken_project_is_told_with_its_commit_and_its_mistake(tmp_path: Path) -> None:
    stage, _ = staged(tmp_path)
    good = stage.git("rev-parse", "HEAD")
    stage.play(30)
    stage.commit({"c/projects/a/j1.yaml": job("j1", "a", more=", gpus: no")})
    stage.at(90, lambda: stage.commit({"c/projects/a/j1.yaml": job("j1", "a")}))
    stage.play(80)
    (held,) = read(stage).held
    assert (held.project, held.state, held.commit) == ("a", "keptBack", good)
    assert {each.place.split(":")[0] for each in held.problems} == {"c/projects/a/j1.yaml"}
    assert read(stage).why_not[0].startswith("project a is held back: ")
    stage.play(150)
    assert (read(stage).ready, read(stage).held) == (True, [])


def test_that_little_memory_is_left_for_more_jobs_is_told_and_it_stays_ready(tmp_path: Path) -> None:
    stage, _ = staged(tmp_path)
    stage.most_jobs = 10
    nine = f"{job('s', 'b', 0)[:-2]}, sweep: {{completions: 7}}}}\n"
    stage.commit({"c/projects/b/s.yaml": nine})
    stage.play(30)
    assert read(stage).problems == []
    stage.commit({"c/projects/b/s.yaml": nine.replace("7", "8")})
    stage.play(60)
    status = read(stage)
    assert [(each.level, each.code, each.message) for each in status.problems] == [(
        "warning", "GPU7097",
        '10 jobs are declared, and the reconciler has memory for 10; project "b" declares 9 of them',
    )]  # fmt: skip
    assert "--jobs" in "".join(text_lines(status, stage.clock.now_ms(), None))
    assert status.ready
    stage.commit({"c/projects/b/s.yaml": None})
    stage.play(90)
    assert read(stage).problems == []


def test_a_refusal_is_told_with_its_line(tmp_path: Path) -> None:
    stage, _ = staged(tmp_path)
    stage.play(30)
    stage.commit({"c/projects/b/project.yaml": None, "c/projects/b/j2.yaml": None})
    stage.play(60)
    (refusal,) = read(stage).refusals
    assert refusal.code == "GPU6002"
    assert not read(stage).ready
    stage.commit({}, f"remove b\n\n{refusal.confirm}")
    stage.play(120)
    assert (read(stage).ready, read(stage).refusals) == (True, [])


def test_a_freeze_window_and_what_it_holds(tmp_path: Path) -> None:
    stage, _ = staged(tmp_path)
    window = "  freeze: [{cron: '20 5 * * *', duration: 10m, forbids: all, reason: a demo}]\n"
    stage.commit({"c/cluster.yaml": CLUSTER + window})
    stage.play(30)
    assert [(each.reason, each.by, each.until) for each in read(stage).frozen] == [
        ("a demo", "", "2020-07-29T05:30:00.000Z")
    ]
    assert read(stage).ready
    stage.commit({"c/projects/a/j1.yaml": None})
    stage.play(60)
    status = read(stage)
    assert [(each.project, each.state) for each in status.held] == [(None, "window")]
    assert [each.code for each in status.refusals] == ["GPU6013"]
    assert status.commit.head != status.commit.applied
    stage.play(700)
    assert read(stage).ready


def test_a_pool_that_is_short_of_a_node(tmp_path: Path) -> None:
    stage, _ = staged(tmp_path)
    stage.commit({"c/cluster.yaml": CLUSTER.replace("[n1]", "[n1, n2]")})
    stage.play(30)
    assert read(stage).pools == []
    stage.at(35, lambda: stage.cluster.set_node_ready("n2", ready=False))  # type: ignore[arg-type]
    stage.play(60)
    assert [(each.pool, each.usable, each.declared, each.missing) for each in read(stage).pools] == [
        ("p", 1, 2, ["n2"])
    ]


def test_a_cluster_that_refuses_everything_is_not_ready_in_ten_minutes(tmp_path: Path) -> None:
    stage, _ = staged(tmp_path)
    meters = stage.meters = PrometheusMeters(useless_after_ms=0)
    stage.play(30)
    assert meters.unready() == ""
    assert parsed(meters.document).ready
    cluster = stage.cluster

    class Closed:
        """Answers reads, and refuses every write."""

        list, watch, each, check = cluster.list, cluster.watch, cluster.each, cluster.check

        def apply(self, body: Body, *, is_new: bool = False) -> Body:
            del is_new
            raise ClusterUnavailable("GPU7001", str(body["kind"]))

        def delete(self, ref: object, uid: str, resource_version: str) -> None:
            raise ClusterUnavailable("GPU7001", f"{ref} {uid} {resource_version}")

    stage.through = Closed()
    stage.commit({"c/projects/a/project.yaml": project("a", 1)})
    stage.play(60)
    assert meters.unready() == "nothing could be applied for ten minutes"
    assert not parsed(meters.document).ready
    stage.through = cluster
    stage.play(90)
    assert meters.unready() == ""


def test_a_replica_in_standby_tells_what_the_leader_published(tmp_path: Path) -> None:
    stage, _ = staged(tmp_path)
    stage.play(30)

    class Other:
        def held(self) -> bool:
            return False

        def holder(self) -> str:
            return "pod-1"

        def term(self) -> int:
            return 1

        def fault(self) -> WorldFault | None:
            return None

    stage.leadership, stage.meters = Other(), PrometheusMeters()
    stage.play(60)
    status = parsed(stage.meters.document)
    assert (status.replica.role, status.replica.leader, status.ready) == ("standby", "pod-1", True)
    assert stage.meters.unready() == ""
