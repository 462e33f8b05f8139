"""Edits of declarations: from the text of a file and the wanted changes to the new text. Pure.

`nodes`: where values are in a text; `values`: how a value is written; `splices`: the change of one field; `documents`:
an edit and its check; `layout`: the stable form that `gpuctl fmt` gives.
"""

from __future__ import annotations

from gpuctl.edit.documents import Changes, Refused, Target, add, remove, set_field, set_fields
from gpuctl.edit.layout import format_file
from gpuctl.edit.splices import REMOVED
from gpuctl.edit.values import Value

__all__ = [
    "REMOVED",
    "Changes",
    "Refused",
    "Target",
    "Value",
    "add",
    "format_file",
    "remove",
    "set_field",
    "set_fields",
]
