"""What gpuctl's commands say on a cluster where Kueue decides: nothing of its own engine's."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))

from click.testing import Result
from controlplane.server import ControlPlane
from town import MERGE
from unattended import at_last, install, typed

from gpuctl.install import Duties
from gpuctl.install.installation import ACCOUNT, ENGINE_ACCOUNTS
from kueue.test_story_on_kueue import Reconciled, kueue

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("kueue")]
__all__ = ["kueue"]
RUNS, WAITS = "a-1-g", "a-2-gggggg"
WHY = "not QuotaReserved (Pending): couldn't assign flavors to pod set main: insufficient unused quota"


@pytest.fixture(scope="module")
def story(kueue: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Reconciled:
    made = Reconciled(kueue, "third", tmp_path_factory.mktemp("third"))
    for project, quota in (("team-a", 4), ("team-b", 12)):
        head = "apiVersion: gpuctl.dev/v1\nkind: Project\n"
        made.declare(project, f"{head}metadata: {{name: {project}}}\nspec: {{quota: {quota}}}\n")
    for job in ("b-1-gggggggg", "b-2-gggg", RUNS, WAITS):
        made.add(job)
    at_last(lambda: made.admitted()["team-b"] == 12 and made.admitted()["team-a"] == 1)
    made.run()

    def is_told() -> bool:
        listed = json.loads(said(made, "list", "-o", "json"))["jobs"]
        runs = any((job["name"], job["state"]) == (RUNS, "Running") for job in listed)
        return runs and WHY in said(made, "explain", f"team-a/{WAITS}")

    at_last(is_told)
    return made


def said(story: Reconciled, *words: str, code: int = 0) -> str:
    done: Result = typed(story.plane.kubeconfig, *words)
    assert done.exit_code == code, done.output
    return done.output


def test_explain_tells_what_kueue_says(story: Reconciled) -> None:
    waits = said(story, "explain", f"team-a/{WAITS}")
    assert "is Pending. Kueue decides when it runs." in waits
    assert WHY in waits
    assert "3 more needed" in waits
    assert "Admitted (Admitted)" in said(story, "explain", f"team-a/{RUNS}")
    refused = said(story, "explain", f"team-a/{WAITS}", str(story.declared_in), code=2)
    assert "Kueue decides in this cluster" in refused
    assert f"gpuctl explain team-a/{WAITS}" in refused


def test_list_get_and_status_tell_when_it_waits_and_nothing_of_the_engine(story: Reconciled) -> None:
    listed = json.loads(said(story, "list", "-o", "json"))["jobs"]
    state = {
        job["name"]: (job["state"], job["queuedAt"][:2]) for job in listed if job["object"]["namespace"][:5] == "third"
    }
    assert state[RUNS] == ("Running", "20")
    assert state[WAITS] == ("Pending", "20"), "it waits since it was made"
    got = said(story, "get", f"team-a/{WAITS}")
    assert "STATUS:         Pending" in got
    assert f"REASON:         {WHY}" in got
    assert WHY in said(story, "list", "-p", "team-a", "-o", "wide")
    told = {job["name"]: (job["reason"], job["otherEngine"]) for job in listed}
    assert told[WAITS][0] is None
    assert WHY in told[WAITS][1]
    assert told[RUNS][1].startswith("Admitted (Admitted): ")
    assert "third" in typed(story.plane.kubeconfig, "status").output


def test_diff_compares_with_what_is_rendered_for_kueue(story: Reconciled) -> None:
    folder = str(story.declared_in)
    assert "differ" not in said(story, "diff", folder)
    for path in ("clusterqueues/third-team-a-guaranteed", "cohorts/third-team-b"):
        story.plane.call("DELETE", f"/apis/kueue.x-k8s.io/v1beta2/{path}")
    told = said(story, "diff", folder, code=1)
    assert "ClusterQueue third-team-a-guaranteed" in told
    assert "spec.suspend" not in told
    story.run()


def test_what_is_installed_for_kueue_may_write_its_objects_and_kueue_gpuctls_jobs(story: Reconciled) -> None:
    plane = story.plane
    install(plane, duties=Duties(engine="kueue"))
    cohort = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": {"name": "fourth"}, "spec": {}}
    path = "/apis/kueue.x-k8s.io/v1beta2/cohorts?dryRun=All"
    at_last(lambda: plane.refused("POST", path, cohort, user=ACCOUNT) is None)
    (job,) = [job for job in plane.call("GET", "/apis/batch/v1/jobs")["items"] if job["metadata"]["name"][:3] == "a-1"]
    path = f"/apis/batch/v1/namespaces/{job['metadata']['namespace']}/jobs/{job['metadata']['name']}?dryRun=All"
    pause = {"spec": {"suspend": True}}
    for user in (ENGINE_ACCOUNTS["kueue"], "ann"):
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
        binding = {"metadata": {"name": f"of-{user.rpartition(':')[2]}"}, "roleRef": role, "subjects": [subject]}
        plane.call("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)

    def says(user: str) -> str:
        refused = plane.refused("PATCH", path, pause, user=user, media=MERGE)
        return "" if refused is None else refused[1]

    at_last(lambda: "change its declaration in Git" in says("ann"))
    at_last(lambda: not says(ENGINE_ACCOUNTS["kueue"]))
