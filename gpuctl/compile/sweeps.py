"""Sweeps: one declaration that is several jobs, its indices, which differ in variables of their environment.

Example: `train` with `completions: 3` is the jobs `train-0`, `train-1` and `train-2`, each with its number in
JOB_COMPLETION_INDEX. With `matrix: {lr: [0.1, 0.01]}` it is two jobs, each named by a digest of its values: another
value added, or another order of the values, restarts none of the others.

The number of indices and the text of all of them together are bounded before the first one is made.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from math import prod

from gpuctl.compile.amounts import NAME_LENGTH
from gpuctl.compile.declarations import Declaration, Declarations
from gpuctl.compile.document import Path, values_in
from gpuctl.compile.resolve import ResolvedJob
from gpuctl.compile.spec_v1 import JobV1
from gpuctl.compile.sweep_v1 import Sweep, variable
from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.k8s import names
from gpuctl.model.job import SweepIndex

MOST_VALUES = 200_000
"""The most keys and values of all indices of a sweep, each 100 characters of text as one more: some 20 MB."""
_KEY_LENGTH = 8
_SWEEP = ("spec", "sweep")
_MATRIX = (*_SWEEP, "matrix")


def size_of(sweep: Sweep | None) -> int:
    """How many jobs a declaration makes."""
    if sweep is None:
        return 1
    return sweep.completions or prod(map(len, (sweep.matrix or {}).values()))


def index_name(sweep: str, key: str) -> str:
    """The name of an index's job."""
    return f"{sweep}-{key}"


def indices_of(name: str, sweep: Sweep) -> Iterator[SweepIndex]:
    """The indices in order: the last key of a matrix changes first."""
    if sweep.completions is not None:
        for number in range(sweep.completions):
            yield SweepIndex(sweep=name, key=str(number), values={names.INDEX_VARIABLE: str(number)})
        return
    matrix = sweep.matrix or {}
    variables = [variable(key) for key in matrix]
    for combination in product(*matrix.values()):
        values = dict(zip(variables, combination, strict=True))
        yield SweepIndex(sweep=name, key=_digest(values), values=values)


def _digest(values: Mapping[str, str]) -> str:
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_KEY_LENGTH]


def variable_paths(sweep: Sweep | None) -> Iterator[tuple[str, Path]]:
    """The variables that a sweep sets in its jobs, and where they are declared."""
    if sweep is not None and sweep.completions is not None:
        yield names.INDEX_VARIABLE, (*_SWEEP, "completions")
    elif sweep is not None:
        for key in sweep.matrix or {}:
            yield variable(key), (*_MATRIX, key)


def check_sweep(job: ResolvedJob) -> Iterator[Diagnostic]:
    """Mistakes in one sweep by itself: variables that its `env` also sets, its size, and the names of its jobs."""
    sweep, document, name = job.spec.sweep, job.declaration.document, job.declaration.model.metadata.name
    if sweep is None:
        return
    for each, path in variable_paths(sweep):
        if each in job.spec.env:
            yield job.mistake("GPU3090", path, {"name": each}, at_key=True)
    count = size_of(sweep)
    most = MOST_VALUES // count
    if values_in(document.data["spec"], most + 1) > most:
        yield job.mistake("GPU3091", _SWEEP, {"indices": count, "limit": most}, at_key=True)
    longest = _KEY_LENGTH if sweep.completions is None else len(str(sweep.completions - 1))
    most = NAME_LENGTH - 1 - longest
    if len(name) > most:
        rule = f"at most {most} characters, as the names of a sweep's jobs have {1 + longest} more"
        yield document.mistake("GPU2018", ("metadata", "name"), {"found": name, "rule": rule})
    keys = Counter(index.key for index in indices_of(name, sweep))
    if len(keys) < count:
        yield document.mistake("GPU2021", _MATRIX, {"found": index_name(name, keys.most_common(1)[0][0])})


def check_names(declarations: Declarations) -> Iterator[Diagnostic]:
    """Names of indices that other jobs already have.

    The check depends on all jobs of a project together. Cost: linear in the jobs, and in the indices of those sweeps
    whose name is the beginning of another job's name.
    """
    sweeps: dict[tuple[str, str], Declaration[JobV1]] = {}
    for declaration in declarations.jobs:
        if declaration.model.spec.sweep is not None:
            metadata = declaration.model.metadata
            sweeps.setdefault((metadata.project, metadata.name), declaration)
    if not sweeps:
        return
    taken: dict[tuple[str, str], set[str]] = defaultdict(set)
    for claim in declarations.claims:
        sweep, _, key = claim.name.rpartition("-")
        owner = sweeps.get((claim.project, sweep)) if claim.kind == "Job" else None
        if owner is None:
            continue
        keys = taken[claim.project, sweep]
        if not keys and owner.model.spec.sweep is not None:
            keys.update(index.key for index in indices_of(sweep, owner.model.spec.sweep))
        if key in keys:
            found = claim.document.diagnostic("GPU3092", claim.document.name, {"job": claim.name, "sweep": sweep})
            yield replace(found, related=(("the sweep is here", owner.document.name),))
