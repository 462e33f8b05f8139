"""On a real API server: a kind whose versions a webhook converts that is away."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from urllib.error import HTTPError

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))

from controlplane.known import define
from controlplane.server import ControlPlane
from town import MERGE, Town, town_on
from unattended import account_kubeconfig, at_last, install

from gpuctl.adapters.clock import SystemClock
from gpuctl.adapters.kubernetes.cluster import KubernetesCluster
from gpuctl.adapters.kubernetes.connection import connect
from gpuctl.app.drift import drift_report
from gpuctl.app.explaining import explain_live
from gpuctl.app.inspect import Mirror, live
from gpuctl.app.ports import Cluster, ClusterUnavailable
from gpuctl.k8s import kinds
from gpuctl.model.ids import JobId
from workloads.declarations import manifest
from workloads.definitions import a_like_of

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("unconverted")]
JOB_SETS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/jobsets.jobset.x-k8s.io"
WELL = {"strategy": "None", "webhook": None}


@pytest.fixture
def town(new_control_plane: Callable[..., ControlPlane], request: pytest.FixtureRequest) -> Iterator[Town]:
    """An object of the kind is stored in another version than gpuctl asks for."""
    plane = new_control_plane()
    install(plane)
    (group, version), kind = kinds.JOB_SET[0].split("/"), kinds.JOB_SET[1]
    body = a_like_of(group, kind)
    body["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved, for a test"}
    (only,) = body["spec"]["versions"]
    body["spec"]["versions"] = [{**only, "name": version, "storage": False}, {**only, "name": "v9", "storage": True}]
    away = {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/convert"}}
    body["spec"]["conversion"] = {"strategy": "Webhook", "webhook": away}
    define(plane, body)
    one = {"apiVersion": f"{group}/v9", "kind": kind, "metadata": {"name": "one"}}
    plane.call("POST", f"/apis/{group}/v9/namespaces/default/jobsets", one)
    with town_on(plane, request.node.name) as made:
        made.more_of_pool = ", resourcesPerNode: {cpu: 16, memory: 64Gi}"
        yield made


def test_a_kind_that_the_server_can_not_convert_holds_up_nothing_else(town: Town) -> None:
    town.jobs["j"] = ", gpus: 1"
    town.comes_to(j="Running")
    ((kind, fault),) = town.context.object_cache.unread.items()
    assert (kind, fault.code) == (kinds.JOB_SET, "GPU7025")


def readable(cluster: Cluster) -> bool:
    """Whether the kind is."""
    try:
        cluster.list(kinds.JOB_SET)
    except ClusterUnavailable:
        return False
    return True


def is_made(town: Town) -> bool:
    """Whether the job's object is. The server counts a kind in a quota that is older only minutes later."""
    found = town.live("JobSet", "train")
    if not found and "status unknown for quota" in str(town.context.rejected):
        with suppress(HTTPError):
            town.plane.call("DELETE", f"/api/v1/namespaces/{town.namespace}/resourcequotas/gpuctl")
        time.sleep(5)
    return bool(found)


def test_what_is_read_anew_tells_the_kind_and_decides_nothing_where_its_runs_have_gpus(town: Town) -> None:
    clock, away = SystemClock(), town.plane.call("GET", JOB_SETS)["spec"]["conversion"]

    def told(cluster: Cluster) -> list[tuple[set[str], set[str]]]:
        """The codes, and the jobs, of what commands and the dashboard read."""
        seen = (live(cluster), Mirror(cluster).live())
        return [({each.code for each in one.unread}, {job.id.name for job in one.jobs}) for one in seen]

    def convert(conversion: object, *, well: bool) -> None:
        town.plane.call("PATCH", JOB_SETS, {"spec": {"conversion": conversion}}, media=MERGE)
        with closing(KubernetesCluster(connection)) as cluster:
            at_last(lambda: readable(cluster) is well)

    with closing(connect(account_kubeconfig(town.plane))) as connection:
        convert(WELL, well=True)
        town.jobs["j"] = ", gpus: 1"
        town.comes_to(j="Running")
        convert(away, well=False)
        train = f"\n  manifest: {json.dumps(manifest(kinds.JOB_SET))}"
        town.jobs["train"] = train
        with closing(KubernetesCluster(connection)) as cluster:
            assert told(cluster) == [({"GPU7025"}, {"j"})] * 2
            report = drift_report(town.declared(), cluster, clock)
            assert ([*report.objects], [why[:7] for why in report.unread]) == ([], ["GPU7025"])
            assert explain_live(town.declared(), cluster, clock, JobId.parse("a/j")) is not None
        convert(WELL, well=True)
        town.until(lambda: is_made(town))
        convert(away, well=False)
        with closing(KubernetesCluster(connection)) as cluster:
            assert told(cluster) == [({"GPU7025"}, {"j"})] * 2
            not_known = "which GPUs these hold is not known"
            with pytest.raises(ClusterUnavailable, match=not_known) as caught:
                explain_live(town.declared(), cluster, clock, JobId.parse("a/j"))
            assert caught.value.code == "GPU7026"
            with pytest.raises(ClusterUnavailable, match=not_known):
                drift_report(town.declared(), cluster, clock)
        town.jobs["k"] = ", gpus: 1"
        town.until(lambda: town.phases().get("k") == "Running")  # by the controller that had read it
        convert(WELL, well=True)
