"""What is remembered of each run: its ledger's entry, or why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from typing import TypeAlias

from gpuctl.k8s.run_entries import told_entry
from gpuctl.k8s.workload_table import Rows
from gpuctl.model.ids import ProjectName, RunKey
from gpuctl.model.state import Body, Ledger, RunEntry
from gpuctl.observe.provenance import Trust
from gpuctl.observe.roster import Workloads


class Missing(Enum):
    """Why nothing is remembered of a run: it was never seen before, or its project's ledger is lost."""

    NEW = "new"
    LOST = "lost"


Memory: TypeAlias = RunEntry | Missing


def memories_of(
    workloads: Workloads, entries: Mapping[RunKey, RunEntry], trust: Trust, ledgers: Mapping[ProjectName, Ledger]
) -> list[Memory]:
    """A memory for each of the workloads' runs, in their order. Cost: a look-up for each."""
    found: list[Memory] = []
    for run, body in zip(workloads.runs, workloads.bodies, strict=True):
        entry = entries.get(run)
        if entry is None:
            found.append(_without_entry(run, body, trust, ledgers, workloads.rows))
        else:
            found.append(entry if trust.cluster else _for_people(entry, body, workloads.rows))
    return found


def _for_people(entry: RunEntry, body: Body, rows: Rows) -> RunEntry:
    """The entry with the reason why the run waits. Only the object has that: nothing is decided by it, so no ledger
    keeps it."""
    return replace(entry, uid="", reason=told_entry(body, rows).reason)


def _without_entry(run: RunKey, body: Body, trust: Trust, ledgers: Mapping[ProjectName, Ledger], rows: Rows) -> Memory:
    """The memory of a run without an entry. Its annotations are believed in commands that only show, and once if the
    ledger is from a version that kept no entries."""
    ledger = ledgers.get(run[0].project)
    if not trust.cluster:
        return told_entry(body, rows)
    if ledger is None or run[0].project not in trust.kept:
        return Missing.LOST
    return told_entry(body, rows) if not ledger.keeps_runs and run in ledger.seen else Missing.NEW
