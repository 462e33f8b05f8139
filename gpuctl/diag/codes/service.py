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
    CodeEntry(
        code="GPU7032",
        title="the machine's clock is not the API server's",
        message="this machine's clock says {machine}, the API server's {server}: nothing is changed until they agree",
        why="Limits of jobs, queue times and reservations are instants. By a wrong clock jobs would be ended for good "
        "that have hours left, so gpuctl decides and writes nothing while the two differ by more than a minute. What "
        "runs goes on.",
        fix="Correct the clock that is wrong: have NTP run on the node of this process and on the control plane.",
    ),
)
