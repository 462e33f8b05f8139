"""Resolves references between declarations: each must lead to something declared once, in the right place.

The result is complete only if no error was found.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpuctl.compile.declarations import Claim, Declaration, Declarations
from gpuctl.compile.defaults import Filled, filled, mistake_of_default
from gpuctl.compile.document import Document, Path
from gpuctl.compile.manifest_v1 import JobKinds
from gpuctl.compile.pool_v1 import NodePool
from gpuctl.compile.shape import MOST_NAMES, most_similar, nearest
from gpuctl.compile.spec_v1 import Affinity, ClusterV1, DepartmentV1, JobSpec, JobV1, ProjectV1
from gpuctl.compile.text import NO_PARAMS, Params, SourceText, diagnose
from gpuctl.diag.diagnostic import Diagnostic, Severity
from gpuctl.diag.span import SourceSpan
from gpuctl.diag.wording import all_of
from gpuctl.model.declared import QuotaDomain
from gpuctl.model.ids import ProjectName
from gpuctl.model.source import SourceTree, folder_project

_SYSTEM_NAMESPACES = frozenset({"default", "kube-system", "kube-public", "kube-node-lease", "gpuctl-system"})
_NAME = ("metadata", "name")
MOST_PROJECTS = 10_000
MOST_DEPARTMENTS = 1000
MOST_LEVELS = 16
_MOST_COMPARED = 20
"""The most names that are compared for a suggestion: comparing takes a while."""


@dataclass(frozen=True, slots=True, eq=False)
class ResolvedJob:
    """A job with its project and the pools it may use. `in_order`: the job or the project lists the pools.

    `filled`: its spec with the defaults of its project and cluster. `text_bytes`: the bytes of its texts of unbounded
    length, which each of its objects carries.
    """

    declaration: Declaration[JobV1]
    filled: Filled
    project: Declaration[ProjectV1]
    pools: tuple[NodePool, ...]
    in_order: bool
    kinds: JobKinds = field(default_factory=JobKinds)
    text_bytes: int = 0

    @property
    def spec(self) -> JobSpec:
        """The job's spec, with defaults."""
        return self.filled.spec

    def mistake(
        self, code: str, path: Path, params: Params = NO_PARAMS, fix: str = "", *, at_key: bool = False
    ) -> Diagnostic:
        """An error of the value at a path, which the job or its defaults declare."""
        document = self.declaration.document
        of_default = mistake_of_default(document, self.filled.origins, code, path, params, fix)
        return of_default or document.mistake(code, path, params, fix, at_key=at_key)


@dataclass(slots=True)
class Resolved:
    """Declarations by name. `fit` fills in `jobs`, the jobs that fit; `quota` fills in `domains`.

    - `circular`: departments form a circle or are nested too deep, so that quotas can't be added up.
    - `strangers`: documents in the folder of another project than their own, with that folder's project.
    - `owners`: as in Compiled.
    - `kinds`: the kinds that a manifest may be.
    """

    cluster: Declaration[ClusterV1] | None = None
    pools: Mapping[str, NodePool] = field(default_factory=dict)
    departments: dict[str, Declaration[DepartmentV1]] = field(default_factory=dict)
    projects: dict[str, Declaration[ProjectV1]] = field(default_factory=dict)
    jobs: list[ResolvedJob] = field(default_factory=list)
    domains: tuple[QuotaDomain, ...] = ()
    kinds: JobKinds = field(default_factory=JobKinds)
    circular: bool = False
    strangers: Mapping[Document, str] = field(default_factory=dict)
    owners: Mapping[str, ProjectName | None] = field(default_factory=dict)
    diagnostics: list[Diagnostic] = field(default_factory=list)

    def is_own(self, document: Document) -> bool:
        """Whether a document is in the cluster's own files."""
        return self.owners.get(document.name.file) is None


def resolve(declarations: Declarations, tree: SourceTree) -> Resolved:
    """Resolve all references except those of jobs. Cost: linear in the number of the other declarations."""
    out = Resolved(owners=declarations.owners, kinds=declarations.kinds)
    rights = Rights(declarations, tree)
    claimants = sorted(declarations.claims, key=rights.of_claim)
    out.strangers = {one.document: folder for one in claimants if (folder := rights.strange_folder(one)) is not None}
    told = {found.span for found in declarations.diagnostics if found.severity is Severity.ERROR}
    out.diagnostics.extend(found for found in _misplaced(claimants, out.strangers) if found.span not in told)
    out.diagnostics.extend(_cluster_count(declarations, tree, claimants))
    if declarations.clusters:
        out.cluster = min(declarations.clusters, key=lambda cluster: rights.of("", cluster.document))
        out.pools = {pool.name: pool for pool in out.cluster.model.spec.node_pools}
    for department in sorted(declarations.departments, key=lambda one: rights.of("", one.document)):
        out.departments.setdefault(department.model.metadata.name, department)
    for project in sorted(declarations.projects, key=lambda one: rights.of(one.model.metadata.name, one.document)):
        out.projects.setdefault(project.model.metadata.name, project)
    names = Names(declarations, out)
    for department in declarations.departments:
        out.diagnostics.extend(names.department(department.document, department.model.spec.department))
    endless = list(_circles(out.departments)) or list(_too_deep(out.departments))
    out.circular = bool(endless)
    out.diagnostics.extend(endless)
    out.diagnostics.extend(_too_many(out))
    for project in declarations.projects:
        out.diagnostics.extend(_project(project, names))
    for template in declarations.templates:
        if template.model.metadata.project is not None:
            out.diagnostics.extend(names.project(template.document, template.model.metadata.project))
    if out.cluster is not None:
        out.diagnostics.extend(names.exceptions(out.cluster))
    return out


class Rights:
    """Ranks declarations that claim the same name. The lowest rank gets it; of equal ranks, the first by path and
    line."""

    def __init__(self, declarations: Declarations, tree: SourceTree) -> None:
        self._owners = declarations.owners
        self._cluster_dir = tree.cluster_dir

    def of(self, project: str, document: Document) -> int:
        """The rank of a declaration of `project`; "" for the cluster's own.

        A project's own folder ranks first. Outside of project folders, a file that several projects share ranks before
        one project's file: each project that loses stays at its last good commit, and these should be few.
        """
        path = document.name.file
        owner = self._owners.get(path)
        if not project:
            return 0 if owner is None else 1
        if owner != project:
            return 1 if owner is None else 3
        return 0 if folder_project(self._cluster_dir, path) else 2

    def of_claim(self, claim: Claim) -> int:
        """The rank of a document that may be broken."""
        return self.of(_whose(claim), claim.document)

    def strange_folder(self, claim: Claim) -> str | None:
        """The project in whose folder a claim of another project is; None if the claim is in the right place."""
        project, path = _whose(claim), claim.document.name.file
        if not project or self._owners.get(path) in (None, project):
            return None
        return folder_project(self._cluster_dir, path)


def _whose(claim: Claim) -> str:
    """The project that a claim belongs to; "" for the cluster."""
    return claim.name if claim.kind == "Project" else claim.project if claim.kind in {"Job", "Template"} else ""


def _misplaced(claims: Iterable[Claim], strangers: Mapping[Document, str]) -> Iterator[Diagnostic]:
    """Declarations that are made twice, or in another project's folder; one diagnostic if both are true."""
    first: dict[tuple[str, str, str], Claim] = {}
    for claim in claims:
        document, project = claim.document, claim.project if claim.kind in {"Job", "Template"} else ""
        before = claim
        if claim.kind != "Cluster" and claim.name:
            before = first.setdefault((claim.kind, project, claim.name), claim)
        folder = strangers.get(document)
        if folder is not None:
            at, kind = ("name", "the Project") if claim.kind == "Project" else ("project", f"a {claim.kind}")
            params = {"folder": folder, "kind": kind, "project": _whose(claim)}
            found = document.diagnostic("GPU3008", document.span(("metadata", at)), params)
        elif before is not claim:
            name = f"{project}/{claim.name}" if project else claim.name
            found = document.diagnostic("GPU3003", document.name, {"kind": claim.kind, "name": name})
        else:
            continue
        yield found if before is claim else replace(found, related=(("first declared here", before.document.name),))


def _cluster_count(declarations: Declarations, tree: SourceTree, claimants: Iterable[Claim]) -> Iterator[Diagnostic]:
    claims = [claim for claim in claimants if claim.kind == "Cluster"]
    if not claims and "Cluster" not in declarations.guessed:
        folder = tree.cluster_dir
        yield diagnose(SourceText(folder, ""), "GPU3001", SourceSpan(file=folder), {"folder": folder})
    for claim in claims[1:]:
        related = (("the first is here", claims[0].document.name),)
        yield replace(claim.document.diagnostic("GPU3002", claim.document.name, {"name": claim.name}), related=related)


def _circles(departments: Mapping[str, Declaration[DepartmentV1]]) -> Iterator[Diagnostic]:
    """Each circle of departments once, at its first department by name."""
    seen: set[str] = set()
    for start in sorted(departments):
        chain: list[str] = []
        name: str | None = start
        while name is not None and name in departments and name not in seen:
            seen.add(name)
            chain.append(name)
            name = departments[name].model.spec.department
        if name in chain:
            circle = chain[chain.index(name) :]
            at = departments[min(circle)].document
            shown = " > ".join(f'"{member}"' for member in [*circle, circle[0]])
            yield at.diagnostic("GPU3006", at.span(("spec", "department")), {"chain": shown})


def _too_deep(departments: Mapping[str, Declaration[DepartmentV1]]) -> Iterator[Diagnostic]:
    """Departments that are nested too deep. Call it only if there is no circle."""
    depths: dict[str, int] = {}
    for start in sorted(departments):
        chain: list[str] = []
        above: str | None = start
        while above is not None and above in departments and above not in depths:
            chain.append(above)
            above = departments[above].model.spec.department
        top = 0 if above is None else depths.get(above, 0)
        depths.update((name, top + step) for step, name in enumerate(reversed(chain), start=1))
    for name, depth in sorted(depths.items()):
        if depth > MOST_LEVELS:
            document = departments[name].document
            yield document.diagnostic("GPU3030", document.name, {"department": name, "limit": MOST_LEVELS})


def _too_many(out: Resolved) -> Iterator[Diagnostic]:
    """A mistake at the first project, and at the first department, beyond the limits."""
    cluster = "the cluster"
    for what, most, declared in (
        ("projects", MOST_PROJECTS, out.projects),
        ("departments", MOST_DEPARTMENTS, out.departments),
    ):
        if len(declared) > most:
            document = declared[sorted(declared)[most]].document
            yield document.diagnostic("GPU3031", document.name, {"whose": cluster, "limit": most, "what": what})


class Names:
    """Looks names up, and reports those that are not declared."""

    def __init__(self, declarations: Declarations, out: Resolved) -> None:
        self.out = out
        self.known = {(claim.kind, claim.name) for claim in declarations.claims if claim.kind != "Job"}
        # A folder's own Project may be declared under another name: that mistake is already reported.
        self.known |= {("Project", folder) for one, folder in out.strangers.items() if one.data["kind"] == "Project"}
        self.guessed = declarations.guessed
        self.meant: dict[tuple[str, str], str] = {}

    def _missing(self, kind: str, name: str) -> bool:
        return (kind, name) not in self.known and name not in self.guessed

    def _nearest(self, kind: str, name: str) -> str:
        """The help for an undeclared name: the declared name that is most similar, and its place. If very many names
        are unknown, only for the first of them."""
        declared: Mapping[str, Declaration[Any]] = self.out.projects if kind == "Project" else self.out.departments
        if (kind, name) not in self.meant and len(self.meant) < MOST_NAMES:
            self.meant[kind, name] = most_similar(name, declared)
        meant = self.meant.get((kind, name), "")
        return f'did you mean "{meant}" ({declared[meant].document.name})?' if meant else ""

    def project(self, document: Document, name: str) -> Iterator[Diagnostic]:
        """A mistake if the project is not declared."""
        if self._missing("Project", name) and document.as_written not in self.out.strangers:
            span = document.span(("metadata", "project"))
            fix = "" if f"/projects/{name}/" in f"/{span.file}" else self._nearest("Project", name)
            yield document.diagnostic("GPU3004", span, {"project": name}, fix)

    def exceptions(self, cluster: Declaration[ClusterV1]) -> Iterator[Diagnostic]:
        """A warning for each exception of a project that is not declared."""
        document = cluster.document
        for name in cluster.model.spec.security.exceptions:
            if self._missing("Project", name):
                span = document.key_span(("spec", "security", "exceptions", name))
                found = document.diagnostic("GPU3072", span, {"project": name}, self._nearest("Project", name))
                yield replace(found, severity=Severity.WARNING)

    def department(self, document: Document, name: str | None) -> Iterator[Diagnostic]:
        """A mistake if the department is not declared."""
        if name is not None and self._missing("Department", name):
            span = document.span(("spec", "department"))
            yield document.diagnostic("GPU3005", span, {"department": name}, self._nearest("Department", name))

    def pools(
        self, document: Document, path: Path, names: Collection[str], *, keys: bool = False
    ) -> Iterator[Diagnostic]:
        """A mistake for each pool that is not declared: entries of the list at the path, or keys of the mapping
        there."""
        if self.out.cluster is None:
            return
        for position, name in enumerate(names):
            if name not in self.out.pools:
                fix = near_pool(name, self.out.pools, position, names)
                yield document.mistake("GPU3007", (*path, name if keys else position), {"pool": name}, fix, at_key=keys)


def near_pool(name: str, pools: Mapping[str, NodePool], position: int, listed: Collection[str]) -> str:
    """The help for an undeclared pool, at a position of a list. Names are not compared if there are many."""
    compared = len(pools) <= _MOST_COMPARED and position < _MOST_COMPARED
    return (nearest(name, pools.keys() - set(listed)) if compared else "") or f"the cluster has {all_of(pools)}"


def _project(project: Declaration[ProjectV1], names: Names) -> Iterator[Diagnostic]:
    document, spec, name = project.document, project.model.spec, project.model.metadata.name
    yield from names.department(document, spec.department)
    affinity = spec.node_affinity
    yield from names.pools(document, ("spec", "nodeAffinity", "training"), affinity.training or ())
    yield from names.pools(document, ("spec", "nodeAffinity", "interactive"), affinity.interactive or ())
    yield from too_long_grace(document, spec.pause_grace, names.out)
    if names.out.cluster is None:
        return
    namespace = names.out.cluster.model.spec.namespace_prefix + name
    if len(namespace) > 63:
        yield document.diagnostic("GPU3022", document.span(_NAME), {"namespace": namespace, "length": len(namespace)})
    if namespace in _SYSTEM_NAMESPACES:
        yield document.diagnostic("GPU3027", document.span(_NAME), {"namespace": namespace})


def too_long_grace(document: Document, wanted: int | None, resolved: Resolved) -> Iterator[Diagnostic]:
    """A `pauseGrace` above the cluster's: a project could keep GPUs from others by stopping slowly."""
    if wanted is None or resolved.cluster is None:
        return
    most = resolved.cluster.model.spec.scheduling.pause_grace
    if wanted > most:
        yield document.mistake("GPU3075", ("spec", "pauseGrace"), {"found": wanted, "limit": most})


def affinity_pools(affinity: Affinity, job_type: str) -> Sequence[str] | None:
    """The pools that a project's jobs of a type may use; None: any. Inference may use those of training."""
    return affinity.interactive if job_type == "interactive" else affinity.training


def resolve_job(job: Declaration[JobV1], names: Names) -> tuple[ResolvedJob | None, list[Diagnostic]]:
    """The job with its references resolved, or the mistakes in them.

    If its project is declared, the result depends only on the project, the cluster and the job itself.
    """
    document, spec, out = job.document, job.model.spec, names.out
    wanted = spec.node_pools
    diagnostics = list(names.project(document, job.model.metadata.project))
    if wanted is not None:
        diagnostics.extend(names.pools(document, ("spec", "nodePools"), wanted))
    project = out.projects.get(job.model.metadata.project)
    if diagnostics or project is None or out.cluster is None:
        return None, diagnostics
    allowed = affinity_pools(project.model.spec.node_affinity, spec.type)
    for position, pool in enumerate(wanted or ()):
        if allowed is not None and pool not in allowed:
            return None, [_outside(job, project, position, pool)]
    usable = wanted if wanted is not None else allowed
    # The order is that of the most specific list: the job's, else the project's, else the cluster's.
    pools = tuple(out.pools[name] for name in (out.pools if usable is None else usable) if name in out.pools)
    found = ResolvedJob(
        declaration=job,
        filled=filled(job, project, out.cluster),
        project=project,
        pools=pools,
        in_order=usable is not None,
        kinds=out.kinds,
    )
    return (found if pools else None), []


def _outside(job: Declaration[JobV1], project: Declaration[ProjectV1], position: int, pool: str) -> Diagnostic:
    document, job_type = job.document, job.model.spec.type
    where = project.document.span(("spec", "nodeAffinity", "interactive" if job_type == "interactive" else "training"))
    params = {"project": project.model.metadata.name, "type": job_type, "pool": pool}
    found = document.mistake("GPU3018", ("spec", "nodePools", position), params)
    return replace(found, related=(*found.related, ("the project's affinity is here", where)))
