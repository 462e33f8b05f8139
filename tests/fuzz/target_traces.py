"""The readers of traces: any table becomes a trace, or diagnostics."""

from __future__ import annotations

from gpuctl.simulate.trace_openb import read_nodes, read_openb, read_pods
from gpuctl.simulate.trace_philly import read_philly

from .harness import CSV, Target
from .target_compile import told_well


def check(data: bytes) -> None:
    """Read the table as each kind there is."""
    for read in (read_philly, read_openb):
        trace, diagnostics = read("t.csv", data)
        assert (trace is None) == bool(diagnostics)
        told_well(diagnostics)
        if trace is not None:
            assert sum(job.work_ms for job in trace.between(trace.jobs[0].submitted_ms + 1, None).jobs) >= 0
    for read_rows in (read_nodes, read_pods):
        rows, diagnostics = read_rows("t.csv", data)
        assert not (rows and diagnostics)
        told_well(diagnostics)


TARGET = Target(
    check=check,
    form=CSV,
    words=(b'"', b'""', b",,", b"\r\n", b"1_000", b"\xd9\xa1", b"\xc2\xb2", b"1e5", b"-0", b"+5",
           b"0001-01-01 00:00:00", b"9999-12-31T23:59:59-23:59", b"timestamp,", b"num_gpus", b"gpu_milli",
           b"cluster", b"qos", b"gpu_spec", b"T4|P100", b"|"),
)  # fmt: skip
