"""Rendered Kubernetes objects, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuctl.diag.span import SourceSpan
from gpuctl.model.ids import ObjectRef, ProjectName


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One object as wanted: every field that gpuctl owns and no other. `project` None: the cluster's own."""

    ref: ObjectRef
    body: Mapping[str, Any]
    project: ProjectName | None
    span: SourceSpan | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifests:
    """All wanted objects, sorted by reference, and those that are left exactly as they are (of finished runs)."""

    items: tuple[Manifest, ...] = ()
    retained: frozenset[ObjectRef] = frozenset()
