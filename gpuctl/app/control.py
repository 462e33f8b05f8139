"""What people ask of a running controller in the cluster, without a commit: to freeze a part, and to read Git now.

It stands in two annotations of one ConfigMap in gpuctl's own namespace; whoever may write that object may do both.
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
"""More parts than that are frozen as the cluster."""
LONGEST_REASON = 200
_TRIES = 5


class ControlObject(Protocol):
    """The ConfigMap by which people control gpuctl, with the rights of the person who runs the command."""

    def read(self) -> Body | None:
        """The object as it is now; None if it is not there."""
        ...

    def annotate(self, notes: Mapping[str, str | None], resource_version: str) -> None:
        """Set annotations, None: remove, on that version of the object; "": make the object, which is not there.

        Raises Conflict where it has another version, Forbidden.
        """
        ...

    def overview(self) -> Body | None:
        """What the leader publishes; None if it is not there, or the person may not read it."""
        ...

    def person(self) -> str:
        """The name of the person, as the API server knows it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What is frozen: a project, or with None the cluster."""

    project: ProjectName | None = None

    def __str__(self) -> str:
        """In words."""
        return "the cluster" if self.project is None else f"project {self.project}"


def projects(control: ControlObject) -> tuple[ProjectName, ...] | None:
    """The projects that the cluster declares, as the leader published them; None where not all can be known."""
    body = control.overview()
    overview = None if body is None else decode_overview(body)
    if overview is None or overview.left_out:
        return None
    return tuple(project.name for project in overview.projects)


def freeze(control: ControlObject, part: Part, reason: str, now_ms: Instant) -> Frozen:
    """Freeze a part, or say anew why it is frozen. Raises WorldFault: GPU7083, GPU7084, and as the object does."""
    made = Frozen(project=part.project, by=control.person(), reason=reason, since_ms=now_ms)

    def with_it(known: tuple[Frozen, ...]) -> tuple[Frozen, ...]:
        others = tuple(each for each in known if each.project != part.project)
        if len(others) >= MOST_FROZEN:
            raise WorldFault("GPU7084", message("GPU7084", {"most": MOST_FROZEN}))
        return (*others, made)

    _change(control, with_it)
    return made


def unfreeze(control: ControlObject, part: Part) -> Frozen | None:
    """End a freeze. Returns what it was; None if the part was not frozen."""
    ended: list[Frozen] = []

    def without_it(known: tuple[Frozen, ...]) -> tuple[Frozen, ...]:
        ended[:] = [each for each in known if each.project == part.project]
        return tuple(each for each in known if each.project != part.project)

    _change(control, without_it)
    return ended[0] if ended else None


def sync(control: ControlObject, now_ms: Instant) -> None:
    """Have the controller read Git now."""
    _written(control, lambda _: {names.SYNC_ANNOTATION: format_timestamp(now_ms)})


def last_sync(body: Body | None) -> str:
    """What stands on the object since Git was last asked for; "" for never. It differs each time."""
    return text(annotations_of(body or {}), names.SYNC_ANNOTATION)


def _change(control: ControlObject, change: Callable[[tuple[Frozen, ...]], tuple[Frozen, ...]]) -> None:
    """Write what is frozen after a change; nothing where it is the same."""

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
    """Write what `notes` makes of the object, if anything; again where another person was faster."""
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
