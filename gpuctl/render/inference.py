"""Inference: a Deployment with as many replicas as workers are let go, none while it waits.

Replicas are recreated, not rolled: the new ones would need GPUs that the old ones still hold.
"""

from __future__ import annotations

from gpuctl.k8s import kinds, names
from gpuctl.k8s.annotations import encode_charge
from gpuctl.model.manifest import Manifest
from gpuctl.render.devices import DeviceTerms
from gpuctl.render.owner import JobOwner
from gpuctl.render.pod import charge_of, pod_template
from gpuctl.render.standing import Standing


def deployment(owner: JobOwner, terms: DeviceTerms, standing: Standing) -> Manifest:
    """The run's Deployment, decision included."""
    spec = {
        "replicas": standing.workers_of(owner.job) if standing.running else 0,
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": {**owner.selector, names.RUN_LABEL: owner.job.digest}},
        "template": pod_template(owner, terms, standing.place, {}),
    }
    facts = {
        **standing.facts,
        **owner.type_overrides,
        names.CHARGE_ANNOTATION: encode_charge(charge_of(owner.job, terms)),
    }
    return owner.run_manifest(kinds.DEPLOYMENT, {"spec": spec}, facts)
