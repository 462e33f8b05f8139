"""Pull requests on the report's cluster, each a story that `gpuctl plan` is shown on in all its forms."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import TypeAlias

from commands import AT_MS

from gpuctl.adapters.git import WorkingCopy

CLUSTER = "clusters/tr4858/cluster.yaml"
TEAMS = "clusters/tr4858/projects"
QUOTA = f"{TEAMS}/team-a/project.yaml"
D_JOBS = f"{TEAMS}/team-d/jobs"
DEPARTMENT = "apiVersion: gpuctl.dev/v1\nkind: Department\nmetadata: {{name: {}}}\nspec: {{quota: {}}}\n"
POLICY = """apiVersion: gpuctl.dev/v1
kind: Policy
metadata: {name: owned}
spec:
  match: {kind: Project, except: ["*"]}
  severity: error
  schema: {properties: {spec: {required: [owners]}}}
  message: Say who owns it.
"""

Story: TypeAlias = Callable[[WorkingCopy], list[str]]
"""Makes the commits, and gives the options of `gpuctl plan`."""


def rewrite(repository: WorkingCopy, path: str, old: str, new: str) -> None:
    text = (repository.folder / path).read_text()
    assert old in text
    repository.write(path, text.replace(old, new).encode())


def switched(repository: WorkingCopy, *to: str) -> None:
    subprocess.run(["git", "-C", str(repository.folder), "checkout", *to], check=True)


def claim_of_team_d(repository: WorkingCopy) -> None:
    """The second half of the report's story: d wants what is its own."""
    first = (repository.folder / D_JOBS / "d-1-gggg.yaml").read_text()
    for name in ("d-2-gg", "d-3-gg"):
        text = first.replace("d-1-gggg", name).replace("gpus: 4", "gpus: 2")
        repository.write(f"{D_JOBS}/{name}.yaml", text.encode())


def moved_base(repository: WorkingCopy) -> None:
    """A branch that gives team-d its two jobs, while main gains another job and loses one."""
    claim_of_team_d(repository)
    switched(repository, "-qb", "feature")
    repository.commit("a claim", AT_MS + 1000)
    switched(repository, "-q", "main")
    other = (repository.folder / f"{TEAMS}/team-a/jobs/a-1-g.yaml").read_text()
    repository.write(f"{D_JOBS}/d-9-g.yaml", other.replace("a-1-g", "d-9-g").replace("team-a", "team-d").encode())
    repository.commit("one more", AT_MS + 2000)
    repository.remove(f"{TEAMS}/team-b/jobs/b-3-g.yaml")
    repository.commit("one less", AT_MS + 3000)


def nothing(repository: WorkingCopy) -> list[str]:
    rewrite(repository, QUOTA, "kind: Project", "# a word\nkind: Project")
    return ["--base", "main"]


def claim(repository: WorkingCopy) -> list[str]:
    claim_of_team_d(repository)
    return ["--base", "main"]


def moved(repository: WorkingCopy) -> list[str]:
    moved_base(repository)
    return ["--base", "main", "--head", "feature"]


def conflict(repository: WorkingCopy) -> list[str]:
    switched(repository, "-qb", "feature")
    rewrite(repository, QUOTA, "quota: 4", "quota: 3")
    repository.commit("less", AT_MS + 1000)
    switched(repository, "-q", "main")
    rewrite(repository, QUOTA, "quota: 4", "quota: 2")
    repository.commit("still less", AT_MS + 2000)
    return ["--base", "main", "--head", "feature"]


def gates(repository: WorkingCopy) -> list[str]:
    """A job is removed, one is changed while it runs, and two are paused for a third."""
    claim_of_team_d(repository)
    repository.remove(f"{TEAMS}/team-b/jobs/b-3-g.yaml")
    rewrite(repository, f"{TEAMS}/team-a/jobs/a-2-gg.yaml", "image: ", "image: other/")
    return ["--base", "main", "--fail-on", "paused,stopped,moved,starved,deleted"]


def removed_project(repository: WorkingCopy) -> list[str]:
    for file in sorted((repository.folder / TEAMS / "team-d").rglob("*.yaml")):
        repository.remove(file.relative_to(repository.folder).as_posix())
    return ["--base", "main"]


def confirmed(repository: WorkingCopy) -> list[str]:
    """A quota is cut below what can't be preempted, and a commit confirms it."""
    for name in ("a-1-g", "a-2-gg"):
        rewrite(repository, f"{TEAMS}/team-a/jobs/{name}.yaml", "  gpus:", "  preemptible: false\n  gpus:")
    repository.commit("not to be preempted", AT_MS + 1000)
    switched(repository, "-qb", "feature")
    rewrite(repository, QUOTA, "quota: 4", "quota: 2\n  limit: 3")
    repository.commit("less for a\n\nGpuctl-Confirm: a9bc6f6ceacc", AT_MS + 2000)
    return ["--base", "main", "--head", "feature"]


def settings(repository: WorkingCopy) -> list[str]:
    """Departments, policies, pools and projects, in what no object shows."""
    over = "  namespacePrefix: gpu-\n  scheduling: {overcommitQuota: true}"
    rewrite(repository, CLUSTER, "  namespacePrefix: gpu-", over)
    repository.write("policies/owned.yaml", POLICY.encode())
    repository.write("clusters/tr4858/old.yaml", DEPARTMENT.format("old", 2).encode())
    repository.commit("before", AT_MS + 1000)
    repository.remove("clusters/tr4858/old.yaml")
    repository.write("clusters/tr4858/new.yaml", DEPARTMENT.format("new", "3, limit: 9").encode())
    rewrite(repository, "policies/owned.yaml", "severity: error", "severity: warning")
    rewrite(repository, "policies/owned.yaml", 'except: ["*"]', "except: [team-c, team-d]")
    rewrite(repository, QUOTA, "quota: 4", "quota: 4\n  interactive: {maxDuration: 8h}\n  owners: [a@example.com]")
    rewrite(repository, CLUSTER, "overcommitQuota: true", "overcommitQuota: true, deleteGuard: 7")
    return ["--base", "main"]


def rollback(repository: WorkingCopy) -> list[str]:
    claim_of_team_d(repository)
    repository.commit("a claim", AT_MS + 1000)
    return ["--base", "main", "--rollback", "main~1"]


STORIES: dict[str, Story] = {
    story.__name__: story
    for story in (nothing, claim, moved, conflict, gates, removed_project, confirmed, settings, rollback)
}
