"""GPU3120 and GPU3121: services whose workers follow their load."""

from __future__ import annotations

from gpuctl.diag.catalogue import CodeEntry

ENTRIES: tuple[CodeEntry, ...] = (
    CodeEntry(
        code="GPU3120",
        title="scaling in pools that do not hand out GPUs by number",
        message="no pool of this job lets a service have more workers as it runs: {pools}",
        why="More workers are more pods of the same template. Where GPUs come by a claim or by HAMi's scheduler, the "
        "template names the GPUs of the start, and a pod more would find none.",
        fix="name a pool with sharing: device-plugin or mig in nodePools, or remove scaling",
    ),
    CodeEntry(
        code="GPU3121",
        title="no workers where the cluster does not scale to zero",
        message="minWorkers: 0 needs scheduling.scaleToZero: true in the Cluster",
        why="Kubernetes' autoscaler takes the last pod of a service, and sees when its load is back, with the feature "
        "HPAScaleToZero alone. Without it the API server refuses the autoscaler.",
        fix="write minWorkers: 1; or have an administrator turn HPAScaleToZero on, and declare it in the Cluster",
    ),
)
