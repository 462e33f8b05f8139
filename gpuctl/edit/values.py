"""Values as YAML text, by ruamel.yaml. A string has no quotes where every YAML version reads it as that string."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from io import StringIO
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.representer import RoundTripRepresenter
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from gpuctl.compile.scalars import plain_scalar
from gpuctl.diag.escapes import yaml_text

Value = str | int | Decimal | bool | None | list[Any] | dict[str, Any]

INDENT = 2
_WIDTH = 2**31 - 1
_PLAIN = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./@+=%^~()*$!?;-]*(?:[: ][A-Za-z0-9_./@+=%^~()*$!?;-]+)*")
_OTHERWISE = re.compile(
    r"(?i)y|n|yes|no|on|off|true|false|null|nan|inf"
    r"|[-+]?\.?[0-9][0-9_,]*(?:[.:][0-9_]*)*(?:e[-+]?[0-9]+)?|0[xob][0-9a-f_]+"
    r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[t ].*)?|[-+]?\.(?:inf|nan)"
)
"""Texts that some version of YAML reads as something other than text."""


class _Representer(RoundTripRepresenter):
    """Also writes exact decimal numbers: 1e5 with a point, as it would be read as a whole number otherwise."""


def _decimal(representer: _Representer, value: Decimal) -> Any:
    text = f"{value:f}"
    return representer.represent_scalar("tag:yaml.org,2002:float", text if "." in text else f"{text}.0")


def _none(representer: _Representer, _: None) -> Any:
    return representer.represent_scalar("tag:yaml.org,2002:null", "null")


_Representer.add_representer(Decimal, _decimal)
_Representer.add_representer(type(None), _none)


def is_plain(text: str) -> bool:
    """Whether every YAML version reads the text as a string without quotes, also inside brackets."""
    if not _PLAIN.fullmatch(text) or _OTHERWISE.fullmatch(text):
        return False
    return isinstance(plain_scalar(text), str)


def inline(value: Value, *, in_flow: bool = False) -> str:
    """A value on one line. `in_flow`: it stands inside brackets or braces."""
    holder = CommentedMap(v=_styled(value, flow=True))
    if in_flow:
        holder.fa.set_flow_style()
    text = _dumped(holder)
    return text.removeprefix("{v: ").removesuffix("}") if in_flow else text.removeprefix("v: ")


def pair(key: str, value: Value) -> str:
    """A key and its value on one line, as inside braces."""
    return f"{inline(key, in_flow=True)}: {inline(value, in_flow=True)}"


def block(value: Mapping[str, Any], column: int = 0) -> list[str]:
    """The lines of a mapping, each indented by `column`; lists of plain values are in brackets."""
    text = _dumped(_styled(dict(value), flow=False))
    return [f"{' ' * column}{line}" for line in text.split("\n")]


def _dumped(value: Any) -> str:
    yaml = YAML(typ="rt", pure=True)
    yaml.Representer = _Representer
    yaml.width = _WIDTH
    yaml.allow_unicode = True
    yaml.default_flow_style = False
    yaml.indent(mapping=INDENT, sequence=INDENT, offset=0)
    stream = StringIO()
    yaml.dump(value, stream)
    return yaml_text(stream.getvalue().removesuffix("\n"))


def _styled(value: Any, *, flow: bool) -> Any:
    """The value in ruamel.yaml's types, which carry quotes and brackets."""
    if isinstance(value, str):
        return value if is_plain(value) else DoubleQuotedScalarString(value)
    if isinstance(value, list):
        entries = CommentedSeq(_styled(entry, flow=flow) for entry in value)
        if flow or not any(isinstance(entry, dict | list) for entry in value):
            entries.fa.set_flow_style()
        return entries
    if isinstance(value, dict):
        mapping = CommentedMap((_styled(key, flow=flow), _styled(entry, flow=flow)) for key, entry in value.items())
        if flow or not value:
            mapping.fa.set_flow_style()
        return mapping
    return value
