"""A job that is the object of another controller: as declared, with gpuctl's additions to its pod templates.

Added are labels, the place, tolerations for the pool's taints and the priority class; if the project's pods are
restricted, the fields that this level requires; and to containers without GPUs the variable that hides those of the
node. Everything else stays as declared. The controller refuses any change of the templates, so an object that is
released at another place than it was made for is deleted and created again: see `gpuctl/plan/admission.py`.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, cast

from gpuctl.k8s import names
from gpuctl.k8s.annotations import encode_charge, spec_digest
from gpuctl.k8s.objects import mapping, whole
from gpuctl.k8s.suspension import with_suspension
from gpuctl.k8s.workload_kinds import pod_sets
from gpuctl.k8s.workload_table import rows_of
from gpuctl.model.job import OtherWorkload
from gpuctl.model.manifest import Manifest
from gpuctl.model.workload_kind import Path
from gpuctl.render.container import WITHOUT_PRIVILEGES, is_restricted
from gpuctl.render.devices import NO_GPUS, DeviceTerms
from gpuctl.render.owner import JobOwner
from gpuctl.render.pod import WITHOUT_ROOT, affinity_to, charge_of, tolerations_of
from gpuctl.render.standing import Standing


def other_workload(owner: JobOwner, manifest: OtherWorkload, terms: DeviceTerms, standing: Standing) -> Manifest:
    """The run's object, decision included. Cost: linear in the manifest."""
    row = rows_of(owner.project.cluster.cluster.workload_kinds)[manifest.api_version, manifest.kind]
    declared: dict[str, Any] = json.loads(manifest.text)
    spec = declared["spec"]
    for path, value in row.usual.items():
        _at(spec, path[:-1]).setdefault(path[-1], value)
    for each in list(pod_sets(row, spec)):
        entry = cast("dict[str, Any]", each.entry)  # of the JSON that was read above
        template = _at(entry, each.sets.template)
        _mark(owner, template)
        for path in each.sets.marked:
            _mark(owner, {"metadata": _at(entry, path)})
        _complete(owner, template["spec"], standing)
    facts = {
        **declared.get("metadata", {}).get("annotations", {}),
        **standing.facts,
        **owner.type_overrides,
        names.CHARGE_ANNOTATION: encode_charge(charge_of(owner.job, terms)),
        names.TEMPLATE_ANNOTATION: spec_digest(spec),
    }
    declared = with_suspension(row.suspension, declared, stopped=not standing.running)
    made = owner.run_manifest(row.kind, {"spec": declared["spec"]}, facts)
    labels = {**declared.get("metadata", {}).get("labels", {}), **made.body["metadata"]["labels"]}
    return replace(made, body={**made.body, "metadata": {**made.body["metadata"], "labels": labels}})


def _at(body: dict[str, Any], path: Path) -> dict[str, Any]:
    """The mapping at a path, created if it does not exist."""
    for step in path:
        if body.get(step) is None:
            body[step] = {}
        body = body[step]
    return body


def _mark(owner: JobOwner, template: dict[str, Any]) -> None:
    """Add the run's labels to the metadata of what is made from a template."""
    labels = _at(template, ("metadata", "labels"))
    labels |= owner.run_labels


def _complete(owner: JobOwner, pod: dict[str, Any], standing: Standing) -> None:
    pod["automountServiceAccountToken"] = False
    pod["priorityClassName"] = names.PRIORITY_CLASS
    pod["tolerations"] = tolerations_of(owner)
    if standing.place is not None:
        pod["affinity"] = affinity_to(standing.place)
    if is_restricted(owner):
        pod["securityContext"] = {**WITHOUT_ROOT, **(pod.get("securityContext") or {})}
    for container in (*(pod.get("initContainers") or ()), *pod["containers"]):
        if is_restricted(owner):
            wanted = container.get("securityContext") or {}
            dropped = {**(wanted.get("capabilities") or {}), **WITHOUT_PRIVILEGES["capabilities"]}
            container["securityContext"] = {**WITHOUT_PRIVILEGES, **wanted, "capabilities": dropped}
        if not whole(mapping(container, "resources", "limits"), names.GPU_RESOURCE):
            container["env"] = [*NO_GPUS, *(container.get("env") or ())]
