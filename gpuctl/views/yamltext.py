"""Write manifests as one YAML stream: keys sorted, one document an object, the same bytes for equal manifests.

YAML readers disagree about an unquoted `no`, `1e3`, `0o7` or `12:30`. So a string is unquoted only if every YAML
version reads it as a string, else quoted: with single quotes if it holds JSON. Invisible characters, and text that a CI
service would take for a command, are escaped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import yaml

from gpuctl.diag.escapes import printable, yaml_text
from gpuctl.model.manifest import Manifests

_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./@-]*(?::[A-Za-z0-9_./@-]+)*|[0-9]+[KMGT]i")
_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "y", "n", "null", "nan", "inf"})
_WIDTH = 2**31 - 1

_Base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_Base):  # type: ignore[misc]  # the C dumper has no types
    """Writes plain values; objects share label mappings, which must not become anchors."""

    def ignore_aliases(self, data: object) -> bool:
        """No anchors, ever."""
        del data
        return True

    def text(self, value: str) -> yaml.ScalarNode:
        """Represent a string, quoted unless every reader takes it for one. Lone surrogates become visible escapes."""
        value = value.encode(errors="backslashreplace").decode()
        if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
            style = None
        else:
            style = "'" if '"' in value and value == printable(value) else '"'
        node: yaml.ScalarNode = self.represent_scalar("tag:yaml.org,2002:str", value, style=style)
        return node

    def decimal(self, value: Decimal) -> yaml.ScalarNode:
        """Represent a number as it was written, without an exponent."""
        node: yaml.ScalarNode = self.represent_scalar("tag:yaml.org,2002:float", format(value, "f"))
        return node


_Dumper.add_representer(str, _Dumper.text)
_Dumper.add_representer(Decimal, _Dumper.decimal)


def yaml_stream(manifests: Manifests) -> str:
    """All manifests in their order, each preceded by `---`."""
    return "".join(yaml_document(manifest.body) for manifest in manifests.items)


def yaml_document(body: Mapping[str, Any]) -> str:
    """One object."""
    text = yaml.dump(
        body,
        Dumper=_Dumper,
        sort_keys=True,
        default_flow_style=False,
        explicit_start=True,
        allow_unicode=True,
        width=_WIDTH,
    )
    return yaml_text(text)
