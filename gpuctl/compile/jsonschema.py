"""The JSON Schemas of the public form, for editors and `gpuctl schema`: generated from `spec_v1`, kept in `schemas/`.

They check less than the compiler does: nothing that depends on other declarations or on exact amounts.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from gpuctl.compile.declarations import KINDS
from gpuctl.compile.enum_texts import text_of
from gpuctl.compile.spec_v1 import JobSpec
from gpuctl.compile.template_v1 import PARAMETER, TemplateUse

DIALECT = "https://json-schema.org/draft/2020-12/schema"
LOCATION = "schemas/gpuctl.dev/v1"
"""The folder of the repository with the schemas, one file a kind: `<kind in lower case>.json`."""


@cache
def schemas() -> Mapping[str, dict[str, Any]]:
    """The JSON Schema of each kind. Made once: `gpuctl schema` asks twice, and pydantic takes 0.2 s of CPU for it."""
    return {kind: _schema(kind) for kind in KINDS}


def _schema(kind: str) -> dict[str, Any]:
    schema = _tidy(KINDS[kind].model_json_schema(mode="validation"))
    if kind == "Template":
        schema = _with_job(schema)
    head = {"$schema": DIALECT, "$id": f"https://gpuctl.dev/{LOCATION}/{kind.lower()}.json", "title": kind}
    return {**head, **schema}


def _with_job(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of templates: their job may have any of a Job's fields, each with a value or a parameter."""
    job = _tidy(JobSpec.model_json_schema(mode="validation"))
    parts = {name: _fillable(part) for name, part in job.pop("$defs").items() if name != TemplateUse.__name__}
    fields = {key: value for key, value in job.items() if key != "anyOf"}
    del fields["properties"]["template"]
    parts[_REFERENCE] = {
        "type": "object",
        "description": "The value of a parameter of this template.",
        "properties": {PARAMETER: {"type": "string", "description": "The parameter's name."}},
        "required": [PARAMETER],
        "additionalProperties": False,
    }
    of_template = schema["$defs"]["TemplateSpec"]["properties"]
    of_template["job"] = {"$ref": "#/$defs/JobSpec", "description": of_template["job"]["description"]}
    return {**schema, "$defs": {**schema["$defs"], **parts, "JobSpec": _fillable(fields)}}


_REFERENCE = "FromParameter"


def _fillable(node: Any, *, named: bool = False) -> Any:
    """The schema, where each field and entry may also be a parameter. `named`: the keys of `node` are fields."""
    if isinstance(node, list):
        return [_fillable(entry) for entry in node]
    if not isinstance(node, dict):
        return node
    filled = {key: _fillable(value, named=key == "properties" and not named) for key, value in node.items()}
    for key in filled if named else filled.keys() & {"items", "additionalProperties"}:
        filled[key] = _or_parameter(filled[key])
    return filled


def _or_parameter(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    outside = {key: schema[key] for key in ("description", "default") if key in schema}
    inside = {key: value for key, value in schema.items() if key not in outside}
    return {**outside, "anyOf": [inside, {"$ref": f"#/$defs/{_REFERENCE}"}]}


def _tidy(node: Any, *, named: bool = False) -> Any:
    """Remove titles that only repeat names; add the texts of enumerations. `named`: the keys of `node` are fields."""
    if isinstance(node, list):
        return [_tidy(entry) for entry in node]
    if not isinstance(node, dict):
        return node
    tidy = {
        key: _tidy(value, named=key in {"properties", "$defs"} and not named)
        for key, value in node.items()
        if named or key != "title"
    }
    texts = None if named or not isinstance(node.get("enum"), list) else text_of(node["enum"])
    return tidy if texts is None else {**tidy, "enumDescriptions": texts}


def any_kind() -> dict[str, Any]:
    """One schema for a document of any kind: the value of `kind` decides which fields are allowed.

    For editors, which use one schema a file; a file may have documents of several kinds.
    """
    definitions: dict[str, Any] = {}
    cases = []
    for kind, schema in schemas().items():
        body = {key: value for key, value in schema.items() if key not in {"$schema", "$id", "$defs"}}
        definitions[kind] = _with_prefix(body, f"{kind}.")
        parts = schema.get("$defs", {})
        definitions |= {f"{kind}.{name}": _with_prefix(part, f"{kind}.") for name, part in parts.items()}
        cases.append({
            "if": {"properties": {"kind": {"const": kind}}, "required": ["kind"]},
            "then": {"$ref": f"#/$defs/{kind}"},
        })
    return {
        "$schema": DIALECT,
        "$id": f"https://gpuctl.dev/{LOCATION}/declaration.json",
        "title": "Declaration",
        "description": "A document of any kind.",
        "type": "object",
        "properties": {
            "kind": {
                "enum": list(KINDS),
                "description": "What this declares.",
                "enumDescriptions": text_of(list(KINDS)),
            }
        },
        "required": ["kind"],
        "allOf": cases,
        "$defs": definitions,
    }


def _with_prefix(node: Any, prefix: str) -> Any:
    """The schema, with a prefix before each definition's name in its references."""
    if isinstance(node, list):
        return [_with_prefix(entry, prefix) for entry in node]
    if not isinstance(node, dict):
        return node
    return {
        key: value.replace("#/$defs/", f"#/$defs/{prefix}")
        if key == "$ref" and isinstance(value, str)
        else _with_prefix(value, prefix)
        for key, value in node.items()
    }
