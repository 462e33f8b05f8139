"""A project's ledger after another: which runs' entries stay in it, and what it tells of removed jobs."""

from __future__ import annotations

from dataclasses import replace

from workbench import ZERO_MS, Workbench, example, on

from gpuctl.k8s import kinds, names
from gpuctl.k8s.ledger import ledger_ref
from gpuctl.model.decision import Finished, JobState, Reason, RunRecord, Schedule, TimeOut
from gpuctl.model.ids import JobId, ObjectRef, Revision, RunKey
from gpuctl.model.job import JobType
from gpuctl.model.manifest import Manifests
from gpuctl.model.state import ClusterState, FinishedRun, Ledger, OwnObject, Removal, Run, RunEntry, RunPhase
from gpuctl.plan.cache import PlanCache
from gpuctl.plan.inventory import MOST_REMOVED, OWN, Books, gather, known_ledgers, next_ledger, shard_owner

DECLARED = example()
PROJECT = DECLARED.projects[0].name
FIRST, SECOND = [job for job in DECLARED.jobs if job.id.project == PROJECT][:2]
KEY: RunKey = (FIRST.id, FIRST.digest)
GONE: RunKey = (JobId(PROJECT, "gone"), FIRST.digest)
ENTRY = RunEntry(uid="uid", record=RunRecord(queued_at_ms=ZERO_MS, starts=1), reason=Reason(code="GPU5001"))
UNSEEN = replace(ENTRY, uid="")
EMPTY = Books(
    wanted={},
    projects=frozenset({PROJECT}),
    declared={PROJECT: frozenset({KEY})},
    standing={},
    at_ms=ZERO_MS,
)


def after(old: Ledger, books: Books) -> Ledger:
    return next_ledger(DECLARED, old, books, frozenset(), PlanCache())


def entries(old: RunEntry, books: Books, key: RunKey = KEY) -> list[RunEntry]:
    return [*after(Ledger(project=PROJECT, runs={key: old}), books).runs.values()]


def test_which_entries_of_runs_stay() -> None:
    there = replace(EMPTY, entries={PROJECT: {KEY: ENTRY}})
    assert entries(UNSEEN, there) == [ENTRY], "as it is now"
    assert entries(ENTRY, EMPTY) == [], "its object is gone, and its pods"
    assert entries(ENTRY, replace(EMPTY, loose=frozenset({KEY}))) == [ENTRY], "pods of it are left"
    assert entries(UNSEEN, EMPTY) == [UNSEEN], "its object is being made anew"
    assert entries(UNSEEN, EMPTY, GONE) == [], "it is declared no more"
    remade = replace(there, remade=frozenset({KEY}))
    assert entries(ENTRY, remade) == [replace(ENTRY, uid="", reason=None)]


def test_a_run_is_seen_once_it_stands_and_as_long_as_it_is_declared() -> None:
    old = Ledger(project=PROJECT, seen=frozenset({GONE}))
    standing = replace(EMPTY, standing={PROJECT: frozenset({KEY, GONE})})
    assert after(old, standing).seen == {KEY}
    assert after(old, replace(standing, remade=frozenset({KEY}))).seen == set()
    of_none = replace(standing, projects=frozenset())
    assert after(old, of_none).seen == {KEY, GONE}, "of a project that is gone all stays: its removal may be refused"


def test_the_last_removed_jobs_are_told_until_they_are_declared_again() -> None:
    old = Ledger(project=PROJECT, revision=Revision("one"), seen=frozenset({KEY, GONE}))
    now = Removal(revision=DECLARED.project_revisions.get(PROJECT, old.revision), at_ms=ZERO_MS)
    assert after(old, EMPTY).removed == {"gone": now}
    before = {f"job-{number:02}": Removal(revision=Revision("one"), at_ms=number) for number in range(MOST_REMOVED)}
    removed = after(replace(old, removed=before), EMPTY).removed
    assert (len(removed), removed["gone"], "job-00" in removed) == (MOST_REMOVED, now, False)
    again = Ledger(project=PROJECT, removed={FIRST.id.name: now, "other": now})
    assert after(again, EMPTY).removed == {"other": now}
    assert after(old, replace(EMPTY, projects=frozenset())).removed == {}, "nothing of a project that is gone"


def test_an_end_on_record_stays_as_it_was_told_first() -> None:
    ends = [FinishedRun(job=FIRST.id, digest=FIRST.digest, state=state, at_ms=ZERO_MS, starts=1) for state in JobState][
        :2
    ]
    stays = Ledger(project=PROJECT, finished={KEY: ends[0]})
    assert after(stays, replace(EMPTY, ended={PROJECT: (ends[1],)})).finished == {KEY: ends[0]}
    assert after(Ledger(project=PROJECT), replace(EMPTY, ended={PROJECT: (ends[1],)})).finished == {KEY: ends[1]}
    gone = Ledger(project=PROJECT, finished={KEY: ends[0], GONE: ends[0]})
    assert after(gone, EMPTY).finished == {KEY: ends[0]}


def test_what_the_books_have_of_a_cycle() -> None:
    """A run that has only pods is loose; the first cycle that finds an end has it, with the object of its run."""
    own = ObjectRef(*kinds.JOB, DECLARED.project(PROJECT).namespace, names.run_name(FIRST.id.name, FIRST.digest))
    runs = [
        Run(job=job.id, digest=job.digest, phase=RunPhase.SUCCEEDED, placement=on("dgx1-1", 0))
        for job in (FIRST, SECOND)
    ]
    state = ClusterState(
        runs=(replace(runs[0], finished_at_ms=ZERO_MS - 5), runs[1]),
        own={own: OwnObject(KEY, "uid")},
        live={own: {"metadata": {"uid": "uid"}}},
    )
    ended = Finished(
        job=FIRST.id,
        reason=Reason(code="GPU5001"),
        record=RunRecord(queued_at_ms=ZERO_MS, starts=2),
        state=JobState.SUCCEEDED,
    )
    schedule = Schedule(at_ms=ZERO_MS, decisions=(ended,))
    books = gather(DECLARED, schedule, Manifests(), (), state, PlanCache())
    assert books.loose == {(SECOND.id, SECOND.digest)}
    (end,) = books.ended[PROJECT]
    assert (end.job, end.digest, end.state, end.at_ms, end.starts) == (*KEY, JobState.SUCCEEDED, ZERO_MS - 5, 2)
    assert books.left == {PROJECT: {own}}
    known = replace(state, ledgers={PROJECT: Ledger(project=PROJECT, finished={KEY: end})})
    assert gather(DECLARED, schedule, Manifests(), (), known, PlanCache()).ended == {}


def test_a_service_that_is_over_its_time_has_ended_and_a_job_ends_by_its_own_deadline() -> None:
    service = replace(FIRST, type=JobType.INFERENCE, digest=SECOND.digest)
    over = TimeOut(job=FIRST.id, reason=Reason(code="GPU5001"), record=RunRecord(queued_at_ms=ZERO_MS, starts=1))
    schedule = Schedule(at_ms=ZERO_MS, decisions=(over,))
    for job, states in ((service, [JobState.TIMED_OUT]), (FIRST, [])):
        declared = replace(DECLARED, jobs=(job,))
        run = Run(job=job.id, digest=job.digest, phase=RunPhase.RUNNING)
        books = gather(declared, schedule, Manifests(), (), ClusterState(runs=(run,)), PlanCache())
        assert [end.state for ends in books.ended.values() for end in ends] == states
        assert all(end.at_ms == ZERO_MS for ends in books.ended.values() for end in ends)


def test_an_inventory_has_what_is_wanted_what_is_there_and_what_a_run_left() -> None:
    one, two, three, gone = (ObjectRef("v1", "Service", "x", name) for name in ("one", "two", "three", "gone"))
    old = Ledger(project=PROJECT, inventory=frozenset({two, gone}))
    books = replace(EMPTY, wanted={PROJECT: frozenset({one})}, left={PROJECT: frozenset({three})})
    assert next_ledger(DECLARED, old, books, frozenset({two}), PlanCache()).inventory == {one, two, three}


def test_no_inventory_has_a_namespace_that_was_adopted_or_gpuctls_own() -> None:
    first, *others = DECLARED.projects
    declared = replace(DECLARED, projects=(replace(first, adopt=True), *others))
    manifests = Workbench(declared).manifests()
    refs = tuple(item.ref for item in manifests.items)
    schedule = Schedule(at_ms=ZERO_MS, decisions=())
    wanted = gather(declared, schedule, manifests, refs, ClusterState(), PlanCache()).wanted
    spaces = {project: {ref.name for ref in found if ref.kind == "Namespace"} for project, found in wanted.items()}
    assert spaces == {OWN: set(), PROJECT: set(), **{project.name: {project.namespace} for project in others}}
    assert {ref.kind for ref in wanted[PROJECT]} >= {"Job", "ResourceQuota"}
    assert {ref.name for ref in wanted[OWN]} >= {names.PRIORITY_CLASS}


def test_the_ledgers_of_another_cluster_are_none_of_this_ones() -> None:
    here = ledger_ref(DECLARED.cluster.name, PROJECT)
    ledgers = {PROJECT: Ledger(project=PROJECT)}
    assert known_ledgers(DECLARED, ClusterState(ledgers=ledgers, live={here: {}})) == ledgers
    assert known_ledgers(DECLARED, ClusterState(ledgers=ledgers, live={ledger_ref("west", PROJECT): {}})) == {}


def test_a_part_whose_name_tells_no_project_is_the_clusters() -> None:
    assert shard_owner(ObjectRef(*kinds.CONFIG_MAP, names.SYSTEM_NAMESPACE, "not-a-part")) == names.CLUSTER_LEDGER
