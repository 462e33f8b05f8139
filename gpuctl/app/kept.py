"""Cuts objects of the cluster down to the parts that observing and planning read, for the object cache.

Tenants can make objects large: annotations of 256 KiB, the manager of each field, the status of each container. A copy
of everything could exhaust the memory of the process. So each body is cut down on arrival to the parts in the tables
below, and equal parts become one object.

Of gpuctl's own objects, everything is kept that is compared. Of any other object a few facts are kept, however large it
is.
"""

from __future__ import annotations

import marshal
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

from gpuctl.k8s import kinds, names
from gpuctl.k8s.kinds import Kind
from gpuctl.k8s.objects import annotations_of, condition, is_own_apply, items, labels_of, mapping, ref_of, text
from gpuctl.k8s.requests import requests_of
from gpuctl.k8s.workload_table import BUILT_IN
from gpuctl.k8s.workloads import own_run
from gpuctl.model.shared import LONGEST_PART, REMEMBERED, Shared
from gpuctl.model.state import Body
from gpuctl.observe.problems import REPLICA_FAILURE, kept_status, refusal_of
from gpuctl.plan.ownership import FieldSet, owned_fields

Parts = Mapping[str, Any]
"""The parts to keep: of a mapping, by key; of a list, for each of its items."""

WHOLE: Final[Parts] = {}
"""Keep the value as it is."""


def _whole(*keys: str) -> Parts:
    return dict.fromkeys(keys, WHOLE)


_CONDITIONS = _whole("type", "status", "reason", "lastTransitionTime")
_RESULTS = _whole("driver", "pool", "device", "consumedCapacity")
_DEVICES = {
    **_whole("name"),
    "attributes": _whole("minor", "type", "uuid", "parentUUID", "profile"),
    "taints": _whole("effect"),
}


def _of_status(paths: Iterable[tuple[str, ...]]) -> dict[str, Any]:
    """The parts to keep of an object's status, from paths that begin at `status`."""
    found: dict[str, Any] = {}
    for path in paths:
        below = found
        for step in path[1:-1]:
            below = below.setdefault(step, {})
        below[path[-1]] = WHOLE
    return found


KEPT: Mapping[Kind, Parts] = {
    kinds.NAMESPACE: {"status": _whole("phase")},
    kinds.NODE: {
        "spec": {**_whole("unschedulable"), "taints": _whole("key", "value", "effect")},
        "status": {**_whole("allocatable", "capacity"), "conditions": _whole("type", "status", "lastTransitionTime")},
    },
    kinds.POD: {
        "spec": {**_whole("nodeName"), "resourceClaims": _whole("resourceClaimTemplateName")},
        "status": _whole("phase", "startTime"),
    },
    kinds.JOB: {
        "status": {
            **_whole(
                "active", "terminating", "startTime", "completionTime", "completedIndexes", "failed", "failedIndexes"
            ),
            "uncountedTerminatedPods": _whole("succeeded", "failed"),
            "conditions": _CONDITIONS,
        }
    },
    kinds.DEPLOYMENT: {"status": {**_whole("replicas", "terminatingReplicas"), "conditions": _CONDITIONS}},
    kinds.AUTOSCALER: {"status": {**_whole("desiredReplicas", "lastScaleTime"), "conditions": _CONDITIONS}},
    **{kind: {"status": {**_of_status(row.read), "conditions": _CONDITIONS}} for kind, row in BUILT_IN.items()},
    kinds.RESOURCE_CLAIM: {
        "status": {"allocation": {"devices": {"results": _RESULTS}}, "reservedFor": _whole("resource", "name")}
    },
    kinds.RESOURCE_SLICE: {"spec": {**_whole("driver", "nodeName", "pool"), "devices": _DEVICES}},
    kinds.DEVICE_CLASS: {"spec": _whole("extendedResourceName")},
}
"""The parts to keep of each kind, besides its metadata. A pod also keeps the sum of its requests, and, if it does
not run, the reason. gpuctl's own objects also keep all parts except the status. Other kinds keep only the metadata.
"""

_OF_DECLARED: Parts = {"status": WHOLE}
_CONDITIONS_ALONE: Parts = {"status": {"conditions": _CONDITIONS}}
"""For kinds that a Cluster declares. The declaration says where in the status a value is read, and may change; so a
small status is kept whole, and of a large one only the conditions."""
_LARGEST_STATUS = 1 << 14
_MEAN = {"current": _whole("averageValue")}
_MEASURED: Parts = {"status": {**_whole("currentReplicas"), "currentMetrics": {"pods": _MEAN, "external": _MEAN}}}

NOTES: Mapping[Kind, Collection[str]] = {
    kinds.NODE: (names.HAMI_REGISTER_ANNOTATION, names.HAMI_CORDON_ANNOTATION),
    kinds.CONFIG_MAP: (names.FROZEN_ANNOTATION, names.SYNC_ANNOTATION),
    kinds.POD: (
        names.IDLE_SINCE_ANNOTATION,
        names.HAMI_DEVICES_ANNOTATION,
        names.WORKER_INDEX_LABEL,
        names.INDEX_FAILURES_ANNOTATION,
        names.PROGRESS_ANNOTATION,
        names.CHECKPOINTED_ANNOTATION,
    ),
}
"""The annotations to keep of objects that are not gpuctl's own; other kinds keep none."""

LONGEST_NOTE = 1 << 16
"""The longest annotation to keep of an object that is not gpuctl's own. A longer one reads as absent."""
LARGEST_WHOLE = 1 << 16
"""A size limit in bytes, as `marshal` writes them. A command keeps an object up to this size as it is. A cycle takes an
object up to this size for gpuctl's own by its field manager alone. A larger one must also bear gpuctl's label: any user
may write under that manager name, but with the guard only gpuctl writes the label."""
MOST_PARTS = 5_000
"""An object of gpuctl's own has some hundreds of parts. One with more than this is kept like any other team's
object."""
_MARKS = {value: value for name, value in vars(names).items() if name.endswith(("_LABEL", "_ANNOTATION"))}
"""Every label and annotation that gpuctl knows."""
_IDENTITY = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp")
_OWNER = ("apiVersion", "kind", "name", "uid", "controller")
_LONGEST_LINK = 253
_MOST_LINKS = 16
"""How many owners and finalizers are kept; the controlling owner comes first."""
_BRIEFLY = 4
"""The version of the marshal format in which each value takes at least a byte."""
_TOLD = ("status", "conditions")
_BY_US = {"manager": names.FIELD_MANAGER, "operation": "Apply"}
_ASKING = ("resources", "restartPolicy")
_ASIDE = frozenset({"apiVersion", "kind", "metadata", "status"})


class KeptBody(dict[str, Any]):
    """A body that has been cut down."""

    __slots__ = ()


class Keep:
    """Cuts bodies down. Safe for threads.

    Invariant: equal bodies give equal results, and cutting down a second time changes nothing.
    """

    __slots__ = ("_shared",)

    def __init__(self) -> None:
        self._shared = Shared()

    def __call__(self, body: Body) -> Body:
        """Cut a body down. Cost: some 50 us for an object of gpuctl's own, 20 us for any other."""
        if type(body) is KeptBody:
            return body
        kind = (text(body, "apiVersion"), text(body, "kind"))
        kept = KeptBody(apiVersion=self._shared.text(kind[0]), kind=self._shared.text(kind[1]))
        try:
            return self._filled(kept, body, kind)
        except RecursionError:  # nested deeper than anything a cycle reads: only its identity is kept
            return KeptBody(apiVersion=kind[0], kind=kind[1], metadata=self._identity(body))

    def _filled(self, kept: KeptBody, body: Body, kind: Kind) -> KeptBody:
        may_be_own = kinds.may_be_own(kind)
        fields = owned_fields(body) if may_be_own else {}
        if may_be_own and (fields or _bears_our_name(body)) and not _is_too_much(body, fields):
            kept["metadata"] = self._own_metadata(body, fields)
            kept |= {key: self._section(body[key], fields) for key in body if key not in _ASIDE and key != "data"}
            if "data" in body:  # a ledger's data: no two are alike
                kept["data"] = body["data"]
        else:
            kept["metadata"] = self._metadata(body, kind)
        if kind in KEPT:
            kept |= self._cut(body, KEPT[kind])
        elif kinds.is_declared(kind):
            kept |= self._cut(body, _OF_DECLARED if _is_small(body.get("status")) else _CONDITIONS_ALONE)
        if kind == kinds.DEPLOYMENT and (words := refusal_of(body)):
            told = [{**c, "message": words} if c.get("type") == REPLICA_FAILURE else c for c in items(kept, *_TOLD)]
            kept["status"] = {**mapping(kept, "status"), "conditions": self._shared.part(told)}
        if kind == kinds.AUTOSCALER and condition(body, "ScalingLimited"):
            # The measured values change all the time. They are read only where more replicas are wanted than allowed.
            kept["status"] = {**mapping(kept, "status"), **self._cut(body, _MEASURED).get("status", {})}
        if kind == kinds.POD:
            is_given = names.HAMI_DEVICES_ANNOTATION in annotations_of(body)
            requests = (_requests_by_container if is_given else _requests)(mapping(body, "spec"))
            kept["spec"] = {**mapping(kept, "spec"), **requests}
            trouble = kept_status(body)
            if trouble:
                kept["status"] = {**mapping(kept, "status"), **self._shared.part(trouble)}
        return kept

    def _metadata(self, body: Body, kind: Kind) -> dict[str, Any]:
        """The metadata to keep of an object that is not gpuctl's own."""
        meta, labels = self._identity(body), labels_of(body)
        if labels:
            meta["labels"] = self._shared.part(labels) if kind == kinds.NODE else self._marks(labels, {})
        # The managers show that gpuctl did not make the object.
        if kinds.may_be_own(kind) and (others := self._last_of_others(body)):
            meta["managedFields"] = others
        if kind in NOTES:
            notes = annotations_of(body)
            told = [(name, note) for name in NOTES[kind] if isinstance(note := notes.get(name), str)]
            meta["annotations"] = {name: self._shared.text(note) for name, note in told if len(note) <= LONGEST_NOTE}
        return meta

    def _own_metadata(self, body: Body, fields: FieldSet) -> dict[str, Any]:
        """The metadata to keep of gpuctl's own object: with the fields that gpuctl set, and the last other manager."""
        meta, owned = self._identity(body), mapping(fields, "f:metadata")
        for part in ("labels", "annotations"):
            if part in mapping(body, "metadata"):
                meta[part] = self._marks(mapping(body, "metadata", part), mapping(owned, f"f:{part}"))
        entries = [{**_BY_US, "fieldsV1": fields}] if fields else []
        meta["managedFields"] = [self._shared.tree(entry) for entry in [*entries, *self._last_of_others(body)]]
        return meta

    def _last_of_others(self, body: Body) -> list[dict[str, Any]]:
        """The entry of the last other manager, without its fields; empty if only gpuctl wrote the object."""
        told = [entry for entry in items(body, "metadata", "managedFields") if not entry.get("subresource")]
        others = [entry for entry in told if not is_own_apply(entry)]
        if not others:
            return []
        last = max(others, key=lambda entry: text(entry, "time"))
        found = {key: text(last, key) for key in ("manager", "operation", "time")}
        return [{key: self._shared.text(told) for key, told in found.items() if len(told) <= _LONGEST_LINK}]

    def _identity(self, body: Body) -> dict[str, Any]:
        """The metadata to keep of any object."""
        meta = mapping(body, "metadata")
        found = {key: meta[key] for key in _IDENTITY if key in meta}
        if "namespace" in found:
            found["namespace"] = self._shared.part(found["namespace"])
        if "finalizers" in meta:
            names_of_them = meta["finalizers"] if isinstance(meta["finalizers"], list) else []
            found["finalizers"] = self._shared.part(list(filter(_is_short, names_of_them))[:_MOST_LINKS])
        if "ownerReferences" in meta:
            owners = sorted(items(meta, "ownerReferences"), key=lambda owner: owner.get("controller") is not True)
            cut = [{key: owner[key] for key in _OWNER if key in owner} for owner in owners[:_MOST_LINKS]]
            found["ownerReferences"] = [owner for owner in cut if all(map(_is_short, owner.values()))]
        return found

    def _marks(self, found: Mapping[str, Any], owned: FieldSet) -> dict[str, Any]:
        """The labels or annotations that gpuctl knows or has set."""
        part = self._shared.part
        return {
            _MARKS.get(key) or self._shared.text(key): part(value)
            for key, value in found.items()
            if key in _MARKS or f"f:{key}" in owned
        }

    def _section(self, section: Any, fields: FieldSet) -> Any:
        """A section of gpuctl's own object. The labels that the server adds to a pod template are left out: they name
        the run, so that the templates of equal runs would differ."""
        template = mapping(section, "template") if isinstance(section, dict) else {}
        if not template:
            return self._shared.part(section)
        shared, owned = self._shared, mapping(fields, "f:spec", "f:template", "f:metadata")
        meta = {
            part: self._marks(found, mapping(owned, f"f:{part}"))
            for part in ("labels", "annotations")
            if (found := mapping(template, "metadata", part))
        }
        aside = {"template"} if "f:selector" in mapping(fields, "f:spec") else {"template", "selector"}
        kept = {shared.text(key): shared.part(below) for key, below in section.items() if key not in aside}
        return {**kept, "template": {"metadata": meta, "spec": shared.in_parts(template.get("spec"))}}

    def _cut(self, value: Any, parts: Parts) -> Any:
        """The named parts of a value."""
        if parts is WHOLE:
            return self._shared.part(value)
        if isinstance(value, list):
            return [self._cut(item, parts) for item in value]
        if not isinstance(value, dict):
            return value
        return {key: self._cut(value[key], below) for key, below in parts.items() if key in value}


class KeepSmall:
    """Cuts down large bodies only, for commands: they show more of an object than a cycle reads, but must not need
    memory for what a tenant made large. ConfigMaps, among them what is published, stay as they are. Safe for
    threads."""

    __slots__ = ("_keep",)

    def __init__(self) -> None:
        self._keep = Keep()

    def __call__(self, body: Body) -> Body:
        """Cost: some 6 us for a small object."""
        if (text(body, "apiVersion"), text(body, "kind")) == kinds.CONFIG_MAP:
            return body  # in gpuctl's own namespace, where no tenant writes
        with suppress(ValueError):  # no JSON, or nested too deeply
            if len(marshal.dumps(dict(body), _BRIEFLY)) <= LARGEST_WHOLE:
                return body
        return self._keep(body)


def _bears_our_name(body: Body) -> bool:
    """Whether an object without managed fields is gpuctl's own by its labels and name."""
    ref = ref_of(body)
    if (ref.api_version, ref.kind) == kinds.CONFIG_MAP:
        return names.ledger_owner(ref.name) is not None or names.shard_owner(ref.name) is not None
    return own_run(ref, body) is not None or labels_of(body).get(names.MANAGED_BY_LABEL) == names.MANAGED_BY


def _is_too_much(body: Body, fields: FieldSet) -> bool:
    """Whether an object has more parts than any that gpuctl makes, or is large and lacks gpuctl's label. The parts are
    counted only if the object is large."""
    open_ = [fields, annotations_of(body), *(body[key] for key in body if key not in _ASIDE)]
    with suppress(ValueError):  # no JSON
        size_bytes = len(marshal.dumps(open_, _BRIEFLY))
        if size_bytes < MOST_PARTS:
            return False
        if size_bytes > LARGEST_WHOLE and not _bears_our_name(body):
            return True
    left = MOST_PARTS
    while open_ and left >= 0:
        value = open_.pop()
        if isinstance(value, dict | list):
            left -= len(value)
            open_ += value.values() if isinstance(value, dict) else value
    return left < 0


def _is_small(status: Any) -> bool:
    with suppress(ValueError):  # no JSON
        return len(marshal.dumps(status, _BRIEFLY)) <= _LARGEST_STATUS
    return False


def _is_short(value: object) -> bool:
    return not isinstance(value, str) or len(value) <= _LONGEST_LINK


def _requests(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """A pod's requests, as the scheduler counts them, written as the requests of one container."""
    written = _written(_asked(spec), LONGEST_PART)
    return _as_one(spec) if written is None else _read(written)


def _requests_by_container(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """The requests by container, for a pod with devices of HAMi: its annotation lists them in the containers' order."""
    asked = _asked(spec)
    return _as_one(spec) if _written(asked, LONGEST_NOTE) is None else asked


def _written(value: dict[str, Any], most_bytes: int) -> bytes | None:
    """The value as bytes; None if it is larger than `most_bytes`, or no JSON."""
    with suppress(ValueError):
        written = marshal.dumps(value, 0)
        return written if len(written) <= most_bytes else None
    return None


def _asked(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that determine the requests of a pod."""
    asked: dict[str, Any] = {
        key: [{name: container[name] for name in _ASKING if name in container} for container in items(spec, key)]
        for key in ("containers", "initContainers")
    }
    return asked | {part: below for part in ("overhead", "resources") if (below := mapping(spec, part))}


@lru_cache(maxsize=REMEMBERED)
def _read(written: bytes) -> Mapping[str, Any]:
    return _as_one(marshal.loads(written))  # noqa: S302 - written a line above


def _as_one(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    wanted = requests_of(spec)
    amounts = {
        "cpu": f"{wanted.cpu_milli}m",
        "memory": str(wanted.mem_bytes),
        names.GPU_RESOURCE: str(wanted.gpus),
        **{f"{names.MIG_RESOURCE_PREFIX}{profile}": str(count) for profile, count in wanted.slices.items()},
    }
    return {"containers": [{"resources": {"requests": amounts}}]}
