"""Remembers the runs whose objects the API server refuses. A run that can't be written must not take GPUs from others.

A refusal is remembered while what was refused is the same: the run, its declarations, and the live object. After a
minute the write is tried again: an admission policy, a right or a quota may have changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from gpuctl.k8s.objects import resource_version
from gpuctl.k8s.workloads import run_of
from gpuctl.model.change import ApplyResult
from gpuctl.model.declared import Declared
from gpuctl.model.ids import ObjectRef, Revision, RunKey
from gpuctl.model.state import ClusterState
from gpuctl.model.units import DurationMs, Instant
from gpuctl.plan import OWN

RETRY_MS: DurationMs = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """One refusal: the run, the commits it was rendered from, the live object's version then, the server's message."""

    run: RunKey
    commits: tuple[Revision | None, Revision | None]
    version: str
    at_ms: Instant
    error: str


Rejections: TypeAlias = Mapping[ObjectRef, Rejection]


def still_refused(rejections: Rejections, declared: Declared, state: ClusterState, now_ms: Instant) -> Rejections:
    """The refusals that still hold. Cost: linear in the declared jobs if there is a refusal, else none."""
    if not rejections:
        return {}
    runs = {(job.id, job.digest) for job in declared.jobs}
    return {
        ref: found
        for ref, found in rejections.items()
        if found.run in runs
        and found.commits == _commits(declared, found.run)
        and found.version == _version(state, ref)
        and now_ms < found.at_ms + RETRY_MS
    }


def with_new(
    rejections: Rejections, result: ApplyResult, declared: Declared, state: ClusterState, now_ms: Instant
) -> Rejections:
    """Add the refusals among the results of writing: of what a run needs, its Job, Deployment or claim template."""
    found = dict(rejections)
    for outcome in result.outcomes:
        run = run_of(outcome.change.body or {}) if outcome.refused else None
        if run is not None:
            ref = outcome.change.ref
            found[ref] = Rejection(
                run=run,
                commits=_commits(declared, run),
                version=_version(state, ref),
                at_ms=now_ms,
                error=outcome.error,
            )
    return found


def _commits(declared: Declared, run: RunKey) -> tuple[Revision | None, Revision | None]:
    """The commits that a run is rendered from: of its project's files and of the cluster's own."""
    return declared.project_revisions.get(run[0].project), declared.project_revisions.get(OWN)


def _version(state: ClusterState, ref: ObjectRef) -> str:
    return resource_version(state.live.get(ref, {}))
