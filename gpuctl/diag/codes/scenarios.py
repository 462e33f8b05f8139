"""GPU39xx: mistakes in scenario files and traces."""

from __future__ import annotations

from gpuctl.diag.catalogue import CodeEntry

ENTRIES: tuple[CodeEntry, ...] = (
    CodeEntry(
        code="GPU3901",
        title="the scenario names something that is not declared",
        message="{what} {name} is not declared at that time",
        why="Given states, events and expectations must refer to something that is declared by then.",
        fix="declare it under declarations, given.documents or an earlier apply, or correct the name",
    ),
    CodeEntry(
        code="GPU3902",
        title="an impossible given placement",
        message="{job} can't run there: {problem}",
        why="A job that is given as running holds whole devices of declared nodes, or one device for a fraction.",
        fix="name a declared node and the indexes of its devices, with one entry for each worker",
    ),
    CodeEntry(
        code="GPU3903",
        title="not exactly one scenario",
        message="a scenario file holds one document, this one holds {count}",
        why="A file is one test with one name.",
        fix="put each scenario into its own file",
    ),
    CodeEntry(
        code="GPU3904",
        title="the scenario's declarations can't be read",
        message="{path} can't be read: {problem}",
        why="`declarations` are folders of clusters, or files, relative to the scenario's own folder. A "
        "scenario in a Git repository names nothing outside of it.",
        fix="correct the path",
    ),
    CodeEntry(
        code="GPU3905",
        title="usage that has no effect",
        message="given.usage has no effect: the cluster has no scheduling.fairness.halfLife",
        why="Past usage only counts with a half-life, by which it decays.",
        fix="set the cluster's half-life, or remove given.usage",
    ),
    CodeEntry(
        code="GPU3906",
        title="more GPUs for other pods than the node has",
        message="{node} has {free} GPUs for pods that are not gpuctl's, not {gpus}",
        why="Other pods hold GPUs besides the jobs that are given as running. In later events they get free GPUs, up "
        "to all GPUs of the node.",
        fix="give fewer GPUs to other pods, or to jobs on that node",
    ),
    CodeEntry(
        code="GPU3907",
        title="too long a scenario",
        message="a scenario has at most {limit} lines",
        why="Each declaration in it is compiled at its line, with all lines before it.",
        fix="move the declarations to other files, and name these in declarations",
    ),
    CodeEntry(
        code="GPU3908",
        title="too large a trace",
        message="this file is larger than {limit:memory} and is not read",
        why="A trace is held in memory. The largest published traces are a tenth of that.",
        fix="split it into parts, and replay them one by one",
    ),
    CodeEntry(
        code="GPU3910",
        title="an invalid line of a trace",
        message="this line can't be used: {problem}",
        why="A replay without this job would measure another load than the trace's.",
        fix="correct the line, or remove it",
    ),
    CodeEntry(
        code="GPU3911",
        title="columns of a trace are missing",
        message="the first line has no column {columns}",
        why="A trace is read by the names of its columns; this file may be of another format.",
        fix="give the file's own format with --format",
    ),
    CodeEntry(
        code="GPU3912",
        title="no history for quotas",
        message="the trace has no jobs before the first one that is replayed",
        why="Quotas by history are each project's part of the work before.",
        fix="begin later with --from, or give --quotas equal or a file",
    ),
    CodeEntry(
        code="GPU3913",
        title="nothing to replay",
        message="no job of the trace is in this span of time",
        why="--from and --until exclude all jobs.",
        fix="widen the span",
    ),
    CodeEntry(
        code="GPU3914",
        title="a trace of an unknown format",
        message="the columns in the first line match no known format: {formats}",
        why="The format of a trace is recognised by the names of its columns.",
        fix="rename its columns to those of a format",
    ),
    CodeEntry(
        code="GPU3915",
        title="an empty trace",
        message="there is nothing to replay: {problem}",
        why="The file was read, but has no jobs.",
        fix="check that it is the right file, and complete",
    ),
)
