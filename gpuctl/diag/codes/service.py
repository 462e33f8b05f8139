"""GPU7030-7039: gpuctl as a service of the cluster: leadership and measurements."""

from __future__ import annotations

from gpuctl.diag.catalogue import CodeEntry

ENTRIES: tuple[CodeEntry, ...] = (
    CodeEntry(
        code="GPU7030",
        title="leadership has no place to be kept",
        message="namespace {namespace} is not there",
        why="Which of several replicas may write is kept in a Lease of gpuctl's own namespace. Without it none writes.",
        fix="Apply what `gpuctl install` prints, or create the namespace.",
    ),
    CodeEntry(
        code="GPU7031",
        title="measurements can't be served",
        message="{address}: {why}",
        why="gpuctl serves /metrics, /healthz and /readyz at the address that `--metrics-address` names.",
        fix="Name an address of this machine as HOST:PORT whose port is free, say 127.0.0.1:8080.",
    ),
)
