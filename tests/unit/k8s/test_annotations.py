import json
import zlib
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records import run_records

from gpuctl.k8s import annotations as codec
from gpuctl.model.decision import Placement, Reason, RunRecord, WorkerPlacement
from gpuctl.model.declared import Allowance
from gpuctl.model.ids import DomainName, JobId, NodeName, ProjectName
from gpuctl.model.state import Charge

DAMAGED = [
    "",
    "[]",
    "{",
    "null",
    "7",
    '"x"',
    "[7]",
    '[{"gpus":[0]}]',
    '[{"node":"n","gpus":[true]}]',
    '[{"node":"n","gpus":[0],"uuids":[0]}]',
    "[" * 100_000,
    None,
]

names = st.text("abz-9", min_size=1)
amounts = st.integers(0, 2**40)
workers = st.builds(
    WorkerPlacement,
    node=names.map(NodeName),
    gpus=st.lists(st.integers(0, 15), unique=True).map(tuple),
    uuids=st.lists(names).map(tuple),
)
placements = st.lists(workers, min_size=1, max_size=4).map(lambda placed: Placement(workers=tuple(placed)))
numbers = st.integers(-(2**63) + 1, 2**63 - 1)
params = st.dictionaries(names, st.text('z "\\\né') | numbers).map(lambda found: tuple(sorted(found.items())))
reasons = st.builds(Reason, code=names, params=params)
job_ids = st.builds(JobId, names.map(ProjectName), names)
records = run_records(amounts, job_ids)
allowances = st.dictionaries(
    names.map(DomainName), st.builds(Allowance, quota_milli=amounts, limit_milli=st.none() | amounts, weight=amounts)
)
charges = st.builds(Charge, gpu_milli=amounts, cpu_milli=amounts, mem_bytes=amounts)


def test_forms() -> None:
    placed = Placement(workers=(WorkerPlacement(node=NodeName("dgx1-2"), gpus=(0, 1)),))
    assert codec.encode_placement(placed) == '[{"node":"dgx1-2","gpus":[0,1]}]'
    reason = Reason(code="GPU5003", params=(("quota", 4000), ("job", "a/b")))
    assert codec.encode_reason(reason) == '{"code":"GPU5003","params":{"job":"a/b","quota":4000}}'


@given(placements, reasons, charges, records)
def test_facts_survive_writing(placement: Placement, reason: Reason, charge: Charge, record: RunRecord) -> None:
    assert codec.decode_placement(codec.encode_placement(placement)) == placement
    assert codec.decode_reason(codec.encode_reason(reason)) == reason
    assert codec.decode_charge(codec.encode_charge(charge)) == charge
    assert codec.decode_record(codec.encode_record(record), created_at_ms=1) == record


ROOM = 256 * 1024
"""For all annotations of an object together, by the API server."""


def gang(workers: int) -> Placement:
    """Whole nodes of eight GPUs, by names as clouds give them."""
    nodes = (NodeName(f"ip-10-{n // 200}-{n % 200}-17.eu-central-1.compute.internal") for n in range(workers))
    return Placement(workers=tuple(WorkerPlacement(node=node, gpus=(*range(8),)) for node in nodes))


@pytest.mark.parametrize("workers", [500, 4_000, 10_000])
def test_the_placement_of_a_large_gang_has_room_on_an_object(workers: int) -> None:
    placement = gang(workers)
    text = codec.encode_placement(placement)
    assert len(text) < ROOM // 2  # a run that grows has two
    assert codec.decode_placement(text) == placement
    plain = json.dumps([{"node": each.node, "gpus": list(each.gpus)} for each in placement.workers])
    assert codec.decode_placement(plain) == placement  # as an older version wrote it


def test_a_packed_placement_that_is_none_is_absent() -> None:
    bomb = zlib.compress(b" " * (1 << 27))
    for packed in (b"", b"no zlib", bomb, zlib.compress(b"{"), zlib.compress(b"[]"), zlib.compress(b"[")[:-1], b"\xff"):
        assert codec.decode_placement("zlib:" + b64encode(packed).decode()) is None
    assert codec.decode_placement("zlib:???") is None


@pytest.mark.parametrize("text", [*DAMAGED, '{"code":"X","params":[]}', '{"gpuMilli":-1,"cpuMilli":0,"memBytes":0}'])
def test_damaged_facts_read_as_absent(text: object) -> None:
    assert codec.decode_placement(text) is None
    assert codec.decode_reason(text) is None
    assert codec.decode_charge(text) is None
    assert not codec.decode_allowances(text)


@given(allowances)
def test_what_a_project_may_have_survives_writing(had: dict[DomainName, Allowance]) -> None:
    assert codec.decode_allowances(codec.encode_allowances(had)) == had


@pytest.mark.parametrize(
    "entry", ["7", "{}", '{"quotaMilli":1,"weight":"x"}', '{"quotaMilli":1,"weight":1,"limitMilli":-1}']
)
def test_a_damaged_allowance_is_none(entry: str) -> None:
    assert codec.decode_allowances(f'{{"*":{entry}}}') is None


def test_a_run_without_a_queue_time_waits_since_it_was_made() -> None:
    damaged = {"gpuctl.dev/queued-at": "noon", "gpuctl.dev/starts": "-1", "gpuctl.dev/paused-for": "x"}
    assert codec.decode_record(damaged, created_at_ms=5) == RunRecord(queued_at_ms=5)
