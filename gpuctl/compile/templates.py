"""Jobs that use a template. They are expanded before anything else reads them.

A template's job is data. First each `{$parameter: NAME}` in it is replaced by the parameter's whole value; then the
job's own fields are preferred to the template's. No texts are concatenated, so a value can become nothing but a value.
Each value has a place: one from a parameter is at the job's line for it, one from the template is reported at the line
that names the template.
Environment variables, labels, annotations and the fields of `security` and `resources` are filled in one by one,
volumes by their mount path; any other field is taken whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, TypeAlias

from gpuctl.compile.document import UNREAD, Document, Origin, Path, origin_of, values_in
from gpuctl.compile.fields_v1 import API_VERSION, written
from gpuctl.compile.manifest_v1 import JobKinds
from gpuctl.compile.shape import Mistake, check_shape, nearest, not_allowed, out_of_bounds, wrong_type
from gpuctl.compile.spec_v1 import JobSpec, JobV1
from gpuctl.compile.template_v1 import PARAMETER, Parameter, TemplateUse, TemplateV1
from gpuctl.compile.text import NO_PARAMS, Params
from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.diag.span import SourceSpan
from gpuctl.k8s.objects import text

MOST_VALUES = 2000
"""The most keys and values that a template gives a job, with each 100 characters of a text as one more."""
_SPEC = ("spec",)
_WITH = ("spec", "template", "with")
_NAMED = ("spec", "template", "name")
_JOB = ("spec", "job")
_LEFT_OPEN = {written(name): UNREAD for name, field in JobSpec.model_fields.items() if field.is_required()}
"""Required fields as UNREAD, for a job that gets them from its template: UNREAD is not reported as a mistake."""
_NO_NAMES = {"name": "x", "project": "x"}
_FIELD_BY_FIELD = frozenset({"env", "labels", "annotations", "security", "resources"})
_EITHER = {"gpus": "gpuMemory", "gpuMemory": "gpus"}
"""Fields that exclude each other: the job's own is preferred."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TemplatedDocument(Document):
    """A job's document together with the values of its template. `origins`: where those are written, by path.

    A value from the template has the place of the line that names the template: the job's author can change that line.
    """

    written: Document
    origins: Mapping[Path, Origin] = field()  # a default would be the property of the base

    @property
    def as_written(self) -> Document:
        """The document as it is in the file."""
        return self.written

    def span(self, path: Path) -> SourceSpan:
        """The place of a value, as in `Document.span`."""
        origin, below = origin_of(self.origins, path)
        if origin is None:
            return self.written.span(path)
        return origin.span(below) if origin.document is self.written else self.written.span(_NAMED)

    def key_span(self, path: Path) -> SourceSpan:
        """The place of a key, as in `Document.key_span`."""
        origin, below = origin_of(self.origins, path)
        if origin is None:
            return self.written.key_span(path)
        own = origin.document is self.written
        return self.written.key_span((*origin.path, *below)) if own else self.written.span(_NAMED)

    def mistake(
        self, code: str, path: Path, params: Params = NO_PARAMS, fix: str = "", *, at_key: bool = False
    ) -> Diagnostic:
        """An error of the value at a path, or of its key. If the template has the value, the message names its line
        too."""
        span = self.key_span(path) if at_key else self.span(path)
        found = self.diagnostic(code, span, params, fix)
        origin, below = origin_of(self.origins, path)
        if origin is None or origin.document is self.written:
            return found
        return replace(found, related=(("the template says it here", origin.span(below)),))


@dataclass(frozen=True, slots=True, eq=False)
class Templated:
    """A job that uses a template. `told`: the mistakes in the job's own fields."""

    document: Document
    project: str
    use: TemplateUse
    told: tuple[Diagnostic, ...] = ()


def _with_image(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """A job's spec with an unread image, so that a missing one is not reported."""
    return spec if "manifest" in spec else {**_LEFT_OPEN, **spec}


def read_templated(document: Document, kinds: JobKinds) -> tuple[Templated | None, list[Diagnostic]]:
    """A job that uses a template, and the mistakes in the job's own fields."""
    data, spec = document.data, document.data["spec"]
    _, found = check_shape(replace(document, data={**data, "spec": _with_image(spec)}), JobV1, known=kinds)
    use, _ = check_shape(replace(document, data=spec["template"]), TemplateUse)
    if use is None or not document.sound:
        return None, found
    metadata = data.get("metadata")
    project = metadata.get("project") if isinstance(metadata, dict) else None
    return Templated(document, project if isinstance(project, str) else "", use, tuple(found)), found


def check_template(document: Document, template: TemplateV1, kinds: JobKinds) -> list[Diagnostic]:
    """Mistakes in a template for any job that uses it: values that jobs give are assumed to be right."""
    parameters = template.spec.parameters
    mistakes: list[Diagnostic] = []
    values: dict[str, tuple[Any, Origin]] = {}
    for name, one in parameters.items():
        path = _default_path(name)
        wrong = None if one.default is None else _argument_mistake(one, one.default, path)
        enum = (_argument_mistake(one, value, (*path[:-1], "enum", at)) for at, value in enumerate(one.enum))
        mistakes.extend(each.of(document) for each in (wrong, *enum) if each is not None)
        values[name] = UNREAD if one.default is None or wrong is not None else one.default, Origin(document, path)
    filling = _Filling(document, values)
    job = filling.job()
    for path, unknown in filling.unknown:
        mistakes.append(document.mistake("GPU3081", path, {"name": unknown}, nearest(unknown, parameters)))
    for name in parameters:
        if name not in filling.used:
            path = ("spec", "parameters", name)
            mistakes.append(document.mistake("GPU3082", path, {"name": name}, at_key=True))
    if job.pop("template", None) is not None:
        mistakes.append(document.mistake("GPU2004", (*_JOB, "template"), {"field": "template"}, at_key=True))
    if values_in(job, MOST_VALUES + 1) > MOST_VALUES:
        return [*mistakes, document.mistake("GPU3083", _JOB, {"limit": MOST_VALUES}, at_key=True)]
    spec, origins = _merged({}, job, filling)
    whole = _made(document, {"metadata": _NO_NAMES, "spec": _with_image(spec)}, origins, document)
    return [*mistakes, *check_shape(whole, JobV1, known=kinds)[1]]


def expand(
    job: Templated, document: Document, template: TemplateV1, kinds: JobKinds
) -> tuple[Document, JobV1 | None, list[Diagnostic]]:
    """The job with the template's values, its model, and the mistakes in them.

    Cost: linear in the values of the template and of the job.
    """
    mistakes, values = _arguments(job, document, template)
    filling = _Filling(document, values)
    given = filling.job()
    if values_in(given, MOST_VALUES + 1) > MOST_VALUES:
        return job.document, None, [*mistakes, job.document.mistake("GPU3083", _NAMED, {"limit": MOST_VALUES})]
    data = job.document.data
    spec, origins = _merged(data["spec"], given, filling)
    whole = _made(job.document, {**data, "spec": spec}, origins, job.document)
    model, wrong = check_shape(whole, JobV1, known=kinds)
    known = {(one.code, one.span) for one in job.told}
    mistakes.extend(one for one in wrong if (one.code, one.span) not in known)
    return whole, None if mistakes else model, mistakes


def _made(document: Document, data: Any, origins: Mapping[Path, Origin], written: Document) -> TemplatedDocument:
    return TemplatedDocument(
        source=document.source,
        start=document.start,
        end=document.end,
        data={"apiVersion": API_VERSION, "kind": "Job", **data},
        name=document.name,
        written=written,
        origins=origins,
    )


_Values: TypeAlias = Mapping[str, tuple[Any, Origin]]
"""The values of parameters by name, each with its place. UNREAD: not known, or wrong."""


def _default_path(name: str) -> Path:
    return ("spec", "parameters", name, "default")


def _arguments(job: Templated, document: Document, template: TemplateV1) -> tuple[list[Diagnostic], _Values]:
    """The mistakes in a job's arguments, and the values of all parameters."""
    parameters, given = template.spec.parameters, job.use.with_
    mistakes = [
        job.document.mistake("GPU2004", (*_WITH, name), {"field": name}, nearest(name, parameters), at_key=True)
        for name in given
        if name not in parameters
    ]
    values: dict[str, tuple[Any, Origin]] = {}
    for name, one in parameters.items():
        path, wrong = (*_WITH, name), None
        if name in given:
            wrong = _argument_mistake(one, given[name], path)
        elif "default" not in one.model_fields_set:
            fix = f"write {name} below with{_purpose(one)}"
            wrong = Mistake(code="GPU2005", path=_WITH, params={"field": name}, fix=fix, at_key=True)
        else:
            values[name] = one.default, Origin(document, _default_path(name))
            continue
        values[name] = given[name] if wrong is None else UNREAD, Origin(job.document, path)
        if wrong is not None:
            here = ("the parameter is here", document.key_span(("spec", "parameters", name)))
            mistakes.append(replace(wrong.of(job.document), related=(here,)))
    return mistakes, values


def _purpose(parameter: Parameter) -> str:
    return f": {parameter.description}" if parameter.description else ""


def _argument_mistake(parameter: Parameter, value: Any, path: Path) -> Mistake | None:
    """The mistake in a value for a parameter."""
    if not _IS_OF[parameter.type](value):
        return wrong_type(path, value, _WANTED[parameter.type])
    if parameter.enum and value not in parameter.enum:
        return not_allowed(path, str(value), list(map(str, parameter.enum)))
    if parameter.minimum is not None and value < parameter.minimum:
        return out_of_bounds(path, value, f"at least {parameter.minimum}")
    if parameter.maximum is not None and value > parameter.maximum:
        return out_of_bounds(path, value, f"at most {parameter.maximum}")
    return None


_WANTED = {"text": "text", "number": "a number", "boolean": "true or false", "list": "a list"}
_IS_OF: Mapping[str, Callable[[Any], bool]] = {
    "text": lambda value: isinstance(value, str),
    "number": lambda value: isinstance(value, int | Decimal) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "list": lambda value: isinstance(value, list),
}
_LEFT_OUT = object()
"""Stands for the value of a parameter that is null: the fields with it are left out."""


class _Filling:
    """Fills the values of parameters into a template's job.

    `origins`: where the filled-in values are written, by path in the job; `used`: the parameters that are filled in;
    `unknown`: paths in the template that name a parameter it does not have.
    """

    def __init__(self, document: Document, values: _Values) -> None:
        self.document = document
        self.origins: dict[Path, Origin] = {}
        self.used: set[str] = set()
        self.unknown: list[tuple[Path, str]] = []
        self._values = values

    def job(self) -> dict[str, Any]:
        """The spec of the job. Cost: linear in the template; the values of parameters are not copied."""
        return self._mapping(self.document.data["spec"]["job"], _JOB, _SPEC)

    def _value(self, value: Any, path: Path, made: Path) -> Any:
        if isinstance(value, list):
            return self._list(value, path, made)
        if not isinstance(value, dict):
            return value
        name = value.get(PARAMETER)
        if len(value) != 1 or not isinstance(name, str):
            return self._mapping(value, path, made)
        if name not in self._values:
            self.unknown.append(((*path, PARAMETER), name))
            return UNREAD
        self.used.add(name)
        filled, origin = self._values[name]
        self.origins[made] = origin
        return _LEFT_OUT if filled is None else filled

    def _mapping(self, value: dict[str, Any], path: Path, made: Path) -> dict[str, Any]:
        parts = ((key, self._value(part, (*path, key), (*made, key))) for key, part in value.items())
        return {key: part for key, part in parts if part is not _LEFT_OUT}

    def _list(self, value: list[Any], path: Path, made: Path) -> list[Any]:
        parts: list[Any] = []
        for position, entry in enumerate(value):
            here = (*made, len(parts))
            if position != len(parts):
                self.origins[here] = Origin(self.document, (*path, position))
            part = self._value(entry, (*path, position), here)
            if part is not _LEFT_OUT:
                parts.append(part)
        return parts


def _merged(own: Mapping[str, Any], given: Mapping[str, Any], filling: _Filling) -> tuple[Any, Mapping[Path, Origin]]:
    """The job's own fields together with the template's, and where the latter are written."""
    spec = dict(own)
    moved: dict[Path, Path] = {}
    for key, value in given.items():
        mine = own.get(key)
        if key in _FIELD_BY_FIELD and isinstance(mine, dict) and isinstance(value, dict):
            added = {name: part for name, part in value.items() if name not in mine}
            spec[key] = {**mine, **added}
            moved.update({(*_SPEC, key, name): (*_SPEC, key, name) for name in added})
        elif key == "volumes" and isinstance(mine, list) and isinstance(value, list):
            taken = {text(volume, "mountPath") for volume in mine} - {""}
            places = [at for at, volume in enumerate(value) if text(volume, "mountPath") not in taken]
            spec[key] = [*mine, *(value[at] for at in places)]
            moved.update({(*_SPEC, key, at): (*_SPEC, key, to) for to, at in enumerate(places, start=len(mine))})
        elif key not in own and _EITHER.get(key) not in own:
            spec[key] = value
            moved[*_SPEC, key] = (*_SPEC, key)
    return spec, dict(_moved(filling, moved))


def _moved(filling: _Filling, moved: Mapping[Path, Path]) -> Iterator[tuple[Path, Origin]]:
    """The origins of the template's parts, by their path in the job, which may differ from the one in the template."""
    for at, to in moved.items():
        yield to, Origin(filling.document, (*_JOB, *at[len(_SPEC) :]))
    for at, origin in filling.origins.items():
        for length in (len(_SPEC) + 1, len(_SPEC) + 2):
            if at[:length] in moved:
                yield (*moved[at[:length]], *at[length:]), origin
                break
