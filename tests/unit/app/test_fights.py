"""Which objects are written too often, and whose writes they are beside gpuctl's."""

from __future__ import annotations

from typing import Any

import pytest
from test_rejections import NOW

from gpuctl.app.cycle import CycleReport
from gpuctl.app.fights import WINDOW_MS, WRITES_IN_A_WINDOW, Fights, rival
from gpuctl.k8s import kinds, names
from gpuctl.model.change import Action, ApplyResult, Change, Outcome, OutcomeStatus, Plan
from gpuctl.model.decision import Schedule
from gpuctl.model.ids import ObjectRef
from gpuctl.model.manifest import Manifests
from gpuctl.model.state import ClusterState

REF = ObjectRef(*kinds.JOB, "gpu-a", "j")


def write(fights: Fights, at_ms: int, ref: ObjectRef = REF, status: OutcomeStatus = OutcomeStatus.APPLIED) -> None:
    outcome = Outcome(change=Change(action=Action.CREATE, ref=ref), status=status)
    fights.note(
        CycleReport(
            at_ms=at_ms, declared=NOW, state=ClusterState(), schedule=Schedule(at_ms=at_ms), manifests=Manifests(),
            plan=Plan(), result=ApplyResult(outcomes=(outcome,)),
        )
    )  # fmt: skip


def test_an_object_is_protected_from_its_last_write_of_a_minute_until_a_minute_after_the_first() -> None:
    fights = Fights()
    for at_ms in range(WRITES_IN_A_WINDOW):
        assert fights.fought_over(at_ms) == frozenset()
        write(fights, at_ms)
    assert fights.fought_over(WRITES_IN_A_WINDOW) == {REF}
    assert fights.fought_over(WINDOW_MS - 1) == {REF}
    assert fights.fought_over(WINDOW_MS) == frozenset()


def test_what_did_not_happen_and_ledgers_count_for_nothing() -> None:
    fights = Fights()
    for at_ms in range(WRITES_IN_A_WINDOW):
        write(fights, at_ms, status=OutcomeStatus.FAILED)
        write(fights, at_ms, ObjectRef(*kinds.CONFIG_MAP, names.SYSTEM_NAMESPACE, "ledger"))
    assert fights.fought_over(WRITES_IN_A_WINDOW) == frozenset()


OWN = {"manager": names.FIELD_MANAGER, "time": "2020-07-29T12:00:09Z"}
FIRST = {"manager": "helm", "time": "2020-07-29T12:00:00Z"}
LAST = {"manager": "kubectl", "time": "2020-07-29T12:00:01Z"}
STATUS = {"manager": "controller", "time": "2020-07-29T12:00:02Z", "subresource": "status"}


@pytest.mark.parametrize(("entries", "found"), [([], ""), ([OWN, STATUS], ""), ([LAST, FIRST, OWN, STATUS], "kubectl")])
def test_the_rival_is_the_other_manager_that_wrote_last(entries: list[Any], found: str) -> None:
    assert rival({"metadata": {"managedFields": entries}}) == found
    assert rival(None) == ""
