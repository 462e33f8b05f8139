"""A ledger of very many runs on a real API server: what it takes of one object, and what one more run costs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest
from controlplane.server import ControlPlane

from gpuctl.adapters.kubernetes.cluster import KubernetesCluster
from gpuctl.adapters.kubernetes.connection import connect
from gpuctl.app.object_cache import ObjectCache
from gpuctl.k8s import kinds, names
from gpuctl.model.change import Action, Change
from gpuctl.model.ids import JobId, ObjectRef, ProjectName, RunDigest
from gpuctl.model.state import FinishedRun, Ledger
from gpuctl.model.tenancy import Tenancy
from gpuctl.observe import observe
from gpuctl.plan.order import in_order
from gpuctl.plan.writes import book

CLUSTER, TEAM, DIGEST = "archive", ProjectName("team-a"), RunDigest("0badcafe")
RUNS = 20_000


@pytest.fixture
def object_cache(control_plane: ControlPlane) -> Iterator[ObjectCache]:
    connection = connect(str(control_plane.kubeconfig))
    with closing(connection), closing(KubernetesCluster(connection)) as cluster:
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": names.SYSTEM_NAMESPACE}})
        yield ObjectCache(cluster)


def changes(object_cache: ObjectCache, wanted: Ledger, *, closing: bool = False) -> tuple[Change, ...]:
    object_cache.refresh()
    state = observe(object_cache.objects(), Tenancy(cluster=CLUSTER))
    assert state.damaged == ()
    old = state.ledgers.get(TEAM, Ledger(project=TEAM))
    return in_order(book(CLUSTER, old, wanted, state, closing=closing))


def write(object_cache: ObjectCache, wanted: Ledger, *, closing: bool = False) -> int:
    """How many writes it took."""
    count = 0
    while todo := changes(object_cache, wanted, closing=closing):
        for change in todo:
            if change.action is Action.DELETE:
                object_cache.delete(change.ref, change.uid, change.resource_version)
            elif change.body is not None:
                object_cache.apply(change.body)
        count += len(todo)
    return count


def test_the_server_takes_it_in_shards_and_one_run_that_ends_costs_one_write(object_cache: ObjectCache) -> None:
    jobs = [JobId(TEAM, f"train-model-{i:06d}") for i in range(RUNS)]
    ledger = Ledger(
        project=TEAM,
        inventory=frozenset(ObjectRef(*kinds.JOB, "gpu-team-a", names.run_name(job.name, DIGEST)) for job in jobs),
        seen=frozenset((job, DIGEST) for job in jobs),
        finished={(j, DIGEST): FinishedRun(job=j, digest=DIGEST, state="Failed", at_ms=0) for j in jobs[1:]},
    )
    assert write(object_cache, ledger) == 1 + 8
    assert observe(object_cache.objects(), Tenancy(cluster=CLUSTER)).ledgers == {TEAM: ledger}
    last = FinishedRun(job=jobs[0], digest=DIGEST, state="Succeeded", at_ms=0)
    ended = replace(ledger, finished={**ledger.finished, (jobs[0], DIGEST): last})
    assert write(object_cache, ended) == 1
    assert write(object_cache, ended) == 0
    assert write(object_cache, Ledger(project=TEAM), closing=True) == 1 + 8
