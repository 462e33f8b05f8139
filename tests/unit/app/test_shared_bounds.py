"""What is kept or published of so many at most is shared among the projects (ADR 89)."""

from __future__ import annotations

from collections.abc import Mapping

from commits import BASE

from gpuctl.app.history import MOST_WAITS, Facts, moment
from gpuctl.app.overview import MOST_REMOVED, overview_of
from gpuctl.compile import compile_tree
from gpuctl.k8s import kinds, names
from gpuctl.model.decision import JobState, Reason, Schedule
from gpuctl.model.declared import Declared
from gpuctl.model.history import Mark
from gpuctl.model.ids import JobId, ObjectRef, ProjectName, Revision, RunDigest, RunKey
from gpuctl.model.overview import removal_ticket
from gpuctl.model.source import SourceFile, SourceTree
from gpuctl.model.state import ClusterState, Ledger, Removal, Run, RunPhase

DIGEST = RunDigest("0" * 8)


def declared() -> Declared:
    files = {path: SourceFile(content=text.encode()) for path, text in BASE.items()}
    compiled = compile_tree(SourceTree(cluster_dir="c", files=files)).declared
    assert compiled is not None
    return compiled


def waiting(project: str, number: int, code: str) -> Run:
    job = JobId(ProjectName(project), f"j{number:04}")
    return Run(job=job, digest=DIGEST, phase=RunPhase.QUEUED, reason=Reason(code=code))


def test_the_changing_reasons_of_one_projects_jobs_keep_no_others_from_the_history() -> None:
    """The jobs of the project whose name comes first were told each time, and of the others none."""
    marks: Mapping[RunKey, Mark] = {}
    told = set[str]()
    for at_ms, code in enumerate(("GPU5001", "GPU5002", "GPU5003")):
        runs = [*(waiting("a", number, code) for number in range(MOST_WAITS + 100)), waiting("b", 0, code)]
        found = moment(Facts(at_ms=at_ms, runs=tuple(runs), ledgers={}), marks)
        if marks:
            told |= {f"{event.job.project} {event.at_ms}" for event in found.events}
            assert len(found.events) == MOST_WAITS
        marks = found.marks
    assert told == {"a 1", "a 2", "b 1", "b 2"}
    untold = {key[0].name for key, mark in marks.items() if mark.code != "GPU5003"}
    assert len(untold) == 101
    assert {mark.state for mark in marks.values()} == {JobState.PENDING}


def test_the_removed_jobs_of_some_projects_hide_no_others() -> None:
    of_all = declared()
    a, b = (project.name for project in of_all.projects[:2])
    gone = {a: {f"j{n:04}": Removal(revision=Revision("c"), at_ms=10 + n) for n in range(MOST_REMOVED + 10)}}
    gone[b] = {"old": Removal(revision=Revision("c"), at_ms=1)}
    quotas = {
        ObjectRef(*kinds.RESOURCE_QUOTA, project.namespace, names.QUOTA_NAME): {"metadata": {"uid": project.name}}
        for project in of_all.projects
    }
    ledgers = {name: Ledger(project=name, removed=removed) for name, removed in gone.items()}
    state = ClusterState(live=quotas, ledgers=ledgers)
    found = overview_of(of_all, state, Schedule(at_ms=0, decisions=(), shares=()), {}).removed
    assert len(found) == MOST_REMOVED
    assert removal_ticket(JobId(b, "old"), b) in found
    assert removal_ticket(JobId(a, f"j{MOST_REMOVED + 9:04}"), a) in found
