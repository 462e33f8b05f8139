"""The definitions of the kinds that a job's manifest may be, as their makers ship them: out of Go modules."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from controlplane.build import go
from jobset.tools import HERE as OF_JOBSET
from kueue.tools import HERE as OF_KUEUE

from gpuctl.k8s import kinds
from gpuctl.k8s.kinds import Kind
from workloads.declarations import TF_JOB, TRAINING_RUN

_KUBEFLOW = "github.com/kubeflow"
_RAY = ("github.com/ray-project/kuberay/ray-operator", "config/crd/bases/ray.io_{}.yaml", OF_KUEUE)
FILES: Mapping[Kind, tuple[str, str, Path]] = {
    kinds.JOB_SET: ("sigs.k8s.io/jobset", "config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml", OF_JOBSET),
    kinds.PYTORCH_JOB: (
        f"{_KUBEFLOW}/training-operator", "manifests/base/crds/kubeflow.org_pytorchjobs.yaml", OF_KUEUE,
    ),
    TF_JOB: (f"{_KUBEFLOW}/training-operator", "manifests/base/crds/kubeflow.org_tfjobs.yaml", OF_KUEUE),
    kinds.MPI_JOB: (f"{_KUBEFLOW}/mpi-operator", "manifests/base/kubeflow.org_mpijobs.yaml", OF_KUEUE),
    kinds.RAY_JOB: (_RAY[0], _RAY[1].format("rayjobs"), _RAY[2]),
    kinds.RAY_CLUSTER: (_RAY[0], _RAY[1].format("rayclusters"), _RAY[2]),
    kinds.LEADER_WORKER_SET: (
        "sigs.k8s.io/lws", "config/crd/bases/leaderworkerset.x-k8s.io_leaderworkersets.yaml", OF_KUEUE,
    ),
}  # fmt: skip
"""Of each kind the module, the file in it, and whose go.mod has the version: Kueue knows all of them but its own."""
_FREE = "{type: object, x-kubernetes-preserve-unknown-fields: true}"
_OF_TRAINING_RUNS = f"""
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: trainingruns.batch.example.com}}
spec:
  group: batch.example.com
  names: {{kind: TrainingRun, plural: trainingruns, singular: trainingrun, listKind: TrainingRunList}}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {{status: {{}}}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              paused: {{type: boolean}}
              entryPoint: {_FREE}
              groups:
                type: array
                items:
                  type: object
                  properties:
                    name: {{type: string}}
                    pods:
                      type: object
                      properties:
                        count: {{type: integer}}
                        template:
                          type: object
                          properties:
                            metadata: {_FREE}
                            spec:
                              type: object
                              x-kubernetes-preserve-unknown-fields: true
                              properties: {{containers: {{type: array, items: {_FREE}}}}}
          status:
            type: object
            properties: {{phase: {{type: string}}, running: {{type: integer}}}}
"""
HOW = "python tests/kueue/tools.py and tests/jobset/tools.py download them"


def a_like_of(group: str, kind: str, version: str = "v1") -> Any:
    """The definition of a kind by its name alone, with any content, which can be scaled."""
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    served = {
        "name": version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"scale": scale},
    }
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "names": names, "scope": "Namespaced", "versions": [served]},
    }


@lru_cache
def definition(kind: Kind) -> Any:
    """The CustomResourceDefinition of a kind. Skips the test where its module was not downloaded."""
    if kind == TRAINING_RUN:
        return yaml.safe_load(_OF_TRAINING_RUNS)
    module, file, here = FILES[kind]
    found = _folder(module, here) / file
    if not found.is_file():
        pytest.skip(f"no definition of {kind[1]} here: {HOW}")
    return yaml.load(found.read_text(), yaml.CSafeLoader)


def plural_of(kind: Kind) -> str:
    """What its definition calls it in paths."""
    plural: str = definition(kind)["spec"]["names"]["plural"]
    return plural


@lru_cache
def schema(kind: Kind) -> Any:
    """What its version of the API has."""
    versions = definition(kind)["spec"]["versions"]
    (version,) = [each for each in versions if each["name"] == kind[0].rpartition("/")[2]]
    assert version["served"]
    return version["schema"]["openAPIV3Schema"]


@lru_cache
def _folder(module: str, here: Path) -> Path:
    """The folder of a module that go.mod names, as far as it was downloaded; nothing is downloaded here."""
    if not shutil.which("go") and not (Path.home() / ".cache" / "toolchain").is_dir():
        return Path("/nowhere")
    command = [*go(Path.home() / ".cache"), "list", "-m", "-f", "{{.Dir}}", module]
    env = os.environ | {"GOFLAGS": "-mod=mod", "GOPROXY": "off"}
    found = subprocess.run(command, cwd=here, capture_output=True, text=True, check=False, env=env)
    return Path(found.stdout.strip() or "/nowhere")
