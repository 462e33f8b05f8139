"""A project has one namespace: an object in another namespace is no job of the project, whatever its labels say.

Security: a tenant can write any label, also one that names another team's project. A job that is declared for a project
gets that project's Secrets and claims, so such a job would read them without that team ever having seen it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from gpuctl.scaffold.foreign.values import Left, Place, Record, Thing

PREFIXES = ("runai-",)
"""Prefixes of namespaces that another system made for a project."""


def namespace_of(thing: Thing) -> str:
    """The namespace of an object; "" for one that an API lists without a namespace."""
    return Record(Record(thing.origin).take("metadata")).text("namespace")


def project_of(namespace: str, place: Place) -> str:
    """The project of a namespace: its name without the prefix of gpuctl or Run:ai."""
    for prefix in (place.prefix, *PREFIXES):
        if prefix and namespace.startswith(prefix) and namespace != prefix:
            return namespace.removeprefix(prefix)
    return namespace


def in_their_own(jobs: Iterable[Thing], place: Place) -> tuple[list[Thing], list[Left]]:
    """The jobs in their project's namespace, and why the others are not declared. Cost: linear.

    A namespace with a prefix belongs to the project in its name. If a project has several, the one named after it is
    its own; if there is none, none is.
    """
    namespaces: dict[str, set[str]] = defaultdict(set)
    found, left = [], []
    for job in jobs:
        namespace, project = namespace_of(job), job.target.project
        meant = project_of(namespace, place)
        if meant not in {namespace, project}:
            why = f"it stands in namespace {namespace}, which is that of project {meant}"
            left.append(Left(what=str(job.target), why=why))
            continue
        if namespace:
            namespaces[project].add(namespace)
        found.append(job)
    own = {project: own_namespace(project, names, place) for project, names in namespaces.items()}
    kept = []
    for job in found:
        namespace, project = namespace_of(job), job.target.project
        if namespace in {"", own.get(project)}:
            kept.append(job)
        else:
            several = ", ".join(sorted(namespaces[project]))
            left.append(Left(what=str(job.target), why=f"project {project} would have several namespaces: {several}"))
    return kept, left


def own_namespace(project: str, names: set[str], place: Place) -> str | None:
    """The one of several namespaces that is the project's own; None if that is not certain."""
    if len(names) == 1:
        return next(iter(names))
    called = (f"{prefix}{project}" for prefix in (place.prefix, *PREFIXES, ""))
    return next((name for name in called if name in names), None)
