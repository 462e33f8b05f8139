"""What the engine wrote down of a job in a cycle, in sentences: the rule, and the numbers it used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from gpuctl.model.decision import TraceStep
from gpuctl.model.ids import ProjectName
from gpuctl.model.units import format_gpus

Numbers: TypeAlias = Mapping[str, str | int]

_BECAUSE = {
    "unrest": "somebody starts or leaves where its pods can go",
    "neighbour": "another run grows where its pods can go",
    "ceiling": "its project may hold no more",
    "room": "nothing more is free where its pods can go",
}


def step_text(step: TraceStep, project: ProjectName) -> str:
    """A step of the trace of a job of that project; a rule that is not known here as it was written down."""
    numbers = step.numbers
    try:
        told = _TOLD.get(step.rule)
        if told is not None:
            return told(numbers, project)
        if "for" in numbers:
            return _given_up(numbers, project)
    except (KeyError, ValueError):
        pass
    told_as_is = ", ".join(f"{name} {value}" for name, value in numbers.items())
    return f"{step.rule} ({told_as_is})" if told_as_is else step.rule


def _started(numbers: Numbers, project: ProjectName) -> str:
    return f"it starts with {_asked(numbers)}{_with_it(numbers, project)}"


def _started_where_promised(numbers: Numbers, project: ProjectName) -> str:
    return f"it starts with {_asked(numbers)}, which were promised to it{_with_it(numbers, project)}"


def _reserved(numbers: Numbers, project: ProjectName) -> str:
    return f"{_asked(numbers)} are reserved for it{_with_it(numbers, project)}"


def _held_back(numbers: Numbers, _: ProjectName) -> str:
    return f"but not at once: until the pods of {numbers['beside']} have nodes, one might be given the other's GPUs"


def _kept(numbers: Numbers, project: ProjectName) -> str:
    return f"{_asked(numbers)} are kept for it as they come free; {_share(numbers, project)}"


def _given_up(numbers: Numbers, project: ProjectName) -> str:
    """A run that makes way, and how its project stood just before."""
    goes = f"{_gpus(numbers, 'gpuMilli')} of it go to {numbers['for']}"
    if "heldMilli" not in numbers:
        return goes
    held, owed = _gpus(numbers, "heldMilli"), _gpus(numbers, "guaranteeMilli")
    return f"{goes}; {project} held {held} before, with {owed} guaranteed and a share of {_gpus(numbers, 'shareMilli')}"


def _grown(numbers: Numbers, _: ProjectName) -> str:
    return f"it grows from {numbers['from']} to {numbers['to']} workers"


def _regained(numbers: Numbers, project: ProjectName) -> str:
    free, coming = int(numbers["free"]), int(numbers["coming"])
    owed = f"{project} is owed {free + coming} more workers for it"
    if not coming:
        return f"{owed}, and there is room"
    room = f"there is room for {free}, and for {coming} as soon as" if free else "it grows as soon as"
    return f"{owed}: {room} others have left"


def _stays_small(numbers: Numbers, _: ProjectName) -> str:
    workers, most, asked = (int(numbers[name]) for name in ("workers", "most", "asked"))
    has = f"it has {workers} of {asked} workers"
    if most <= workers:
        return f"{has}: its pods can go nowhere else while it runs, so it has the others at its next start"
    further = f"; there it may grow to {most}, and has all at its next start" if most < asked else ""
    return f"{has} for now: {_BECAUSE[str(numbers['because'])]}{further}"


def _asked(numbers: Numbers) -> str:
    return f"{_gpus(numbers, 'gpuMilli')} in {numbers['pool']}"


def _with_it(numbers: Numbers, project: ProjectName) -> str:
    return f"; with it {_share(numbers, project)}" if int(numbers["gpuMilli"]) else ""


def _share(numbers: Numbers, project: ProjectName) -> str:
    return f"{project} holds {_gpus(numbers, 'heldMilli')}, and its fair share is {_gpus(numbers, 'shareMilli')}"


def _gpus(numbers: Numbers, name: str) -> str:
    return counted_gpus(int(numbers[name]))


def counted_gpus(milli: int) -> str:
    """GPUs as people count them: 1 GPU, 0.5 GPUs."""
    return f"{format_gpus(milli)} GPU{'' if milli == 1000 else 's'}"


_TOLD: dict[str, Callable[[Numbers, ProjectName], str]] = {
    "start": _started,
    "start where promised": _started_where_promised,
    "reserve": _reserved,
    "hold back": _held_back,
    "keep": _kept,
    "grow": _grown,
    "regain": _regained,
    "stay small": _stays_small,
}
