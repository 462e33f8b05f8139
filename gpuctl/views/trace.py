"""The engine's trace of a job in a cycle, in sentences: the rule, and the numbers that it used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from gpuctl.model.decision import TraceStep
from gpuctl.model.ids import ProjectName
from gpuctl.model.units import count_gpus

Numbers: TypeAlias = Mapping[str, str | int]

_BECAUSE = {
    "unrest": "another run starts or stops on nodes that its pods can use",
    "neighbour": "another run scales up on nodes that its pods can use",
    "ceiling": "its project may hold no more GPUs",
    "room": "nodes that its pods can use have no more free GPUs",
}


def step_text(step: TraceStep, project: ProjectName) -> str:
    """One step of the trace of a job of this project; an unknown rule is shown with its numbers as they are."""
    numbers = step.numbers
    try:
        sentence = _SENTENCES.get(step.rule)
        if sentence is not None:
            return sentence(numbers, project)
        if "for" in numbers:
            return _released(numbers, project)
    except (KeyError, ValueError):
        pass
    listed = ", ".join(f"{name} {value}" for name, value in numbers.items())
    return f"{step.rule} ({listed})" if listed else step.rule


def _started(numbers: Numbers, project: ProjectName) -> str:
    return f"starts on {_requested(numbers)}{_with_it(numbers, project)}"


def _started_where_reserved(numbers: Numbers, project: ProjectName) -> str:
    return f"starts on its reservation of {_requested(numbers)}{_with_it(numbers, project)}"


def _reserved(numbers: Numbers, project: ProjectName) -> str:
    return f"has a reservation of {_requested(numbers)}{_with_it(numbers, project)}"


def _held_back(numbers: Numbers, _: ProjectName) -> str:
    return f"waits until the pods of {numbers['beside']} have nodes: before that, one job could get the other's GPUs"


def _kept(numbers: Numbers, project: ProjectName) -> str:
    return f"has a reservation of {_requested(numbers)}, to be filled as they become free; {_share(numbers, project)}"


def _released(numbers: Numbers, project: ProjectName) -> str:
    """A run that is paused or scaled down, and the accounts of its project just before."""
    releases = f"releases {_gpus(numbers, 'gpuMilli')} for {numbers['for']}"
    if "heldMilli" not in numbers:
        return releases
    held, guarantee = _gpus(numbers, "heldMilli"), _gpus(numbers, "guaranteeMilli")
    share = _gpus(numbers, "shareMilli")
    return f"{releases}; before that, {project} held {held}, with {guarantee} guaranteed and a fair share of {share}"


def _grown(numbers: Numbers, _: ProjectName) -> str:
    return f"scales up from {numbers['from']} to {_workers(int(numbers['to']))}"


def _regained(numbers: Numbers, _: ProjectName) -> str:
    free, coming = int(numbers["free"]), int(numbers["coming"])
    some = f"; GPUs are free for {free} of them" if free else ""
    return f"gets {_workers(free + coming, 'more ')} once other runs have stopped{some}"


def _stays_small(numbers: Numbers, _: ProjectName) -> str:
    workers, most, asked = (int(numbers[name]) for name in ("workers", "most", "asked"))
    has = f"has {workers} of {_workers(asked)}"
    if most <= workers:
        return f"{has}: while it runs, its pods can use no other nodes; its next start is with all workers"
    further = f"; there it can scale up to {most}, and its next start is with all workers" if most < asked else ""
    return f"{has} for now: {_BECAUSE[str(numbers['because'])]}{further}"


def _workers(count: int, more: str = "") -> str:
    return f"{count} {more}{'worker' if count == 1 else 'workers'}"


def _requested(numbers: Numbers) -> str:
    return f"{_gpus(numbers, 'gpuMilli')} in {numbers['pool']}"


def _with_it(numbers: Numbers, project: ProjectName) -> str:
    return f"; {_share(numbers, project)} with this job" if int(numbers["gpuMilli"]) else ""


def _share(numbers: Numbers, project: ProjectName) -> str:
    return f"{project} holds {_gpus(numbers, 'heldMilli')} of a fair share of {_gpus(numbers, 'shareMilli')}"


def _gpus(numbers: Numbers, name: str) -> str:
    return count_gpus(int(numbers[name]))


_SENTENCES: dict[str, Callable[[Numbers, ProjectName], str]] = {
    "start": _started,
    "start in reservation": _started_where_reserved,
    "reserve": _reserved,
    "hold back": _held_back,
    "keep": _kept,
    "grow": _grown,
    "regain": _regained,
    "stay small": _stays_small,
}
