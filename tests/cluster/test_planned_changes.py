"""Five changes, each planned on the live cluster, committed and carried out: plan, prediction and result agree.

That the prediction ends as an Event on the cluster's ledger also shows that the installed account may write it there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from controlplane.server import ControlPlane
from unattended import Process, Site, account_kubeconfig, at_last, job, project, typed

EVENTS = "/api/v1/namespaces/gpuctl-system/events"
AS_PREDICTED = "gpuctl_prediction_checks_total", 'result="as-predicted"'
FATES = ("started", "paused", "stopped")
CHANGES: Mapping[str, tuple[Mapping[str, str | None], list[str], list[str], Mapping[str, list[str]]]] = {
    "a job on idle GPUs": (job("x", gpus=8), ["x", "y"], [], {"started": ["a/x"]}),
    "a job within quota takes GPUs back": (
        job("m", gpus=16, project="b"), ["y"], ["m"], {"started": ["b/m"], "paused": ["a/x"]},
    ),
    "a job is deleted, and what it displaced runs again": (
        {"c/b-m.yaml": None}, ["x", "y"], [], {"started": ["a/x"], "stopped": ["b/m"]},
    ),
    "a job is declared anew, as another run": (
        job("x", gpus=4), ["x", "y"], [], {"started": ["a/x"], "stopped": ["a/x"]},
    ),
    "a job is suspended": (job("y", gpus=16, more=", suspend: true"), ["x"], [], {"stopped": ["a/y"]}),
}  # fmt: skip
"""Each with the jobs of a and of b that run afterwards, and what becomes of which jobs."""


@pytest.fixture
def site(plane_with_gpuctl: ControlPlane, tmp_path: Path) -> Iterator[Site]:
    made = Site(plane_with_gpuctl, tmp_path, "planned")
    yield made
    made.leave()


def planned(site: Site, kubeconfig: str) -> dict[str, list[str]]:
    """What the plan of the working tree says will become of which jobs, on the cluster as it is. A run that is
    replaced by another one of its job is stopped, and started."""
    done = typed(kubeconfig, "plan", site.copy.folder / "c", "--base", "HEAD", "-o", "json")
    assert done.exit_code in {0, 2}, done.stderr
    effect: dict[str, Any] = json.loads(done.stdout)["effect"]
    effect["stopped"] += [one for one in effect["started"] if one["anew"]]
    return {fate: jobs for fate in FATES if (jobs := sorted({one["job"] for one in effect[fate]}))}


def checked(process: Process, revision: str) -> dict[str, Any] | None:
    """The line that tells how the prediction of a commit ended."""
    lines = (line for line in process.lines() if line["event"] == "prediction")
    return next((line for line in lines if line["revision"] == revision[:12]), None)


def test_what_is_planned_is_predicted_and_happens(site: Site) -> None:
    kubeconfig = account_kubeconfig(site.plane)
    site.commit(project("a", 8), project("b", 16), job("y", gpus=16))
    process = site.start()
    site.await_pods("y")
    for number, (name, (files, of_a, of_b, fates)) in enumerate(CHANGES.items(), start=1):
        for path, text in files.items():
            where = site.copy.folder / path
            where.rename(f"{where}.gone") if text is None else where.write_text(text)
        assert planned(site, kubeconfig) == fates, name
        for gone in site.copy.folder.rglob("*.gone"):
            gone.rename(str(gone).removesuffix(".gone"))
        revision = site.commit(files)
        site.await_pods(*of_a)
        site.await_pods(*of_b, project="b")
        line = at_last(lambda rev=revision: checked(process, rev), site.logs)  # type: ignore[misc]
        assert line is not None
        assert (line["result"], line["level"]) == ("as-predicted", "info"), (name, line)
        predicted = {fate: line[key] for fate in FATES if (key := f"predicted_{fate}") in line}
        assert predicted == fates, name
        # It is counted after it is logged.
        at_last(lambda least=number: process.total(*AS_PREDICTED) >= least, site.logs)  # type: ignore[misc]
    assert process.total("gpuctl_prediction_differences_total") == 0
    told = at_last(lambda: _told(site), site.logs)
    assert {(each["type"], each["involvedObject"]["kind"]) for each in told} == {("Normal", "ConfigMap")}
    assert not [each for each in process.audited() if each["responseStatus"]["code"] == 403]


def _told(site: Site) -> list[Any]:
    """The events of predictions on the cluster's own ledger."""
    items = site.plane.call("GET", EVENTS)["items"]
    found = [each for each in items if each["reason"] == "AsPredicted" and site.name in each["involvedObject"]["name"]]
    return found if len(found) >= len(CHANGES) else []
