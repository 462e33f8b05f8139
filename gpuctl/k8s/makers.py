"""Whether gpuctl made an object. An object that it did not make stays as it is, whatever its name.

A run's object is known by its uid (`gpuctl/observe/provenance.py`), a namespace by its guard, and no tenant writes in
gpuctl's own namespace. For everything else the object itself tells. Security: a tenant can write that, but only on
objects of its own namespace: one that it hands to gpuctl becomes as Git wants it, one that it takes away makes its own
job wait.
"""

from __future__ import annotations

from gpuctl.k8s import kinds, names
from gpuctl.k8s.objects import is_own_apply, items, labels_of
from gpuctl.k8s.workloads import is_workload
from gpuctl.model.ids import ObjectRef
from gpuctl.model.state import Body

HANDED_OVER = (names.MANAGED_BY_LABEL, names.CLUSTER_LABEL, names.PROJECT_LABEL)
"""Labels by which a person hands an object over to gpuctl: with the values that gpuctl would give it."""


_OF_ANY_PROJECT: Body = {"metadata": {"labels": {names.MANAGED_BY_LABEL: names.MANAGED_BY}}}


def tells_its_maker(ref: ObjectRef) -> bool:
    """Whether the object itself is asked which manager made it."""
    is_namespace = (ref.api_version, ref.kind) == kinds.NAMESPACE
    return not (is_namespace or ref.namespace == names.SYSTEM_NAMESPACE or is_workload(ref))


def is_foreign(wanted: Body, live: Body) -> bool:
    """Whether the object in the place of a wanted one is another's: gpuctl never applied it, and no labels hand it
    over.

    Output of `kubectl get` does not say who applied an object; such an object counts as gpuctl's.
    """
    entries = list(items(live, "metadata", "managedFields"))
    if not entries or any(map(is_own_apply, entries)):
        return False
    told, found = labels_of(wanted), labels_of(live)
    return any(found.get(label) != told[label] for label in HANDED_OVER if label in told)


def is_of_people(ref: ObjectRef, live: Body) -> bool:
    """Whether an object was made by others, and handed over to no project."""
    return tells_its_maker(ref) and is_foreign(_OF_ANY_PROJECT, live)
