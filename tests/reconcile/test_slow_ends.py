"""A run whose object was deleted and does not go is told: nothing stops its pods, and they hold their GPUs."""

from __future__ import annotations

import pytest
from neighbours import TOWN, Neighbours, job

from gpuctl.diag.diagnostic import Severity
from gpuctl.k8s.objects import ref_of
from gpuctl.model.state import Body

HELD = "example.com/hold"


@pytest.fixture
def town() -> Neighbours:
    return Neighbours()


def told(town: Neighbours, code: str) -> list[tuple[str, Severity]]:
    """Notices of the last cycle."""
    return [(each.message, each.severity) for each in town.reports[-1].plan.notices if each.code == code]


def hold(town: Neighbours, body: Body, *finalizers: str) -> None:
    town.edit(body, lambda new: new["metadata"].update(finalizers=[*finalizers]))


FOUR_MORE = {"g3.yaml": job("g3", "good", 4)}
"""A job that needs the GPUs of both teams' nodes that `evil` has."""


@pytest.mark.parametrize("name", ["e1", "e2"])
def test_a_removed_run_that_a_finalizer_keeps_gives_its_gpus_back_all_the_same(name: str, town: Neighbours) -> None:
    """Its pods ran on as long as the finalizer was there, and the job of the other team waited."""
    body = town.run_object(name, "evil")
    hold(town, body, HELD)
    town.declare({file: said for file, said in TOWN.items() if file != f"{name}.yaml"} | FOUR_MORE)
    town.live_s(45)
    assert len(town.pods("gpu-evil")) == 1
    assert town.decisions_about("good")["g3"][0] == "Keep"
    assert town.objects()[ref_of(body)]["metadata"]["finalizers"] == [HELD]


@pytest.mark.parametrize("name", ["e1", "e2"])
def test_a_run_that_a_person_deleted_ends_a_minute_later_though_a_finalizer_keeps_it(
    name: str, town: Neighbours
) -> None:
    body = town.run_object(name, "evil")
    hold(town, body, HELD)
    town.cluster.remove(ref_of(body))
    town.live_s(59)
    assert told(town, "GPU7024") == []
    assert len(town.pods("gpu-evil")) == 2
    town.live_s(10)
    ((said, severity),) = told(town, "GPU7024")
    assert f"{ref_of(body)} of evil/{name} was deleted at 20" in said
    assert said.endswith(f"and is not gone: finalizers hold it ({HELD})")
    assert severity is Severity.WARNING
    town.live_s(35)
    assert len(town.pods("gpu-evil")) == 1
    assert sum(report.result.writes for report in town.reports[-30:]) == 0
    hold(town, town.run_object(name, "evil"))
    town.live_s(60)
    assert told(town, "GPU7024") == []


@pytest.mark.parametrize("name", ["e1", "e2"])
def test_a_declared_job_whose_deleted_object_stays_waits_for_that_and_keeps_no_place(
    name: str, town: Neighbours
) -> None:
    """It was said to start within its quota, and its GPUs were kept for it, from others, for as long as that took."""
    body = town.run_object(name, "evil")
    hold(town, body, HELD)
    town.declare({file: said for file, said in TOWN.items() if file != f"{name}.yaml"})
    town.live_s(30)
    town.declare({**TOWN, **FOUR_MORE})
    town.live_s(60)
    assert town.decisions_about("evil")[name] == ("Pending", "GPU7024")
    assert town.decisions_about("good")["g3"][0] == "Keep"
    hold(town, town.run_object(name, "evil"))
    town.live_s(60)
    assert town.decisions_about("evil")[name][0] == "Keep"


def test_a_run_that_is_paused_or_deleted_as_usual_is_not_told(town: Neighbours) -> None:
    body = town.run_object("e1", "evil")
    hold(town, body, HELD)
    town.edit(town.run_object("e1", "evil"), lambda new: new["spec"].update(suspend=True))
    town.cluster.delete(ref_of(town.run_object("e2", "evil")), "", "")
    for _ in range(9):
        town.live_s(10)
        assert told(town, "GPU7024") == []
