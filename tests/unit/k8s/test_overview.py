"""What is published to all teams: it comes back as it was, has room in one object, and a damaged one is none."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuctl.k8s.overview import KEY, MOST_CHARACTERS, OVERVIEW_REF, decode_overview, digest_of, encode_overview
from gpuctl.model.declared import WHOLE_CLUSTER, Allowance
from gpuctl.model.ids import JobId, NodeName, ProjectName, Revision
from gpuctl.model.overview import (
    DepartmentOverview,
    NodeOverview,
    Overview,
    ProjectOverview,
    position_ticket,
    removal_ticket,
    start_ticket,
)
from gpuctl.model.state import Removal

PROJECT = ProjectOverview(
    name=ProjectName("a"), namespace="gpu-a", department="research",
    allowances={WHOLE_CLUSTER: Allowance(quota_milli=4000, limit_milli=None, weight=2000)},
    share_milli={WHOLE_CLUSTER: 3500}, allocated_milli=500, running=1, waiting=2, waiting_milli=3000,
)  # fmt: skip
NODE = NodeOverview(
    name=NodeName("n"), status="Ready", job_milli=(1000, 0), foreign_milli=(0, 1000), lost=frozenset({1}),
    cpu_milli=8000, cpu_requested_milli=100, mem_bytes=1 << 30, mem_requested_bytes=1,
)  # fmt: skip
DEPARTMENT = DepartmentOverview(
    name="research", parent="science",
    allowances={WHOLE_CLUSTER: Allowance(quota_milli=6000, limit_milli=8000, weight=1000)},
)  # fmt: skip
OVERVIEW = Overview(
    at_ms=1_596_000_000_000, projects=(PROJECT,), departments=(DEPARTMENT,), nodes=(NODE,),
    positions={position_ticket("u"): 1}, starts={start_ticket("u"): 1_596_000_060_000},
    removed={removal_ticket(JobId(ProjectName("a"), "gone"), "q"): Removal(revision=Revision("c" * 12), at_ms=7)},
)  # fmt: skip


def test_it_comes_back_as_it_was() -> None:
    assert decode_overview(encode_overview(OVERVIEW)) == OVERVIEW


def test_one_of_an_older_release_has_no_departments() -> None:
    document = json.loads(encode_overview(OVERVIEW)["data"][KEY])
    del document["departments"], document["removed"]
    back = decode_overview({**encode_overview(OVERVIEW), "data": {KEY: json.dumps(document)}})
    assert back is not None
    assert (back.departments, back.removed, back.projects) == ((), {}, OVERVIEW.projects)


def test_a_job_is_found_by_the_uid_of_its_object_alone() -> None:
    assert (OVERVIEW.position("u"), OVERVIEW.start_ms("u")) == (1, 1_596_000_060_000)
    assert (OVERVIEW.position("v"), OVERVIEW.start_ms("v")) == (None, None)
    assert position_ticket("u") != start_ticket("u")


def test_when_it_was_made_makes_no_other() -> None:
    assert digest_of(replace(OVERVIEW, at_ms=1)) == digest_of(OVERVIEW)
    assert digest_of(Overview(at_ms=1)) != digest_of(OVERVIEW)


def test_a_queue_of_any_length_has_room_and_its_head_is_kept() -> None:
    positions = {position_ticket(str(each)): each for each in range(1, 60_001)}
    made = encode_overview(Overview(at_ms=0, positions=positions))
    assert len(made["data"][KEY]) <= MOST_CHARACTERS
    back = decode_overview(made)
    assert back is not None
    assert back.left_out == 60_000 - len(back.positions)
    assert sorted(back.positions.values()) == list(range(1, len(back.positions) + 1))


def test_a_long_queue_leaves_no_project_or_node_out() -> None:
    """Each part lost its last half: other teams' projects were missing for the queue of one."""
    jobs = range(1, 40_001)
    queue = {position_ticket(str(each)): each for each in jobs}
    starts = {start_ticket(str(each)): 1_596_000_000_000 + each for each in jobs}
    back = decode_overview(encode_overview(replace(OVERVIEW, positions=queue, starts=starts)))
    assert back is not None
    assert (back.projects, back.departments, back.nodes) == (OVERVIEW.projects, OVERVIEW.departments, OVERVIEW.nodes)
    assert len(back.positions) + len(back.starts) + back.left_out == 80_000
    assert min(len(back.positions), len(back.starts)) >= 10_000


@given(st.recursive(st.none() | st.integers() | st.text() | st.booleans(), lambda x: st.lists(x) | st.dictionaries(
    st.sampled_from(["at", "projects", "departments", "nodes", "positions", "starts", "removed", "leftOut"]), x),
    max_leaves=20))  # fmt: skip
def test_what_is_no_overview_is_none(value: object) -> None:
    meta = {"name": OVERVIEW_REF.name, "namespace": OVERVIEW_REF.namespace}
    decode_overview({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {KEY: json.dumps(value)}})


@pytest.mark.parametrize("part", ["projects", "departments", "nodes", "positions", "starts"])
def test_a_damaged_part_makes_it_none(part: str) -> None:
    made = encode_overview(OVERVIEW)
    document = {**json.loads(made["data"][KEY]), part: [["x"]]}
    assert decode_overview({**made, "data": {KEY: json.dumps(document)}}) is None


def test_another_object_is_none() -> None:
    made = encode_overview(OVERVIEW)
    assert decode_overview({**made, "metadata": {"name": "x", "namespace": OVERVIEW_REF.namespace}}) is None
