"""GPU39xx: scenario files that refer to what is not there."""

from __future__ import annotations

from gpuctl.diag.catalogue import CodeEntry

ENTRIES: tuple[CodeEntry, ...] = (
    CodeEntry(
        code="GPU3901",
        title="the scenario names what is not declared",
        message="{what} {name} is not declared at that time",
        why="What is given, happens or is expected must be about something the declarations hold by then.",
        fix="declare it under declarations, given.documents or an earlier apply, or correct the name",
    ),
    CodeEntry(
        code="GPU3902",
        title="a given placement that can't be",
        message="{job} can't run there: {problem}",
        why="A job that is given as running holds whole devices, or one for a fraction, of declared nodes.",
        fix="name a declared node and the indexes of its devices, one entry a worker",
    ),
    CodeEntry(
        code="GPU3903",
        title="not one scenario",
        message="a scenario file holds one document, this one {count}",
        why="A file is one test with one name.",
        fix="put each scenario into a file of its own",
    ),
    CodeEntry(
        code="GPU3904",
        title="the scenario's declarations can't be read",
        message="{path} can't be read: {problem}",
        why="`declarations` are folders of clusters, or files, relative to the scenario's own folder.",
        fix="correct the path",
    ),
    CodeEntry(
        code="GPU3905",
        title="usage that has no effect",
        message="given.usage has no effect: the cluster has no scheduling.fairness.halfLife",
        why="Past usage is weighed only where it is said how fast it is forgotten.",
        fix="give the cluster a half-life, or leave the usage out",
    ),
    CodeEntry(
        code="GPU3906",
        title="more GPUs for others than there are",
        message="{node} has {free} GPUs for pods that are not gpuctl's, not {gpus}",
        why="What others hold is there besides the jobs that are given as running; later they get what is free, of "
        "all that the node has.",
        fix="give fewer GPUs to others, or to jobs on that node",
    ),
    CodeEntry(
        code="GPU3907",
        title="a scenario too long",
        message="a scenario has at most {limit} lines",
        why="Each declaration in it is compiled where it stands, with all lines before it.",
        fix="put the declarations into files of their own, and name them in declarations",
    ),
    CodeEntry(
        code="GPU3908",
        title="a trace too large",
        message="this file is larger than {limit:memory} and is not read",
        why="A trace is held in memory as a whole. The largest that are published are a tenth of that.",
        fix="cut it into parts that are replayed one by one",
    ),
    CodeEntry(
        code="GPU3910",
        title="a line of a trace that can't be used",
        message="this line can't be used: {problem}",
        why="A replay leaves out no job: its figures would be of another load than the trace's.",
        fix="correct the line, or take it out",
    ),
    CodeEntry(
        code="GPU3911",
        title="columns of a trace are missing",
        message="the first line names no column {columns}",
        why="A trace is read by the names of its columns; this file may be of another format.",
        fix="give the file's own format with --format",
    ),
    CodeEntry(
        code="GPU3912",
        title="no history to take quotas from",
        message="the trace holds nothing before the first job that is replayed",
        why="Quotas by history are each project's part of what was done before.",
        fix="begin later with --from, or give --quotas equal or a file",
    ),
    CodeEntry(
        code="GPU3913",
        title="nothing to replay",
        message="no job of the trace lies in that span of time",
        why="--from and --until leave nothing of it.",
        fix="widen the span",
    ),
    CodeEntry(
        code="GPU3914",
        title="a trace of an unknown format",
        message="the first line has the columns of no format that is known: {formats}",
        why="A trace is known, and read, by the names of its columns.",
        fix="give its columns these names, as far as it has them",
    ),
    CodeEntry(
        code="GPU3915",
        title="a trace with nothing in it",
        message="there is nothing to replay: {problem}",
        why="The file could be read, but holds no job.",
        fix="look whether it is the right file, and whole",
    ),
)
