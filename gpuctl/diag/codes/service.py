"""GPU7030-7039 and 7080-7099: gpuctl as a service of the cluster: leadership, measurements, status, dashboard."""

from __future__ import annotations

from gpuctl.diag.catalogue import CodeEntry

ENTRIES: tuple[CodeEntry, ...] = (
    CodeEntry(
        code="GPU7030",
        title="no namespace for the Lease",
        message="namespace {namespace} does not exist",
        why="A Lease in gpuctl's own namespace decides which replica may write. Without it no replica writes.",
        fix="Apply what `gpuctl install` prints, or create the namespace.",
    ),
    CodeEntry(
        code="GPU7031",
        title="measurements can't be served",
        message="{address}: {why}",
        why="gpuctl serves /metrics, /healthz and /readyz at the address that `--metrics-address` names.",
        fix="Name an address of this machine as HOST:PORT whose port is free, say 127.0.0.1:8080.",
    ),
    CodeEntry(
        code="GPU7032",
        title="the clocks of the machine and the API server differ",
        message="this machine's clock says {machine}, the API server's {server}: nothing is changed until they agree",
        why="Limits of jobs, queue times and reservations depend on the time. With a wrong clock, jobs with hours left "
        "could be ended for good. So gpuctl decides and writes nothing while the clocks differ by more than a minute. "
        "Running jobs keep running.",
        fix="Correct the wrong clock: run NTP on the node of this process and on the control plane.",
    ),
    CodeEntry(
        code="GPU7036",
        title="the dashboard can't be served",
        message="{address}: {why}",
        why="gpuctl serves the dashboard at the address that `--address` names.",
        fix="Name an address of this machine as HOST:PORT whose port is free, say 127.0.0.1:8090.",
    ),
    CodeEntry(
        code="GPU7080",
        title="no status is published",
        message="there is no ConfigMap {name}",
        why="The replica that leads publishes its state there. gpuctl does not run in this cluster, has not read its "
        "repository yet, or is older than this command.",
        fix="`kubectl -n gpuctl-system get pods` shows whether it runs; `gpuctl install` prints what runs it.",
    ),
    CodeEntry(
        code="GPU7081",
        title="the published status can't be read",
        message="ConfigMap {name} holds no status that this version reads: {why}",
        why="Another program changed it, or it was written by a version of gpuctl whose form differs.",
        fix="Use the version of gpuctl that runs in the cluster. The next change writes it anew.",
    ),
    CodeEntry(
        code="GPU7085",
        title="gpuctl's namespace is missing, and this account may not make it",
        message="there is no namespace {namespace}, and it can't be made: {why}",
        why="The Lease, the ledgers and the status are in a namespace of gpuctl's own, made at the start where the "
        "account has the right.",
        fix="An administrator runs `kubectl create namespace gpuctl-system`, or applies what `gpuctl install` prints.",
    ),
    CodeEntry(
        code="GPU7089",
        title="a notification was not delivered",
        message="receiver {receiver} was not notified: {why}",
        why="The receiver can't be reached, refuses the message, or more messages wait for it than are kept. Nothing "
        "depends on it: gpuctl status has the same.",
        fix="Check the files of --notify (Secret gpuctl-notify): the address, the token, and that it may be reached.",
    ),
    CodeEntry(
        code="GPU7083",
        title="what is frozen can't be read",
        message="ConfigMap {name}: its annotation gpuctl.dev/frozen can't be read: {why}",
        why="Another program, or a person by hand, changed it. Until it can be read, all of the cluster is frozen.",
        fix="`kubectl -n gpuctl-system annotate configmap gpuctl-control gpuctl.dev/frozen-` ends all freezes.",
    ),
    CodeEntry(
        code="GPU7084",
        title="too many parts are frozen",
        message="{most} parts are frozen already",
        why="What is frozen stands in one annotation, which has a bound.",
        fix="End some by `gpuctl unfreeze project NAME`, or freeze the cluster: `gpuctl freeze cluster`.",
    ),
    CodeEntry(
        code="GPU7086",
        title="the history can't be asked for",
        message="the history of the replica {name} can't be read: {why}",
        why="The replica that leads keeps the history in a file of its own, and answers questions about it at a port "
        "that only `pods/portforward` in gpuctl-system reaches, for the past names the jobs of all teams.",
        fix="`kubectl -n gpuctl-system get lease,pods` shows whether a replica leads, and its log whether it serves a "
        "history. To read it, bind Role gpuctl-history in gpuctl-system. A leader that runs in no pod of the cluster "
        "has the file of its `--history`, which `gpuctl history --file FILE` and `gpuctl replay --history FILE` read.",
    ),
    CodeEntry(
        code="GPU7087",
        title="a history can't be read",
        message="{file} can't be read as a history: {why}",
        why="`gpuctl reconcile --history FILE` keeps the history in an SQLite file. This is none, or it is damaged.",
        fix="Name the file that the controller writes. What is damaged is put aside by the controller itself, which "
        "begins a new file.",
    ),
    CodeEntry(
        code="GPU7088",
        title="the history can't be served",
        message="{address}: {why}",
        why="The history names the jobs of all teams, so gpuctl answers questions about it to its own machine alone.",
        fix="Name a loopback address whose port is free: --history-address 127.0.0.1:8081.",
    ),
    CodeEntry(
        code="GPU7097",
        title="little memory is left for more jobs",
        message='{total} {what} are declared, and the reconciler has memory for {limit}; project "{project}" declares '
        "{count} of them",
        why="More than nine tenths of the jobs that `gpuctl install --jobs` gives memory for are declared, or of their "
        "text. Once all are, further jobs of every project are held back (GPU3035). Those that are declared go on.",
        fix="Remove jobs that have ended, or give the controller more memory: `gpuctl install --jobs N`, with the same "
        "N for `gpuctl validate --jobs` in the check of pull requests.",
    ),
    CodeEntry(
        code="GPU7098",
        title="the dashboard's process ended",
        message="the dashboard's process has ended ({why}); it is begun again",
        why="`gpuctl reconcile --dashboard-address` serves pages in a process of its own, so that no request slows "
        "scheduling down. It ended by itself, for want of memory, or by a signal. Scheduling goes on as always.",
        fix="Where it stands again and again, give the controller more memory: `gpuctl install --jobs N --nodes N`.",
    ),
    CodeEntry(
        code="GPU7099",
        title="a cycle can't be decided again",
        message="the inputs of the cycle can't be used: {why}",
        why="`gpuctl replay` decides a past cycle again from its inputs, which the controller keeps in its history for "
        "two days, as far as they find room in 128 MiB. None is kept of that time, or the file is none of `--output`.",
        fix="Name a later time, or a file that `gpuctl replay --output FILE` wrote.",
    ),
    CodeEntry(
        code="GPU7110",
        title="what GPUs do can't be read",
        message="the use of GPUs can't be read: {why}",
        why="`gpuctl reconcile --utilisation-prometheus` or `--utilisation-exporter` names where the metrics of "
        "NVIDIA's DCGM exporter are read. It does not answer, or not as it should. Scheduling goes on; a job of which "
        "nothing was measured for three minutes is not idle, so no idleTimeout ends it.",
        fix="Check the address, and in a cluster the NetworkPolicies on the way: `gpuctl install` with the same option "
        "lets the requests out.",
    ),
    CodeEntry(
        code="GPU7111",
        title="no job's GPUs are measured",
        message="the source of GPU metrics has none of the pods of jobs that run, so no idleTimeout can end a job",
        why="The use of GPUs can be read, but of no running job for all its GPUs. DCGM exporter names pods only where "
        "DCGM_EXPORTER_KUBERNETES is true, and on the nodes where it runs.",
        fix="Ask the exporter of a node with a job for DCGM_FI_DEV_GPU_UTIL: it needs the labels namespace and pod. "
        "Check that --utilisation-match selects this series.",
    ),
    CodeEntry(
        code="GPU8023",
        title="the history can't be kept",
        message="nothing of this time can be kept in the history: {why}",
        why="The disk is full, slow or gone, or the file is locked by another process. Scheduling goes on as always: "
        "only `gpuctl history` and charts have a gap.",
        fix="Make room on the disk, or name another file with `--history`. gpuctl tries again with every cycle.",
    ),
)
