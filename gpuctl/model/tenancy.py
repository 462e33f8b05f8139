"""Where a cluster's projects live: what decides, besides the ledgers, which namespace is which project's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuctl.model.ids import ProjectName


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenancy:
    """The name that gpuctl acts under, and the projects by their namespaces, as Git declares them.

    Nothing of it is read from objects, so no label on an object can change it.
    """

    cluster: str
    projects: Mapping[str, ProjectName] = field(default_factory=dict)
