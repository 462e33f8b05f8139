"""What is on record of a run, without the start or the pause that has not happened."""

from __future__ import annotations

import pytest
from objects_by_hand import condition

from gpuctl.model.decision import RunRecord
from gpuctl.model.state import RunEntry, RunPhase
from gpuctl.observe.autoscalers import Asked
from gpuctl.observe.records import record_of

QUEUED, RUNNING = RunPhase.QUEUED, RunPhase.RUNNING
NOW = RunRecord(queued_at_ms=10_000, starts=2, ran_ms=7_000, starting_ms=500)
PAUSED = RunEntry(record=NOW)
LET_GO = RunEntry(record=NOW, is_let_go=True, let_go_at_ms=20_000)


@pytest.mark.parametrize("phase", [QUEUED, RUNNING])
@pytest.mark.parametrize("asked", [None, Asked(2), Asked(0, at_zero=True, taken_ms=9_000)])
def test_the_record_of_a_run_that_is_as_its_ledger_says_stays(phase: RunPhase, asked: Asked | None) -> None:
    entry = LET_GO if phase is RUNNING else PAUSED
    assert record_of(entry, {}, phase, None, asked) == NOW
    assert record_of(LET_GO, {}, RUNNING, 9_000, asked) == NOW


@pytest.mark.parametrize(("load_ms", "queued_at_ms"), [(9_000, 10_000), (12_000, 12_000)])
def test_a_service_at_zero_waits_since_it_has_load_again(load_ms: int, queued_at_ms: int) -> None:
    asked = Asked(1, at_zero=True, load_ms=load_ms)
    assert record_of(PAUSED, {}, QUEUED, None, asked) == NOW._replace(queued_at_ms=queued_at_ms)
    assert record_of(PAUSED, {}, QUEUED, None, asked._replace(workers=0)) == NOW


@pytest.mark.parametrize(
    ("workers", "taken_ms", "ran_ms"), [(0, 25_000, 12_000), (1, 25_000, 12_000), (None, 0, 7_000)]
)
def test_a_service_that_its_autoscaler_took_to_zero_keeps_its_start(
    workers: int | None, taken_ms: int, ran_ms: int
) -> None:
    asked = Asked(workers, at_zero=True, taken_ms=taken_ms)
    assert record_of(LET_GO, {}, QUEUED, None, asked) == NOW._replace(ran_ms=ran_ms, starting_ms=0)


@pytest.mark.parametrize("asked", [None, Asked(None), Asked(0, at_zero=True, taken_ms=20_000)])
def test_a_start_that_has_not_happened_counts_no_more(asked: Asked | None) -> None:
    assert record_of(LET_GO, {}, QUEUED, None, asked) == NOW._replace(starts=1, starting_ms=0)
    suspended = {"status": {"conditions": [{**condition("Suspended"), "lastTransitionTime": "1970-01-01T00:00:21Z"}]}}
    assert record_of(LET_GO, suspended, QUEUED, None, asked).ran_ms == 8_000


@pytest.mark.parametrize(("started_ms", "ran_ms"), [(4_000, 1_000), (1_000, 0), (10_000, 7_000), (11_000, 7_000)])
def test_a_pause_that_has_not_happened_takes_its_time_off(started_ms: int, ran_ms: int) -> None:
    assert record_of(PAUSED, {}, RUNNING, started_ms, None) == NOW._replace(ran_ms=ran_ms)
