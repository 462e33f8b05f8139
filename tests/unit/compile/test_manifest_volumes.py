"""Volumes in the pods of a manifest: those that a job of gpuctl's own fields may have, and no others."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from workloads.declarations import CLUSTER, declared

from gpuctl import api
from gpuctl.k8s import kinds

DRIVER = "secrets-store.csi.k8s.io"
POLICY = """
---
apiVersion: gpuctl.dev/v1
kind: Policy
metadata: {name: p}
spec:
  match: {kind: Job}
  message: no
  cel: "!object.spec.volumes.exists(v, CONDITION)"
"""


def compiled(volume: dict[str, Any], condition: str = "") -> list[str]:
    cluster = CLUSTER.replace("spec:\n  nodePools", f"spec:\n  security: {{csiDrivers: [{DRIVER}]}}\n  nodePools", 1)
    job = yaml.safe_load(declared(kinds.PYTORCH_JOB))
    pod = job["spec"]["manifest"]["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    pod["volumes"] = [{"name": "v", **volume}]
    pod["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": "/v"}]
    policy = POLICY.replace("CONDITION", condition) if condition else ""
    files = {"cluster.yaml": cluster + policy, "train.yaml": yaml.safe_dump(job)}
    return [each.code for each in api.compile(files).diagnostics]


CSI = {"csi": {"driver": DRIVER, "volumeAttributes": {"secretProviderClass": "hub"}}}
PROJECTED = {"projected": {"sources": [{"secret": {"name": "hub"}}, {"configMap": {"name": "c"}}]}}


@pytest.mark.parametrize(
    ("volume", "codes"),
    [
        (CSI, []),
        (PROJECTED, []),
        ({"csi": {"driver": "other.example.com"}}, ["GPU3079"]),
        ({"csi": {}}, ["GPU3079"]),
        ({"csi": {"driver": DRIVER, "volumeAttributes": {"a": 1}}}, ["GPU2008"]),
        ({"csi": {"driver": DRIVER, "controllerPublishSecretRef": {"name": "x"}}}, ["GPU3101"]),
        ({"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}, ["GPU3101"]),
        ({"projected": {"sources": [{"clusterTrustBundle": {"path": "t"}}]}}, ["GPU3101"]),
        ({"ephemeral": {"volumeClaimTemplate": {}}}, ["GPU3101"]),
    ],
)  # fmt: skip
def test_volumes_of_a_manifest_are_held_against_the_clusters_security(volume: dict[str, Any], codes: list[str]) -> None:
    assert compiled(volume) == codes


@pytest.mark.parametrize(
    ("volume", "condition"),
    [
        (CSI, f"has(v.csi) && v.csi.driver == '{DRIVER}'"),
        (CSI, "has(v.csi) && v.csi.attributes.exists(k, k == 'secretProviderClass')"),
        (PROJECTED, "has(v.projected) && v.projected.sources.exists(s, has(s.secret) && s.secret == 'hub')"),
    ],
)
def test_policies_hold_for_them_as_for_a_jobs_own(volume: dict[str, Any], condition: str) -> None:
    assert compiled(volume, condition) == ["GPU4001"]
    assert compiled({"emptyDir": {"sizeLimit": "1Gi"}}, condition) == []
