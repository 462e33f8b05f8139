"""Leading, not leading and leading again: what a replica remembers of a time before is worth nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from stage import BASE, ZERO_MS, Stage, Turns, job

from gpuctl.adapters.git import GitSource
from gpuctl.app.inspect import live_of
from gpuctl.app.outside import Outside
from gpuctl.app.ports import ClusterUnavailable
from gpuctl.app.reconciler import Reconciler
from gpuctl.app.report import Journal
from gpuctl.app.viewing import Sight


@dataclass
class Onlooker:
    """Notes what is shown, by whom, while it is wanted."""

    wanted: bool = False
    shown: list[Sight] = field(default_factory=list)

    def is_wanted(self) -> bool:
        return self.wanted

    def offer(self, sight: Sight) -> None:
        self.shown.append(sight)


def begin(tmp_path: Path) -> tuple[Stage, Turns]:
    stage, turns = Stage(tmp_path), Turns()
    stage.leadership = turns
    stage.commit(BASE)
    return stage, turns


def test_one_that_led_before_does_not_go_back_to_what_was_good_then(tmp_path: Path) -> None:
    """Meanwhile the other took up a commit; the next is broken, so the last good one is asked for: the other's."""
    stage, turns = begin(tmp_path)

    def the_other_leads() -> None:
        turns.pass_on()
        stage.commit({"c/projects/a/j3.yaml": job("j3", "a")})
        source = GitSource(str(stage.copy.folder), "c", "main", tmp_path / "other")
        outside = Outside(source=source, cluster=stage.cluster, machines=stage.cluster, clock=stage.clock)
        other = Reconciler(outside, Journal(list[str]().append), stage)
        assert other.follow()
        assert other.enforce()

    stage.at(20, the_other_leads)
    stage.at(40, lambda: stage.commit({"c/projects/a/j4.yaml": "kind: [\n"}))
    stage.at(40, turns.pass_on)
    stage.play(80)
    assert stage.phases() == {"a/j1": "Running", "a/j3": "Running", "b/j2": "Running"}
    assert "GPU8009" in stage.codes("invalid")


def test_what_stood_wrong_is_the_new_leaders_to_tell(tmp_path: Path) -> None:
    stage, turns = begin(tmp_path)
    stage.at(20, lambda: stage.commit({"c/projects/a/j1.yaml": "kind: [\n"}))
    stage.at(40, turns.pass_on)
    stage.at(60, turns.pass_on)
    stage.play(80)
    assert stage.codes("invalid") == ["GPU8009", "GPU1001"] * 2
    assert [line["was"] for line in stage.lines if line["event"] == "resolved"] == ["standby"]


def test_the_cluster_is_shown_while_it_is_looked_at_by_the_leader_and_in_standby(tmp_path: Path) -> None:
    stage, turns = begin(tmp_path)
    stage.viewer = looks = Onlooker()
    unseen: list[int] = []
    stage.at(20, lambda: unseen.append(len(looks.shown)))
    stage.at(20, lambda: setattr(looks, "wanted", True))
    stage.at(30, turns.pass_on)
    stage.play(40)
    assert unseen == [0]
    leads, stands_by = ([sight for sight in looks.shown if sight.leader == leader] for leader in (None, "other"))
    assert len(leads) + len(stands_by) == len(looks.shown)
    for each, second in ((leads, 28), (stands_by, 38)):
        assert each[-1].at_ms >= ZERO_MS + second * 1000
        assert {job.id.name: job.status for job in live_of(each[-1].objects.objects.values()).jobs} == {
            "j1": "Running", "j2": "Running",
        }  # fmt: skip


def test_it_says_why_it_can_not_lead(tmp_path: Path) -> None:
    stage, turns = begin(tmp_path)
    turns.leads, turns.trouble = False, ClusterUnavailable("GPU7001", "nobody answers")
    stage.play(20)
    assert stage.codes("unreachable") == ["GPU7001"]
    assert stage.phases() == {}


def test_once_beside_another_leader_ends_and_says_that_nothing_was_done(tmp_path: Path) -> None:
    stage, turns = begin(tmp_path)
    turns.leads = False
    assert stage.play(600, once=True) == 1
    assert (stage.clock.now_ms() - ZERO_MS) // 1000 == 60
    assert [line["leader"] for line in stage.lines if line["event"] == "standby"] == ["other"]
    assert stage.phases() == {}


def test_once_that_is_told_to_stop_before_it_is_done_has_failed(tmp_path: Path) -> None:
    stage, turns = begin(tmp_path)
    turns.leads = False
    assert stage.play(30, once=True) == 1
