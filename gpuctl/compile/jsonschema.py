"""The JSON Schemas of the public form, for editors and `gpuctl schema`: made of `spec_v1`, kept under `schemas/`.

They say less than the compiler checks: what depends on other declarations, or on exact amounts, is not in them.
"""

from __future__ import annotations

from typing import Any

from gpuctl.compile.declarations import KINDS

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
    """Without titles that only repeat names, and with `not set` as the reading of null. `named`: keys are fields."""
    if isinstance(node, list):
        return [_tidy(entry) for entry in node]
    if not isinstance(node, dict):
        return node
    return {
        key: _tidy(value, named=key in {"properties", "$defs"} and not named)
        for key, value in node.items()
        if named or key != "title"
    }
