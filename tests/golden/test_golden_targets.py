"""One set of declarations for each engine that can decide in place of gpuctl's, and what can't be said to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuctl import api
from gpuctl.app.other_engine import target_objects
from gpuctl.diag.text import text_form
from gpuctl.k8s import names
from gpuctl.model.declared import Declared
from gpuctl.targets import Engine
from gpuctl.views.yamltext import yaml_stream

FOLDER = Path(__file__).parent / "targets"


@pytest.fixture(scope="module")
def declared() -> Declared:
    compiled = api.compile({path.name: path.read_text() for path in (FOLDER / "repo").iterdir()})
    assert compiled.declared is not None, compiled.diagnostics
    return compiled.declared


@pytest.mark.parametrize("engine", Engine)
def test_objects_and_what_is_told(engine: Engine, declared: Declared, golden: Callable[[Path, str], None]) -> None:
    found = target_objects(declared, engine)
    golden(FOLDER / f"{engine}.yaml", yaml_stream(found.manifests))
    golden(FOLDER / f"{engine}.txt", text_form(found.unsaid))


@pytest.mark.parametrize("engine", Engine)
def test_each_job_is_rendered_or_told(engine: Engine, declared: Declared) -> None:
    found = target_objects(declared, engine)
    bodies: list[Any] = [each.body for each in found.manifests.items if each.ref.kind in ("Job", "Deployment")]
    rendered = {body["metadata"]["labels"][names.JOB_LABEL] for body in bodies}
    left_out = {each.span for each in found.unsaid if each.code == "GPU6151"}
    assert rendered | {job.id.name for job in declared.jobs if job.span in left_out} == {
        job.id.name for job in declared.jobs
    }


def test_kueue_has_each_gpu_of_the_cluster_once(declared: Declared) -> None:
    """What is quota of a project is not quota of what is above it: all together they are the pools' GPUs."""
    gpus: Counter[str] = Counter()
    for each in target_objects(declared, Engine.KUEUE).manifests.items:
        for group in each.body.get("spec", {}).get("resourceGroups", ()):
            for flavor in group["flavors"]:
                gpus[flavor["name"]] += int(flavor["resources"][0]["nominalQuota"])
    assert gpus == {f"lab-{pool.name}": pool.gpu_milli // 1000 for pool in declared.cluster.pools}
