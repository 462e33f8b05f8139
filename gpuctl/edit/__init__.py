"""Edits of declarations: the text of a file and what is wanted of it, to the text that says so. Pure.

`nodes` where values stand in a text, `values` how a value is written, `splices` the change of one field, `documents`
an edit with its proof, `layout` the stable form that `gpuctl fmt` gives.
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
