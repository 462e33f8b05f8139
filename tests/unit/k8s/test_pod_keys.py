"""Which labels and annotations a job may give its pods."""

from __future__ import annotations

import pytest

from gpuctl.k8s.pod_keys import GPU_ANNOTATIONS, is_for_people


@pytest.mark.parametrize(
    "key",
    ["team", "example.com/run", "app.kubernetes.io/name", "prometheus.io/scrape", "sidecar.istio.io/inject",
     "notgpuctl.dev/x", "jobs.example.com/job-name"],
)  # fmt: skip
def test_a_key_that_nothing_of_the_cluster_obeys_is_a_jobs_own(key: str) -> None:
    assert is_for_people(key)


@pytest.mark.parametrize(
    "key",
    ["gpuctl.dev/project", "x.gpuctl.dev/y", "app.kubernetes.io/managed-by", "batch.kubernetes.io/job-name",
     "job-name", "controller-uid", "pod-security.kubernetes.io/enforce", "resource.kubernetes.io/x", "gpu-fraction",
     "nvidia.com/gpu.product", "io.kubernetes.cri-o.userns-mode", "io.katacontainers.config.hypervisor.path",
     "mounts.nri.io/container.main", "cpu-quota.crio.io", "devices.crio.io/main",
     *(f"{key}x" for key in GPU_ANNOTATIONS)],
)  # fmt: skip
def test_a_key_that_gpuctl_kubernetes_or_a_driver_obeys_is_refused(key: str) -> None:
    assert not is_for_people(key)
