"""The admission policy that keeps a run and its pods together: the run ends with its pods, and these with their
processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuctl.install.installation import Duties
from gpuctl.install.matching import MAY_PATCH_NODES, by_others, in_projects, rule, validation, variable
from gpuctl.k8s import names

_USUAL_GRACE_S = 30
_MOST = {"labels": 64, "annotations": 48, "managedFields": 12}
_LONGEST_NOTE = 4096
"""The most entries in the metadata of a run's objects, and the most characters of an annotation. Even with all of them
there is room for what controllers write: 64 KiB of annotations (the one of Deployments is a copy), and half a MiB in
all. Each manager's entry contains each key once more."""
_EVICTION_GRACE_S = 600
"""The most grace that Kubernetes' cluster autoscaler gives. Admission of an eviction does not see the pod."""


def ends(makers: Sequence[str], duties: Duties) -> tuple[str, Mapping[str, Any]]:
    """A run ends with its pods: pods that outlive their workload would keep its GPUs, and count for no project.

    Security: these are the ways in which a tenant could cause that, and that the policy refuses:

    - A workload that is deleted leaves its pods behind if that is asked for (`Orphan`), or as long as a finalizer holds
      it; in that time its controller stops no pod.
    - A pod that loses its owner, or a label by which its controller knows it, goes on while its controller replaces it.
      A pod with a second owner, such as a ConfigMap, is not deleted with its workload.
    - A pod that is deleted with years of grace is ended by no pause: its Job deletes no pod twice, and only a request
      with less grace shortens it.
    - A pod that is deleted by force is gone while its processes still run: the kubelet counts its GPUs as free, and
      gives them to the next pod.
    - A pod that is filled up to the server's size limit has no room for its own end: the kubelet can't report the end,
      and the pod stays for ever.

    Accounts that may change nodes, such as the garbage collector's, may write finalizers, owners and labels, and give
    more grace or none. Objects that other controllers make of a run have its labels at least on their pods.
    """
    changed = ("UPDATE", "DELETE")
    marked = " || ".join(
        f"'{names.JOB_LABEL}' in dyn(oldObject).{place}.?labels.orValue({{}})"
        for place in ("metadata", "?spec.?template.?metadata")
    )
    grace = f"dyn(oldObject).spec.?terminationGracePeriodSeconds.orValue({_USUAL_GRACE_S})"
    of_eviction = "request.operation == 'CREATE' ? dyn(object).?deleteOptions.orValue({}) : dyn({})"
    return "gpuctl-ends", {
        "matchConstraints": in_projects(
            rule("", "v1", ("pods",), changed),
            rule("", "v1", ("pods/eviction",), ("CREATE",)),
            rule("apps", "v1", ("deployments", "replicasets", "statefulsets"), changed),
            rule("batch", "v1", ("jobs",), changed),
            *(rule(group, "*", (plural,), changed) for group, plural in duties.pairs),
        ),
        "matchConditions": [
            by_others(makers),
            {"name": "of-gpuctl", "expression": f"request.operation == 'CREATE' || {marked}"},
        ],
        "variables": [
            variable("unchanged", "request.operation != 'UPDATE'"),
            variable("options", f"request.operation == 'DELETE' ? dyn(request.options) : {of_eviction}"),
            variable("longest", f"request.operation == 'DELETE' ? {grace} : {_EVICTION_GRACE_S}"),
            variable("running", f"request.operation == 'CREATE' || ({_is_on_a_node()})"),
        ],
        "validations": [*_ends_with_its_pods()],
    }


def _is_on_a_node() -> str:
    """Whether the deleted pod may have processes."""
    ended = "dyn(oldObject).?status.?phase.orValue('') in ['Succeeded', 'Failed']"
    return f"dyn(oldObject).spec.?nodeName.orValue('') != '' && !({ended})"


def _ends_with_its_pods() -> Iterator[Mapping[str, Any]]:
    now, before = map("dyn({}).metadata.?labels.orValue({{}})".format, ("object", "oldObject"))
    labels = f"{before}.all(k, k in {now} && {now}[k] == {before}[k])"
    finalizers = f"{_entries('finalizers', 'object')}.all(n, n in {_entries('finalizers', 'oldObject')})"
    owners = f"{_entries('ownerReferences', 'object')} == {_entries('ownerReferences', 'oldObject')}"
    yield validation(
        "variables.options.?propagationPolicy.orValue('') != 'Orphan' && "
        "!variables.options.?orphanDependents.orValue(false)",
        "this is gpuctl's: its pods are deleted with it, or they would keep their GPUs",
    )
    yield validation(
        "request.resource.resource != 'pods' || "
        f"variables.options.?gracePeriodSeconds.orValue(0) <= variables.longest || {MAY_PATCH_NODES}",
        "this is gpuctl's: its pod has no longer to end than its terminationGracePeriodSeconds, or "
        f"{_EVICTION_GRACE_S} s where it is evicted",
    )
    yield validation(
        "request.resource.resource != 'pods' || variables.options.?gracePeriodSeconds.orValue(1) > 0 || "
        f"!variables.running || {MAY_PATCH_NODES}",
        "a pod that is forced off is gone before its processes, and its GPUs are given to others: let it have a second",
    )
    yield validation(
        f"variables.unchanged || {finalizers} || {MAY_PATCH_NODES}",
        "this is gpuctl's: a finalizer would keep its pods and their GPUs after its end",
    )
    yield validation(
        f"variables.unchanged || {owners} || {MAY_PATCH_NODES}",
        "this is gpuctl's: without its owner, or with another beside it, it would keep its GPUs after its job's end",
    )
    yield validation(
        f"variables.unchanged || {labels} || {MAY_PATCH_NODES}",
        "this is gpuctl's: without a label that it has its controller would let it go, and it would keep its GPUs",
    )
    size = "dyn({}).metadata.?{}.orValue([]).size()".format
    fits = [f"({size('object', each)} <= {most} || {size('object', each)} <= {size('oldObject', each)})"
            for each, most in _MOST.items()]  # fmt: skip
    notes, old = map("dyn({}).metadata.?annotations.orValue({{}})".format, ("object", "oldObject"))
    fits.append(f"{notes}.all(k, size({notes}[k]) <= {_LONGEST_NOTE} || (k in {old} && {old}[k] == {notes}[k]))")
    yield validation(
        f"variables.unchanged || ({' && '.join(fits)}) || {MAY_PATCH_NODES}",
        "this is gpuctl's: with so much written on it its end could not be, and it would keep its GPUs",
    )


def _entries(field: str, source: str) -> str:
    """The expression for a list in the metadata."""
    return f"dyn({source}).metadata.?{field}.orValue([])"
