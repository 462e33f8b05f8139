"""Drift as text, similar to `kubectl diff`, and as JSON: for each object the live and the declared fields."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.diag.escapes import json_text, printable
from gpuctl.model.change import Action
from gpuctl.model.ids import ObjectRef, ProjectName
from gpuctl.views.styled import Line, Segment

_COUNTED = ((Action.CREATE, "missing"), (Action.UPDATE, "changed"), (Action.DELETE, "not declared"))


@dataclass(frozen=True, slots=True)
class FieldDrift:
    """One field of an object. `live` None: it is missing; `wanted` None: it is not declared."""

    path: str
    live: object
    wanted: object


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectDrift:
    """One object that differs from its declaration. `source`: the place of its declaration, `file:line`, or ""."""

    action: Action
    ref: ObjectRef
    project: ProjectName | None
    reason: str
    source: str
    fields: tuple[FieldDrift, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftReport:
    """All drift, in the order in which a cycle would correct it. `refusals`: corrections that a guard refuses.

    `unread`: why kinds could not be read; they are not compared.
    """

    objects: tuple[ObjectDrift, ...]
    unchanged: int
    refusals: tuple[Diagnostic, ...] = ()
    unread: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether nothing that could be read differs."""
        return not self.objects and not self.refusals


def document(report: DriftReport) -> dict[str, Any]:
    """The JSON form."""
    return {
        "apiVersion": "gpuctl.dev/v1",
        "kind": "DriftReport",
        "objects": [
            {
                "action": drift.action.value,
                "ref": {
                    "apiVersion": drift.ref.api_version,
                    "kind": drift.ref.kind,
                    "namespace": drift.ref.namespace or None,
                    "name": drift.ref.name,
                },
                "project": drift.project,
                "reason": drift.reason,
                "source": drift.source or None,
                "fields": [{"path": f.path, "live": f.live, "wanted": f.wanted} for f in drift.fields],
            }
            for drift in report.objects
        ],
        "unchanged": report.unchanged,
        "refusals": [{"code": d.code, "message": d.message, "help": d.help} for d in report.refusals],
        "unread": [printable(why) for why in report.unread],
    }


def text(report: DriftReport) -> Iterator[Line]:
    """The report as styled lines; none without drift."""
    for drift in report.objects:
        yield from _object_lines(drift)
    if report.objects:
        yield (Segment(summary(report), "strong"),)


def summary(report: DriftReport) -> str:
    """`3 objects differ: 1 missing, 2 changed; 45 are as declared`."""
    actions = [drift.action for drift in report.objects]
    kinds = ", ".join(f"{actions.count(action)} {word}" for action, word in _COUNTED if action in actions)
    differ = "1 object differs" if len(actions) == 1 else f"{len(actions)} objects differ"
    are = "is" if report.unchanged == 1 else "are"
    return f"{differ}: {kinds}; {report.unchanged} {are} as declared"


def _object_lines(drift: ObjectDrift) -> Iterator[Line]:
    live = "nothing" if drift.action is Action.CREATE else str(drift.ref)
    wanted = "nothing" if drift.action is Action.DELETE else f"{drift.ref}  {drift.source}".rstrip()
    yield (Segment(f"--- {live}", "strong"),)
    yield (Segment(f"+++ {wanted}", "strong"),)
    if not drift.fields:
        yield (Segment(f"@@ {drift.reason} @@", "dim"),)
    for field in drift.fields:
        yield (Segment(f"@@ {printable(field.path)} @@", "dim"),)
        for sign, style, value in (("-", "bad", field.live), ("+", "good", field.wanted)):
            if value is not None:
                yield from ((Segment(f"{sign}{line}", style),) for line in _value_lines(value))


def _value_lines(value: object) -> list[str]:
    """A string line by line, any other value as JSON."""
    if isinstance(value, str):
        return [printable(line) for line in value.splitlines()] or ['""']
    return json_text(value, indent=2, sort_keys=True).split("\n")
