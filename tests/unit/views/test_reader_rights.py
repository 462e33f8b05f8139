"""Who gives a right that is missing: a role for people, by a command that an administrator can paste."""

from __future__ import annotations

import pytest

from gpuctl.install import Installation, all_objects
from gpuctl.model.right import Right
from gpuctl.views.rights import grant_of, team_grant

_AT_HOME = ("reader", "operator", "freezer")
JOBS = Right(user="ann", verb="list", group="batch", resource="jobs")
THERE = Right(user="ann", verb="list", group="batch", resource="jobs", namespace="gpu-a")
CASES = {
    JOBS: "kubectl create clusterrolebinding gpuctl-reader-ann --clusterrole=gpuctl-reader --user=ann",
    THERE: "kubectl create rolebinding gpuctl-reader-ann -n gpu-a --clusterrole=gpuctl-reader --user=ann",
    Right(user="ann", verb="get", group="", resource="configmaps", namespace="gpuctl-system"):
        "kubectl create rolebinding gpuctl-reader-ann -n gpuctl-system --role=gpuctl-reader --user=ann",
    Right(user="ann", verb="list", group="", resource="configmaps", namespace="gpuctl-system"):
        "kubectl create rolebinding gpuctl-operator-ann -n gpuctl-system --role=gpuctl-operator --user=ann",
    Right(user="ann", verb="get", group="", resource="configmaps", namespace="gpuctl-system", name="gpuctl-control"):
        "kubectl create rolebinding gpuctl-freezer-ann -n gpuctl-system --role=gpuctl-freezer --user=ann",
    Right(user="ann", verb="patch", group="", resource="configmaps", namespace="gpuctl-system", name="gpuctl-control"):
        "kubectl create rolebinding gpuctl-freezer-ann -n gpuctl-system --role=gpuctl-freezer --user=ann",
    Right(user="ann", verb="create", group="", resource="pods/portforward", namespace="gpuctl-system"):
        "kubectl create rolebinding gpuctl-history-ann -n gpuctl-system --role=gpuctl-history --user=ann",
    Right(user="ann", verb="create", group="", resource="pods/exec", namespace="gpu-a"):
        "kubectl create rolebinding edit-ann -n gpu-a --clusterrole=edit --user=ann",
    Right(user="system:serviceaccount:ci:bot", verb="list", group="", resource="nodes"):
        "kubectl create clusterrolebinding gpuctl-reader-bot --clusterrole=gpuctl-reader --serviceaccount=ci:bot",
    Right(user="it's me; rm -rf", verb="list", group="", resource="nodes"):
        "kubectl create clusterrolebinding gpuctl-reader-it-s-me-rm--rf --clusterrole=gpuctl-reader "
        """--user='it'"'"'s me; rm -rf'""",
}  # fmt: skip


@pytest.mark.parametrize("right", CASES, ids=str)
def test_the_command_binds_a_role_of_people(right: Right) -> None:
    assert grant_of(right).partition(": ")[2] == CASES[right]


def test_what_changes_something_is_given_by_no_role_of_readers() -> None:
    assert "kubectl" not in grant_of(
        Right(user="ann", verb="delete", group="batch", resource="jobs", namespace="gpu-a")
    )


@pytest.mark.parametrize("what", ["pods/exec", "pods/attach"])
def test_nobody_is_told_how_to_enter_the_controllers_pod(what: str) -> None:
    assert "kubectl" not in grant_of(
        Right(user="ann", verb="create", group="", resource=what, namespace="gpuctl-system")
    )


def test_a_team_needs_its_namespace_and_what_is_published() -> None:
    assert "-n NAMESPACE --clusterrole=gpuctl-reader --user=ann" in team_grant(JOBS)
    assert "-n gpuctl-system --role=gpuctl-reader --user=ann" in team_grant(JOBS)


def test_each_role_that_is_named_is_installed() -> None:
    bodies = all_objects(Installation(image="i", repo="https://x/y", path="c"))
    roles = {(body["kind"], body["metadata"]["name"]) for body in bodies}
    assert roles >= {("ClusterRole", "gpuctl-reader"), *(("Role", f"gpuctl-{name}") for name in _AT_HOME)}


def test_the_freezers_role_writes_one_object_and_reads_one_more() -> None:
    bodies = all_objects(Installation(image="i", repo="https://x/y", path="c"))
    (role,) = (body for body in bodies if body["metadata"]["name"] == "gpuctl-freezer")
    assert {name: set(rule["verbs"]) for rule in role["rules"] for name in rule["resourceNames"]} == {
        "gpuctl-control": {"get", "patch"}, "gpuctl-overview": {"get"},
    }  # fmt: skip


def test_no_role_of_readers_changes_anything_or_reads_a_secret() -> None:
    bodies = all_objects(Installation(image="i", repo="https://x/y", path="c"))
    rules = [
        rule
        for body in bodies
        if body["metadata"]["name"] in {"gpuctl-reader", "gpuctl-operator"}
        for rule in body["rules"]
    ]
    assert {verb for rule in rules for verb in rule["verbs"]} == {"get", "list", "watch"}
    assert not {resource for rule in rules for resource in rule["resources"]} & {"secrets", "pods/exec", "*"}
