"""What keeps declared jobs from being written, read off the cluster."""

from __future__ import annotations

from dataclasses import replace

from workbench import example

from gpuctl.k8s import kinds, names
from gpuctl.k8s.workloads import kind_of
from gpuctl.model.declared import Project
from gpuctl.model.ids import JobId, ObjectRef
from gpuctl.model.job import Job
from gpuctl.model.state import Body, ClusterState, OwnObject
from gpuctl.plan.cache import PlanCache
from gpuctl.plan.obstacles import obstacles, unreadable_jobs

DECLARED = example()
FIRST, SECOND = DECLARED.jobs[:2]
LEAVES: Body = {"metadata": {"deletionTimestamp": "2020-07-29T12:00:00Z"}}


def space_of(project: Project) -> ObjectRef:
    return ObjectRef(*kinds.NAMESPACE, "", project.namespace)


def run_of(job: Job, namespace: str = "") -> ObjectRef:
    space = namespace or DECLARED.project(job.id.project).namespace
    return ObjectRef(*kind_of(job), space, names.run_name(job.id.name, job.digest))


def held(state: ClusterState) -> dict[JobId, str]:
    return {job: reason.code for job, reason in obstacles(DECLARED, state).reasons(DECLARED).items()}


def test_a_job_waits_for_the_end_of_an_object_of_others_under_its_name_in_its_namespace() -> None:
    another = replace(FIRST, digest=SECOND.digest)
    foreign = frozenset({run_of(FIRST), run_of(SECOND, "default"), run_of(another)})
    state = ClusterState(foreign=foreign)
    assert held(state) == {FIRST.id: "GPU5072"}
    assert obstacles(DECLARED, state).taken == {FIRST.id: run_of(FIRST)}
    assert held(ClusterState(foreign=frozenset({run_of(SECOND, "default")}))) == {}


def test_what_is_in_the_way_is_looked_up_again_where_it_has_changed() -> None:
    cache = PlanCache()
    for job in (FIRST, SECOND):
        assert obstacles(DECLARED, ClusterState(foreign=frozenset({run_of(job)})), cache).taken.keys() == {job.id}
        cache.turn({})


def test_the_jobs_of_a_project_wait_while_its_namespace_is_being_deleted() -> None:
    first, *others = DECLARED.projects
    live = {space_of(first): LEAVES, **{space_of(other): {} for other in others[1:]}}
    assert held(ClusterState(live=live)) == {job.id: "GPU7023" for job in DECLARED.jobs if job.id.project == first.name}
    (reason,) = obstacles(DECLARED, ClusterState(live=live)).ending.values()
    assert dict(reason.params)["since"] == "2020-07-29T12:00:00Z"
    endless: Body = {"metadata": {"deletionTimestamp": "when it is over"}}
    (reason,) = obstacles(DECLARED, ClusterState(live={space_of(first): endless})).ending.values()
    assert dict(reason.params)["since"] == ""


def test_a_job_is_held_by_its_own_object_alone_that_can_not_be_read() -> None:
    own = {run_of(FIRST): OwnObject((FIRST.id, FIRST.digest), "uid")}
    wrong = ((run_of(FIRST), "garbage"), (run_of(SECOND), "garbage"))
    assert unreadable_jobs(ClusterState(own=own, unreadable=wrong)) == {FIRST.id}
