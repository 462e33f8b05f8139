"""More pull requests on the report's cluster: its own story, and one for each thing that a change may do."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import yaml
from commands import AT_MS, EXAMPLE, ROOT
from planstories import CLUSTER, D_JOBS, DEPARTMENT, POLICY, QUOTA, TEAMS, Story, claim_of_team_d, rewrite, switched

from gpuctl.adapters.git import WorkingCopy

_FOLDER = "clusters/tr4858"
_A_JOBS, _B_JOBS, _C_JOBS = (f"{TEAMS}/team-{name}/jobs" for name in "abc")
_WORKING_TREE = ["--base", "main"]
_OPEN = "  freeze: [{cron: 0 5 * * *, duration: 2h, forbids: [pause, delete], reason: a demo}]\n  namespacePrefix: gpu-"


def told(section: str) -> Story:
    """A section of the report as one pull request, onto all that the sections before it say."""

    def story(repository: WorkingCopy) -> list[str]:
        for file in sorted((repository.folder / _FOLDER).rglob("*.yaml")):
            if file.name != "cluster.yaml":
                repository.remove(file.relative_to(repository.folder).as_posix())
        for part in yaml.safe_load((ROOT / "gpuctl/app/story.yaml").read_bytes())["sections"]:
            if part["label"] == section:
                repository.commit("what was there", AT_MS + 1000)
            for commit in part["commits"]:
                for path in commit.get("take", ()):
                    repository.write(f"{_FOLDER}/{path}", (EXAMPLE / path).read_bytes())
                for path, text in commit.get("write", {}).items():
                    repository.write(f"{_FOLDER}/{path}", text.encode())
                for path in commit.get("remove", ()):
                    repository.remove(f"{_FOLDER}/{path}")
            if part["label"] == section:
                break
        return _WORKING_TREE

    return story


def job(repository: WorkingCopy, name: str, more: str) -> None:
    """A job of team-d."""
    head = f"apiVersion: gpuctl.dev/v1\nkind: Job\nmetadata: {{name: {name}, project: team-d}}\n"
    repository.write(f"{D_JOBS}/{name}.yaml", f"{head}spec: {{type: training, image: x, {more}}}\n".encode())


def edits(*changes: tuple[str, str, str]) -> Story:
    """Replacements in files, in the working tree."""

    def story(repository: WorkingCopy) -> list[str]:
        for change in changes:
            rewrite(repository, *change)
        return _WORKING_TREE

    return story


def jobs(**specs: str) -> Story:
    """New jobs of team-d."""

    def story(repository: WorkingCopy) -> list[str]:
        for name, more in specs.items():
            job(repository, name.replace("_", "-"), more)
        return _WORKING_TREE

    return story


def after(first: Callable[[WorkingCopy], object], then: Story) -> Story:
    """A pull request onto another, merged one."""

    def story(repository: WorkingCopy) -> list[str]:
        first(repository)
        repository.commit("before", AT_MS + 1000)
        return then(repository)

    return story


def removes(*paths: str) -> Story:
    def story(repository: WorkingCopy) -> list[str]:
        for path in paths:
            repository.remove(path)
        return _WORKING_TREE

    return story


def renames(repository: WorkingCopy) -> list[str]:
    """A job's file gets another name, and a project's file moves: nothing else changes."""
    for old, new in ((f"{_A_JOBS}/a-1-g.yaml", f"{_A_JOBS}/one.yaml"), (QUOTA, f"{TEAMS}/team-a/quota.yaml")):
        repository.write(new, (repository.folder / old).read_bytes())
        repository.remove(old)
    return _WORKING_TREE


def departments(repository: WorkingCopy) -> list[str]:
    """Two teams come into a department, which guarantees less than they do now."""
    repository.write(f"{_FOLDER}/research.yaml", DEPARTMENT.format("research", 4).encode())
    for team in "bc":
        rewrite(repository, f"{TEAMS}/team-{team}/project.yaml", "  quota: 2", "  quota: 2\n  department: research")
    return _WORKING_TREE


def policy(severity: str) -> Callable[[WorkingCopy], None]:
    def write(repository: WorkingCopy) -> None:
        text = POLICY.replace('except: ["*"]', "except: []").replace("severity: error", f"severity: {severity}")
        repository.write("policies/owned.yaml", text.encode())

    return write


def pool(repository: WorkingCopy) -> list[str]:
    """A second pool. On a real cluster its node is there before the pull request or comes after it."""
    more = (
        "  - {name: dgx2, nodes: [dgx2-1], gpusPerNode: 4, gpuMemory: 32510Mi, gpuProduct: Tesla-V100-SXM2-32GB,\n"
        "     resourcesPerNode: {cpu: 80, memory: 512Gi}, sharing: dra}\n  namespacePrefix: gpu-"
    )
    rewrite(repository, CLUSTER, "  namespacePrefix: gpu-", more)
    return _WORKING_TREE


def pool_used(repository: WorkingCopy) -> list[str]:
    """Team-d may use the second pool first, and has a job for it."""
    quota = f"{TEAMS}/team-d/project.yaml"
    rewrite(repository, quota, "spec:", "spec:\n  nodeAffinity: {training: [dgx2, dgx1]}")
    job(repository, "d-2-gg", "gpus: 2")
    return _WORKING_TREE


def base_broken(repository: WorkingCopy) -> list[str]:
    """A project of base does not compile; the change is about another."""
    rewrite(repository, f"{_B_JOBS}/b-3-g.yaml", "gpus: 1", "gpus: many")
    repository.commit("broken", AT_MS + 1000)
    rewrite(repository, f"{_B_JOBS}/b-3-g.yaml", "gpus: many", "gpus: 1")
    job(repository, "d-2-gg", "gpus: 2")
    return _WORKING_TREE


def base_moved_same_job(repository: WorkingCopy) -> list[str]:
    """A branch cuts a quota while main changes a job of the same project."""
    switched(repository, "-qb", "feature")
    rewrite(repository, QUOTA, "quota: 4", "quota: 3")
    repository.commit("less", AT_MS + 1000)
    switched(repository, "-q", "main")
    rewrite(repository, f"{_A_JOBS}/a-2-gg.yaml", "image: ", "image: other/")
    repository.commit("another image", AT_MS + 2000)
    return ["--base", "main", "--head", "feature"]


def freeze(repository: WorkingCopy) -> None:
    rewrite(repository, CLUSTER, "  namespacePrefix: gpu-", _OPEN)


def on_a_branch(repository: WorkingCopy) -> list[str]:
    """A commit, so that what confirms it is known."""
    switched(repository, "-qb", "feature")
    claim_of_team_d(repository)
    repository.commit("a claim", AT_MS + 2000)
    switched(repository, "-q", "main")
    return ["--base", "main", "--head", "feature"]


def claims(repository: WorkingCopy) -> list[str]:
    claim_of_team_d(repository)
    return _WORKING_TREE


_RAISED = edits(
    (f"{TEAMS}/team-b/project.yaml", "quota: 2", "quota: 4"), (f"{TEAMS}/team-d/project.yaml", "quota: 8", "quota: 6")
)
_elastic = partial(job, name="d-9-e", more="gpus: 1, workers: 4, minWorkers: 1")
PULLS: dict[str, Story] = {
    "report_4_8": told("4.8"),
    "report_4_9": told("4.9"),
    "report_4_10_queue": told("4.10-queue"),
    "report_4_10": told("4.10"),
    "department_added": departments,
    "policy_tightened": after(policy("audit"), edits(("policies/owned.yaml", "severity: audit", "severity: warning"))),
    "policy_relaxed": after(policy("warning"), edits(("policies/owned.yaml", "severity: warning", "severity: audit"))),
    "quota_below_use": edits((QUOTA, "quota: 4", "quota: 1")),
    "quota_raised": _RAISED,
    "limit_below_use": edits((f"{TEAMS}/team-b/project.yaml", "quota: 2", "quota: 2\n  limit: 2")),
    "job_deleted": removes(f"{_B_JOBS}/b-4-gg.yaml"),
    "jobs_deleted_for_one_that_waits": after(claims, removes(f"{_C_JOBS}/c-4-gg.yaml", f"{_C_JOBS}/c-5-g.yaml")),
    "job_changed": edits((f"{_C_JOBS}/c-5-g.yaml", "image: ", "image: other/")),
    "job_suspended": edits((f"{_C_JOBS}/c-5-g.yaml", "  gpus: 1", "  gpus: 1\n  suspend: true")),
    "priority_raised": after(claims, edits((f"{_B_JOBS}/b-4-gg.yaml", "  gpus: 2", "  gpus: 2\n  priority: 5"))),
    "elastic_job": jobs(d_9_e="gpus: 1, workers: 4, minWorkers: 1"),
    "elastic_gives_way": after(_elastic, jobs(d_5_gggg="gpus: 4, preemptible: false")),
    "gang": jobs(d_7_gang="gpus: 2, workers: 2"),
    "gang_that_waits": jobs(d_8_gang="gpus: 8, workers: 2"),
    "fractions": jobs(d_6_half="gpus: 0.5", d_6_rest="gpus: 0.25"),
    "file_renamed": renames,
    "pool_added": pool,
    "pool_used": after(pool, pool_used),
    "base_broken": base_broken,
    "base_moved_same_project": base_moved_same_job,
    "frozen": after(freeze, on_a_branch),
    "frozen_but_allowed": after(freeze, _RAISED),
}
