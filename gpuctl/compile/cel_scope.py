"""The variables that a CEL expression of a policy can read: the declaration, the same one at the base, its project, the
cluster, and totals. Defaults of fields are filled in, as Kubernetes does for its admission policies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from types import UnionType
from typing import Annotated, Any, TypeAlias, Union, get_args, get_origin

from gpuctl.compile.cel_cost import ENTRY_BYTES, Size
from gpuctl.compile.declarations import KINDS, Declaration, Declarations
from gpuctl.compile.fields_v1 import Spec, fields_of
from gpuctl.compile.lower import project_max_duration
from gpuctl.compile.spec_v1 import ClusterSpec, DepartmentSpec, JobSpec, ProjectSpec
from gpuctl.compile.worker import worker_of
from gpuctl.model.units import WHOLE_GPU

ROOTS = ("object", "old", "project", "cluster", "total", "oldTotal")
"""The variables of an expression. `old`, `project` and `oldTotal` are null if they do not exist."""
TOTALS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "Job": {
        "gpus": ("spec", "gpus"),
        "workers": ("spec", "workers"),
        "cpus": ("spec", "resources", "cpu"),
        "memoryBytes": ("spec", "resources", "memory"),
        "maxDurationSeconds": ("spec", "maxDuration"),
    },
    "Project": {"quota": ("spec", "quota"), "limit": ("spec", "limit"), "gpus": ()},
    "Department": {"quota": ("spec", "quota"), "limit": ("spec", "limit")},
    "Cluster": {"gpus": ("spec", "nodePools"), "nodes": ("spec", "nodePools")},
}
"""The totals of each kind, and the field that each total is mostly about."""
_HELD = ("project", "held")
_MS_A_SECOND = 1000

Name: TypeAlias = tuple[str, str, str]
"""Kind, project ("" for none) and name of a declaration."""
Measured: TypeAlias = tuple[Any, int, int]
"""A value, its size in bytes, and the entries of the longest list or mapping in it."""


@dataclass(frozen=True, slots=True)
class Value:
    """The value of a variable, and its size."""

    value: Any
    size: Size


_NULL = Value(None, Size())


class Scope:
    """The values of variables, for one compilation. Those of a declaration are made once, when first needed.

    `base`: what was declared before a change; None if that is not known. `rows`: the kinds that a manifest may be.
    """

    def __init__(self, declarations: Declarations, base: Declarations | None = None) -> None:
        self.base = None if base is None else _by_name(base)
        self.rows = declarations.kinds.rows
        self._by_name = _by_name(declarations)
        self._jobs = declarations.jobs
        self._values: dict[tuple[str, int], tuple[Declaration[Any], Value]] = {}
        self._gpu_milli: dict[str, int] | None = None
        self._cluster = declarations.clusters[0] if declarations.clusters else None

    def inputs(self, name: Name, reads: frozenset[str]) -> tuple[object, ...]:
        """All inputs of an expression besides the declaration, by the variables that it reads."""
        kind, project, _ = name
        of_its_project = not reads.isdisjoint({"project", "total", "oldTotal"})
        sums_up = of_its_project and (kind == "Project" or "project.held" in reads)
        return (
            None if self.base is None else self.base.get(name),
            self._by_name.get(("Project", project, project)) if of_its_project else None,
            self._held_milli(project) if sums_up else None,
            self._cluster if "cluster" in reads else None,
        )

    def values(self, name: Name, declaration: Declaration[Any], reads: frozenset[str]) -> dict[str, Value]:
        """The values of the variables that an expression reads."""
        kind, project, _ = name
        old = self.base.get(name) if self.base is not None else None
        found = {"object": self._written(kind, declaration)}
        if "old" in reads:
            found["old"] = _NULL if old is None else self._written(kind, old)
        if "total" in reads:
            found["total"] = self._total(project, declaration)
        if "oldTotal" in reads:
            found["oldTotal"] = _NULL if old is None else self._total(project, old)
        if "cluster" in reads:
            found["cluster"] = _NULL if self._cluster is None else self._written("Cluster", self._cluster)
        if "project" in reads:
            found["project"] = self._project(project, holds="project.held" in reads)
        return found

    def _project(self, name: str, *, holds: bool) -> Value:
        declaration = self._by_name.get(("Project", name, name))
        if declaration is None:
            return _NULL
        written = self._written("Project", declaration)
        held = {"held": _gpus(self._held_milli(name))} if holds else {}
        return Value({**written.value, **held}, written.size)

    def _written(self, kind: str, declaration: Declaration[Any]) -> Value:
        key = (kind, id(declaration))
        if key not in self._values:
            value, size, entries = _plain(declaration.document.data, {})
            # kept with the declaration, so that no other one can get its id
            self._values[key] = declaration, Value(_filled(value, KINDS[kind]), Size(size, entries))
        return self._values[key][1]

    def _total(self, project: str, declaration: Declaration[Any]) -> Value:
        match declaration.model.spec:
            case JobSpec() as spec:
                own = self._by_name.get(("Project", project, project))
                return Value(_of_job(spec, None if own is None else own.model.spec), Size(8, 5))
            case ProjectSpec() as spec:
                own_quota = {"quota": _sum(spec.quota), "limit": _sum(spec.limit)}
                return Value({**own_quota, "gpus": _gpus(self._held_milli(project))}, Size(8, 3))
            case DepartmentSpec() as spec:
                return Value({"quota": _sum(spec.quota), "limit": _sum(spec.limit)}, Size(8, 2))
            case ClusterSpec() as spec:
                nodes = [
                    pool.gpus_per_node if isinstance(node, str) or node.gpus is None else node.gpus
                    for pool in spec.node_pools
                    for node in pool.nodes
                ]
                return Value({"gpus": sum(nodes), "nodes": len(nodes)}, Size(8, 2))
            case _:
                return Value({}, Size())

    def _held_milli(self, project: str) -> int:
        """The GPUs, in milli, that the jobs of a project ask for together; suspended jobs do not count."""
        if self._gpu_milli is None:
            self._gpu_milli = {}
            for job in self._jobs:
                name, spec = job.model.metadata.project, job.model.spec
                asked = 0 if spec.suspend else _worker_milli(spec) * spec.workers
                self._gpu_milli[name] = self._gpu_milli.get(name, 0) + asked
        return self._gpu_milli.get(project, 0)


def name_of(kind: str, declaration: Declaration[Any]) -> Name:
    """The name of a declaration: kind, project and name."""
    metadata = declaration.model.metadata
    named = (metadata.project or "") if kind in {"Job", "Template"} else ""
    project = metadata.name if kind == "Project" else named
    return kind, project, metadata.name


def field_problem(kind: str, path: tuple[str, ...]) -> tuple[int, str, tuple[str, ...]] | None:
    """What is wrong with a path of fields: the position of the unknown step, its name, and the fields that exist there.

    A path begins with a variable; `*` is an entry of a list.
    """
    root, *steps = path
    kinds = {"object": kind, "old": kind, "project": "Project", "cluster": "Cluster"}
    if root in {"total", "oldTotal"}:
        known = tuple(TOTALS[kind])
        return (1, steps[0], known) if steps and steps[0] not in known else None
    if root not in kinds or path[:2] == _HELD:
        return None
    types: list[Any] = [KINDS[kinds[root]]]
    for position, step in enumerate(steps, start=1):
        leaves = [leaf for each in types for leaf in _leaves(each)]
        if Any in leaves:
            return None
        below = [found for leaf in leaves for found in _below(leaf, step)]
        if not below:
            specs = [leaf for leaf in leaves if _is_model(leaf)]
            return position, step, tuple(name for spec in specs for name, *_ in _fields(spec))
        types = below
    return None


def _leaves(annotation: Any) -> Iterator[Any]:
    """The types that a value may have."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _leaves(get_args(annotation)[0])
    elif origin in {Union, UnionType}:
        for part in get_args(annotation):
            yield from _leaves(part)
    else:
        yield annotation


def _below(leaf: Any, step: str) -> Iterator[Any]:
    if get_origin(leaf) is list:
        yield from get_args(leaf) if step == "*" else ()
    elif get_origin(leaf) is dict:
        yield str if step == "*" else get_args(leaf)[1]
    elif _is_model(leaf):
        yield from (annotation for name, annotation, _ in _fields(leaf) if name == step)


@lru_cache(maxsize=128)
def _fields(model: type[Spec]) -> tuple[tuple[str, Any, Any], ...]:
    return tuple(fields_of(model))


def _filled(value: dict[str, Any], model: type[Spec]) -> dict[str, Any]:
    """A declaration with the defaults of its missing fields. Entries of lists stay as they are."""
    filled = dict(value)
    for name, default, below in _defaults(model):
        found = filled.get(name, default)
        if below is not None and isinstance(found, dict):
            filled[name] = _filled(found, below)
        elif found is not None:
            filled[name] = found
    return filled


@lru_cache(maxsize=128)
def _defaults(model: type[Spec]) -> tuple[tuple[str, Any, type[Spec] | None], ...]:
    """The fields of a model: name, default as it would be written, and the model of the field's value, if it has
    one."""
    return tuple(
        (name, default, next((leaf for leaf in _leaves(annotation) if _is_model(leaf)), None))
        for name, annotation, default in _fields(model)
    )


def _is_model(leaf: Any) -> bool:
    return isinstance(leaf, type) and issubclass(leaf, Spec)


def _plain(value: Any, known: dict[int, Measured]) -> Measured:
    """A value in the library's types, with its size; each use of an alias counts. No deeper than YAML may be."""
    if isinstance(value, str):
        return value, (len(value) if value.isascii() else len(value) * 4), 0
    if isinstance(value, Decimal):
        return float(value), 8, 0  # numbers of CEL with a point are doubles
    if not isinstance(value, dict | list):
        return value, 8, 0
    if id(value) not in known:
        size, entries, parts = 0, len(value), []
        for part in value.values() if isinstance(value, dict) else value:
            below, bytes_below, entries_below = _plain(part, known)
            parts.append(below)
            size += bytes_below + ENTRY_BYTES
            entries = max(entries, entries_below)
        plain: Any = parts
        if isinstance(value, dict):
            size += sum(map(len, value)) * 4
            plain = dict(zip(value, parts, strict=True))
        known[id(value)] = plain, size, entries
    return known[id(value)]


def _by_name(declarations: Declarations) -> dict[Name, Declaration[Any]]:
    return {
        name_of(kind, declaration): declaration
        for kind, declared in declarations.of_kinds().items()
        for declaration in declared
    }


def _worker_milli(spec: JobSpec) -> int:
    """A worker's GPUs. A worker that asks for memory of a GPU counts as a whole GPU, whatever its pool makes of it."""
    return worker_of(spec).gpu_milli if spec.gpu_memory is None else WHOLE_GPU


def _of_job(spec: JobSpec, project: ProjectSpec | None) -> dict[str, Any]:
    limits = [spec.max_duration, None if project is None else project_max_duration(spec, project)]
    shortest = min((limit for limit in limits if limit is not None), default=None)
    worker = worker_of(spec)
    return {
        "gpus": _gpus(_worker_milli(spec) * spec.workers),
        "workers": spec.workers,
        "cpus": _gpus(worker.cpu_milli * spec.workers),
        "memoryBytes": worker.mem_bytes * spec.workers,
        "maxDurationSeconds": None if shortest is None else shortest // _MS_A_SECOND,
    }


def _sum(quota: int | Mapping[str, int] | None) -> Any:
    """GPUs of the whole cluster, or of all pools together."""
    if quota is None:
        return None
    return _gpus(quota if isinstance(quota, int) else sum(quota.values()))


def _gpus(milli: int) -> Any:
    """Thousandths as a CEL number with a point, even if whole: so an expression computes with one type."""
    return float(Decimal(milli).scaleb(-3))
