"""GPU704x: logs of a job, and commands in it."""

from __future__ import annotations

from gpuctl.diag.catalogue import CodeEntry

ENTRIES: tuple[CodeEntry, ...] = (
    CodeEntry(
        code="GPU7040",
        title="the job has no container to speak to",
        message="{job} has no container to speak to: {why}",
        why="Logs, and commands in a job, come from the pod of its run. A job that waits has none, one that has ended "
        "may have none any more.",
        fix="`gpuctl explain JOB` says what the job waits for; `gpuctl get JOB` lists its pods.",
    ),
    CodeEntry(
        code="GPU7041",
        title="this cluster runs no containers",
        message="the embedded cluster runs no containers: there are no logs and no commands",
        why="The embedded cluster plays pods, it does not run them.",
        fix="Name a real cluster: `--kubeconfig FILE` or `--context NAME`.",
    ),
    CodeEntry(
        code="GPU7042",
        title="the API server refuses the session",
        message="{what}",
        why="The API server, or the node's kubelet behind it, did not give the logs or did not start the command.",
        fix="`gpuctl get JOB` shows the pod. A container that is still being made has no logs yet; a node that is not "
        "ready can't be reached.",
    ),
    CodeEntry(
        code="GPU7043",
        title="the session broke off",
        message="{what}",
        why="The connection to the API server, the node or the container ended before the command or the log did.",
        fix="Try again. If the job was paused meanwhile, `gpuctl explain JOB` says for whom.",
    ),
    CodeEntry(
        code="GPU7044",
        title="the command can't be run in the container",
        message="{what}",
        why="The container was reached, but the command was not started there.",
        fix="See that the program is in the job's image: `gpuctl exec JOB -- ls /bin`. An image without a shell has no "
        "`gpuctl bash`.",
    ),
)
