import json

import pytest

from gpuctl.k8s import names
from gpuctl.k8s.ledger import decode_ledger, encode_ledger, ledger_ref
from gpuctl.k8s.objects import ref_of
from gpuctl.model.ids import JobId, ObjectRef, ProjectName, Revision, RunDigest
from gpuctl.model.state import FinishedRun, Ledger

TEAM = ProjectName("team-a")
JOB = JobId(TEAM, "a-1-g")
OLD, NEW = RunDigest("0badcafe"), RunDigest("1badcafe")
LEDGER = Ledger(
    project=TEAM,
    revision=Revision("c" * 40),
    inventory=frozenset({
        ObjectRef(*names.NAMESPACE, "", "gpu-team-a"),
        ObjectRef(*names.JOB, "gpu-team-a", "a-1-g-1badcafe"),
        ObjectRef(*names.JOB, "gpu-team-a", "a-1-g-0badcafe"),
    }),
    seen=frozenset({(JOB, OLD), (JOB, NEW)}),
    finished={(JOB, OLD): FinishedRun(job=JOB, digest=OLD, state="Failed", at_ms=1_596_000_000_000, starts=2)},
)


def test_a_ledger_survives_writing_and_is_byte_stable() -> None:
    body = encode_ledger("tr4858", LEDGER)
    reading = decode_ledger(body)
    assert reading is not None
    assert reading.ledger == LEDGER
    assert reading.damaged == ()
    assert json.dumps(encode_ledger("tr4858", reading.ledger)) == json.dumps(body)
    assert ref_of(body) == ledger_ref("tr4858", TEAM)


def test_an_empty_ledger_survives_writing() -> None:
    reading = decode_ledger(encode_ledger("tr4858", Ledger(project=TEAM)))
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
    body = encode_ledger("tr4858", LEDGER)
    reading = decode_ledger({**body, "data": {**body["data"], part: text}})
    assert reading is not None
    assert reading.damaged == (part,)
    assert not getattr(reading.ledger, part)
    for other in DAMAGE.keys() - {part}:
        assert getattr(reading.ledger, other) == getattr(LEDGER, other)


def test_a_ledger_without_content_is_damaged_all_over() -> None:
    body = encode_ledger("tr4858", LEDGER)
    reading = decode_ledger({key: value for key, value in body.items() if key != "data"})
    assert reading is not None
    assert set(reading.damaged) == {"inventory", "seen", "finished", "revision"}


def test_the_cluster_has_a_ledger_of_its_own() -> None:
    own = Ledger(project=ProjectName(names.CLUSTER_LEDGER))
    reading = decode_ledger(encode_ledger("tr4858", own))
    assert reading is not None
    assert reading.ledger == own


def test_another_config_map_is_no_ledger() -> None:
    assert decode_ledger({"metadata": {"labels": {names.PROJECT_LABEL: "team-a"}}}) is None


def test_ten_thousand_jobs_of_one_project_fit_one_object() -> None:
    jobs = [JobId(TEAM, f"train-model-{i:05d}") for i in range(10_000)]
    ledger = Ledger(
        project=TEAM,
        inventory=frozenset(ObjectRef(*names.JOB, "gpu-team-a", f"{job.name}-0badcafe") for job in jobs),
        seen=frozenset((job, OLD) for job in jobs),
    )
    assert len(json.dumps(encode_ledger("tr4858", ledger))) < 2**20
