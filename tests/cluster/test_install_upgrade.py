"""An upgrade and the way back on a real API server, by the Helm chart: no job is restarted, nothing is written twice.

`installed-before.yaml` is what `gpuctl install` printed before the chart was there.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from controlplane.server import ControlPlane
from release.chart import templated
from unattended import Site, at_last, job, project

from gpuctl.adapters.kubernetes.paths import collection
from gpuctl.install import Installation, all_objects
from gpuctl.k8s.objects import ref_of
from gpuctl.model.state import Body

BEFORE = Path(__file__).with_name("installed-before.yaml")
OPTIONS: dict[str, Any] = {"repo": "https://git.example.com/x.git", "path": "c", "guard": True, "image": "x"}
PLURALS = {"PodDisruptionBudget": "poddisruptionbudgets", "NetworkPolicy": "networkpolicies"}
SERVER_SIDE = ("apply", "--server-side", "--field-manager=kubectl", "-f", "-")


def path_of(body: Body) -> str:
    ref = ref_of(body)
    if ref.kind in PLURALS:
        return f"/apis/{ref.api_version}/namespaces/{ref.namespace}/{PLURALS[ref.kind]}/{ref.name}"
    return f"{collection((ref.api_version, ref.kind), ref.namespace)}/{ref.name}"


def apply(plane: ControlPlane, bodies: Sequence[Body]) -> None:
    """As `kubectl apply --server-side`, by it where it is there. The Deployment's part is played by the test."""
    if shutil.which("kubectl"):
        items = [body for body in bodies if body["kind"] != "Deployment"]
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        command = ["kubectl", "--kubeconfig", str(plane.kubeconfig), *SERVER_SIDE]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    else:
        for body in bodies:
            if body["kind"] != "Deployment":
                plane.call("PATCH", f"{path_of(body)}?fieldManager=kubectl", body)
    for body in bodies:
        plane.call("PATCH", f"{path_of(body)}?fieldManager=kubectl&dryRun=All&fieldValidation=Strict", body)


@pytest.fixture
def plane(new_control_plane: Callable[[], ControlPlane]) -> ControlPlane:
    made = new_control_plane()
    apply(made, list(yaml.safe_load_all(BEFORE.read_text())))
    return made


@pytest.fixture
def site(plane: ControlPlane, tmp_path: Path) -> Iterator[Site]:
    made = Site(plane, tmp_path, "up")
    yield made
    made.leave()


def state(site: Site) -> Mapping[str, Any]:
    """What a restart would change: the pods, their number so far, and how often each run was let go."""
    return {"pods": site.pods(), "ever": site.pods_ever(), "starts": site.starts()}


def test_an_upgrade_by_the_chart_and_the_way_back_restart_no_job(plane: ControlPlane, site: Site) -> None:
    site.commit(project("a", 4), job("one"), job("two", 2), project("b", 4))
    process = site.start()
    site.await_pods("one", "two")
    at_last(lambda: len(site.pods_ever()) == 2, site.logs)  # the events that it counts come later
    before = state(site)
    rounds = {"three": templated(OPTIONS, site.folder), "four": list(yaml.safe_load_all(BEFORE.read_text()))}
    there: list[str] = []
    for name, bodies in rounds.items():
        apply(plane, bodies)
        process.end()
        process = site.start()
        there.append(name)
        site.commit(job(name, project="b"))
        site.await_pods(*sorted(there), project="b")
        assert state(site) == before


def test_install_changes_nothing_of_what_the_chart_gave(plane: ControlPlane, tmp_path: Path) -> None:
    def now() -> list[Body]:
        """The objects without what the server's own controllers write on them meanwhile."""
        return [declared(plane.call("GET", path_of(body))) for body in wanted]

    apply(plane, templated(OPTIONS, tmp_path))
    wanted = [body for body in all_objects(Installation(**OPTIONS)) if body["kind"] != "Deployment"]
    before = now()
    apply(plane, wanted)
    assert now() == before


def declared(body: Body) -> Body:
    metadata = {key: each for key, each in body["metadata"].items() if key not in {"managedFields", "resourceVersion"}}
    return {**{key: each for key, each in body.items() if key != "status"}, "metadata": metadata}
