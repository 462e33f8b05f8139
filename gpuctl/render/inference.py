"""Inference: a Deployment with as many replicas as workers are released, none while it waits; and its autoscaler.

Replicas are recreated, not rolled: new ones would need the GPUs that the old ones still hold.
"""

from __future__ import annotations

from gpuctl.k8s import kinds, names
from gpuctl.k8s.annotations import encode_charge
from gpuctl.k8s.quantity import format_cpu
from gpuctl.k8s.suspension import with_suspension
from gpuctl.k8s.workload_table import BY_REPLICAS
from gpuctl.model.job import MetricSource
from gpuctl.model.manifest import Manifest
from gpuctl.model.transition import sent_to
from gpuctl.render.devices import DeviceTerms
from gpuctl.render.owner import JobOwner, Spec
from gpuctl.render.pod import affinity_to, charge_of, pod_template
from gpuctl.render.standing import Standing

_MULTIPLIES: Spec = {"policies": [{"type": "Percent", "value": 300, "periodSeconds": 1}], "selectPolicy": "Max"}
"""Up to four times as many replicas at a time, Kubernetes' default from one replica on; none from none. The period is
so short that a replica removed before does not count."""


def deployment(owner: JobOwner, terms: DeviceTerms, standing: Standing) -> Manifest:
    """The run's Deployment, decision included."""
    spec = {
        "replicas": standing.workers_of(owner.job),
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": {**owner.selector, names.RUN_LABEL: owner.job.digest}},
        "template": _with_further(pod_template(owner, terms, standing.place, {}), standing),
    }
    facts = {
        **standing.facts,
        **owner.type_overrides,
        names.CHARGE_ANNOTATION: encode_charge(charge_of(owner.job, terms)),
    }
    body = with_suspension(BY_REPLICAS, {"spec": spec}, stopped=not standing.running)
    return owner.run_manifest(kinds.DEPLOYMENT, body, facts)


def _with_further(template: Spec, standing: Standing) -> Spec:
    """The template with the nodes that further workers may go to, besides those of the start."""
    if standing.place is None or not standing.further:
        return template
    affinity = affinity_to(sent_to(standing.place, standing.further))
    return {**template, "spec": {**template["spec"], "affinity": affinity}}


def autoscaler(owner: JobOwner, standing: Standing) -> Manifest | None:
    """Lets a running service have fewer replicas than the engine admits, by its load.

    None if the service does not run or does not scale. The upper bound is the number admitted now, so that no pod is
    created without a place; the autoscaler's status tells how many more it wants. An autoscaler that has removed the
    last replica stays, and can't create the next one: it may only multiply existing replicas.
    """
    scaling, place = owner.job.scaling, standing.place
    to_zero = scaling is not None and scaling.to_zero and not owner.job.suspend
    if scaling is None or (place is None and not (to_zero and standing.record.starts)):
        return None
    admitted = 1 if place is None else len(place.workers)
    name = {"name": scaling.metric, **({"selector": {"matchLabels": dict(scaling.labels)}} if scaling.labels else {})}
    target = {"type": "AverageValue", "averageValue": format_cpu(scaling.target_milli)}
    kind = {MetricSource.PODS: "Pods", MetricSource.EXTERNAL: "External"}[scaling.source]
    spec = {
        "scaleTargetRef": {"apiVersion": kinds.DEPLOYMENT[0], "kind": kinds.DEPLOYMENT[1], "name": owner.run},
        "minReplicas": 0 if scaling.to_zero else min(owner.job.min_workers, admitted),
        "maxReplicas": admitted,
        "metrics": [{"type": kind, kind.lower(): {"metric": name, "target": target}}],
        **({"behavior": {"scaleUp": _MULTIPLIES}} if scaling.to_zero else {}),
    }
    return owner.run_manifest(kinds.AUTOSCALER, {"spec": spec})
