"""Fills in a job's defaults, from its project and the cluster, and records where each value was written.

The job's own values go first; then its project's defaults for its type, its project's for all types, the cluster's for
its type, and the cluster's for all types. Environment variables, labels, annotations and the fields of `security` are
filled in one by one, volumes by their mount path; any other field is taken whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from gpuctl.compile.declarations import Declaration
from gpuctl.compile.defaults_v1 import Defaults, JobDefaults
from gpuctl.compile.document import Document, Origin, Path, origin_of
from gpuctl.compile.fields_v1 import written
from gpuctl.compile.pod_v1 import PodSecurity
from gpuctl.compile.spec_v1 import ClusterV1, JobSpec, JobV1, ProjectV1
from gpuctl.compile.text import NO_PARAMS, Params
from gpuctl.compile.volumes_v1 import Volume
from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.diag.span import SourceSpan
from gpuctl.k8s.quantity import format_bytes, format_cpu
from gpuctl.model.units import WHOLE_GPU

BESIDE_A_MANIFEST = frozenset({"ttl_after_finished"})
"""Defaults that also apply to objects of other controllers. No other does: their pods are left as declared."""
_PER_GPU = {"cpu_per_gpu": "cpu", "memory_per_gpu": "memory"}


@dataclass(frozen=True, slots=True)
class Filled:
    """A job's spec with its defaults. `origins`: where the values that come from defaults are written, by path in the
    job."""

    spec: JobSpec
    origins: Mapping[Path, Origin] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Layer:
    document: Document
    path: Path
    values: JobDefaults


def filled(job: Declaration[JobV1], project: Declaration[ProjectV1], cluster: Declaration[ClusterV1]) -> Filled:
    """The job with its defaults. Cost: nothing if there are no defaults, else linear in them."""
    spec, origins = job.model.spec, dict[Path, Origin]()
    for layer in _layers(spec.type, project, cluster):
        spec = _with_layer(spec, layer, origins)
    return Filled(spec, origins)


def _layers(job_type: str, *declared: Declaration[ProjectV1] | Declaration[ClusterV1]) -> Iterator[_Layer]:
    """The defaults that apply to a job, the nearest first."""
    for one in declared:
        defaults: Defaults = one.model.spec.defaults
        for name in (job_type, "all"):
            if name in defaults.model_fields_set:
                yield _Layer(one.document, ("spec", "defaults", name), getattr(defaults, name))


def _with_layer(spec: JobSpec, layer: _Layer, origins: dict[Path, Origin]) -> JobSpec:
    changed: dict[str, Any] = {}
    resources = spec.resources
    for name in sorted(layer.values.model_fields_set):
        value, key = getattr(layer.values, name), written(name)
        places: Mapping[Path, Path] = {}
        if value is None or (spec.manifest is not None and name not in BESIDE_A_MANIFEST):
            continue
        if name in _PER_GPU:
            amount = _PER_GPU[name]
            if spec.gpus and amount not in resources.model_fields_set:
                each = -(-value * spec.gpus // WHOLE_GPU)
                changed["resources"] = resources = resources.model_copy(update={amount: each})
                origins["spec", "resources", amount] = Origin(layer.document, (*layer.path, key))
        elif name in _MERGED:
            changed[name], places = _MERGED[name](getattr(spec, name), value)
        elif name not in spec.model_fields_set:
            changed[name], places = value, {(): ()}
        for in_job, in_default in places.items():
            origins["spec", key, *in_job] = Origin(layer.document, (*layer.path, key, *in_default))
    return spec.model_copy(update=changed)


_Merge: TypeAlias = Callable[[Any, Any], tuple[Any, Mapping[Path, Path]]]
"""Merges a job's own values with a default. Returns both together, and for each part that came from the default its
path in the job and its path in the default."""


def _by_key(own: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[Any, Mapping[Path, Path]]:
    return {**given, **own}, {(key,): (key,) for key in given if key not in own}


def _by_field(own: PodSecurity, given: PodSecurity) -> tuple[Any, Mapping[Path, Path]]:
    added = sorted(given.model_fields_set - own.model_fields_set)
    both = own.model_copy(update={name: getattr(given, name) for name in added})
    return both, {(written(name),): (written(name),) for name in added}


def _by_mount_path(own: Sequence[Volume], given: Sequence[Volume]) -> tuple[Any, Mapping[Path, Path]]:
    taken = {volume.mount_path for volume in own}
    added = [at for at, volume in enumerate(given) if volume.mount_path not in taken]
    both = [*own, *(given[at] for at in added)]
    return both, {(place,): (at,) for place, at in enumerate(added, start=len(own))}


_MERGED: Mapping[str, _Merge] = {
    "env": _by_key,
    "labels": _by_key,
    "annotations": _by_key,
    "security": _by_field,
    "volumes": _by_mount_path,
}


@dataclass(frozen=True, slots=True)
class Expanded:
    """A job's declaration with its defaults, as it could be written. `at`: the place of the job; `origins`: the places
    of values written elsewhere, by path."""

    at: SourceSpan
    data: Mapping[str, Any]
    origins: Mapping[Path, SourceSpan]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DefaultedDocument(Document):
    """A job's document with its defaults. `job`: without them; `defaults`: where they are written, by path.

    A mistake in a default counts as the job's mistake, so that it blocks no other project; the message also names the
    place of the default.
    """

    job: Document
    defaults: Mapping[Path, Origin]

    @property
    def as_written(self) -> Document:
        """The document as it is in the file."""
        return self.job.as_written

    def mistake(
        self, code: str, path: Path, params: Params = NO_PARAMS, fix: str = "", *, at_key: bool = False
    ) -> Diagnostic:
        """An error of the value at a path, or of its key."""
        of_default = mistake_of_default(self.job, self.defaults, code, path, params, fix)
        return of_default or self.job.mistake(code, path, params, fix, at_key=at_key)


def mistake_of_default(  # noqa: PLR0913, PLR0917 - a mistake's parts, and where it may be
    job: Document, defaults: Mapping[Path, Origin], code: str, path: Path, params: Params, fix: str
) -> Diagnostic | None:
    """An error of the value at a path, if the value comes from a default; None if the job itself has it."""
    origin, below = origin_of(defaults, path)
    if origin is None:
        return None
    return replace(job.diagnostic(code, job.name, params, fix), related=(("the default is here", origin.span(below)),))


def defaulted(job: Declaration[JobV1], filled: Filled) -> Declaration[JobV1]:
    """The declaration as policies see it: as if the job itself declared its defaults. Without defaults, the same
    object."""
    if not filled.origins:
        return job
    own = job.document
    document = DefaultedDocument(
        source=own.source, start=own.start, end=own.end, data=expanded(job, filled).data, name=own.name,
        sound=own.sound, job=own, defaults=filled.origins,
    )  # fmt: skip
    return Declaration(document, job.model.model_copy(update={"spec": filled.spec}))


def expanded(job: Declaration[JobV1], filled: Filled) -> Expanded:
    """The declaration with the values of its template and of `filled`, as if it declared them itself."""
    data = _copied(job.document.data)
    data["spec"].pop("template", None)
    cpu = format_cpu(filled.spec.resources.cpu)
    amounts = {"cpu": int(cpu) if cpu.isdigit() else cpu, "memory": format_bytes(filled.spec.resources.memory)}
    for path, origin in filled.origins.items():
        value: Any = origin.document.data
        for step in origin.path:
            value = value[step]
        *above, last = path
        here: Any = data
        for step, below in zip(above, path[1:], strict=True):
            here = here.setdefault(step, [] if isinstance(below, int) else {})
        if isinstance(last, int):
            here.append(_copied(value))
        else:
            here[last] = amounts[str(last)] if "resources" in above else _copied(value)
    origins = {path: origin.span() for path, origin in {**job.document.origins, **filled.origins}.items()}
    return Expanded(at=job.document.name, data=data, origins=origins)


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(below) for key, below in value.items()}
    return [_copied(below) for below in value] if isinstance(value, list) else value
