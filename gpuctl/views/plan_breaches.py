"""Policies in a plan: the declarations that start or cease to break one, or break it at another severity."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from gpuctl.diag.diagnostic import Diagnostic, Severity

_SHOWN_PLACES = 3
_AS = {Severity.ERROR: "an error", Severity.WARNING: "a warning", Severity.AUDIT: "an audit"}


@dataclass(frozen=True, slots=True, kw_only=True)
class BreachChange:
    """A declaration that starts or ceases to break a policy. `was`: the severity at which it broke it before."""

    starts: bool
    breach: Diagnostic
    was: Severity | None = None


def document(change: BreachChange) -> dict[str, Any]:
    """The JSON form."""
    return {
        "starts": change.starts,
        "severity": change.breach.severity.value,
        "message": change.breach.message,
        "file": change.breach.span.file,
        "line": change.breach.span.line,
        "was": None if change.was is None else change.was.value,
    }


def counts(changes: Sequence[BreachChange]) -> Iterator[str]:
    """`2 declarations start to break a policy`, and so on."""
    starts = sum(each.starts and each.was is None for each in changes)
    others = sum(each.was is not None for each in changes)
    ceases = sum(not each.starts for each in changes)
    if starts:
        yield _count(starts, "starts", "start", "to break a policy")
    if others:
        yield _count(others, "breaks", "break", "a policy at another severity")
    if ceases:
        yield _count(ceases, "ceases", "cease", "to break a policy")


def lines(changes: Sequence[BreachChange]) -> Iterator[tuple[bool, str]]:
    """For each declaration that starts or ceases to break a policy: whether it starts, and a line.

    Declarations that break a policy at another severity than before have one line for each policy: there may be as many
    as declarations, and the change is the policy's.
    """
    for change in changes:
        if change.starts and change.was is None:
            yield True, f"{_place(change)} starts to break ({change.breach.severity.value}): {change.breach.message}"
    others = sorted((each for each in changes if each.was is not None), key=_rule)
    for (policy, was, severity), group in groupby(others, key=_rule):
        broken = list(group)
        places = [*map(_place, broken[:_SHOWN_PLACES])]
        places += [f"and {len(broken) - _SHOWN_PLACES} more"] if len(broken) > _SHOWN_PLACES else []
        many = _count(len(broken), "breaks", "break", f'policy "{policy}"')
        yield True, f"{many} as {_AS[severity]} now, as {_AS[was]} before: {', '.join(places)}"
    for change in changes:
        if not change.starts:
            yield False, f"{_place(change)} ceases to break ({change.breach.severity.value}): {change.breach.message}"


def _rule(change: BreachChange) -> tuple[str, Severity, Severity]:
    return change.breach.policy, change.was or change.breach.severity, change.breach.severity


def _place(change: BreachChange) -> str:
    return f"{change.breach.span.file}:{change.breach.span.line}"


def _count(number: int, one: str, many: str, what: str) -> str:
    return f"1 declaration {one} {what}" if number == 1 else f"{number} declarations {many} {what}"
