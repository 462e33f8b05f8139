"""GPU7090 and on: `gpuctl bench cluster`."""

from __future__ import annotations

from gpuctl.diag.catalogue import CodeEntry

ENTRIES: tuple[CodeEntry, ...] = (
    CodeEntry(
        code="GPU7090",
        title="the measured controller has ended",
        message="the `gpuctl reconcile` under measurement has ended: {said}",
        why="The benchmark measures a controller that runs as a separate process, and that process has ended.",
        fix="Run the benchmark with an administrator's kubeconfig, on a cluster without other users.",
    ),
    CodeEntry(
        code="GPU7091",
        title="a benchmark makes no progress",
        message="{what}: no progress for {seconds} s",
        why="The benchmark waits for Jobs to be created, to start or to end. It needs the Job controller, "
        "kube-scheduler, and KWOK with a stage that ends a pod after the time in its variable RUN_FOR.",
        fix="Check that the control plane's components run, and KWOK's stages; `kubectl get pods -A` shows the state "
        "of the pods.",
    ),
)
