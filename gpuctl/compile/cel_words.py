"""The values that an expression of a policy has read, in the words of the declaration's author: by the fields as
written, not by the variables of the expression."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuctl.compile.amounts import WrongValue
from gpuctl.compile.amounts import duration as parse_duration
from gpuctl.compile.document import Path
from gpuctl.compile.rule_causes import shown_value
from gpuctl.diag.wording import duration, memory

_BEFORE = frozenset({"old", "oldTotal"})
_TOTALS: Mapping[str, str] = {"total": "object", "oldTotal": "old"}
"""The variables for totals, and the variable of the declaration that each is computed from."""
_HELD = ("project", "held")
_JOBS_TOGETHER = "gpus of the project's jobs"
_WORDS: Mapping[tuple[str, str], str] = {
    ("Job", "gpus"): "gpus of all workers",
    ("Job", "workers"): "spec.workers",
    ("Job", "cpus"): "cpus of all workers",
    ("Job", "memoryBytes"): "memory of all workers",
    ("Job", "maxDurationSeconds"): "spec.maxDuration",
    ("Project", "gpus"): _JOBS_TOGETHER,
    ("Cluster", "gpus"): "gpus of all nodes",
    ("Cluster", "nodes"): "the number of nodes",
}
_MS_A_SECOND = 1000


def said(kind: str, path: Path, data: Mapping[str, Any]) -> str:
    """The value at a path of the expression, in words; "" for a mapping, of which only fields are read."""
    root, *steps = map(str, path)
    if root in _BEFORE and data.get(root) is None:
        return "it is new"
    value = value_at(data.get(root), path[1:])
    if not steps or isinstance(value, dict):
        return ""
    verb = "was" if root in _BEFORE else "is"
    if root in _TOTALS:
        return _total(kind, steps[0], value, data.get(_TOTALS[root]), verb)
    if path == _HELD:
        return named_value(_JOBS_TOGETHER, value)
    return named_value(".".join(steps if root in {"object", "old"} else map(str, path)), value, verb)


def value_at(value: Any, path: Path) -> Any:
    """The value at a path; None if there is none."""
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def named_value(name: str, value: Any, verb: str = "is") -> str:
    """A field and its value, in words."""
    if value is None:
        return f"{name} {verb} missing"
    if isinstance(value, list):
        many = "no entry" if not value else "1 entry" if len(value) == 1 else f"{len(value)} entries"
        return f"{name} {'has' if verb == 'is' else 'had'} {many}"
    shown = shown_value(value)
    return f"{name} {verb} {shown.removesuffix('.0') if not isinstance(value, str) else shown}"


def _total(kind: str, name: str, value: Any, declaration: Any, verb: str) -> str:
    spec = value_at(declaration, ("spec",)) or {}
    if name == "maxDurationSeconds":
        return _max_duration(value, spec, verb)
    if name == "memoryBytes" and isinstance(value, int):
        return f"{_WORDS[kind, name]} {verb} {memory(value)}"
    pools = " of all pools" if isinstance(spec.get(name), dict) else ""
    return named_value(_WORDS.get((kind, name), f"spec.{name}{pools}"), value, verb)


def _max_duration(seconds: Any, spec: Mapping[str, Any], verb: str) -> str:
    """The shorter of the job's limit and its project's limit for jobs of its type; inference jobs have no such
    limit."""
    of_project = f"the project's {spec.get('type')}.maxDuration"
    is_limited = spec.get("type") in {"training", "interactive"}
    if seconds is None:
        also = f", and so {verb} {of_project}" if is_limited else ""
        return f"spec.maxDuration {verb} missing{also}"
    try:
        is_own = parse_duration(spec.get("maxDuration")) // _MS_A_SECOND == seconds
    except WrongValue:
        is_own = False
    return f"{'spec.maxDuration' if is_own or not is_limited else of_project} {verb} {duration(seconds * _MS_A_SECOND)}"
