"""GPU704x: logs of a job, and commands in its container."""

from __future__ import annotations

from gpuctl.diag.catalogue import CodeEntry

ENTRIES: tuple[CodeEntry, ...] = (
    CodeEntry(
        code="GPU7040",
        title="the job has no container",
        message="{job} has no container: {why}",
        why="Logs and commands need a pod of the job's run. A waiting job has no pod, and the pods of an ended job may "
        "be gone.",
        fix="`gpuctl explain JOB` says what the job waits for; `gpuctl get JOB` lists its pods.",
    ),
    CodeEntry(
        code="GPU7041",
        title="this cluster runs no containers",
        message="the embedded cluster runs no containers: there are no logs and no commands",
        why="The embedded cluster simulates pods and does not run them.",
        fix="Name a real cluster: `--kubeconfig FILE` or `--context NAME`.",
    ),
    CodeEntry(
        code="GPU7042",
        title="the API server refuses the session",
        message="{what}",
        why="The API server, or the node's kubelet, refused the logs or the command.",
        fix="`gpuctl get JOB` shows the pod. A container that is being created has no logs yet, and a node that is not "
        "ready can't be reached.",
    ),
    CodeEntry(
        code="GPU7043",
        title="the session was interrupted",
        message="{what}",
        why="The connection to the API server, the node or the container ended before the command or the log did.",
        fix="Try again. If the job was paused in the meantime, `gpuctl explain JOB` says for which job.",
    ),
    CodeEntry(
        code="GPU7044",
        title="the command can't be run in the container",
        message="{what}",
        why="The container was reached, but the command was not started there.",
        fix="Check that the program is in the job's image: `gpuctl exec JOB -- ls /bin`. `gpuctl bash` needs bash in "
        "the image.",
    ),
    CodeEntry(
        code="GPU7064",
        title="the job exposes no port",
        message="{job} exposes no port",
        why="Without ports, `gpuctl port-forward` takes those that the job exposes, and it declares none.",
        fix="Name the port: `gpuctl port-forward JOB 8888`, or declare it: `expose: [{port: 8888, via: portForward}]`.",
    ),
    CodeEntry(
        code="GPU7065",
        title="the port of this machine can't be listened on",
        message="port {port} of this machine can't be listened on: {why}",
        why="Another program listens there, or the port needs an administrator.",
        fix="Choose another: `gpuctl port-forward JOB 9000:8888`, or any that is free: `0:8888`.",
    ),
)
