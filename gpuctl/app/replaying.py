"""The inputs of one cycle as lines of JSON, and its decisions made again from them.

The lines have everything that a decision depends on: the declarations in force as text, the objects as the controller's
copy had them, the time, and the projects left alone. So a report is one file, and needs neither cluster nor repository.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from gpuctl import __version__
from gpuctl.app.cycle import CycleReport
from gpuctl.app.ports import WorldFault
from gpuctl.app.revisions import Desired
from gpuctl.compile import compile_tree
from gpuctl.diag.wording import message
from gpuctl.engine import schedule
from gpuctl.k8s.annotations import compact_json
from gpuctl.k8s.objects import ref_of
from gpuctl.model.decision import Placement, Reason, Schedule
from gpuctl.model.ids import JobId, ProjectName, Revision, RunDigest, RunKey
from gpuctl.model.pod_problem import PodProblem
from gpuctl.model.source import SourceFile, SourceTree
from gpuctl.model.state import RawObjects
from gpuctl.model.units import Instant
from gpuctl.observe import observe, with_idle, with_problems

FORMAT = 1
_OBJECTS = 200
"""Objects in one line: encoding them holds up the loop for some milliseconds at most."""
_DAMAGE = (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The inputs of one cycle. `pinned`, `blocked`: as in `Declared`; `problems`: the reported reasons why pods do not
    run.

    `idle`: since when runs were idle, as measured; None: it was not measured. `decided`: each decision as a line. A
    cycle of this process has its `schedule` instead, as lines cost more.
    """

    at_ms: Instant
    folder: str
    revision: Revision
    files: Mapping[str, SourceFile] = field(default_factory=dict)
    pinned: frozenset[ProjectName] = frozenset()
    blocked: Mapping[JobId, Reason] = field(default_factory=dict)
    problems: Mapping[RunKey, PodProblem] = field(default_factory=dict)
    idle: Mapping[RunKey, Instant] | None = None
    objects: RawObjects = field(default_factory=RawObjects)
    decided: tuple[str, ...] = ()
    schedule: Schedule | None = None
    version: str = __version__


def inputs_of(report: CycleReport, desired: Desired) -> Inputs:
    """The inputs of a cycle, by reference. Cost: linear in the runs."""
    return Inputs(
        at_ms=report.at_ms,
        folder=desired.folder,
        revision=desired.revision,
        files=desired.files,
        pinned=report.declared.pinned,
        blocked=report.declared.blocked,
        problems={(run.job, run.digest): run.problem for run in report.state.runs if run.problem is not None},
        idle=_idle(report) if report.state.is_measured else None,
        objects=RawObjects(objects=report.state.live),
        schedule=report.schedule,
    )


def _idle(report: CycleReport) -> Mapping[RunKey, Instant]:
    idle = ((run.job, run.digest, run.idle_since_ms) for run in report.state.runs)
    return {(job, digest): since_ms for job, digest, since_ms in idle if since_ms is not None}


def said(decided: Schedule) -> Iterator[str]:
    """Each decision as a line: the job, the decision, its reason and its place."""
    for decision in decided.decisions:
        places = (getattr(decision, name, None) for name in ("placement", "reserved"))
        reason = decision.reason
        yield compact_json([
            str(decision.job), type(decision).__name__, reason.code, dict(reason.params), *map(_place, places),
            str(getattr(decision, "beneficiary", None) or ""),
        ])  # fmt: skip


def _place(place: Placement | None) -> list[list[Any]]:
    return [] if place is None else [[worker.node, list(worker.gpus)] for worker in place.workers]


def decided_again(inputs: Inputs) -> tuple[str, ...]:
    """The decisions on these inputs, by this version. Raises WorldFault GPU7099 for declarations that do not compile.

    Cost: a compilation and a cold schedule.
    """
    compiled = compile_tree(SourceTree(cluster_dir=inputs.folder, revision=inputs.revision, files=inputs.files))
    if compiled.declared is None:
        first = next(iter(compiled.diagnostics), None)
        raise unreadable("its declarations have errors" + (f": {first.code}: {first.message}" if first else ""))
    declared = replace(compiled.declared, pinned=inputs.pinned, blocked=inputs.blocked)
    state = with_idle(observe(inputs.objects, declared.tenancy), inputs.idle)
    state = with_problems(state, inputs.problems)
    return tuple(said(schedule(declared, state, inputs.at_ms)))


def lines_of(inputs: Inputs) -> Iterator[bytes]:
    """The inputs as lines. Cost: linear in the inputs."""
    yield _line({
        "format": FORMAT,
        "version": inputs.version,
        "at_ms": inputs.at_ms,
        "folder": inputs.folder,
        "revision": inputs.revision,
        "pinned": sorted(inputs.pinned),
        "blocked": {str(job): reason.code for job, reason in inputs.blocked.items()},
        "problems": [[str(job), digest, asdict(problem)] for (job, digest), problem in inputs.problems.items()],
        "idle": None
        if inputs.idle is None
        else [[str(job), digest, since_ms] for (job, digest), since_ms in inputs.idle.items()],
    })
    for path, file in sorted(inputs.files.items()):
        text = file.content.decode("utf-8", "surrogateescape")
        yield _line({"file": path, "text": text, "revision": file.revision})
    bodies = list(inputs.objects.objects.values())
    for start in range(0, len(bodies), _OBJECTS):
        yield _line({"objects": bodies[start : start + _OBJECTS]})
    decided = inputs.decided if inputs.schedule is None else tuple(said(inputs.schedule))
    for start in range(0, len(decided), _OBJECTS):
        yield _line({"decided": decided[start : start + _OBJECTS]})


def read_inputs(lines: Iterable[bytes]) -> Inputs:
    """The inputs that lines contain. Raises WorldFault GPU7099 for other lines."""
    try:
        return _inputs([json.loads(line) for line in lines])
    except _DAMAGE as error:
        raise unreadable(str(error) or type(error).__name__) from error


def _inputs(parts: list[Any]) -> Inputs:
    head = parts[0]
    if head["format"] != FORMAT:
        raise ValueError(f"it has format {head['format']}, not {FORMAT}")
    files = {part["file"]: part for part in parts if "file" in part}
    bodies = [body for part in parts for body in part.get("objects", ())]
    return Inputs(
        at_ms=int(head["at_ms"]),
        folder=str(head["folder"]),
        revision=Revision(str(head["revision"])),
        files={
            path: SourceFile(
                content=part["text"].encode("utf-8", "surrogateescape"), revision=Revision(str(part["revision"]))
            )
            for path, part in files.items()
        },
        pinned=frozenset(map(ProjectName, head["pinned"])),
        blocked={JobId.parse(job): Reason(code=str(code)) for job, code in head["blocked"].items()},
        problems={
            (JobId.parse(job), RunDigest(digest)): PodProblem(**known) for job, digest, known in head["problems"]
        },
        idle=None if (idle := head.get("idle")) is None else dict(map(_since, idle)),
        objects=RawObjects(objects={ref_of(body): body for body in bodies}),
        decided=tuple(str(line) for part in parts for line in part.get("decided", ())),
        version=str(head["version"]),
    )


def _since(row: Any) -> tuple[RunKey, Instant]:
    job, digest, since_ms = row
    return (JobId.parse(job), RunDigest(digest)), int(since_ms)


def unreadable(why: str) -> WorldFault:
    """The fault of a report that can't be read."""
    return WorldFault("GPU7099", message("GPU7099", {"why": why}))


def _line(value: object) -> bytes:
    return compact_json(value).encode() + b"\n"
