"""The JSON Schemas of the public form, for editors and `gpuctl schema`: made of `spec_v1`, kept under `schemas/`.

They say less than the compiler checks: what depends on other declarations, or on exact amounts, is not in them.
"""

from __future__ import annotations

from typing import Any

from gpuctl.compile.declarations import KINDS
from gpuctl.compile.enum_texts import text_of

DIALECT = "https://json-schema.org/draft/2020-12/schema"
LOCATION = "schemas/gpuctl.dev/v1"
"""The folder of the repository that holds them, one file a kind: `<kind in lower case>.json`."""


def schemas() -> dict[str, dict[str, Any]]:
    """The JSON Schema of each kind."""
    return {kind: _schema(kind) for kind in KINDS}


def _schema(kind: str) -> dict[str, Any]:
    schema = _tidy(KINDS[kind].model_json_schema(mode="validation"))
    head = {"$schema": DIALECT, "$id": f"https://gpuctl.dev/{LOCATION}/{kind.lower()}.json", "title": kind}
    return {**head, **schema}


def _tidy(node: Any, *, named: bool = False) -> Any:
    """Without titles that only repeat names, and with texts of values. `named`: keys are fields."""
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
    """One schema for a document of any kind: what `kind` says decides which fields there may be.

    For editors, which know one schema a file; a file may have documents of several kinds.
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
    """The schema with each reference to a definition as one whose name has the prefix."""
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
