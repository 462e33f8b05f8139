"""Guards: refuse effects of a commit that are too dangerous. They never trim or postpone silently.

A refusal leaves its part exactly as it is, and everything else goes on. A commit whose message has the trailer
`Gpuctl-Confirm: <digest>` lifts it. Anyone who reads the declarations can compute a digest, and the same declarations
may come again. So a confirmation counts for one change alone (`void_confirmations`): together with the commit that made
the change, and after it. From there it is valid while the deletion is under way, over crashes too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TypeAlias

from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.diag.span import SourceSpan
from gpuctl.diag.wording import message
from gpuctl.k8s import kinds, names
from gpuctl.k8s.ledger import ledger_ref
from gpuctl.k8s.objects import is_deleting, labels_of, text, uid
from gpuctl.k8s.workloads import is_workload
from gpuctl.model.declared import WHOLE_CLUSTER, Declared, Project
from gpuctl.model.ids import DomainName, JobId, ObjectRef, ProjectName
from gpuctl.model.state import Body, ClusterState, Ledger, Run, RunPhase
from gpuctl.model.units import GpuMilli, format_gpus
from gpuctl.plan.cache import PlanCache
from gpuctl.plan.inventory import OWN
from gpuctl.plan.prune import is_namespace, is_ours

CONFIRM_TRAILER = "Gpuctl-Confirm"
_CONFIRMATION = re.compile(rf"`{CONFIRM_TRAILER}: (\w+)`")
_HOLDS_GPUS = frozenset({RunPhase.STARTING, RunPhase.RUNNING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """The deletions that are allowed, and the refusals of the others."""

    allowed: tuple[ObjectRef, ...] = ()
    refusals: tuple[Diagnostic, ...] = ()


def foreign_namespaces(declared: Declared, state: ClusterState) -> dict[ProjectName, Diagnostic]:
    """The projects whose namespace exists, is not gpuctl's, and may not be taken over, each with its refusal.

    A project takes over only a namespace that an administrator has released for it and that has no foreign pods: the
    right to merge a project must not give the rights of an administrator in any namespace.

    A namespace of another cluster is never taken over, even with `adopt`: both clusters would write it and start jobs
    in it. A namespace that this cluster created stays its own if a person changed the label, unless the other cluster's
    ledger holds it too: then the label says which cluster was first.
    """
    found = {}
    for project in declared.projects:
        ref = ObjectRef(*kinds.NAMESPACE, "", project.namespace)
        live = state.live.get(ref)
        if live is None or is_ours(live, declared.cluster.name, project.name):
            continue
        ledger = state.ledgers.get(project.name)
        recorded = ledger is not None and ref in ledger.inventory
        other = _other_cluster(declared, live)
        if other and not (recorded and state.claimed.get(ref.name) != other):
            found[project.name] = _belongs_to(other, project)
        elif project.adopt and not recorded:
            found |= _adoption(project, live, state)
        elif not recorded:
            found[project.name] = Diagnostic(
                code="GPU6004",
                message=message("GPU6004", {"namespace": project.namespace, "project": project.name}),
                span=project.span,
                help="set `adopt: true` on the project to take the namespace over, or give the project another name",
            )
    return found


def namespaces_left(base: Declared, head: Declared) -> Iterator[Diagnostic]:
    """The refusals when the cluster gets a new name, for each project whose namespace stays. Under the new name it is
    another cluster, and the namespaces belong to the old one."""
    if head.cluster.name != base.cluster.name:
        taken = {project.namespace for project in base.projects}
        for project in head.projects:
            if project.namespace in taken:
                yield _belongs_to(base.cluster.name, project)


def _belongs_to(cluster: str, project: Project) -> Diagnostic:
    return Diagnostic(
        code="GPU6006",
        message=message("GPU6006", {"namespace": project.namespace, "project": project.name, "cluster": cluster}),
        span=project.span,
        help="give one of the two clusters another `namespacePrefix`, or the project another name",
    )


def _adoption(project: Project, live: Body, state: ClusterState) -> Mapping[ProjectName, Diagnostic]:
    """Why a project may not take a namespace over now; empty if it may."""
    params = {"namespace": project.namespace, "project": project.name, "label": names.ADOPT_LABEL}
    released = labels_of(live).get(names.ADOPT_LABEL) == project.name
    code = "GPU6008" if not released else "GPU6009" if project.namespace in state.occupied else ""
    if not code:
        return {}
    release = f"`kubectl label namespace {project.namespace} {names.ADOPT_LABEL}={project.name}`, by an administrator"
    fix = "move those pods to another namespace" if released else release
    return {project.name: Diagnostic(code=code, message=message(code, params), span=project.span, help=fix)}


def _other_cluster(declared: Declared, live: Body) -> str:
    """The name of another cluster for which gpuctl made the object, by its labels; "" if there is none."""
    labels = labels_of(live)
    cluster = text(labels, names.CLUSTER_LABEL)
    ours = labels.get(names.MANAGED_BY_LABEL) != names.MANAGED_BY or cluster == declared.cluster.name
    return "" if ours else cluster


def excluded_projects(declared: Declared, state: ClusterState) -> frozenset[ProjectName]:
    """Projects that this cycle leaves as they are: pinned, frozen, in a foreign namespace, or with a damaged ledger.

    Without its ledger it is not known which of a project's runs have ended. A damaged revision excludes no project: it
    only says where to find the project's files when the newest ones are broken.
    """
    damaged = damaged_projects(state).intersection(project.name for project in declared.projects)
    frozen = frozen_projects(declared, state) - {OWN}
    return declared.pinned | foreign_namespaces(declared, state).keys() | damaged | frozen


def frozen_projects(declared: Declared, state: ClusterState) -> frozenset[ProjectName]:
    """The projects that people froze, declared or not. If the cluster is frozen: all projects, and OWN for its own
    ledger."""
    if state.all_frozen:
        return frozenset({*(project.name for project in declared.projects), *state.ledgers, OWN})
    return frozenset(each.project for each in state.frozen if each.project is not None)


def damaged_projects(state: ClusterState) -> frozenset[ProjectName]:
    """The projects with a damaged ledger, declared or not. Their inventory is not known, so none of their objects is
    removed."""
    lost = (names.ledger_owner(ref.name) for ref, part in state.damaged if part != "revision")
    return frozenset(ProjectName(owner[1]) for owner in lost if owner is not None) - {OWN}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stops:
    """The jobs that a change of the declarations may not end or remove all at once, and the refusals."""

    jobs: frozenset[JobId] = frozenset()
    refusals: tuple[Diagnostic, ...] = ()


def mass_stop(
    declared: Declared, state: ClusterState, confirmed: frozenset[str], cache: PlanCache | None = None
) -> Stops:
    """Check whether a change ends more of the running GPUs, or removes more jobs, than one commit may.

    Pauses that the engine decides don't count. The digests cover all declarations: they are valid while the jobs end,
    over crashes too, and void for the next change. Excluded projects, and projects that are removed as a whole, have
    guards of their own. `cache` (of the plan before) saves work and changes no result.
    """
    cache = cache or PlanCache()
    mine = {project.name for project in declared.projects} - excluded_projects(declared, state)
    found = (_ended(declared, state, mine, cache), _removed(declared, state, mine, cache))
    refused = [(jobs, refusal) for jobs, refusal, digest in filter(None, found) if digest not in confirmed]
    return Stops(
        jobs=frozenset(job for jobs, _ in refused for job in jobs), refusals=tuple(refusal for _, refusal in refused)
    )


_Danger: TypeAlias = tuple[list[JobId], Diagnostic, str]
"""The jobs that must not be touched, the refusal, and the digest that confirms it."""


def _ended(declared: Declared, state: ClusterState, mine: Collection[ProjectName], cache: PlanCache) -> _Danger | None:
    """Removed and changed jobs that hold too many of the running GPUs."""
    running = [run for run in state.runs if run.phase is RunPhase.STARTING or run.phase is RunPhase.RUNNING]
    ended = [run for run in cache.old_runs(declared.jobs, running) if run.job.project in mine]
    percent = declared.cluster.scheduling.stop_guard_percent
    stopped_milli, running_milli = (sum(map(_held_milli, runs)) for runs in (ended, running))
    if len(ended) <= 1 or stopped_milli * 100 <= percent * running_milli:
        return None
    params: dict[str, str | int] = {
        "jobs": len(ended),
        "stopped": format_gpus(stopped_milli),
        "running": format_gpus(running_milli),
        "percent": percent,
        "what": listed(str(run.job) for run in ended),
    }
    return of_all(declared, "stop", [run.job for run in ended], "GPU6007", params)


def _removed(
    declared: Declared, state: ClusterState, mine: Collection[ProjectName], cache: PlanCache
) -> _Danger | None:
    """Removed jobs that have not ended, if they are too many."""
    most = declared.cluster.scheduling.delete_guard_jobs
    if most is None or len(state.runs) <= most:
        return None
    known = cache.jobs(declared.jobs)
    runs = (run for run in state.runs if not run.phase.final and run.job.project in mine)
    gone = sorted({run.job for run in runs if run.job not in known})
    if len(gone) <= most:
        return None
    return of_all(declared, "delete", gone, "GPU6010", _too_many(gone, most))


def _too_many(jobs: Sequence[JobId], most: int) -> dict[str, str | int]:
    return {"jobs": len(jobs), "most": most, "what": listed(map(str, jobs))}


_OF_ALL = frozenset({"stop", "delete", "freeze"})


def of_all(declared: Declared, what: str, jobs: list[JobId], code: str, params: Mapping[str, str | int]) -> _Danger:
    """A refusal whose digest covers all declarations, with the jobs concerned."""
    digest = _digest_of_all(declared, what)
    return jobs, _refusal(code, message(code, params), declared.cluster.span, digest), digest


def _digest_of_all(declared: Declared, what: str) -> str:
    contents = (f"{project}={content}" for project, content in sorted(declared.project_contents.items()))
    return _digest(declared.cluster.name, what, *contents)


def _held_milli(run: Run) -> GpuMilli:
    return run.gpu_milli * (len(run.placement.workers) if run.placement else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A project's quota in a quota domain before and after, and what its non-preemptible jobs hold there."""

    project: ProjectName
    domain: DomainName
    quota: tuple[GpuMilli, GpuMilli]
    fixed_milli: GpuMilli


def quota_cut(declared: Declared, cut: Cut) -> Diagnostic:
    """The refusal of a quota below what non-preemptible jobs hold.

    Only `plan` refuses it: nothing is lost by it, but the guarantees of others can't be met before these jobs end.
    """
    where = "" if cut.domain == WHOLE_CLUSTER else f" on {cut.domain}"
    params: dict[str, str | int] = {
        "project": cut.project,
        "where": where,
        "before": cut.quota[0],
        "after": cut.quota[1],
        "held": cut.fixed_milli,
    }
    span = declared.project(cut.project).span
    return _refusal("GPU6011", message("GPU6011", params), span, cut_digest(declared, cut))


def cut_digest(declared: Declared, cut: Cut) -> str:
    """The digest that confirms a cut, whatever is held."""
    return _digest(declared.cluster.name, "quota", cut.project, cut.domain, *map(str, cut.quota))


def review(
    declared: Declared, ledger: Ledger, surplus: tuple[ObjectRef, ...], state: ClusterState, confirmed: frozenset[str]
) -> Review:
    """Check one project's deletions."""
    if ledger.project == OWN or not surplus:
        return Review(allowed=surplus)
    if any(project.name == ledger.project for project in declared.projects):
        return _review_claims(declared, ledger.project, surplus, state, confirmed)
    content = ledger.content or f"{ledger.revision} {_ledger_uid(declared, ledger, state)}"
    inside, refused = _inside(ledger, state), list[Diagnostic]()
    danger = _danger(declared, ledger, surplus, inside, state)
    if danger is not None and removal_digest(declared, ledger.project, content) not in confirmed:
        refused.append(removal(declared, ledger.project, content, *danger))
    claims = sorted({ref.name for ref in (*surplus, *inside) if _is_claim(ref)})
    digest = data_digest(declared, ledger.project, content)
    if claims and digest not in confirmed:
        refused.append(_data_loss(ledger.project, claims, declared.cluster.span, digest))
    return Review(refusals=tuple(refused)) if refused else Review(allowed=surplus)


def removal(
    declared: Declared, project: ProjectName, content: str, code: str, params: Mapping[str, str | int]
) -> Diagnostic:
    """The refusal to remove a project. `content`: the digest of what it declared."""
    text = message(code, {"project": project, **params})
    return _refusal(code, text, declared.cluster.span, removal_digest(declared, project, content))


def removal_digest(declared: Declared, project: ProjectName, content: str) -> str:
    """The digest that confirms the removal of a project with these declarations."""
    return _digest(declared.cluster.name, "remove", project, content)


def data_digest(declared: Declared, project: ProjectName, content: str) -> str:
    """The digest that confirms the loss of the data of all claims in a removed project's namespaces.

    It is a digest of its own, as the removal may be confirmed while the claims are unknown: by a plan without the
    cluster, or before the team made one.
    """
    return _digest(declared.cluster.name, "remove with data", project, content)


def void_confirmations(
    declared: Declared,
    ledgers: Iterable[Ledger],
    confirmed: frozenset[str],
    since: Callable[[Ledger | None], frozenset[str]],
) -> frozenset[str]:
    """The confirmations that belong to an earlier change, or were written before there was a change to confirm.

    `since`: the confirmations with and after the removal of a ledger's project; None: those with and after the newest
    change of the declarations. Cost: a digest for each removed project; a call for each confirmed one.
    """
    left = {project.name for project in declared.projects}
    gone = (each for each in ledgers if each.project not in left and each.project != OWN and each.content)
    said: list[tuple[Ledger | None, str]] = [
        *(
            (each, digest(declared, each.project, each.content))
            for each in gone
            for digest in (removal_digest, data_digest)
        ),
        *((None, _digest_of_all(declared, what)) for what in sorted(_OF_ALL)),
    ]
    return frozenset(digest for each, digest in said if digest in confirmed and digest not in since(each))


def _review_claims(
    declared: Declared,
    project: ProjectName,
    surplus: tuple[ObjectRef, ...],
    state: ClusterState,
    confirmed: frozenset[str],
) -> Review:
    """Check the claims of a project that is still declared: each is confirmed by itself; all other objects may be
    deleted."""
    digests = {ref: _digest(str(ref), uid(state.live[ref])) for ref in surplus if _is_claim(ref)}
    refused = [ref for ref, digest in digests.items() if digest not in confirmed]
    span = declared.project(project).span
    return Review(
        allowed=tuple(ref for ref in surplus if ref not in refused),
        refusals=tuple(_data_loss(project, [ref.name], span, digests[ref]) for ref in refused),
    )


def _inside(ledger: Ledger, state: ClusterState) -> list[ObjectRef]:
    """All objects in the namespaces that go with a project, including those that people made. Cost: O(live objects)."""
    namespaces = {ref.name for ref in ledger.inventory if is_namespace(ref)}
    return sorted(ref for ref, body in state.live.items() if ref.namespace in namespaces and not is_deleting(body))


def _danger(
    declared: Declared,
    ledger: Ledger,
    surplus: tuple[ObjectRef, ...],
    inside: Iterable[ObjectRef],
    state: ClusterState,
) -> tuple[str, Mapping[str, str | int]] | None:
    """The code and the facts of the most dangerous effect of removing a project, apart from data; None if there is
    none."""
    if not declared.projects and not declared.pinned:
        return "GPU6001", {"what": listed(ref.name for ref in surplus)}
    running = [run.job.name for run in state.runs if run.job.project == ledger.project and run.phase in _HOLDS_GPUS]
    if running:
        return "GPU6002", {"what": listed(running)}
    most = declared.cluster.scheduling.delete_guard_jobs
    left = sorted({run.job for run in state.runs if run.job.project == ledger.project and not run.phase.final})
    if most is not None and len(left) > most:
        return "GPU6010", _too_many(left, most)
    foreign = [ref.name for ref in inside if _has_pods(ref) and not _is_managed(ref, state)]
    return ("GPU6005", {"what": listed(foreign)}) if foreign else None


def _is_claim(ref: ObjectRef) -> bool:
    return (ref.api_version, ref.kind) == kinds.CLAIM


def _has_pods(ref: ObjectRef) -> bool:
    return is_workload(ref) or (ref.api_version, ref.kind) == kinds.POD


def _is_managed(ref: ObjectRef, state: ClusterState) -> bool:
    return labels_of(state.live[ref]).get(names.MANAGED_BY_LABEL) == names.MANAGED_BY


def is_confirmed(refusal: Diagnostic, confirmed: frozenset[str]) -> bool:
    """Whether one of the confirmations lifts a refusal."""
    return any(refusal.help == _help(digest) for digest in confirmed)


def confirmation_of(fix: str) -> str:
    """The digest that lifts the refusal with this help; "" if no confirmation does. Only for the help of guards: the
    help of a mistake may quote words of a file."""
    found = _CONFIRMATION.search(fix)
    return "" if found is None else found[1]


def _ledger_uid(declared: Declared, ledger: Ledger, state: ClusterState) -> str:
    return uid(state.live[ledger_ref(declared.cluster.name, ledger.project)])


def _digest(*parts: str) -> str:
    return sha256("\n".join(parts).encode()).hexdigest()[:12]


def listed(words: Iterable[str]) -> str:
    """A list of a few names, then how many more there are."""
    known = list(words)
    return ", ".join(known[:5]) + (f" and {len(known) - 5} more" if len(known) > 5 else "")


def _data_loss(project: ProjectName, claims: Iterable[str], span: SourceSpan, digest: str) -> Diagnostic:
    return _refusal("GPU6003", message("GPU6003", {"project": project, "what": listed(claims)}), span, digest)


def _refusal(code: str, text: str, span: SourceSpan, digest: str) -> Diagnostic:
    return Diagnostic(code=code, message=text, span=span, help=_help(digest))


def _help(digest: str) -> str:
    return f"if it is meant, push a commit whose message ends with the line `{CONFIRM_TRAILER}: {digest}`"
