"""A tree of files to what it declares, or to every mistake in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuctl.compile.capacity import check_capacity
from gpuctl.compile.declarations import collect
from gpuctl.compile.fit import fit_jobs
from gpuctl.compile.lower import lower
from gpuctl.compile.quota import quota_domains
from gpuctl.compile.readings import Readings
from gpuctl.compile.resolve import resolve
from gpuctl.diag.diagnostic import Diagnostic, has_errors, sorted_diagnostics
from gpuctl.model.declared import Declared
from gpuctl.model.ids import ProjectName
from gpuctl.model.source import SourceTree


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """`declared` is None exactly when a diagnostic is an error.

    `owners` says for each file whose it is: the project whose folder `projects/<p>/` it is in, else the one project all
    its documents belong to, else None: the cluster's own.
    """

    declared: Declared | None
    diagnostics: tuple[Diagnostic, ...] = ()
    owners: Mapping[str, ProjectName | None] = field(default_factory=dict)
    cluster: str = ""


def compile_tree(tree: SourceTree, readings: Readings | None = None) -> Compiled:
    """Compile all files of a tree. Never raises for their content; the order of files means nothing.

    `readings` are those of a compilation before, where there was one: they save work and change no result.
    Cost: linear in the bytes of the files, about twice what merely parsing them costs; of a file that is the same
    object, and whose references lead to the same, a fiftieth of that.
    """
    readings = readings or Readings()
    declarations = collect(tree, readings.files)
    resolved = resolve(declarations, tree)
    diagnostics = [*declarations.diagnostics, *resolved.diagnostics]
    resolved.domains = quota_domains(resolved)
    diagnostics.extend(check_capacity(resolved))
    resolved.jobs, unfit = fit_jobs(declarations, resolved, readings.fitted)
    diagnostics.extend(unfit)
    if declarations.policies:
        from gpuctl.compile.policy import check_policies  # noqa: PLC0415 - it imports jsonschema and re2, which takes a while

        diagnostics.extend(check_policies(declarations, readings.rules, readings.breaches))
    declared = None if has_errors(diagnostics) else lower(resolved, readings.jobs)
    return Compiled(
        declared=declared,
        diagnostics=sorted_diagnostics(diagnostics),
        owners=declarations.owners,
        cluster=resolved.cluster.model.metadata.name if resolved.cluster is not None else "",
    )
