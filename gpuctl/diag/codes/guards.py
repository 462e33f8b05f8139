"""GPU6xxx: guards."""

from __future__ import annotations

from gpuctl.diag.catalogue import CodeEntry

_CONFIRM = (
    "Restore the declarations. If the deletion is intended, push a commit, which may be empty, whose message ends with "
    "the `Gpuctl-Confirm:` line that is shown."
)

ENTRIES: tuple[CodeEntry, ...] = (
    CodeEntry(
        code="GPU6001",
        title="no project is declared",
        message="no project is declared any more: project {project} is left unchanged ({what})",
        why="The branch declares no project, but the cluster has projects. The usual cause is a wrong path, a wrong "
        "branch or a failed merge.",
        fix=_CONFIRM,
    ),
    CodeEntry(
        code="GPU6002",
        title="a project with running jobs is no longer declared",
        message="project {project} is no longer declared, but its jobs are running: {what}",
        why="Removing a project ends its jobs and deletes its namespace. The project is left unchanged until that is "
        "confirmed.",
        fix=_CONFIRM + " Or remove its jobs first and the project when they are gone.",
    ),
    CodeEntry(
        code="GPU6003",
        title="a volume claim would be deleted with its data",
        message="project {project}: deleting these volume claims would delete their data: {what}",
        why="Deleting a claim, or its namespace, deletes its data. That has a line of its own: what confirms that the "
        "jobs of a removed project end (GPU6002) does not confirm that its data goes.",
        fix=_CONFIRM,
    ),
    CodeEntry(
        code="GPU6004",
        title="the namespace has another owner",
        message="namespace {namespace} of project {project} exists already and is not gpuctl's",
        why="gpuctl writes into namespaces that it created, and into others only if the project declares adopt: true.",
        fix="Set `adopt: true` on the project, or give the project or the cluster's `namespacePrefix` another name.",
    ),
    CodeEntry(
        code="GPU6008",
        title="the namespace is not released for adoption",
        message="namespace {namespace} is not released for project {project}: it has no label {label}={project}",
        why="A project declares the rights of its members in its namespace. So it may only adopt a namespace that an "
        "administrator of the cluster has released for this project.",
        fix="Have an administrator label the namespace: `kubectl label namespace NAMESPACE gpuctl.dev/adopt=PROJECT`.",
    ),
    CodeEntry(
        code="GPU6009",
        title="the namespace to adopt has other pods",
        message="namespace {namespace} of project {project} has pods that are not gpuctl's: it is not adopted",
        why="The project's members would get rights over pods that are not the project's.",
        fix="Move these pods to another namespace, or give the project another name.",
    ),
    CodeEntry(
        code="GPU6005",
        title="the namespace of a removed project has other workloads",
        message="project {project} is no longer declared, but its namespace has workloads that are not gpuctl's: "
        "{what}",
        why="Deleting the namespace would delete these workloads, too.",
        fix="Move the workloads to another namespace. " + _CONFIRM,
    ),
    CodeEntry(
        code="GPU6006",
        title="the namespace belongs to another gpuctl cluster",
        message="namespace {namespace} of project {project} belongs to cluster {cluster} on this API server",
        why="Two gpuctl clusters that write to one namespace would revert each other's changes and run each job twice. "
        "So the namespace stays with the cluster in its label gpuctl.dev/cluster, even with `adopt: true`.",
        fix="Give one of the clusters another `namespacePrefix`, or the project another name. Give a cluster that was "
        "renamed its old name back, or delete its namespaces once nothing runs in them.",
    ),
    CodeEntry(
        code="GPU6007",
        title="too much would be stopped at once",
        message="{stopped} of {running} running GPUs, more than {percent} %, would be stopped at once. {jobs} removed "
        "or changed jobs keep running: {what}",
        why="A commit that ends so many jobs is usually a mistake, such as a wrong path or a default that changed "
        "every job. The limit is the cluster's scheduling.stopGuard. Everything else in the commit is applied.",
        fix=_CONFIRM + " Or make the change in smaller steps.",
    ),
    CodeEntry(
        code="GPU6010",
        title="too many jobs would be deleted at once",
        message="{jobs} jobs that have not ended, more than {most}, would be deleted at once and are left as they are: "
        "{what}",
        why="A commit that removes so many jobs is usually a mistake, such as a wrong path or a failed merge. The "
        "limit is the cluster's scheduling.deleteGuard. Everything else in the commit is applied.",
        fix=_CONFIRM + " Or make the change in smaller steps.",
    ),
    CodeEntry(
        code="GPU6011",
        title="a quota is cut below what can't be preempted",
        message="the quota of {project}{where} is cut from {before:gpus} to {after:gpus}, below the {held:gpus} GPUs "
        "of its running jobs that can't be preempted",
        why="These jobs keep running above the quota, so until they end the projects that are guaranteed the GPUs "
        "don't get them. `gpuctl plan` alone refuses that; once it is merged, the quota is enforced as declared.",
        fix="Cut the quota when the jobs have ended, end them first, or, if it is intended, push a commit whose "
        "message ends with the `Gpuctl-Confirm:` line that is shown.",
    ),
    CodeEntry(
        code="GPU6012",
        title="a commit did something else than was predicted",
        message="commit {revision} did something else than was predicted, and no cause was observed",
        why="When a commit is taken up, its effect is computed on the live cluster as `gpuctl plan` does, and compared "
        "once the cluster is at rest. A difference without an observed cause is a bug of gpuctl: a plan may be wrong.",
        fix="Report it with this line of the log. Nothing has to be repaired: what is declared is enforced.",
    ),
    CodeEntry(
        code="GPU6013",
        title="a commit is held by a freeze window",
        message="held until {until}{reason}: the commit {what}",
        why="The cluster's freeze windows forbid commits to do that now. The windows of the commit that is in force "
        "count. Nothing of the commit is applied; what the engine decides without it goes on.",
        fix="Wait: it is taken up when the window ends. If it can't wait, push a commit, which may be empty, whose "
        "message ends with the `Gpuctl-Confirm:` line that is shown.",
    ),
    CodeEntry(
        code="GPU6014",
        title="the folder to roll back has changes",
        message="{folder} has changes that are not committed, which the rollback would overwrite: {files}",
        why="`plan --rollback REV --commit` makes the folder as it was at that commit, in the working tree too.",
        fix="Commit the changes or `git stash --include-untracked` them first.",
    ),
    CodeEntry(
        code="GPU6015",
        title="the base of the rollback is not checked out",
        message="{base} is not the commit that branch {branch} is at, so the rollback can't be committed on it",
        why="The commit goes onto the branch that is checked out, and has to be what was planned.",
        fix="Check the branch out first, or leave out `--base`.",
    ),
)
