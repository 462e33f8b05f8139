"""GPU7090 and on: `gpuctl bench cluster`."""

from __future__ import annotations

from gpuctl.diag.catalogue import CodeEntry

ENTRIES: tuple[CodeEntry, ...] = (
    CodeEntry(
        code="GPU7090",
        title="the measured controller has ended",
        message="the `gpuctl reconcile` under measurement has ended: {said}",
        why="The benchmark runs a controller as a process of its own. Without it there is nothing to measure.",
        fix="Run the benchmark with a kubeconfig of an administrator, on a cluster that nobody else uses.",
    ),
    CodeEntry(
        code="GPU7091",
        title="a benchmark stands still",
        message="{what}: nothing has happened for {seconds} s",
        why="The benchmark waits for Jobs to be made, to start or to end. It needs the Job controller, kube-scheduler, "
        "and KWOK with a stage that ends a pod after the time that its variable RUN_FOR says.",
        fix="See whether the control plane's parts run and what KWOK's stages are; `kubectl get pods -A` shows how far "
        "the pods have come.",
    ),
)
