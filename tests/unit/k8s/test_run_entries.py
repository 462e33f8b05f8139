"""A run's entry in a ledger survives writing; garbage is an error of that entry, and takes no time."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records import run_records

from gpuctl.k8s.run_entries import entry_of, entry_value
from gpuctl.model.decision import Placement, Reason, RunRecord, WorkerPlacement
from gpuctl.model.ids import JobId, NodeName, ProjectName
from gpuctl.model.state import Charge, RunEntry

names = st.text("abz-9", min_size=1)
amounts = st.integers(0, 2**40)
instants = st.integers(1, 4_102_444_800_000)
workers = st.builds(WorkerPlacement, node=names.map(NodeName), gpus=st.lists(st.integers(0, 15)).map(tuple))
places = st.none() | st.lists(workers, min_size=1, max_size=3).map(lambda found: Placement(workers=tuple(found)))
jobs = st.builds(JobId, names.map(ProjectName), names)
entries = st.builds(
    RunEntry,
    uid=names,
    record=run_records(amounts, jobs, instants),
    is_let_go=st.booleans(),
    let_go_at_ms=st.none() | instants,
    placement=places,
    started_with=places,
    charge=st.none() | st.builds(Charge, gpu_milli=amounts, cpu_milli=amounts, mem_bytes=amounts),
    reason=st.none() | st.just(Reason(code="GPU5003", params=(("quota", 4),))),
    min_workers=st.none() | st.integers(1, 8),
    reserved=places,
)


@given(entries)
def test_an_entry_survives_writing(entry: RunEntry) -> None:
    assert entry_of(json.loads(json.dumps(entry_value(entry)))) == entry


def test_a_run_that_waits_takes_little_room() -> None:
    waiting = RunEntry(uid="5f1c3a52-7c0e-4d6a-9d3f-0badcafe0001", record=RunRecord(queued_at_ms=1_596_024_000_000))
    assert len(json.dumps(entry_value(waiting))) < 100


@pytest.mark.parametrize(
    "value",
    [
        7,
        [],
        {"uid": 7},
        {"uid": "x" * 5000},
        {"starts": -1},
        {"starts": True},
        {"starts": 10**5000},
        {"ranMs": "1"},
        {"queuedAt": "0001-01-01T00:00:00+23:59"},
        {"pausedFor": "nobody"},
        {"letGo": 1},
        {"placement": [{"node": "n", "gpus": [10**9]}]},
        {"startedWith": False},
        {"charge": {"gpuMilli": 1}},
        {"reason": "because"},
        {"minWorkers": -1},
    ],
)
def test_what_is_no_entry_is_an_error(value: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        entry_of(value)
