"""GPU6xxx: guards."""

from __future__ import annotations

from gpuctl.diag.catalogue import CodeEntry

_CONFIRM = (
    "Put the declarations back. If the deletion is meant, push a commit, an empty one will do, whose message ends with "
    "the `Gpuctl-Confirm:` line that the message shows."
)

ENTRIES: tuple[CodeEntry, ...] = (
    CodeEntry(
        code="GPU6001",
        title="no project is declared any more",
        message="no project is declared any more: {project} is left as it is ({what})",
        why="The branch declares no project at all while the cluster has some. That is more often a wrong path, a "
        "wrong branch or a failed merge than a wish.",
        fix=_CONFIRM,
    ),
    CodeEntry(
        code="GPU6002",
        title="a project with running jobs is no longer declared",
        message="project {project} is no longer declared, but jobs of it run: {what}",
        why="Removing a project ends its jobs and deletes its namespace. Nothing of it is touched until that is "
        "confirmed.",
        fix=_CONFIRM + " Or remove its jobs first and the project when they are gone.",
    ),
    CodeEntry(
        code="GPU6003",
        title="a volume claim would be deleted with its data",
        message="project {project}: deleting these volume claims would delete their data: {what}",
        why="A claim that is no longer declared, or whose namespace goes away, takes its data with it.",
        fix=_CONFIRM,
    ),
    CodeEntry(
        code="GPU6004",
        title="the namespace belongs to somebody else",
        message="namespace {namespace} of project {project} is there already and is not gpuctl's",
        why="gpuctl writes into namespaces it made itself, and into others only when the project says so.",
        fix="Set `adopt: true` on the project, or give the project or the cluster's `namespacePrefix` another name.",
    ),
    CodeEntry(
        code="GPU6008",
        title="the namespace is not released for adoption",
        message="namespace {namespace} is not released for project {project}: it has no label {label}={project}",
        why="A project says which rights its people have in its namespace. So it takes a namespace over only when an "
        "administrator of the cluster has released it for that very project.",
        fix="Have an administrator label the namespace: `kubectl label namespace NAMESPACE gpuctl.dev/adopt=PROJECT`.",
    ),
    CodeEntry(
        code="GPU6009",
        title="the namespace to adopt has pods of others",
        message="namespace {namespace} of project {project} has pods that are not gpuctl's: it is not taken over",
        why="The project's people would have rights over work that is not theirs.",
        fix="Move that work to another namespace, or give the project another name.",
    ),
    CodeEntry(
        code="GPU6005",
        title="the namespace of a removed project holds other people's work",
        message="project {project} is no longer declared, but its namespace holds work that is not gpuctl's: {what}",
        why="Deleting the namespace would delete that work too.",
        fix="Move the work elsewhere. " + _CONFIRM,
    ),
    CodeEntry(
        code="GPU6006",
        title="the namespace belongs to another gpuctl cluster",
        message="namespace {namespace} of project {project} belongs to cluster {cluster} on this API server",
        why="Two clusters of gpuctl that write one namespace would undo each other's work, and run each job twice. So "
        "the one whose name the namespace's label gpuctl.dev/cluster has keeps it, also with `adopt: true`.",
        fix="Give one of the clusters another `namespacePrefix`, or the project another name. Give a cluster that was "
        "renamed its old name back, or delete its namespaces when nothing runs in them any more.",
    ),
    CodeEntry(
        code="GPU6007",
        title="too much would be stopped at once",
        message="{stopped} of {running} running GPUs, more than {percent} %, would be stopped at once. {jobs} jobs go "
        "on that are declared no more, or otherwise: {what}",
        why="A commit that ends so much is more often a mistake (a wrong path, a default that changed every job) than "
        "a wish. The limit is the cluster's scheduling.stopGuard. Everything else in the commit is done.",
        fix=_CONFIRM + " Or do it in smaller steps.",
    ),
)
