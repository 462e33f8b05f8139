"""A declared project whose namespace is being deleted: its commit would seem to be applied, with nothing there."""

from __future__ import annotations

from dataclasses import replace

from workbench import example

from gpuctl.diag.diagnostic import Diagnostic, Severity
from gpuctl.k8s import kinds
from gpuctl.model.declared import Declared
from gpuctl.model.ids import ObjectRef
from gpuctl.model.state import Body, ClusterState
from gpuctl.plan.slow_ends import slow_ends

DECLARED = example()
FIRST = DECLARED.projects[0]


def told(declared: Declared, *deleted: str) -> list[Diagnostic]:
    """Of the namespaces of all projects, of which some are `deleted`."""
    spaces: dict[ObjectRef, Body] = {}
    for project in DECLARED.projects:
        since = {"deletionTimestamp": "2020-07-29T05:20:00Z"} if project.namespace in deleted else {}
        spaces[ObjectRef(*kinds.NAMESPACE, "", project.namespace)] = {"metadata": {"name": project.namespace, **since}}
    return [*slow_ends(declared, ClusterState(), spaces, 0)]


def test_it_is_told_at_the_project() -> None:
    (found,) = told(DECLARED, FIRST.namespace)
    assert (found.code, found.severity, found.span) == ("GPU7023", Severity.ERROR, FIRST.span)
    assert found.message == (
        f"namespace {FIRST.namespace} of project {FIRST.name} was deleted at 2020-07-29T05:20:00Z and is not gone yet: "
        "until then nothing of the project can be created"
    )


def test_each_project_is_told() -> None:
    names = [project.namespace for project in DECLARED.projects]
    assert [found.span for found in told(DECLARED, *names)] == [project.span for project in DECLARED.projects]


def test_namespaces_that_stay_or_are_of_no_declared_project_are_not_told() -> None:
    assert told(DECLARED) == []
    rest = replace(DECLARED, projects=DECLARED.projects[1:])
    assert told(rest, FIRST.namespace) == []
