"""Warnings about declarations that another engine has no counterpart for, at the place of the declaration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

from gpuctl.diag.codes import CODES
from gpuctl.diag.diagnostic import Diagnostic, Severity
from gpuctl.diag.span import SourceSpan
from gpuctl.diag.wording import message
from gpuctl.model.declared import Cluster, Declared, SchedulingPolicy, Sharing
from gpuctl.model.job import JobType


class Engine(StrEnum):
    """Engines that decide in place of gpuctl's own."""

    KUEUE = "kueue"
    KAI = "kai"

    @property
    def called(self) -> str:
        """The engine's name as its makers write it."""
        return {Engine.KUEUE: "Kueue", Engine.KAI: "KAI"}[self]


_QUEUED_BY = {"kueue.x-k8s.io/queue-name": Engine.KUEUE, "kai.scheduler/queue": Engine.KAI}


def engine_of(labels: Mapping[str, object]) -> Engine | None:
    """The engine whose queue an object's labels name, for people; None if they name none."""
    return next((engine for label, engine in _QUEUED_BY.items() if label in labels), None)


def unsaid(code: str, span: SourceSpan, engine: Engine, **params: str) -> Diagnostic:
    """A warning about a difference of the other engine."""
    text = message(code, {"engine": engine.called, **params})
    return Diagnostic(code=code, message=text, span=span, severity=Severity.WARNING, help=CODES[code].fix)


def of_settings(declared: Declared, engine: Engine) -> Iterator[Diagnostic]:
    """Warnings for settings of the cluster and its projects that neither engine has, if they are not at their
    default."""
    cluster = declared.cluster
    for setting, instead in _cluster_settings(cluster):
        yield unsaid("GPU6150", cluster.span, engine, setting=setting, instead=instead)
    for pool in cluster.pools:
        if pool.sharing is not Sharing.DEVICE_PLUGIN:
            yield unsaid("GPU6153", pool.span, engine, pool=pool.name, sharing=pool.sharing.value)
    for job in declared.jobs:
        if job.idle_timeout_ms is not None:
            instead = "an idle session keeps its GPUs"
            yield unsaid("GPU6150", job.span, engine, setting="idleTimeout", instead=instead)
        if job.container.manifest is not None:
            yield unsaid("GPU6150", job.span, engine, setting="manifest", instead="the job is left out")
        if job.after:
            yield unsaid("GPU6150", job.span, engine, setting="after", instead="the job is queued at once")
        if job.parallelism is not None and job.position == 0:
            yield unsaid("GPU6150", job.span, engine, setting="sweep.parallelism", instead="all its jobs are queued")
        if job.scaling is not None:
            yield unsaid("GPU6150", job.span, engine, setting="scaling", instead="it has all its workers")
        if job.type is JobType.INFERENCE and job.workers > 1:
            setting, instead = "replicas that start together", "each replica is started by itself"
            yield unsaid("GPU6150", job.span, engine, setting=setting, instead=instead)


def _cluster_settings(cluster: Cluster) -> Sequence[tuple[str, str]]:
    policy, usual = cluster.scheduling, SchedulingPolicy()
    own = "it is a setting of the engine itself"
    slow = "no place is kept for a job that has waited long"
    found = (
        (policy.starvation_guard_ms != usual.starvation_guard_ms, "starvationGuard", slow),
        (policy.start_timeout_ms != usual.start_timeout_ms, "startTimeout", own),
        (policy.fairness_half_life_ms is not None, "fairness.halfLife", own),
        (policy.overcommit_quota, "overcommitQuota", "quotas are given as declared, and not scaled"),
        (bool(cluster.freeze), "freeze", "it starts and stops jobs at any time"),
    )
    return [(setting, instead) for differs, setting, instead in found if differs]
