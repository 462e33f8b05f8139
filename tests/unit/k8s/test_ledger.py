import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from gpuctl.k8s import kinds, names
from gpuctl.k8s.ledger import SHARD_BYTES, LedgerObjects, decode_ledger, encode_ledger, ledger_ref, shards_of
from gpuctl.k8s.objects import ref_of
from gpuctl.model.decision import Placement, RunRecord, WorkerPlacement
from gpuctl.model.ids import JobId, NodeName, ObjectRef, ProjectName, Revision, RunDigest
from gpuctl.model.state import Body, FinishedRun, Ledger, Removal, RunEntry
from gpuctl.model.usage import Usage

TEAM = ProjectName("team-a")
JOB = JobId(TEAM, "a-1-g")
OLD, NEW = RunDigest("0badcafe"), RunDigest("1badcafe")
LEDGER = Ledger(
    project=TEAM,
    revision=Revision("c" * 40),
    inventory=frozenset({
        ObjectRef(*kinds.NAMESPACE, "", "gpu-team-a"),
        ObjectRef(*kinds.JOB, "gpu-team-a", "a-1-g-1badcafe"),
        ObjectRef(*kinds.JOB, "gpu-team-a", "a-1-g-0badcafe"),
    }),
    seen=frozenset({(JOB, OLD), (JOB, NEW)}),
    finished={(JOB, OLD): FinishedRun(job=JOB, digest=OLD, state="Failed", at_ms=1_596_000_000_000, starts=2)},
)


def test_a_ledger_survives_writing_and_is_byte_stable() -> None:
    body = encode_ledger("tr4858", LEDGER).head
    reading = decode_ledger(body)
    assert reading is not None
    assert reading.ledger == LEDGER
    assert reading.damaged == ()
    assert json.dumps(encode_ledger("tr4858", reading.ledger).head) == json.dumps(body)
    assert ref_of(body) == ledger_ref("tr4858", TEAM)


def test_use_is_kept_and_what_can_not_be_read_of_it_begins_anew() -> None:
    ledger = replace(LEDGER, usage=Usage(at_ms=1_596_000_000_000, milli_hours=12_500, rate_milli=4000))
    body = encode_ledger("tr4858", ledger).head
    reading = decode_ledger(body)
    assert reading is not None
    assert reading.ledger == ledger
    for text in ("", "[]", '{"at":"2020-07-29T05:20:00.000Z","milliHours":-1,"rateMilli":0}'):
        spoilt = decode_ledger({**body, "data": {**body["data"], "usage": text}})
        assert spoilt is not None
        assert (spoilt.ledger, spoilt.damaged) == (LEDGER, ())


def test_removed_jobs_are_kept_and_what_can_not_be_read_of_them_is_none() -> None:
    ledger = replace(LEDGER, removed={"gone": Removal(revision=Revision("d" * 40), at_ms=1_596_000_000_000)})
    body = encode_ledger("tr4858", ledger).head
    reading = decode_ledger(body)
    assert reading is not None
    assert reading.ledger == ledger
    for text in ("", "[]", "7", '{"gone": 1}', '{"gone": {"at": "2020-07-29T05:20:00.000Z", "revision": 7}}'):
        spoilt = decode_ledger({**body, "data": {**body["data"], "removed": text}})
        assert spoilt is not None
        assert (spoilt.ledger, spoilt.damaged) == (LEDGER, ())


def test_an_empty_ledger_survives_writing() -> None:
    reading = decode_ledger(encode_ledger("tr4858", Ledger(project=TEAM)).head)
    assert reading is not None
    assert reading.ledger == Ledger(project=TEAM)
    assert reading.damaged == ()


NO_JSON = ("{", "[]", "7", "[" * 100_000)
DAMAGE = {
    "inventory": (*NO_JSON, '{"Job":{}}', '{"batch/v1 Job":["x"]}', '{"batch/v1 Job":{"n":"x"}}'),
    "seen": (*NO_JSON, '{"a":7}', '{"a":[7]}'),
    "finished": (*NO_JSON, '{"a":7}', '{"a":{"b":7}}', '{"a":{"b":{"at":"noon","state":"Failed","starts":1}}}'),
}


@pytest.mark.parametrize(("part", "text"), [(part, text) for part, texts in DAMAGE.items() for text in texts])
def test_a_damaged_part_costs_only_itself(part: str, text: str) -> None:
    body = encode_ledger("tr4858", LEDGER).head
    reading = decode_ledger({**body, "data": {**body["data"], part: text}})
    assert reading is not None
    assert reading.damaged == (part,)
    assert not getattr(reading.ledger, part)
    for other in DAMAGE.keys() - {part}:
        assert getattr(reading.ledger, other) == getattr(LEDGER, other)


def test_a_ledger_without_content_is_damaged_all_over() -> None:
    body = encode_ledger("tr4858", LEDGER).head
    reading = decode_ledger({key: value for key, value in body.items() if key != "data"})
    assert reading is not None
    assert set(reading.damaged) == {"inventory", "seen", "finished", "revision"}


def test_the_cluster_has_a_ledger_of_its_own() -> None:
    own = Ledger(project=ProjectName(names.CLUSTER_LEDGER))
    reading = decode_ledger(encode_ledger("tr4858", own).head)
    assert reading is not None
    assert reading.ledger == own


def test_another_config_map_is_no_ledger() -> None:
    for name in ("kube-root-ca.crt", "ledgers.tr4858.team-a", "ledger.a.b.c", "ledger-1-of-2.tr4858.team-a", ""):
        assert decode_ledger({"metadata": {"name": name, "labels": {names.PROJECT_LABEL: "team-a"}}}) is None


def test_ten_thousand_jobs_of_one_project_fit_one_object() -> None:
    jobs = [JobId(TEAM, f"train-model-{i:05d}") for i in range(10_000)]
    ledger = Ledger(
        project=TEAM,
        inventory=frozenset(ObjectRef(*kinds.JOB, "gpu-team-a", f"{job.name}-0badcafe") for job in jobs),
        seen=frozenset((job, OLD) for job in jobs),
    )
    assert len(json.dumps(encode_ledger("tr4858", ledger).head)) < 2**20


def history(count: int) -> Ledger:
    """A project in which so many runs have ended and are still declared."""
    jobs = [JobId(TEAM, f"train-model-{i:06d}") for i in range(count)]
    return Ledger(
        project=TEAM,
        revision=Revision("c" * 40),
        inventory=frozenset(ObjectRef(*kinds.JOB, "gpu-team-a", f"{job.name}-0badcafe") for job in jobs),
        seen=frozenset((job, OLD) for job in jobs),
        finished={(j, OLD): FinishedRun(job=j, digest=OLD, state="Failed", at_ms=1_596_000_000_000) for j in jobs},
    )


@pytest.fixture(scope="module")
def large() -> tuple[Ledger, LedgerObjects]:
    ledger = history(100_000)
    return ledger, encode_ledger("tr4858", ledger)


def kept(objects: LedgerObjects) -> Mapping[ObjectRef, Body]:
    return {**objects.shards, ref_of(objects.head): objects.head}


def changed(before: LedgerObjects, after: LedgerObjects) -> list[ObjectRef]:
    return [ref for ref, body in kept(after).items() if kept(before).get(ref) != body]


def test_a_hundred_thousand_runs_are_split_so_that_no_object_nears_the_limit(
    large: tuple[Ledger, LedgerObjects],
) -> None:
    ledger, objects = large
    assert all(sum(map(len, body["data"].values())) <= SHARD_BYTES for body in objects.shards.values())
    assert shards_of(objects.head) == len(objects.shards) > 1
    reading = decode_ledger(objects.head, kept(objects))
    assert reading is not None
    assert (reading.ledger, reading.damaged) == (ledger, ())


def test_one_run_that_ends_or_begins_rewrites_one_shard(large: tuple[Ledger, LedgerObjects]) -> None:
    ledger, objects = large
    key = (JobId(TEAM, "train-model-004711"), OLD)
    ended = replace(ledger, finished={**ledger.finished, key: replace(ledger.finished[key], state="Succeeded")})
    assert len(changed(objects, encode_ledger("tr4858", ended, len(objects.shards)))) == 1
    begun = replace(
        ledger,
        seen=ledger.seen | {(JOB, NEW)},
        inventory=ledger.inventory | {ObjectRef(*kinds.JOB, "gpu-team-a", names.run_name(JOB.name, NEW))},
    )
    assert len(changed(objects, encode_ledger("tr4858", begun, len(objects.shards)))) == 1


def test_a_missing_and_a_damaged_shard_are_told(large: tuple[Ledger, LedgerObjects]) -> None:
    _, objects = large
    missing, torn, *_ = objects.shards
    rest = {ref: body for ref, body in kept(objects).items() if ref != missing}
    reading = decode_ledger(objects.head, {**rest, torn: {**rest[torn], "data": {"seen": "{"}}})
    assert reading is not None
    count = len(objects.shards)
    assert reading.damaged == (f"1 of {count}", f"2 of {count}")


@pytest.mark.parametrize("stated", ["0", "-1", "many", "99999", "1e3"])
def test_a_count_of_shards_that_can_not_be_is_damage(stated: str) -> None:
    head = encode_ledger("tr4858", LEDGER).head
    reading = decode_ledger({**head, "data": {**head["data"], "shards": stated}})
    assert reading is not None
    assert reading.damaged == ("shards",)


def test_a_ledger_about_a_limit_keeps_its_shards_and_one_that_shrank_is_whole_again() -> None:
    ledger = history(12_000)
    split = encode_ledger("tr4858", ledger)
    assert len(split.shards) == 4
    assert len(encode_ledger("tr4858", history(6_000), 4).shards) == 4
    assert len(encode_ledger("tr4858", history(2_000), 4).shards) == 2
    assert encode_ledger("tr4858", LEDGER, 4) == encode_ledger("tr4858", LEDGER)


def test_no_shard_has_the_name_of_a_ledger() -> None:
    assert names.shard_name("tr4858", "team-a", 2, 4) == "ledger-2-of-4.tr4858.team-a"
    assert names.shard_name("tr4858", names.CLUSTER_LEDGER, 2, 4) == "ledger-2-of-4.tr4858"


def test_the_entry_of_a_gang_of_ten_thousand_workers_fits_a_config_map() -> None:
    """It is one entry, which no shard divides, and may have three placements."""
    nodes = [NodeName(f"ip-10-{n // 200}-{n % 200}-17.eu-central-1.compute.internal") for n in range(10_000)]
    of_all = Placement(workers=tuple(WorkerPlacement(node=node, gpus=(*range(8),)) for node in nodes))
    before = Placement(workers=of_all.workers[::-1])
    entry = RunEntry(record=RunRecord(queued_at_ms=1), placement=of_all, started_with=before, reserved=before)
    ledger = replace(LEDGER, runs={(JOB, NEW): entry})
    kept = encode_ledger("tr4858", ledger)
    assert max(len(json.dumps(body)) for body in (kept.head, *kept.shards.values())) < SHARD_BYTES
    reading = decode_ledger(kept.head, kept.shards)
    assert reading is not None
    assert (reading.ledger.runs, reading.damaged) == (ledger.runs, ())
