"""Checks documents against pydantic models: each mistake becomes a diagnostic at its place, with the most similar right
name."""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from gpuctl.compile.amounts import WrongValue
from gpuctl.compile.document import MAX_MISTAKES, UNREAD, Document, Path
from gpuctl.compile.other_names import IN_A_JOB
from gpuctl.compile.scalars import kind_of, plain_scalar
from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.diag.wording import all_of, message, one_of

Model = TypeVar("Model", bound=BaseModel)

_NO_FIELD = "GPU2004"
_NO_TEXT = "GPU2008"
_QUOTED = re.compile(r"'([^']*)'")
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ./_-]*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,79}")
_NUMBER_OR_BOOLEAN = re.compile(r"[-+]?\.?[0-9][0-9A-Za-z.+-]*|[Tt]rue|TRUE|[Ff]alse|FALSE")
_WORD = re.compile(r"-{0,2}[A-Za-z./][A-Za-z0-9./_=-]*")
_WORDS = re.compile(r"(?=.{1,80}$)[A-Za-z0-9./_=-]+( [A-Za-z0-9./_=-]+)*")
_YAML_1_1 = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}
_WANTED = {
    "int_type": "a whole number",
    "bool_type": "true or false",
    "string_type": "text",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
_SHOWN_CHARACTERS = 80
_MOST_PLACES = 3
_MOST_DEPTH = 5
"""How deep mappings are searched for field names. Manifests of other controllers are deeper, and their names are not
gpuctl's."""

MOST_NAMES = 200
MOST_ASKED = 20
"""Similar names are looked for among at most so many names, and for so many unknown names of a project: comparing takes
a while."""


def most_similar(word: str, words: Iterable[str]) -> str:
    """The most similar word, or "". Cost: linear in the words."""
    return next(iter(difflib.get_close_matches(word[:_SHOWN_CHARACTERS], sorted(words), n=1)), "")


def nearest(word: str, words: Iterable[str]) -> str:
    """The help `did you mean "..."?`, or ""."""
    found = most_similar(word, words)
    return f'did you mean "{found}"?' if found else ""


def check_shape(
    document: Document, model: type[Model], kinds: Mapping[str, type[BaseModel]] = {}, known: object = None
) -> tuple[Model | None, list[Diagnostic]]:
    """The document as an instance of the model, or all mistakes in its shape.

    Values that were refused when the YAML was read are not reported again. `kinds`: where fields that the model lacks
    are looked for. `known`: what the validation depends on besides the document.
    """
    try:
        return model.model_validate(document.data, context=known), []
    except ValidationError as error:
        return None, list(_diagnostics(document, model, kinds, error))


def _diagnostics(
    document: Document, model: type[BaseModel], kinds: Mapping[str, type[BaseModel]], error: ValidationError
) -> Iterator[Diagnostic]:
    told = [details for details in error.errors(include_url=False) if details["input"] is not UNREAD]
    if len(told) > MAX_MISTAKES:
        yield document.diagnostic("GPU1020", document.name, {"limit": MAX_MISTAKES})
    for details in told[: document.most]:
        mistake = _mistake(document, model, details)
        if mistake.code == _NO_FIELD and all(isinstance(step, str) for step in mistake.path):
            field, kind = str(mistake.path[-1]), document.data.get("kind")
            called = IN_A_JOB.get(field, "") if kind == "Job" and mistake.path[0] == "spec" else ""
            mistake = replace(mistake, fix=called or _whose(field, kind, kinds) or mistake.fix)
        yield mistake.of(document)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """A mistake in a value, or in a key."""

    code: str
    path: Path
    params: Mapping[str, str | int]
    fix: str = ""
    at_key: bool = False

    def of(self, document: Document) -> Diagnostic:
        """The mistake as an error of a document."""
        told = document.mistake(self.code, self.path, self.params, self.fix, at_key=self.at_key)
        return told if self.code != _NO_TEXT else _as_written(told, self.params)


def _as_written(told: Diagnostic, params: Mapping[str, str | int]) -> Diagnostic:
    """The message about a value that must be text, with the value as its file has it: 010 and 1e3, not 10 and 1000."""
    written = told.source_line[told.span.column - 1 : told.span.end_column - 1]
    if not _NUMBER_OR_BOOLEAN.fullmatch(written):
        return told
    return replace(told, message=message(told.code, {**params, "found": written}), help=f'write "{written}"')


def _mistake(document: Document, model: type[BaseModel], details: Any) -> Mistake:
    kind, found, context = details["type"], details["input"], details.get("ctx", {})
    path, at_key = _path(document.data, details["loc"])
    match kind:
        case "value_error":
            wrong: WrongValue = context["error"]
            return Mistake(code=wrong.code, path=path + wrong.at, params=wrong.params, fix=wrong.fix, at_key=at_key)
        case "extra_forbidden":
            field = str(path[-1])
            fix = nearest(field, fields_at(model, path[:-1]))
            return Mistake(code=_NO_FIELD, path=path, params={"field": field}, fix=fix, at_key=True)
        case "missing":
            field = str(details["loc"][-1])
            return Mistake(code="GPU2005", path=path, params={"field": field}, at_key=True)
        case "literal_error":
            return not_allowed(path, found, _QUOTED.findall(str(context["expected"])))
        case "greater_than_equal":
            if context["ge"] == 0:
                return Mistake(code="GPU2017", path=path, params={"found": found})
            return out_of_bounds(path, found, f"at least {context['ge']}")
        case "less_than_equal":
            return out_of_bounds(path, found, f"at most {context['le']}")
        case "string_too_short":
            return out_of_bounds(path, '""', "it must not be empty")
        case "string_too_long":
            return out_of_bounds(path, found, f"at most {context['max_length']} characters")
        case "too_long":
            count = f"a {'list' if isinstance(found, list) else 'mapping'} of {len(found)}"
            return out_of_bounds(path, count, f"at most {context['max_length']} entries")
        case "too_short":
            return out_of_bounds(path, "[]" if isinstance(found, list) else "{}", "it must not be empty")
        case _:
            wrong_kind = wrong_type(path, found, _WANTED.get(kind, "something else"))
            return replace(wrong_kind, fix=wrong_kind.fix or _form_of(model, path, found, _WANTED.get(kind, "")))


def out_of_bounds(path: Path, found: Any, rule: str) -> Mistake:
    """A value that breaks a rule of its field."""
    return Mistake(code="GPU2018", path=path, params={"found": str(found), "rule": rule})


def not_allowed(path: Path, found: Any, allowed: list[str]) -> Mistake:
    """A value that is not among the allowed ones."""
    if not isinstance(found, str):
        return wrong_type(path, found, one_of(f'"{word}"' for word in allowed))
    fix = nearest(found, allowed) or nearest(found.lower(), allowed) or f"write {one_of(allowed)}"
    return Mistake(code="GPU2007", path=path, params={"found": _short(found)}, fix=fix)


def wrong_type(path: Path, found: Any, wanted: str) -> Mistake:
    """A value of the wrong type, in the words of YAML."""
    if wanted == "text" and isinstance(found, int | Decimal):
        shown = str(found).lower()
        kind = "true or false" if isinstance(found, bool) else "a number"
        return Mistake(code=_NO_TEXT, path=path, params={"found": shown, "kind": kind}, fix=f'write "{shown}"')
    if wanted == "true or false" and isinstance(found, str):
        meant = _YAML_1_1.get(found.lower())
        return Mistake(
            code="GPU2009", path=path, params={"found": _short(found)}, fix=f"write {meant}" if meant else ""
        )
    fix = "give it a value, or remove it" if found is None else ""
    return Mistake(code="GPU2006", path=path, params={"wanted": wanted, "found": kind_of(found)}, fix=fix)


def _form_of(model: type[BaseModel], path: Path, found: Any, wanted: str) -> str:
    """How to write the wanted value: `write {name: train}`, or the fields that it may have. "" if that is not known."""
    if wanted == "a list":
        fields = fields_at(model, (*path, 0))
        if fields:
            return f"write a list of mappings; the fields of each are {all_of(fields)}"
        return f"write [{_listed(found)}]" if isinstance(found, str) and _WORDS.fullmatch(found) else ""
    if wanted != "a mapping":
        return ""
    if isinstance(found, list):
        return _by_name(found)
    fields = fields_at(model, path)
    required = {name for node in _nodes_at(model, path) for name in node.get("required", ())}
    if len(required) == 1 and isinstance(found, str) and _PLAIN.fullmatch(found):
        return f"write {{{min(required)}: {_short(found)}}}"
    return f"its fields are {all_of(fields)}" if fields else ""


def _listed(words: str) -> str:
    """The words of a command or list that was written as one text, each so that YAML reads it as text."""
    return ", ".join(
        word if _WORD.fullmatch(word) and plain_scalar(word) == word else f'"{word}"' for word in words.split()
    )


def _by_name(found: list[Any]) -> str:
    """How to write a list of names and values, as in Kubernetes, as a mapping. "" for any other list."""
    match found:
        case [{"name": str(name), "value": str() | int() | Decimal() as value}, *_] if _NAME.fullmatch(name):
            return f'write a mapping of names to values: {{{name}: "{_short(str(value))}"}}'
    return ""


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def _path(data: Any, location: tuple[str | int, ...]) -> tuple[Path, bool]:
    """The path in the document of pydantic's location, without pydantic's names for alternatives.

    True if the mistake is in a key.
    """
    path: list[str | int] = []
    for step in location:
        entry = isinstance(data, list) and isinstance(step, int) and step < len(data)
        if entry or (isinstance(data, dict) and step in data):
            data = data[step]
            path.append(step)
    return tuple(path), location[-1:] == ("[key]",)


@lru_cache(maxsize=16)
def _schema(model: type[BaseModel]) -> dict[str, Any]:
    return model.model_json_schema()


def fields_at(model: type[BaseModel], path: Path) -> list[str]:
    """The fields that the mapping at a path may have: those of all models that are possible there."""
    return [name for node in _nodes_at(model, path) for name in node.get("properties", {})]


def _nodes_at(model: type[BaseModel], path: Path) -> list[Any]:
    """The schemas of the values that are possible at a path."""
    schema = _schema(model)
    definitions = schema.get("$defs", {})
    here = [schema]
    for step in path:
        here = [found for node in here for found in _below(_alternatives(node, definitions), step)]
    return [one for node in here for one in _alternatives(node, definitions)]


def _whose(field: str, kind: object, kinds: Mapping[str, type[BaseModel]]) -> str:
    """The help `it is a field of Cluster.spec.scheduling`, or "". The document's own kind is preferred.

    A name that is in many places gives no help.
    """
    own = {name: model for name, model in kinds.items() if name == kind}
    for some in (own, kinds):
        found = {place for name, model in some.items() for place in _places(model, name).get(field, ())}
        if found:
            return f"it is a field of {one_of(sorted(found))}" if len(found) <= _MOST_PLACES else ""
    return ""


@lru_cache(maxsize=16)
def _places(model: type[BaseModel], name: str) -> Mapping[str, set[str]]:
    """The mappings of a kind that have a field, by the field's name.

    Cached: finding one name takes as long as finding all, and took six sevenths of the time for a file of mistakes.
    """
    schema = _schema(model)
    found: dict[str, set[str]] = defaultdict(set)
    nodes: list[tuple[str, Any, int]] = [(name, schema, 1)]
    for place, node, depth in nodes:
        for one in _alternatives(node, schema.get("$defs", {})):
            below = one.get("properties", {})
            for field in below:
                found[field].add(place)
            if depth < _MOST_DEPTH:
                nodes += [(f"{place}.{step}", under, depth + 1) for step, under in below.items()]
                nodes += [(f"{place}[]", one["items"], depth + 1)] if "items" in one else []
    return dict(found)


def _below(nodes: list[Any], step: str | int) -> Iterator[Any]:
    for node in nodes:
        if isinstance(step, int):
            found = node.get("items")
        else:
            found = node.get("properties", {}).get(step) or node.get("additionalProperties")
        if isinstance(found, dict):
            yield found


def _alternatives(node: Any, definitions: Mapping[str, Any]) -> list[Any]:
    """A schema with its references resolved, or all of its alternatives."""
    if "$ref" in node:
        return _alternatives(definitions[node["$ref"].rpartition("/")[2]], definitions)
    branches = node.get("anyOf") or node.get("oneOf") or node.get("allOf")
    if branches and "properties" not in node:  # else they only say which of its fields are required
        return [found for branch in branches for found in _alternatives(branch, definitions)]
    return [node]
