"""Compiles a tree of files: to its declarations, or to every mistake in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from typing import Any

from gpuctl.compile.after import check_after
from gpuctl.compile.cache import CompileCache
from gpuctl.compile.capacity import NODE_POOL, check_capacity
from gpuctl.compile.declarations import Declarations, collect
from gpuctl.compile.defaults import defaulted
from gpuctl.compile.document import MOST_TOLD
from gpuctl.compile.fit import fit_jobs
from gpuctl.compile.lower import lower
from gpuctl.compile.most_jobs import check_most_jobs
from gpuctl.compile.quota import quota_domains
from gpuctl.compile.resolve import ResolvedJob, resolve
from gpuctl.compile.sweeps import check_names
from gpuctl.diag.codes import CODES
from gpuctl.diag.diagnostic import Diagnostic, Severity, has_errors, sorted_diagnostics
from gpuctl.diag.wording import message
from gpuctl.model.declared import Declared
from gpuctl.model.ids import ProjectName
from gpuctl.model.source import SourceTree


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A declaration as its author wrote it; `spec` is decoded YAML."""

    kind: str
    name: str
    spec: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """The result of a compilation. `declared` is None exactly when a diagnostic is an error.

    - `written`: all declarations but jobs and templates; empty if there are errors.
    - `audits`: where declarations break policies of severity audit. These are never among the diagnostics.
    - `declarations`: all documents of the right shape, as policies see them.
    - `jobs`: the jobs that fit, with their defaults.
    - `owners`: the owner of each file: the project whose folder `projects/<p>/` it is in, else the one project that all
      its documents belong to, else None: the cluster.
    """

    declared: Declared | None
    diagnostics: tuple[Diagnostic, ...] = ()
    owners: Mapping[str, ProjectName | None] = field(default_factory=dict)
    cluster: str = ""
    written: tuple[Written, ...] = ()
    audits: tuple[Diagnostic, ...] = ()
    declarations: Declarations | None = field(default=None, repr=False, compare=False)
    jobs: tuple[ResolvedJob, ...] = field(default=(), repr=False, compare=False)


def compile_tree(
    tree: SourceTree,
    cache: CompileCache | None = None,
    before: Compiled | None = None,
    most_jobs: int | None = None,
) -> Compiled:
    """Compile all files of a tree. Never raises for their content; the order of files has no effect.

    `before`: what was declared before a change, if that is known. A mistake that several declarations make together
    (quotas with too large a sum, too many jobs) is then marked at one that the change touched. Policies that compare
    with what was declared before are evaluated only then.
    `cache`: the cache of an earlier compilation; it saves work and changes no result.
    `most_jobs`: how many jobs the reconciler has memory for; None: not known, and no number is too large.
    Cost: linear in the bytes of the files, about twice the cost of parsing them; a fiftieth of that for a file that is
    the same object, with references that lead to the same.
    """
    cache = cache or CompileCache()
    declarations = collect(tree, cache.reading)
    resolved = resolve(declarations, tree)
    diagnostics = [*declarations.diagnostics, *resolved.diagnostics]
    resolved.domains = quota_domains(resolved)
    written = tuple(_written(declarations))
    known = None if before is None or before.declared is None else before.written
    diagnostics.extend(check_capacity(resolved, _touched(written, known)))
    resolved.jobs, unfit = fit_jobs(declarations, resolved, cache.fitted)
    diagnostics.extend(unfit)
    if most_jobs is not None:
        jobs_before = frozenset(job.declaration for job in before.jobs) if before is not None else ()
        diagnostics.extend(check_most_jobs(resolved.jobs, declarations.owners, most_jobs, jobs_before))
    diagnostics.extend(check_after(declarations))
    diagnostics.extend(check_names(declarations))
    declarations = _with_defaults(declarations, resolved.jobs, cache)
    if declarations.policies:
        from gpuctl.compile.policy import check_policies  # noqa: PLC0415 - it imports jsonschema and re2, which takes a while

        base = None if before is None else before.declarations
        diagnostics.extend(check_policies(declarations, cache.rules, cache.breaches, base=base))
    audits = [found for found in diagnostics if found.severity is Severity.AUDIT]
    told = diagnostics if not audits else [found for found in diagnostics if found.severity is not Severity.AUDIT]
    declared = None if has_errors(told) else lower(resolved, cache.jobs)
    return Compiled(
        declared=declared,
        diagnostics=tuple(_as_many_as_are_read(sorted_diagnostics(told), declarations.owners)),
        audits=sorted_diagnostics(audits),
        declarations=declarations,
        jobs=tuple(resolved.jobs),
        owners=declarations.owners,
        cluster=resolved.cluster.model.metadata.name if resolved.cluster is not None else "",
        written=written if declared is not None else (),
    )


def _with_defaults(declarations: Declarations, jobs: Iterable[ResolvedJob], cache: CompileCache) -> Declarations:
    """The declarations as policies see them: the defaults of a job count as if the job declared them."""
    cache.defaulted.turn()
    made = {
        job.declaration: cache.defaulted.get(job, (), partial(defaulted, job.declaration, job.filled))
        for job in jobs
        if job.filled.origins
    }
    return replace(declarations, jobs=[made.get(job, job) for job in declarations.jobs]) if made else declarations


def _touched(written: Iterable[Written], before: Collection[Written] | None) -> frozenset[tuple[str, str]]:
    """The parts of quota sums that a change has set, by kind and name: quotas with their departments, and node pools. A
    project whose quota is lowered is left out: it makes no sum too large."""
    if before is None:
        return frozenset()
    known, set_now = (dict(each for one in side for each in _of_sums(one)) for side in (before, written))
    changed = {named: part for named, part in set_now.items() if part != known.get(named)}
    return frozenset(
        named for named, part in changed.items() if named[0] != "Project" or not _is_less(part, known.get(named))
    )


def _is_less(now: tuple[Any, Any], before: tuple[Any, Any] | None) -> bool:
    """Whether a quota is a lower number than before, in the same department."""
    if before is None or now[1] != before[1]:
        return False
    quota, old = now[0], before[0]
    return isinstance(quota, int | Decimal) and isinstance(old, int | Decimal) and quota < old


def _of_sums(one: Written) -> Iterator[tuple[tuple[str, str], Any]]:
    if one.kind != "Cluster":
        yield (one.kind, one.name), (one.spec.get("quota"), one.spec.get("department"))
        return
    pools = [pool for pool in one.spec.get("nodePools") or () if isinstance(pool, Mapping)]
    for pool in pools:
        yield (NODE_POOL, str(pool.get("name"))), (pool.get("nodes"), pool.get("gpusPerNode"))
    yield (NODE_POOL, ""), [pool.get("name") for pool in pools]


def _written(declarations: Declarations) -> Iterator[Written]:
    for kind, declared in declarations.of_kinds().items():
        for declaration in declared if kind not in {"Job", "Template"} else ():
            spec = declaration.document.data.get("spec") or {}
            yield Written(kind=kind, name=declaration.model.metadata.name, spec=spec)


def _as_many_as_are_read(
    diagnostics: Iterable[Diagnostic], owners: Mapping[str, ProjectName | None]
) -> Iterator[Diagnostic]:
    """The first MOST_TOLD mistakes of each owner and severity, then one diagnostic that says that there are more."""
    counts: Counter[tuple[ProjectName | None, Severity]] = Counter()
    for found in diagnostics:
        owner = owners.get(found.span.file)
        counts[owner, found.severity] += 1
        if counts[owner, found.severity] <= MOST_TOLD:
            yield found
        elif counts[owner, found.severity] == MOST_TOLD + 1:
            whose = "the cluster's own files" if owner is None else f'the files of project "{owner}"'
            text = message("GPU1022", {"limit": MOST_TOLD, "whose": whose})
            yield Diagnostic(
                code="GPU1022", message=text, span=found.span, severity=found.severity, help=CODES["GPU1022"].fix
            )
