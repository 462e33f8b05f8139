"""Claims that a cycle made anew, after something else had deleted them: the data of their job is gone."""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.app.cycle import CycleReport
from gpuctl.diag.wording import message
from gpuctl.k8s.kinds import CLAIM
from gpuctl.k8s.workloads import job_of
from gpuctl.model.change import Action, OutcomeStatus
from gpuctl.model.ids import JobId, ObjectRef


def claims_made_anew(report: CycleReport) -> Iterator[tuple[JobId, ObjectRef, str]]:
    """The claims that were created although the ledger had them already and their job has started: for each the job,
    the claim, and the message that tells it.

    Cost: linear in what was written.
    """
    for outcome in report.result.outcomes:
        change = outcome.change
        is_made = change.action is Action.CREATE and outcome.status is OutcomeStatus.APPLIED
        if not is_made or (change.ref.api_version, change.ref.kind) != CLAIM or change.project is None:
            continue
        ledger, job = report.state.ledgers.get(change.project), job_of(change.body or {})
        if ledger is None or job is None or change.ref not in ledger.inventory:
            continue
        if any(run.job == job and run.starts for run in report.state.runs):
            yield job, change.ref, message("GPU7061", {"object": str(change.ref), "job": str(job)})
