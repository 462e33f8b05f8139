"""Guards asked one by one: whose a namespace is, and how much one commit may end."""

from __future__ import annotations

from dataclasses import replace

import pytest
from workbench import example, on, without_project

from gpuctl.k8s import kinds, names
from gpuctl.model.ids import ObjectRef
from gpuctl.model.state import ClusterState, Ledger, Run, RunPhase
from gpuctl.plan.guard import foreign_namespaces, mass_stop

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
