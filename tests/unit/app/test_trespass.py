"""What one project declares binds that project alone: attacks by somebody who may write below projects/evil/ only.

Each comes in a commit in which everybody else changes something, too: all of that must be enforced.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from commits import CLUSTER, Commits, job, project
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpuctl.app.revisions import Desired, Revisions
from gpuctl.compile import compile_tree
from gpuctl.diag.diagnostic import Severity
from gpuctl.model.declared import Declared
from gpuctl.model.ids import ProjectName, Revision
from gpuctl.model.state import Ledger
from gpuctl.observe import Records
from gpuctl.observe.ledgers import ClusterRecords

HEAD = "apiVersion: gpuctl.dev/v1\n"
NAMES = ("0-evil", "zz-evil")
"""The attacker's name, before and after others': of a mistake that several make together, one is told by name."""
DEPARTMENTS = "---\n".join(
    f"{HEAD}kind: Department\nmetadata: {{name: {name}}}\nspec: {{quota: {quota}}}\n"
    for name, quota in (("ai", 4), ("zoology", 2))
)
POLICY = (
    f"{HEAD}kind: Policy\nmetadata: {{name: shared}}\nspec:\n  match: {{kind: Job}}\n  message: no\n"
    "  schema: {properties: {spec: {properties: {image: {const: x}}}}}\n"
)
BEFORE = {
    "c/cluster.yaml": CLUSTER,
    "c/departments.yaml": DEPARTMENTS,
    "policies/shared.yaml": POLICY,
    "c/template.yaml": f"{HEAD}kind: Template\nmetadata: {{name: common}}\nspec: {{job: {{image: x}}}}\n",
    "c/projects/victim/template.yaml": f"{HEAD}kind: Template\nmetadata: {{name: its-own, project: victim}}\n"
    "spec: {parameters: {}, job: {image: x}}\n",
    "c/projects/victim/t1.yaml": f"{HEAD}kind: Job\nmetadata: {{name: t1, project: victim}}\n"
    "spec: {template: {name: its-own}}\n",
    "c/projects/victim/t2.yaml": f"{HEAD}kind: Job\nmetadata: {{name: t2, project: victim}}\n"
    "spec: {template: {name: common}}\n",
    "c/loose.yaml": "---\n".join(job("loose", owner) for owner in ("a", "evil", "victim")),
    **{f"c/projects/{name}/project.yaml": project(name, 2) for name in ("a", "evil", "gone", "victim")},
    "c/projects/z/project.yaml": project("z", 2).replace("{quota", "{department: zoology, quota"),
    **{f"c/projects/{name}/j1.yaml": job("j1", name) for name in ("a", "evil", "gone", "victim", "z")},
}
HONEST = {
    "c/cluster.yaml": f"{CLUSTER}  scheduling: {{minRuntime: 1m}}\n",
    "c/departments.yaml": DEPARTMENTS.replace("quota: 2", "quota: 3"),
    "c/projects/victim/project.yaml": project("victim", 3),
    "c/projects/victim/j2.yaml": job("j2", "victim"),
    "c/projects/z/j2.yaml": job("j2", "z"),
    "c/projects/new/project.yaml": project("new", 1),
}
"""What others change in the commit of the attack; victim's and gone's files of BEFORE that are not here are removed."""
REMOVED = ("c/projects/victim/j1.yaml", "c/projects/gone/project.yaml", "c/projects/gone/j1.yaml")
WANTED_JOBS = {"a/j1", "a/loose", "victim/loose", "victim/j2", "victim/t1", "victim/t2", "z/j1", "z/j2"}


def declared(kind: str, name: str, spec: str = "{}") -> str:
    return f"{HEAD}kind: {kind}\nmetadata: {{name: {name}}}\nspec: {spec}\n"


def policy(match: str, schema: str = "{required: [never]}", name: str = "mine") -> str:
    return declared("Policy", name, f"{{match: {match}, message: x, schema: {schema}}}")


ATTACKS = {
    "a second Cluster": CLUSTER.replace("one", "two"),
    "the Cluster again": CLUSTER,
    "the Cluster without pools": declared("Cluster", "one", "{nodePools: [{name: q}]}"),
    "a Department that takes everything": declared("Department", "evil", "{quota: 1000}"),
    "a Department that takes what is left, and more": declared("Department", "evil", "{quota: 10}"),
    "a Department below one of others": declared("Department", "evil", "{department: zoology, quota: 2}"),
    "the cluster's Department again": declared("Department", "ai", "{quota: 0}"),
    "a Department below the cluster's": declared("Department", "below", "{department: zoology, quota: 9}"),
    "a Department in a circle": declared("Department", "ai", "{department: zoology}")
    + "---\n" + declared("Department", "zoology", "{department: ai}"),
    "another's Project": project("victim", 0),
    "another's Project, broken": declared("Project", "victim", "{quota: many}"),
    "a Project of a new name": project("evil-2", 1),
    "its own Project twice": project("evil", 0),
    "another's job": job("j2", "victim"),
    "another's job of its own making": job("j3", "victim"),
    "a job of a new project": job("j3", "new"),
    "a job of no project": job("j3", "nobody"),
    "its own job twice": job("j1", "evil"),
    "a policy against all": policy("{kind: Job}", "{properties: {spec: false}}"),
    "a policy against others": policy("{kind: Job, projects: ['*'], except: [evil]}"),
    "a policy against projects": policy("{kind: Project, projects: [victim, 'a*', z]}"),
    "a policy against the cluster": policy("{kind: Cluster}"),
    "a policy against departments": policy("{kind: Department}"),
    "the shared policy again": policy("{kind: Job}", name="shared"),
    "a policy that never ends": policy("{kind: Job}", "{properties: {a: {pattern: '^(a+)+$'}}, $ref: '#'}"),
    "a policy of no schema": policy("{kind: Job}", "{type: objekt, $ref: 'https://example.com'}"),
    "a policy in CEL": declared("Policy", "mine", "{match: {kind: Job}, message: x, cel: 'true'}"),
    "a template of the cluster": declared("Template", "mine", "{parameters: {}, job: {image: evil}}"),
    "another's template": declared("Template", "m, project: victim", "{parameters: {}, job: {image: evil}}"),
    "another's template again": declared("Template", "its-own, project: victim", "{parameters: {}, job: {image: e}}"),
    "the cluster's template again": declared("Template", "common", "{parameters: {}, job: {image: evil}}"),
    "the cluster's template as its own": declared("Template", "common, project: evil", "{parameters: {}, job: {}}"),
    "a job of another's template": declared("Job", "j3, project: evil", "{template: {name: its-own}}"),
    "text that names everything": "kind: Cluster\nname: one\nproject: victim\nname: ai\n\t- [",
    "text that names a project": "kind: Project\nname: victim\n\tx",
    "not YAML": "{" * 100,
    "bytes": "\x00\x1b",
    "an unknown kind": declared("Clusters", "one"),
    "many mistakes": "--- {}\n" * 200,
}  # fmt: skip
"""Files that evil adds."""
OWN_PROJECT = {
    "all GPUs": "{quota: 1000}",
    "GPUs of others": "{quota: 15}",
    "more than is left": "{quota: 6}",
    "a department's GPUs": "{quota: 2, department: zoology}",
    "quota by pool": "{quota: {p: 2}, limit: {p: 4}}",
    "a quota that is none": "{quota: -1}",
    "a limit below the quota": "{quota: 2, limit: 1}",
    "a limit below what the cluster's files declare for it": "{quota: 0, limit: 0}",
    "an affinity without room for that": "{quota: 0, nodeAffinity: {training: [q]}}",
    "a limit by pool": "{quota: 2, limit: {p: 1}}",
    "a quota of an unknown pool": "{quota: {q: 2}, limit: {q: 2}}",
    "more than a department has": "{quota: 5, department: ai}",
    "more than a late department has": "{quota: 3, department: zoology}",
    "an unknown department": "{quota: 1, department: evil}",
    "an affinity to nothing": "{quota: 1, nodeAffinity: {training: [q], interactive: [q]}}",
}
"""What evil makes of its own Project."""


@dataclass(frozen=True)
class Attack:
    """A name, and files by path."""

    name: str
    files: dict[str, str]


ALL = [
    *(Attack(name, {"c/projects/evil/attack.yaml": text}) for name, text in ATTACKS.items()),
    *(Attack(name, {"c/projects/evil/project.yaml": project("evil", 2).split("spec:")[0] + f"spec: {spec}\n"})
      for name, spec in OWN_PROJECT.items()),
    Attack("without its Project but with the job that the cluster's files declare",
           {"c/projects/evil/project.yaml": job("loose", "evil")}),
    Attack("nothing at all any more", {"c/projects/evil/project.yaml": "", "c/projects/evil/j1.yaml": ""}),
    Attack("without its Project", {"c/projects/evil/project.yaml": ""}),
    Attack("a folder of a folder", {"c/projects/evil/projects/victim/project.yaml": project("victim", 0)}),
    Attack("policies of its own", {"c/projects/evil/policies/p.yaml": policy("{kind: Job}", "false")}),
    Attack("a cluster in a cluster", {"c/projects/evil/c/cluster.yaml": CLUSTER, "c/projects/evil/cluster.yaml": "a"}),
]  # fmt: skip


def after(files: dict[str, str]) -> dict[str, str]:
    return {path: text for path, text in {**BEFORE, **HONEST, **files}.items() if text and path not in REMOVED}


BY_NAME = [
    pytest.param(attack, name, id=f"{attack.name}-{name}")
    for attack in ALL
    for name in (NAMES if attack.name in OWN_PROJECT else NAMES[:1])
]


def named(files: dict[str, str], name: str) -> dict[str, str]:
    """The same by an attacker of that name."""
    return {path.replace("evil", name): text.replace("evil", name) for path, text in files.items()}


def ledgers(revision: Revision, name: str) -> Records:
    owners = ("", "a", name, "gone", "victim", "z")
    known = {ProjectName(o): Ledger(project=ProjectName(o), revision=revision) for o in owners}
    return Records(by_cluster={"one": ClusterRecords(ledgers=known)})


def enforced(files: dict[str, str], name: str) -> list[Desired]:
    """What is enforced by one that saw the commit before, and by one that starts at the attack."""
    commits = Commits()
    first = commits.commit(named(BEFORE, name))
    running = Revisions(commits)
    running.compose(commits.tree(first), Records())
    second = commits.commit(named(after(files), name))
    records = ledgers(first, name)
    return [running.compose(commits.tree(second), records), Revisions(commits).compose(commits.tree(second), records)]


def check_others(desired: Desired, name: str) -> None:
    """All that others changed is enforced."""
    assert set(desired.kept_back) <= {name}
    made = desired.declared
    assert made is not None
    assert {str(one.id) for one in made.jobs if one.id.project != name} == WANTED_JOBS
    assert all(one.container.image == "x" for one in made.jobs if one.id.project != name)
    assert not made.pinned - {ProjectName(name)}
    assert made.cluster.scheduling.min_runtime.least_ms == 60_000
    assert quotas(made, name) == {"a": 2000, "new": 1000, "victim": 3000, "z": 2000, "ai": 4000, "zoology": 3000}


def quotas(made: Declared, attacker: str) -> dict[str, int]:
    found = {one.name: one.allowances for one in made.departments} | {one.name: one.allowances for one in made.projects}
    return {
        name: sum(allowance.quota_milli for allowance in allowances.values())
        for name, allowances in found.items()
        if name != attacker
    }


@pytest.mark.parametrize("name", NAMES)
def test_without_an_attack_all_is_enforced(name: str) -> None:
    for desired in enforced({}, name):
        check_others(desired, name)
        assert not desired.kept_back


@pytest.mark.parametrize(("attack", "name"), BY_NAME)
def test_no_other_team_is_held_back(attack: Attack, name: str) -> None:
    for desired in enforced(attack.files, name):
        check_others(desired, name)


AT_A_SUM = {"GPUs of others", "more than is left", "a department's GPUs", "more than a late department has",
            "quota by pool", "a quota of an unknown pool"}  # fmt: skip
"""Two projects' quotas make such a mistake together, and which of them changed is not known from one commit."""


@pytest.mark.parametrize(("attack", "name"), BY_NAME)
def test_the_mistake_is_told_where_it_was_made(attack: Attack, name: str) -> None:
    commits = Commits()
    compiled = compile_tree(commits.tree(commits.commit(named(after(attack.files), name))))
    blamed = {d.span.file for d in compiled.diagnostics if d.severity is Severity.ERROR}
    if attack.name in AT_A_SUM:
        assert not {path for path in blamed if compiled.owners[path] is None}
    else:
        assert all(path.startswith(f"c/projects/{name}/") or path == "c/loose.yaml" for path in blamed), (
            compiled.diagnostics
        )


@given(st.lists(st.sampled_from(ALL), min_size=1, max_size=4), st.sampled_from(NAMES))
@example([attack for attack in ALL if attack.name in {"a second Cluster", "more than is left"}], NAMES[0])
@settings(max_examples=15)
def test_nor_by_several_of_them_at_once(attacks: list[Attack], name: str) -> None:
    files = {
        f"c/projects/evil/{number}-{path.rpartition('/')[2]}" if "attack" in path else path: text
        for number, attack in enumerate(attacks)
        for path, text in attack.files.items()
    }
    for desired in enforced(files, name):
        check_others(desired, name)
