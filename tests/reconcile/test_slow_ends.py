"""A run whose object was deleted and does not go is told: nothing stops its pods, and they hold their GPUs."""

from __future__ import annotations

import pytest
from neighbours import Neighbours

from gpuctl.diag.diagnostic import Severity
from gpuctl.k8s.objects import ref_of, uid
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


@pytest.mark.parametrize("name", ["e1", "e2"])
def test_a_deleted_run_whose_pods_stay_is_told_until_it_goes(name: str, town: Neighbours) -> None:
    body = town.run_object(name, "evil")
    hold(town, body, HELD)
    town.cluster.delete(ref_of(body), uid(body), "")
    town.live_s(59)
    assert told(town, "GPU7024") == []
    town.live_s(10)
    ((said, severity),) = told(town, "GPU7024")
    assert f"{ref_of(body)} of evil/{name} was deleted at 20" in said
    assert said.endswith(f"and keeps its pods: finalizers hold it ({HELD})")
    assert severity is Severity.WARNING
    hold(town, town.run_object(name, "evil"))
    town.live_s(60)
    assert told(town, "GPU7024") == []


def test_a_run_that_is_paused_or_deleted_as_usual_is_not_told(town: Neighbours) -> None:
    body = town.run_object("e1", "evil")
    hold(town, body, HELD)
    town.edit(town.run_object("e1", "evil"), lambda new: new["spec"].update(suspend=True))
    town.cluster.delete(ref_of(town.run_object("e2", "evil")), "", "")
    for _ in range(9):
        town.live_s(10)
        assert told(town, "GPU7024") == []
