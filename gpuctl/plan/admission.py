"""How a run's object may be written now. It is created suspended, released only once it is on record, and not changed
while it runs.

`permitted` turns the wanted object into the object that may be written in this cycle. A later cycle writes the rest,
when the observed state allows it: nothing here keeps memory.

Rules:

1. A missing object is created suspended. A crash right after leaves nothing running that no ledger knows.
2. A suspended object is released only when its run is in the ledger that this plan writes first, and none of its pods
   is left.
3. An object that was seen and is gone is not created again, not even while its last pods leave: a person removed it.
4. An object that runs though gpuctl never released it is suspended again.
5. The pod template of a running or stopping run stays as it was applied: the API server refuses a Job's change, and
   a Deployment would restart.
6. A claim template can't be changed: it is recreated, and only while its run has no pod.
7. A Job that never ran and was created with another pod template is recreated: the server takes no change of it. It is
   not on record in between.
8. A Job that ran keeps the pod template it was created with, except for what the server lets change: labels,
   annotations, and where it is placed. Another version of gpuctl, or another Pod Security level, renders another
   template for the same run; the server would refuse it for good, so the run would never go on.
9. Of another controller's object only the suspension is changed, as that controller refuses any other change. The
   object keeps the spec it was created with. If the run should go on with another spec, above all in another place, the
   object is recreated suspended (see `writes.remade`), and goes on in the next cycle.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuctl.k8s import kinds, names
from gpuctl.k8s.annotations import OF_A_PLACE, template_digest
from gpuctl.k8s.objects import annotations_of, is_deleting, mapping
from gpuctl.k8s.suspension import is_let_go, is_stopped, suspended_like, suspension_of, with_suspension
from gpuctl.k8s.workload_kinds import row_of
from gpuctl.k8s.workload_table import Rows
from gpuctl.model.state import Body
from gpuctl.plan.ownership import extract, owned_fields

_OF_A_START = frozenset({names.PLACEMENT_ANNOTATION, names.STARTS_ANNOTATION})


def permitted(wanted: Body, live: Body | None, rows: Rows, *, ready: bool, is_stray: bool = False) -> Body | None:
    """A workload as it may be written now; None if it has to wait for what is there.

    `ready`: rule 2 is met. `is_stray`: it runs, and gpuctl never released it.
    """
    if live is None:
        return born(wanted, rows)
    if row_of(wanted, rows) is not None:
        return _as_other(wanted, live, rows, ready=ready, is_stray=is_stray)
    if not is_let_go(live, rows) and is_let_go(wanted, rows):
        return _as_made(wanted, live) if ready and is_stopped(live, rows) else None
    if is_stopped(live, rows):
        return _as_made(wanted, live)
    return as_made(born(wanted, rows) if is_stray else wanted, live)


def _as_other(wanted: Body, live: Body, rows: Rows, *, ready: bool, is_stray: bool) -> Body | None:
    """Another controller's object, by rule 9."""
    made = _with_spec(born(wanted, rows) if is_stray else wanted, live, rows)
    if is_let_go(live, rows) or not is_let_go(wanted, rows):
        return made
    return made if ready and is_stopped(live, rows) and not is_made_otherwise(wanted, live, rows) else None


def is_made_otherwise(wanted: Body, live: Body, rows: Rows) -> bool:
    """Whether a stopped object was created with another pod template than the wanted one. Templates are compared as
    gpuctl sent them."""
    made_with = annotations_of(live).get(names.TEMPLATE_ANNOTATION)
    differs = made_with is not None and made_with != annotations_of(wanted).get(names.TEMPLATE_ANNOTATION)
    return differs and is_stopped(live, rows) and not is_deleting(live)


def _with_spec(wanted: Body, live: Body, rows: Rows) -> Body:
    """The wanted object with the spec that it was created with, and the mark of that spec, but suspended as wanted."""
    fields = mapping(owned_fields(live), "f:spec")
    if not fields:
        return wanted
    applied = mapping({"spec": extract(mapping(live, "spec"), fields)}, "spec")
    meta, mark = mapping(wanted, "metadata"), annotations_of(live).get(names.TEMPLATE_ANNOTATION)
    notes = {**mapping(meta, "annotations"), **({names.TEMPLATE_ANNOTATION: mark} if mark is not None else {})}
    whole = {**wanted, "metadata": {**meta, "annotations": notes}, "spec": applied}
    return suspended_like(suspension_of(wanted, rows), whole, wanted)


def born(wanted: Body, rows: Rows) -> Body:
    """The workload suspended, without the annotations of a start that it has not made."""
    if not is_let_go(wanted, rows):
        return wanted
    meta = mapping(wanted, "metadata")
    annotations = {key: value for key, value in mapping(meta, "annotations").items() if key not in _OF_A_START}
    return {
        **wanted,
        "metadata": {**meta, "annotations": annotations},
        "spec": mapping(with_suspension(suspension_of(wanted, rows), wanted, stopped=True), "spec"),
    }


def as_made(wanted: Body, live: Body) -> Body:
    """The wanted object with the pod template that gpuctl applied last."""
    template = _applied(live)
    return {**wanted, "spec": {**mapping(wanted, "spec"), "template": template}} if template else wanted


def _as_made(wanted: Body, live: Body) -> Body:
    """A stopped Job, by rule 8; the wanted object itself where its template is the same."""
    applied, template = _applied(live), mapping(wanted, "spec", "template")
    if wanted.get("kind") != kinds.JOB[1] or not applied or template_digest(applied) == template_digest(template):
        return wanted
    made, placed = mapping(applied, "spec"), mapping(template, "spec")
    spec = {
        **{key: value for key, value in made.items() if key not in OF_A_PLACE},
        **{key: value for key, value in placed.items() if key in OF_A_PLACE},
    }
    return {**wanted, "spec": {**mapping(wanted, "spec"), "template": {**template, "spec": spec}}}


def _applied(live: Body) -> Mapping[str, Any]:
    """The pod template that gpuctl applied last; empty where the object does not say."""
    fields = mapping(owned_fields(live), "f:spec", "f:template")
    template = mapping(live, "spec", "template")
    return mapping({"template": extract(template, fields)}, "template") if fields and template else {}
