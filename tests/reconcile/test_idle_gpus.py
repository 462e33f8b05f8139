"""Idle GPUs in the loop: an exporter on loopback says what the GPUs of the embedded cluster's pods do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from exporters import Answers, answering, exposition
from stage import BASE, ZERO_MS, WithoutGit, job, project

from gpuctl.adapters.prometheus import PrometheusMeters
from gpuctl.adapters.utilisation.exporters import Exporters
from gpuctl.app.history import Facts
from gpuctl.app.inspect import live, measured
from gpuctl.app.replaying import decided_again, lines_of, read_inputs, said
from gpuctl.app.status import Direct
from gpuctl.app.utilisation import UtilisationPorts
from gpuctl.k8s import kinds
from gpuctl.k8s.objects import ref_of
from gpuctl.k8s.utilisation import UTILISATION_REF, decode_utilisation
from gpuctl.model.history import Note
from gpuctl.model.ids import JobId
from gpuctl.model.state import Body
from gpuctl.model.utilisation import IDLE_AFTER_MS

REST = "a/rest"
LIMITED = project("a", more=", interactive: {idleTimeout: 6m}")
FILES = {
    **BASE,
    "c/projects/a/project.yaml": LIMITED,
    "c/projects/a/j1.yaml": job("rest", "a", more=", type: interactive"),
}


class Town(WithoutGit):
    """A stage with an exporter. `percent`: what each job's GPUs do; a job that is not there is not measured."""

    def __init__(self, folder: Path, answers: Answers) -> None:
        super().__init__(folder)
        self.answers = answers
        self.percent = {REST: 0.0, "b/j2": 90.0}
        answers.pieces = lambda: iter([self._said()])
        self.commit(FILES)
        self.begin()

    def begin(self) -> None:
        """Another process reads."""
        source = Exporters([f"{self.answers.url}/metrics"])
        self.utilisation = UtilisationPorts(source=source, publisher=Direct(self.cluster, UTILISATION_REF))

    def _said(self) -> bytes:
        pods = [(ref, str(run[0])) for ref, run in self.state().pods.items()]
        told = [
            (ref.namespace, ref.name, f"GPU-{ref.name}", self.percent[of], 100, 900)
            for ref, of in pods
            if of in self.percent
        ]
        return exposition(*told, ("gpu-a", "forged-0", "GPU-9", 0, 1, 1), ("other", "pod", "GPU-8", 0, 1, 1))

    def published(self) -> Body:
        bodies = self.cluster.list(kinds.CONFIG_MAP).items
        return next(body for body in bodies if ref_of(body) == UTILISATION_REF)

    def phase(self) -> str:
        return self.phases()[REST]


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    with answering(Answers()) as answers:
        yield Town(tmp_path, answers)


def test_a_job_whose_gpus_do_nothing_ends_after_its_idle_timeout(town: Town) -> None:
    early: list[str] = []
    town.at(390, lambda: early.append(town.phase()))
    town.play(500)
    assert early == ["Running"]
    assert town.phases() == {REST: "TimedOut", "b/j2": "Running"}
    assert "GPU7059" not in town.codes()
    assert "GPU7110" not in town.codes()


def test_work_now_and_then_keeps_it_running(town: Town) -> None:
    for second in range(60, 700, 200):
        town.at(second, lambda: town.percent.update({REST: 3}))
        town.at(second + 40, lambda: town.percent.update({REST: 0}))
    town.play(700)
    assert town.phase() == "Running"


def test_a_source_that_is_away_ends_no_job_and_stops_no_cycle(town: Town) -> None:
    told: list[dict[str, str]] = []
    town.at(260, lambda: setattr(town.answers, "status", 503))
    town.at(400, lambda: town.commit({"c/projects/b/more.yaml": job("more", "b")}))
    town.at(700, lambda: setattr(town.answers, "status", 200))
    town.at(1000, lambda: told.append(town.phases()))
    town.play(1200)
    assert told == [{REST: "Running", "b/j2": "Running", "b/more": "Running"}], "time without samples does not count"
    assert town.codes("unmeasured") == ["GPU7110"]
    assert town.phase() == "TimedOut"


def test_a_source_that_knows_no_pods_is_told(town: Town) -> None:
    town.percent.clear()
    early: list[str] = []
    town.at(IDLE_AFTER_MS // 1000, lambda: early.extend(town.codes("unmeasured")))
    town.play(IDLE_AFTER_MS // 1000 + 100)
    assert early == []
    assert town.codes("unmeasured") == ["GPU7111"]
    assert town.phase() == "Running"


def test_without_a_source_it_is_said_that_nothing_reports(town: Town) -> None:
    town.utilisation = UtilisationPorts()
    town.play(450)
    assert town.phase() == "Running"
    assert "GPU7059" in town.codes()


def test_a_tenant_s_annotation_does_not_count_where_gpuctl_measures(town: Town) -> None:
    """Neither to end a job, nor to keep it."""
    town.percent[REST] = 50
    town.at(30, lambda: town.cluster.set_idle(JobId.parse(REST), ZERO_MS))
    town.play(500)
    assert town.phase() == "Running"


def test_the_next_process_goes_on_from_what_was_published(town: Town) -> None:
    town.play(250)
    town.begin()
    town.play(500)
    assert town.phase() == "TimedOut"


def test_after_a_long_pause_the_next_process_begins_anew(town: Town) -> None:
    town.play(250)
    town.begin()
    town.clock.advance_to(ZERO_MS + 550_000)
    town.play(850)
    assert town.phase() == "Running"


def test_it_is_published_by_object_and_project_and_seldom(town: Town) -> None:
    versions = set()
    for second in range(100, 385, 10):
        town.at(second, lambda: versions.add(town.published()["metadata"]["resourceVersion"]))
    town.play(385)
    assert 2 <= len(versions) <= 4, "every two minutes, and when the job was idle for long enough"
    body = town.published()
    published = decode_utilisation(body)
    assert published is not None
    assert {name: use.busy_milli for name, use in published.projects.items()} == {"a": 0, "b": 900}
    uids = {str(own.run[0]): own.uid for own in town.state().own.values()}
    rest = published.of(uids[REST])
    assert rest is not None
    assert rest.idle_since_ms is not None
    assert "rest" not in str(body["data"]), "no name of a job"
    (view,) = measured(live(town.cluster), town.clock.now_ms()).find(JobId.parse(REST))
    assert view.run.idle_since_ms == rest.idle_since_ms
    (view,) = measured(live(town.cluster), town.clock.now_ms() + 600_000).find(JobId.parse(REST))
    assert view.use is None, "too old"


def test_projects_use_is_measured(town: Town) -> None:
    meters = PrometheusMeters()
    town.meters = meters
    town.play(385)
    get = meters.registry.get_sample_value
    assert get("gpuctl_busy_gpus", {"project": "b"}) == 0.9
    assert get("gpuctl_idle_gpus", {"project": "a"}) == 1.0
    assert get("gpuctl_measured_gpus", {"project": "a"}) == 1.0
    assert get("gpuctl_gpu_memory_used_bytes", {"project": "a"}) == 100 << 20
    assert get("gpuctl_last_good_utilisation_timestamp_seconds", {}) is not None


class Kept:
    """The port HistoryKeeper: all that cycles hand over."""

    def __init__(self) -> None:
        self.facts: list[Facts] = []

    def offer(self, facts: Facts) -> None:
        self.facts.append(facts)

    def note(self, notes: object) -> None:
        assert isinstance(notes, tuple | list), Note

    def fault(self) -> str:
        return ""


def test_the_cycle_that_ends_it_is_decided_the_same_again(town: Town) -> None:
    kept = Kept()
    town.history = kept
    town.play(500)
    inputs = [facts.inputs for facts in kept.facts if facts.inputs is not None]
    ends = [each for each in inputs if each.schedule is not None and "GPU5042" in str(list(said(each.schedule)))]
    told = [each for each in inputs if each.idle]
    assert told
    percents = {str(key[0]): use.percent for facts in kept.facts for key, use in facts.uses.items()}
    assert percents == {REST: 0, "b/j2": 90}, "the history is told what GPUs did"
    for each in [*ends, told[-1]]:
        again = read_inputs(lines_of(each))
        assert decided_again(again) == again.decided
