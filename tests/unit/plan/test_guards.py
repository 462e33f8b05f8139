"""Guards asked one by one: whose a namespace is, how much one commit may end or remove, and what confirms that."""

from __future__ import annotations

from dataclasses import replace

import pytest
from workbench import example, on, without_project

from gpuctl.k8s import kinds, names
from gpuctl.k8s.ledger import ledger_ref
from gpuctl.model.declared import Declared
from gpuctl.model.freeze import Frozen
from gpuctl.model.ids import JobId, ObjectRef, ProjectName
from gpuctl.model.state import ClusterState, Ledger, Run, RunPhase
from gpuctl.plan.guard import (
    excluded_projects,
    foreign_namespaces,
    frozen_projects,
    mass_stop,
    removal_digest,
    review,
    void_confirmations,
)
from gpuctl.plan.inventory import OWN

DECLARED = example()
PROJECT = DECLARED.projects[0]
SPACE = ObjectRef(*kinds.NAMESPACE, "", PROJECT.namespace)
MANAGED = {names.MANAGED_BY_LABEL: names.MANAGED_BY, names.PROJECT_LABEL: PROJECT.name}
WEST = {**MANAGED, names.CLUSTER_LABEL: "west"}
OURS = {**MANAGED, names.CLUSTER_LABEL: DECLARED.cluster.name}
RELEASED = {names.ADOPT_LABEL: PROJECT.name}


@pytest.mark.parametrize(
    ("labels", "recorded", "claimed", "adopt", "codes"),
    [
        (OURS, False, "", False, []),
        (WEST, False, "", False, ["GPU6006"]),
        (WEST, False, "west", True, ["GPU6006"]),
        (WEST, True, "west", False, ["GPU6006"]),
        (WEST, True, "", False, []),
        ({names.CLUSTER_LABEL: "west"}, False, "", False, ["GPU6004"]),
        ({**OURS, names.PROJECT_LABEL: "another"}, False, "", False, ["GPU6004"]),
        ({}, True, "", False, []),
        ({}, False, "", True, ["GPU6008"]),
        ({}, True, "", True, []),
        (RELEASED, False, "", True, []),
    ],
)
def test_whose_a_namespace_is(
    labels: dict[str, str], claimed: str, codes: list[str], *, recorded: bool, adopt: bool
) -> None:
    declared = replace(DECLARED, projects=(replace(PROJECT, adopt=adopt), *DECLARED.projects[1:]))
    ledger = Ledger(project=PROJECT.name, inventory=frozenset({SPACE} if recorded else ()))
    state = ClusterState(
        live={SPACE: {"metadata": {"labels": labels}}},
        ledgers={PROJECT.name: ledger},
        claimed={SPACE.name: claimed} if claimed else {},
    )
    assert [found.code for found in foreign_namespaces(declared, state).values()] == codes


@pytest.mark.parametrize(
    ("labels", "code", "fix"),
    [({}, "GPU6008", "`kubectl label namespace "), (RELEASED, "GPU6009", "move those pods to another namespace")],
)
def test_what_a_namespace_is_taken_over_after(labels: dict[str, str], code: str, fix: str) -> None:
    declared = replace(DECLARED, projects=(replace(PROJECT, adopt=True),))
    state = ClusterState(live={SPACE: {"metadata": {"labels": labels}}}, occupied=frozenset({SPACE.name}))
    (found,) = foreign_namespaces(declared, state).values()
    assert found.code == code
    assert str(found.help).startswith(fix)


def test_what_starts_or_runs_counts_by_its_workers_and_what_is_confirmed_or_pinned_does_not() -> None:
    """Of three jobs with a GPU each two are removed: more than half of what runs."""
    jobs = [job for job in DECLARED.jobs if job.id.project == PROJECT.name][:3]
    runs = tuple(
        Run(job=job.id, digest=job.digest, phase=phase, placement=on("dgx1-1", at), gpu_milli=1000)
        for at, (job, phase) in enumerate(
            zip(jobs, (RunPhase.STARTING, RunPhase.RUNNING, RunPhase.RUNNING), strict=True)
        )
    )
    fewer = replace(DECLARED, jobs=(jobs[2],))
    refused = mass_stop(fewer, ClusterState(runs=runs), frozenset())
    assert ({*refused.jobs}, [found.code for found in refused.refusals]) == ({jobs[0].id, jobs[1].id}, ["GPU6007"])
    line = str(refused.refusals[0].help).rpartition(": ")[2].rstrip("`")
    assert mass_stop(fewer, ClusterState(runs=runs), frozenset({line})).refusals == ()
    assert (
        mass_stop(replace(fewer, pinned=frozenset({PROJECT.name})), ClusterState(runs=runs), frozenset()).jobs == set()
    )
    assert mass_stop(without_project(fewer, PROJECT.name), ClusterState(runs=runs), frozenset()).jobs == set()
    queued = tuple(replace(run, phase=RunPhase.QUEUED) for run in runs[:2])
    assert mass_stop(fewer, ClusterState(runs=(*queued, runs[2])), frozenset()).jobs == set()
    larger = replace(runs[2], gpu_milli=2000)
    assert mass_stop(fewer, ClusterState(runs=(*runs[:2], larger)), frozenset()).jobs == set(), "half, and no more"


def test_jobs_that_have_not_ended_count_among_those_that_a_change_removes() -> None:
    cluster = replace(DECLARED.cluster, scheduling=replace(DECLARED.cluster.scheduling, delete_guard_jobs=1))
    jobs = DECLARED.jobs[:3]
    runs = tuple(Run(job=job.id, digest=job.digest, phase=RunPhase.QUEUED) for job in jobs)
    fewer = replace(DECLARED, cluster=cluster, jobs=DECLARED.jobs[2:])
    refused = mass_stop(fewer, ClusterState(runs=runs), frozenset())
    assert ({*refused.jobs}, [found.code for found in refused.refusals]) == ({jobs[0].id, jobs[1].id}, ["GPU6010"])
    ended = (replace(runs[0], phase=RunPhase.SUCCEEDED), *runs[1:])
    assert mass_stop(fewer, ClusterState(runs=ended), frozenset()).jobs == set()
    pinned = replace(fewer, pinned=frozenset({jobs[0].id.project}))
    assert mass_stop(pinned, ClusterState(runs=runs), frozenset()).jobs == set()
    scheduling = replace(cluster.scheduling, delete_guard_jobs=None)
    assert (
        mass_stop(
            replace(fewer, cluster=replace(cluster, scheduling=scheduling)), ClusterState(runs=runs), frozenset()
        ).jobs
        == set()
    )


FAR = ObjectRef("v1", "PersistentVolumeClaim", PROJECT.namespace, "data")
POD = ObjectRef("v1", "Pod", PROJECT.namespace, "by-hand")
MAP = ObjectRef("v1", "ConfigMap", PROJECT.namespace, "settings")
SERVICE = ObjectRef("v1", "Service", PROJECT.namespace, "default")
GONE = Ledger(project=PROJECT.name, content="as-declared", inventory=frozenset({SPACE, SERVICE}))
LEFT = without_project(DECLARED, PROJECT.name)
RUN = Run(job=DECLARED.jobs[0].id, digest=DECLARED.jobs[0].digest, phase=RunPhase.QUEUED)
CAREFUL = replace(LEFT.cluster, scheduling=replace(LEFT.cluster.scheduling, delete_guard_jobs=1))


def danger(state: ClusterState, declared: Declared = LEFT) -> list[str]:
    return [found.code for found in review(declared, GONE, (SPACE,), state, frozenset()).refusals]


def test_what_holds_the_removal_of_a_project() -> None:
    """Claims and work of others in its namespace, unless they leave already; and its own jobs."""
    assert danger(ClusterState(live={SPACE: {}, MAP: {}})) == []
    assert danger(ClusterState(live={FAR: {}})) == ["GPU6003"]
    assert danger(ClusterState(live={POD: {}})) == ["GPU6005"]
    managed = {"metadata": {"labels": {names.MANAGED_BY_LABEL: names.MANAGED_BY}}}
    leaving = {"metadata": {"deletionTimestamp": "2020-07-29T12:00:00Z"}}
    elsewhere = ObjectRef("v1", "Pod", "default", "by-hand")
    assert danger(ClusterState(live={POD: managed, FAR: leaving, elsewhere: {}})) == []
    others = replace(RUN, job=JobId(LEFT.projects[0].name, RUN.job.name), phase=RunPhase.RUNNING)
    assert danger(ClusterState(runs=(RUN, others))) == []
    assert danger(ClusterState(runs=(replace(RUN, phase=RunPhase.STARTING),))) == ["GPU6002"]
    assert danger(ClusterState(), replace(LEFT, projects=())) == ["GPU6001"]
    assert danger(ClusterState(), replace(LEFT, projects=(), pinned=frozenset({PROJECT.name}))) == []


def test_how_many_jobs_the_removal_of_a_project_may_remove() -> None:
    second, third = (replace(RUN, job=JobId(PROJECT.name, name)) for name in ("second", "third"))
    foreign = replace(third, job=JobId(LEFT.projects[0].name, third.job.name))
    ended = replace(third, phase=RunPhase.FAILED)
    careful = replace(LEFT, cluster=CAREFUL)
    assert danger(ClusterState(runs=(RUN, replace(RUN, digest=DECLARED.jobs[1].digest), foreign, ended)), careful) == []
    assert danger(ClusterState(runs=(RUN, second)), careful) == ["GPU6010"]
    careless = replace(CAREFUL, scheduling=replace(CAREFUL.scheduling, delete_guard_jobs=None))
    assert danger(ClusterState(runs=(RUN, second)), replace(LEFT, cluster=careless)) == []


def test_the_clusters_own_objects_go_unasked_and_a_project_that_declared_nothing_new_by_its_revision() -> None:
    own = Ledger(project=OWN, content="as-declared", inventory=frozenset({SPACE}))
    assert review(LEFT, own, (SPACE,), ClusterState(live={POD: {}}), frozenset()).allowed == (SPACE,)
    assert review(LEFT, GONE, (), ClusterState(live={POD: {}}), frozenset()).refusals == (), "nothing is to be deleted"
    before = replace(GONE, content="")
    uids = ({ledger_ref(LEFT.cluster.name, PROJECT.name): {"metadata": {"uid": uid}}} for uid in ("one", "another"))
    said = [
        review(LEFT, before, (SPACE,), ClusterState(live={**uid, POD: {}}), frozenset()).refusals[0].help
        for uid in uids
    ]
    assert said[0] != said[1], "a confirmation is of this ledger, and of none that is made after it"


def test_which_confirmations_are_void() -> None:
    """Those of the removal of a project that is gone, or of a change of all, that were not said with it or since."""
    gone = removal_digest(LEFT, PROJECT.name, GONE.content)
    kept = Ledger(project=LEFT.projects[0].name, content="as-declared")
    of_kept = removal_digest(LEFT, kept.project, kept.content)
    of_own = removal_digest(LEFT, OWN, "as-declared")
    of_none = removal_digest(LEFT, ProjectName("old"), "")
    ledgers = (GONE, kept, Ledger(project=OWN, content="as-declared"), Ledger(project=ProjectName("old")))
    said = frozenset({gone, of_kept, of_own, of_none, "of-a-claim"})
    assert void_confirmations(LEFT, ledgers, said, lambda _: frozenset()) == {gone}
    assert void_confirmations(LEFT, ledgers, said, lambda ledger: frozenset({gone} if ledger is GONE else ())) == set()

    def never(ledger: Ledger | None) -> frozenset[str]:
        raise AssertionError(ledger)

    assert void_confirmations(LEFT, ledgers, frozenset({"of-a-claim"}), never) == set(), (
        "what is not said costs no look"
    )


def test_what_a_cycle_leaves_as_it_is() -> None:
    b = DECLARED.projects[1].name
    part = ledger_ref(DECLARED.cluster.name, PROJECT.name)
    frozen = (Frozen(project=b, by="ann", reason="", since_ms=0),)
    cases: tuple[tuple[ClusterState, set[ProjectName]], ...] = (
        (ClusterState(), set()),
        (ClusterState(damaged=((part, "runs"),)), {PROJECT.name}),
        (ClusterState(damaged=((part, "revision"),)), set()),
        (ClusterState(frozen=frozen), {b}),
    )
    for state, left in cases:
        assert excluded_projects(DECLARED, state) == left
    assert excluded_projects(replace(DECLARED, pinned=frozenset({b})), ClusterState()) == {b}
    whole = ClusterState(
        frozen=(Frozen(project=None, by="ann", reason="", since_ms=0),), ledgers={ProjectName("old"): GONE}
    )
    names_of_all = {project.name for project in DECLARED.projects} | {ProjectName("old")}
    assert excluded_projects(DECLARED, whole) == names_of_all
    assert frozen_projects(DECLARED, whole) - names_of_all == {OWN}
