"""The controllers of kinds that are a row, built in or declared, without a controller here: all but JobSet.

They play what a row says: as many pods of each template as it counts, and none while the object is stopped. The object
ends once the deciding pods have ended; if the kind never ends, pods that end are made again. The pods belong to the
object itself, without the Job, RayCluster or StatefulSet that the real controllers put between, and no Service is made.
Sources: those of `gpuctl/k8s/workload_table.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from gpuctl.adapters.embedded.bodies import Key, key_of, put, terminal, with_condition
from gpuctl.adapters.embedded.controller import Desk
from gpuctl.adapters.embedded.podwork import Refusals, active, new_pod, owned_pods, warn
from gpuctl.app.ports import WorldFault
from gpuctl.k8s import kinds
from gpuctl.k8s.kinds import Kind
from gpuctl.k8s.objects import is_deleting, items, labels_of, mapping, text
from gpuctl.k8s.suspension import is_suspended
from gpuctl.k8s.workload_kinds import PodSet, end_of, pod_sets
from gpuctl.model.state import Body
from gpuctl.model.workload_kind import Told, WorkloadKind

_DECIDING = {kinds.PYTORCH_JOB: "master", kinds.MPI_JOB: "launcher", kinds.RAY_JOB: "submitter"}
"""The pods whose success is the object's, if it has such pods; else all pods."""
_SET = "embedded.gpuctl.dev/set"
"""The label that marks pods of one template."""


class OtherKinds:
    """The controller."""

    name = "otherkinds"

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._refusals = Refusals()

    def concerns(self, key: Key, old: Body | None, new: Body | None) -> Iterable[Key]:
        """A changed object, and the object of a changed pod."""
        if self._row(key.kinds) is not None:
            return (key,) if new is not None else ()
        if key.kinds == kinds.POD:
            return list(self._owners(key.namespace, new if new is not None else old or {}))
        return self._refusals.woken_by(key)

    def sync(self, key: Key) -> None:
        """End the object, or make and remove its pods."""
        self._refusals.clear(key)
        body = self._desk.store.get(key)
        row = self._row(key.kinds)
        if body is None or row is None or is_deleting(body):
            return
        pods = owned_pods(self._desk, body)
        if row.ends and end_of(row, body) is not None:
            self._remove(pod for pod in pods if active(pod))
        elif is_suspended(row.suspension, body):
            self._remove(pod for pod in pods if not is_deleting(pod))
        else:
            self._run(row, body, pods)
        self._report(row, body)

    def _row(self, kind: Kind) -> WorkloadKind | None:
        return self._desk.api.rows.get(kind) if kind != kinds.JOB_SET else None

    def _owners(self, namespace: str, pod: Body) -> Iterator[Key]:
        for owner in items(pod, "metadata", "ownerReferences"):
            kind = (text(owner, "apiVersion"), text(owner, "kind"))
            if self._row(kind) is not None:
                yield Key(*kind, namespace, text(owner, "name"))

    def _remove(self, pods: Iterable[Body]) -> None:
        for pod in pods:
            self._desk.api.delete(key_of(pod))

    def _run(self, row: WorkloadKind, body: Body, pods: Sequence[Body]) -> None:
        """Bring the pods of each template to their number."""
        if not row.ends:
            self._remove(pod for pod in pods if terminal(pod) and not is_deleting(pod))
        try:
            for at, each in enumerate(pod_sets(row, mapping(body, "spec"))):
                there = sum(_is_of(pod, at) for pod in pods)
                for _ in range(each.pods - there):
                    self._make(row, body, at, each)
        except WorldFault as fault:
            warn(self._desk, body, "FailedCreate", f"Error creating: {fault}")
            self._refusals.note(key_of(body))

    def _make(self, row: WorkloadKind, body: Body, at: int, each: PodSet) -> None:
        owner = {**body, "spec": {"template": each.template}}
        more: dict[str, Any] = {"labels": {_SET: str(at)}}
        if row.ends:
            more["spec"] = {"restartPolicy": "Never"}
        new_pod(self._desk, owner, f"{body['metadata']['name']}-{each.name}", more)

    def _report(self, row: WorkloadKind, body: Body) -> None:
        """Write the object's present status."""
        pods = owned_pods(self._desk, body)
        new, live = dict(body), [pod for pod in pods if active(pod)]
        for path in row.suspension.active:
            sets = [at for at, each in enumerate(pod_sets(row, mapping(body, "spec"))) if each.name in path[-2].lower()]
            new = put(new, path, sum(any(_is_of(pod, at) for at in sets) for pod in live) if sets else len(live))
        if end_of(row, body) is None and row.suspension.told is not None:
            stops = is_suspended(row.suspension, body)
            if not (stops and pods):
                new = self._telling(new, row.suspension.told, "True" if stops else "False", instead="Running")
            ended = _end(row, body, pods) if row.ends and not stops else None
            if ended is not None:
                new = self._telling(new, ended, "True")
        if new.get("status") != body.get("status"):
            self._desk.api.replace(new)

    def _telling(self, body: Body, state: Told, status: str, *, instead: str = "") -> dict[str, Any]:
        """The object with a status that says whether it is in a state; `instead`: a field's text when it is not."""
        if state.condition:
            known = {entry.get("type") for entry in items(body, "status", "conditions")}
            new = {"type": state.condition, "status": status, "reason": state.condition, "message": ""}
            return dict(body) if status == "False" and state.condition not in known else with_condition(
                body, new, self._desk.instant
            )  # fmt: skip
        told = put(body, state.field, state.values[0] if status == "True" else instead)
        return put(told, state.since, self._desk.api.now) if state.since else told


def _is_of(pod: Body, at: int) -> bool:
    return labels_of(pod).get(_SET) == str(at)


def _end(row: WorkloadKind, body: Body, pods: Sequence[Body]) -> Told | None:
    """The end that the object's pods decide; None as long as it goes on."""
    phases = [text(pod, "status", "phase") for pod in pods]
    if "Failed" in phases:
        return row.failed
    sets = list(pod_sets(row, mapping(body, "spec")))
    decide = [at for at, each in enumerate(sets) if each.name == _DECIDING.get(row.kind)] or list(range(len(sets)))
    wanted = sum(sets[at].pods for at in decide)
    done = sum(
        phase == "Succeeded" and any(_is_of(pod, at) for at in decide) for pod, phase in zip(pods, phases, strict=True)
    )
    return row.succeeded if done >= wanted > 0 else None
