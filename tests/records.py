"""What is remembered of a run, drawn by Hypothesis: one place for each test that writes and reads it."""

from __future__ import annotations

from hypothesis import strategies as st

from gpuctl.model.decision import NOT_YET, RunRecord
from gpuctl.model.ids import JobId


def run_records(
    amounts: st.SearchStrategy[int], jobs: st.SearchStrategy[JobId], instants: st.SearchStrategy[int] | None = None
) -> st.SearchStrategy[RunRecord]:
    """Records with every field drawn. `instants`: for the time since which it waits, if not the same as `amounts`."""
    return st.builds(
        RunRecord,
        queued_at_ms=amounts if instants is None else instants,
        starts=amounts,
        ran_ms=amounts,
        paused_for=st.none() | jobs,
        failed_starts=amounts,
        starting_ms=st.just(NOT_YET) | amounts,
    )
