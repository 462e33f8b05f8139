"""What people ask of a running controller without a commit: to freeze a part of the cluster, and to read Git now.

Both are annotations of one ConfigMap in gpuctl's own namespace; anyone who may write that object may do both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from gpuctl.app.ports import Conflict, WorldFault
from gpuctl.diag.wording import message
from gpuctl.k8s import names
from gpuctl.k8s.objects import annotations_of, text
from gpuctl.k8s.overview import decode_overview
from gpuctl.k8s.timestamps import format_timestamp
from gpuctl.model.freeze import Frozen
from gpuctl.model.ids import ProjectName
from gpuctl.model.state import Body
from gpuctl.model.units import Instant
from gpuctl.observe import decode_frozen, encode_frozen

MOST_FROZEN = 200
"""A freeze of one more part than this is refused with GPU7084."""
LONGEST_REASON = 200
_TRIES = 5


class ControlObject(Protocol):
    """The ConfigMap by which people control gpuctl. It is read and written with the rights of the person at the
    command."""

    def read(self) -> Body | None:
        """The object as it is now; None if it is not there."""
        ...

    def annotate(self, notes: Mapping[str, str | None], resource_version: str) -> None:
        """Set annotations on this version of the object; the value None removes one. `resource_version` "": create the
        object.

        Raises Conflict if the object has another version, and Forbidden.
        """
        ...

    def overview(self) -> Body | None:
        """The overview that the leader publishes; None if it does not exist or the person may not read it."""
        ...

    def person(self) -> str:
        """The name of the person, as the API server knows it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of the cluster that can be frozen: one project, or the whole cluster (`project` None)."""

    project: ProjectName | None = None

    def __str__(self) -> str:
        """In words."""
        return "the cluster" if self.project is None else f"project {self.project}"


def projects(control: ControlObject) -> tuple[ProjectName, ...] | None:
    """The projects of the cluster, from the overview that the leader publishes; None where the overview is missing or
    has not all of them."""
    body = control.overview()
    overview = None if body is None else decode_overview(body)
    if overview is None or overview.left_out:
        return None
    return tuple(project.name for project in overview.projects)


def freeze(control: ControlObject, part: Part, reason: str, now_ms: Instant) -> Frozen:
    """Freeze a part, or replace the reason of its freeze. Raises WorldFault GPU7083, GPU7084, and what `control`
    raises."""
    made = Frozen(project=part.project, by=control.person(), reason=reason, since_ms=now_ms)

    def with_it(known: tuple[Frozen, ...]) -> tuple[Frozen, ...]:
        others = tuple(each for each in known if each.project != part.project)
        if len(others) >= MOST_FROZEN:
            raise WorldFault("GPU7084", message("GPU7084", {"most": MOST_FROZEN}))
        return (*others, made)

    _change(control, with_it)
    return made


def unfreeze(control: ControlObject, part: Part) -> Frozen | None:
    """End a freeze. Returns the freeze; None if the part was not frozen."""
    ended: list[Frozen] = []

    def without_it(known: tuple[Frozen, ...]) -> tuple[Frozen, ...]:
        ended[:] = [each for each in known if each.project == part.project]
        return tuple(each for each in known if each.project != part.project)

    _change(control, without_it)
    return ended[0] if ended else None


def sync(control: ControlObject, now_ms: Instant) -> None:
    """Ask the controller to read Git now."""
    _written(control, lambda _: {names.SYNC_ANNOTATION: format_timestamp(now_ms)})


def last_sync(body: Body | None) -> str:
    """The time of the last request to read Git, as the annotation has it; "" for never. Each request changes it."""
    return text(annotations_of(body or {}), names.SYNC_ANNOTATION)


def _change(control: ControlObject, change: Callable[[tuple[Frozen, ...]], tuple[Frozen, ...]]) -> None:
    """Change the list of frozen parts and write it, if it differs."""

    def notes(body: Body) -> Mapping[str, str | None]:
        said = annotations_of(body).get(names.FROZEN_ANNOTATION)
        try:
            known = decode_frozen(said) if isinstance(said, str) and said else ()
        except (ValueError, RecursionError) as error:
            params = {"name": f"{names.SYSTEM_NAMESPACE}/{names.CONTROL_NAME}", "why": str(error)}
            raise WorldFault("GPU7083", message("GPU7083", params)) from error
        after = change(known)
        return {} if after == known else {names.FROZEN_ANNOTATION: encode_frozen(after) or None}

    _written(control, notes)


def _written(control: ControlObject, notes: Callable[[Body], Mapping[str, str | None]]) -> None:
    """Write the annotations that `notes` returns, if any. Tries again where another person wrote the object in
    between."""
    for left in reversed(range(_TRIES)):
        body = control.read()
        version = "" if body is None else str(body["metadata"]["resourceVersion"])
        wanted = notes(body or {})
        if not wanted:
            return
        try:
            control.annotate(wanted, version)
        except Conflict:
            if not left:
                raise
        else:
            return
