"""Diagnostics about projects that do not follow the newest commit."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from gpuctl.diag.diagnostic import Diagnostic, Severity, sorted_diagnostics
from gpuctl.diag.span import SourceSpan
from gpuctl.diag.wording import message
from gpuctl.k8s.names import CLUSTER_LEDGER
from gpuctl.model.ids import NO_REVISION, ProjectName, Revision
from gpuctl.views.status import mistakes_of


def notes(
    kept_back: Mapping[ProjectName, Revision],
    pinned: Iterable[ProjectName],
    told: Iterable[Diagnostic],
    head: Revision,
    files: Mapping[ProjectName, Collection[str]],
) -> list[Diagnostic]:
    """A diagnostic for each project (or the cluster's own part) that does not follow the newest commit, at one of its
    mistakes."""
    errors = sorted_diagnostics(d for d in told if d.severity is Severity.ERROR)
    notes = []
    for code, severity, owners in (
        ("GPU8009", Severity.WARNING, kept_back),
        ("GPU8010", Severity.ERROR, dict.fromkeys(pinned, NO_REVISION)),
    ):
        for owner, revision in sorted(owners.items()):
            params = {"owner": _title(owner), "revision": revision[:12], "head": head[:12]}
            place = next((d.span for d in mistakes_of(owner, errors, files)), SourceSpan(file=""))
            notes.append(Diagnostic(code=code, message=message(code, params), span=place, severity=severity))
    return notes


def _title(owner: ProjectName) -> str:
    return f"project {owner}" if owner != CLUSTER_LEDGER else "the cluster's own part"
