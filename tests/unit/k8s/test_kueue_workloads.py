"""The one condition of Kueue's that says why a run runs or waits."""

from __future__ import annotations

import pytest

from gpuctl.k8s.kueue_workloads import Condition, conditions_of, deciding
from gpuctl.model.state import Body


def workload(name: str, *conditions: tuple[str, bool, str]) -> Body:
    told = [{"type": kind, "status": str(holds), "reason": why, "message": "m"} for kind, holds, why in conditions]
    owners = [{"uid": "u"}]
    return {"metadata": {"name": name, "ownerReferences": owners}, "status": {"conditions": told}}


@pytest.mark.parametrize(
    ("conditions", "sentence"),
    [
        ([("QuotaReserved", False, "Pending")], "not QuotaReserved (Pending): m"),
        ([("QuotaReserved", True, "QuotaReserved"), ("Admitted", True, "Admitted")], "Admitted (Admitted): m"),
        ([("QuotaReserved", False, "Pending"), ("Evicted", True, "Preempted")], "Evicted (Preempted): m"),
        ([("Admitted", True, "Admitted"), ("Evicted", False, "QuotaReserved")], "Admitted (Admitted): m"),
        ([("Admitted", True, "Admitted"), ("Finished", True, "Succeeded")], "Finished (Succeeded): m"),
    ],
)
def test_the_last_event_that_holds_else_what_it_waits_for(
    conditions: list[tuple[str, bool, str]], sentence: str
) -> None:
    found = deciding(conditions_of([workload("w", *conditions)], {"u"}))
    assert found is not None
    assert found.sentence == sentence


def test_of_the_pods_of_a_service_the_first_that_waits() -> None:
    runs, waits = workload("a", ("Admitted", True, "Admitted")), workload("b", ("QuotaReserved", False, "Pending"))
    assert deciding(conditions_of([runs, waits], {"u"})) == Condition("b", "QuotaReserved", False, "Pending", "m")  # noqa: FBT003 - as its fields are
    assert deciding([]) is None
