"""The Helm chart: templates that give, for any values, the objects of `all_objects` for these options.

It is made by calling `all_objects` for installations with marks in place of values, and with each option left out and
given. Where a mark comes out, the template gets the value; what comes and goes with an option is put in a branch. So
every option or object that is added to an installation is in the chart too.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from types import NoneType, UnionType
from typing import Any, get_args, get_type_hints

from gpuctl.install.branches import Branches, Case, Variants, go_list
from gpuctl.install.installation import NAME, UNGUARDED, USUAL, Duties, Installation
from gpuctl.install.workload import BASE_MIB, JOB_KIB, NODE_KIB, STEP_MIB, fill_in, memory_mib
from gpuctl.k8s.objects import ref_of
from gpuctl.model.ids import ObjectRef
from gpuctl.model.state import Body

_SSH = "by_ssh"
_PORT = 50_021
_FIRST = 7_300_021
"""Meaningless numbers that stand for values."""
_STEP = 1_009
_DERIVED = {
    _SSH: '(include "gpuctl.bySsh" .)',
    "git_port": '(include "gpuctl.gitPort" . | int)',
    "memory": '(include "gpuctl.memoryMib" . | int)',
    "half": '(div (include "gpuctl.memoryMib" . | int) 2)',
}
_HELPERS = """\
{{- define "gpuctl.bySsh" -}}
{{- if not (hasPrefix "https://" .Values.repo) }}true{{ end }}
{{- end }}
{{- define "gpuctl.gitPort" -}}
{{- $port := "" }}
{{- if contains "://" .Values.repo }}{{ $port = regexFind ":[0-9]+$" (urlParse .Values.repo).host }}{{ end -}}
{{ $port | trimPrefix ":" | default (ternary "22" "443" (eq (include "gpuctl.bySsh" .) "true")) }}
{{- end }}
{{- define "gpuctl.memoryMib" -}}
{{- $kib := add (mul 1024 BASE) (mul JOB (int64 .Values.jobs)) (mul NODE (int64 .Values.nodes)) -}}
{{ mul STEP (div (add $kib (sub (mul 1024 STEP) 1)) (mul 1024 STEP)) }}
{{- end }}
"""
_NOTES = """\
gpuctl follows {{ .Values.repo }}, folder {{ .Values.path }}.

Credentials for Git, in the Secret gpuctl-git:
  {{ if include "gpuctl.bySsh" . }}BY_SSH{{ else }}BY_HTTPS{{ end }}
{{- if not .Values.guard }}

UNGUARDED
{{- end }}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The known facts of an option: its help text and its allowed values. `never`: a pattern that no value may
    match."""

    help: str = ""
    pattern: str = ""
    never: str = ""
    least: int | None = None
    most: int | None = None
    among: tuple[str, ...] = ()


_UNKNOWN = Choice()


@dataclass(frozen=True, slots=True)
class Value:
    """A value of the chart: an option of an installation. `types`: the Python types it may have, except None."""

    field: str
    types: tuple[Any, ...]
    default: Any = MISSING
    choice: Choice = _UNKNOWN

    @property
    def name(self) -> str:
        """Its name in the form that charts use."""
        first, *others = self.field.split("_")
        return first + "".join(word.capitalize() for word in others)

    @property
    def is_switch(self) -> bool:
        """Whether objects come and go with it: it may be left out, off or empty."""
        return self.default is None or (self.default is not MISSING and self.types != (int,))


def values_of(choices: Mapping[str, Choice]) -> tuple[Value, ...]:
    """A value for each option of an installation."""
    hints = get_type_hints(Installation)
    return tuple(
        Value(each.name, _types(hints[each.name]), each.default, choices.get(each.name, _UNKNOWN))
        for each in fields(Installation)
    )


def chart(
    given: Mapping[str, Any], choices: Mapping[str, Choice], rules: Sequence[Body], version: str, duties: Duties = USUAL
) -> Mapping[str, str]:
    """The files of the chart, by path. `given`: options that become its defaults; `rules`: admission policies.
    `duties`: what no value changes."""
    from gpuctl.install import all_objects  # noqa: PLC0415 - that package is made of this module too

    values = values_of(choices)
    marks = _Marks(values)
    cases = marks.branches.cases()
    bodies = defaultdict[ObjectRef, Variants](Variants)
    for case in cases:
        for body in (*all_objects(marks.installation(case), duties), *(rules if "guard" in case else ())):
            bodies[ref_of(body)].add(body, (case,))
    templates = {
        f"templates/{ref.kind.lower()}-{ref.name}.yaml": marks.branches.document(each, cases)
        for ref, each in bodies.items()
    }
    return {
        "Chart.yaml": _about(version),
        "values.yaml": _defaults(values, given),
        "values.schema.json": json.dumps(_schema(values), indent=2) + "\n",
        "templates/_helpers.tpl": _filled(_HELPERS, BASE=BASE_MIB, JOB=JOB_KIB, NODE=NODE_KIB, STEP=STEP_MIB),
        "templates/NOTES.txt": _filled(
            _NOTES, BY_SSH=fill_in("ssh-privatekey", "known_hosts"), BY_HTTPS=fill_in(".netrc"), UNGUARDED=UNGUARDED
        ),
        **templates,
    }


class _Marks:
    """The mark that stands for each value in an installation, and the template's text where the mark comes out."""

    def __init__(self, values: Sequence[Value]) -> None:
        self._values = values
        self._marks = {each.field: _mark(each, _FIRST + _STEP * at) for at, each in enumerate(values)}
        self._expressions: dict[str, str] = {}
        for value in values:
            self._expressions |= _expressions(value, self._marks[value.field])
        jobs, nodes = self._marks["jobs"], self._marks["nodes"]
        most_mib = memory_mib(jobs, nodes)
        derived = {"git_port": _PORT, "memory": most_mib, "half": most_mib // 2}
        self._expressions |= {str(number): _DERIVED[name] for name, number in derived.items()}
        alternatives = "|".join(re.escape(mark) for mark in sorted(self._expressions, key=len, reverse=True))
        self._found = re.compile(rf"(?<![0-9])({alternatives})(?![0-9])")
        switches = {each.field: f".Values.{each.name}" for each in values if each.is_switch}
        self.branches = Branches({_SSH: _DERIVED[_SSH], **switches}, self._spelt)

    def installation(self, case: Case) -> Installation:
        """The installation whose switches are those of the case."""
        options = dict(self._marks)
        for value in self._values:
            if value.is_switch and value.field not in case:
                options[value.field] = False if bool in value.types else _nothing(value)
        options["repo"] = f"{'ssh' if _SSH in case else 'https'}://q-repo-q:{_PORT}/q"
        return Installation(**options)

    def _spelt(self, value: Any) -> str | None:
        """The expression for a scalar or a list that contains marks; None without marks."""
        if isinstance(value, list | tuple) and value and all(isinstance(each, str) for each in value):
            return self._listed(list(value))
        if isinstance(value, int) and not isinstance(value, bool):
            return self._expressions.get(str(value))
        if not isinstance(value, str):
            return None
        pieces = self._found.split(value)
        if len(pieces) == 1:
            return None
        if not pieces[0] and not pieces[2] and len(pieces) == 3:
            return f"toString {self._expressions[pieces[1]]} | toJson"
        parts = [
            f"(toString {self._expressions[piece]})" if at % 2 else json.dumps(piece, ensure_ascii=False)
            for at, piece in enumerate(pieces)
            if piece
        ]
        return go_list(parts)

    def _listed(self, value: list[str]) -> str | None:
        for each in self._values:
            mark = self._marks[each.field]
            if isinstance(mark, tuple) and set(mark) == set(value):
                return f".Values.{each.name}{'' if list(mark) == value else ' | sortAlpha'} | toJson"
        return None


def _types(hint: Any) -> tuple[Any, ...]:
    every = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    return tuple(each for each in every if each is not NoneType)


def _mark(value: Value, number: int) -> Any:
    if bool in value.types:
        return True
    if int in value.types:
        return number
    if str in value.types:
        return f"q-{value.field}-q"
    return (f"q-{value.field}-2-q", f"q-{value.field}-1-q")


def _expressions(value: Value, mark: Any) -> Mapping[str, str]:
    name = f".Values.{value.name}"
    if value.field == "repo":
        return {f"{scheme}://q-repo-q:{_PORT}/q": name for scheme in ("https", "ssh")}
    if isinstance(mark, tuple):
        return {"', '".join(mark): f"(join \"', '\" {name})"}  # in a list of CEL
    if isinstance(mark, bool):
        return {}
    return {str(mark): f"(int64 {name})" if isinstance(mark, int) else name}


def _nothing(value: Value) -> Any:
    if value.default is None:
        return None
    return "" if str in value.types else ()


def _about(version: str) -> str:
    lines = {
        "apiVersion": "v2",
        "name": NAME,
        "description": "GPU projects, quotas and jobs declared in Git, scheduled fairly, reconciled into Kubernetes",
        "type": "application",
        "version": version,
        "appVersion": version,
        "kubeVersion": ">=1.34.0-0",
    }
    return "".join(f"{key}: {json.dumps(text)}\n" for key, text in lines.items())


def _defaults(values: Sequence[Value], given: Mapping[str, Any]) -> str:
    parts = []
    for value in values:
        default = "" if value.default is MISSING else value.default
        parts.append(f"# {value.choice.help}\n{value.name}: {json.dumps(given.get(value.field, default))}\n")
    return "\n".join(parts)


def _schema(values: Sequence[Value]) -> Mapping[str, Any]:
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the chart gpuctl: the options of gpuctl install",
        "type": "object",
        "additionalProperties": False,
        "properties": {"global": {"type": "object"}, **{value.name: _property(value) for value in values}},
        "required": [value.name for value in values if value.default is MISSING],
    }


def _property(value: Value) -> Mapping[str, Any]:
    choice = value.choice
    named = {bool: "boolean", int: "integer", str: "string"}
    kinds = [named.get(each, "array") for each in value.types] + (["null"] if value.default is None else [])
    about: dict[str, Any] = {
        "description": choice.help,
        "type": kinds[0] if len(kinds) == 1 else kinds,
        "minimum": choice.least,
        "maximum": choice.most,
        "enum": [*choice.among, *([None] if value.default is None else [])] if choice.among else None,
    }
    texts: dict[str, Any] = {
        "pattern": choice.pattern or None,
        "not": {"pattern": choice.never} if choice.never else None,
    }
    if "array" in kinds:
        about["items"] = {"type": "string", **_there(texts)}
    else:
        about |= texts
    return _there(about)


def _there(about: Mapping[str, Any]) -> dict[str, Any]:
    return {key: each for key, each in about.items() if each is not None}


def _filled(text: str, **parts: object) -> str:
    for name, part in parts.items():
        text = re.sub(rf"\b{name}\b", lambda _, part=part: str(part), text)  # type: ignore[misc]
    return text
