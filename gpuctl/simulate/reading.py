"""Read scenario files. Every mistake is a diagnostic at its place in the file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuctl.compile.document import Document, Path
from gpuctl.compile.scenario_v1 import EventV1, ExpectV1, GivenV1, ScenarioV1, WorkerPlace, read_scenario, text_at
from gpuctl.compile.text import SourceText, diagnose
from gpuctl.diag.diagnostic import Diagnostic, has_errors
from gpuctl.model.decision import Placement, WorkerPlacement
from gpuctl.model.ids import JobId, NodeName, ProjectName
from gpuctl.model.source import SourceFile
from gpuctl.simulate.declarations import identity_of_data
from gpuctl.simulate.expect import gpus_form
from gpuctl.simulate.scenario import (
    Apply,
    Delete,
    Event,
    Expectation,
    Finish,
    Given,
    GivenForeign,
    GivenQueued,
    GivenRun,
    Happening,
    InlineDocument,
    Named,
    Scenario,
    SetForeign,
    SetIdle,
    SetLoad,
    SetNode,
    SetStuck,
    WantedEviction,
)

GPU_FIELDS = frozenset({"allocated", "quota", "fairShare"})
"""Expected values that are amounts of GPUs."""


def read(path: str, content: bytes) -> tuple[Scenario | None, tuple[Diagnostic, ...]]:
    """Read the scenario of a file; None when it has a mistake."""
    spec, documents, diagnostics = read_scenario(path, content)
    if len(documents) != 1 and not has_errors(diagnostics):
        source = SourceText(path, content.decode("utf-8", "replace"))
        diagnostics.append(diagnose(source, "GPU3903", source.span(1, 1), {"count": len(documents)}))
    if spec is None or has_errors(diagnostics):
        return None, tuple(diagnostics)
    return _scenario(spec, documents[0]), tuple(diagnostics)


def _scenario(spec: ScenarioV1, document: Document) -> Scenario:
    events = [_event(event, document, ("when", index)) for index, event in enumerate(spec.when)]
    return Scenario(
        name=spec.metadata.name,
        why=spec.why,
        span=document.name,
        declarations=tuple(
            Named(name=name, span=document.span(("declarations", index)))
            for index, name in enumerate(spec.declarations)
        ),
        given=_given(spec.given, document),
        durations={JobId.parse(job): duration for job, duration in spec.durations.items()},
        events=tuple(sorted(events, key=lambda event: event.at_ms)),
        until_ms=spec.until,
        expectations=tuple(expectation(e, document, ("expect", i)) for i, e in enumerate(spec.expect)),
    )


def _given(given: GivenV1, document: Document) -> Given:
    return Given(
        documents=_inline(given.documents, document, ("given", "documents")),
        nodes_ready={NodeName(name): node.ready for name, node in given.nodes.items()},
        foreign=tuple(
            GivenForeign(node=NodeName(node), gpus=gpus, span=document.key_span(("given", "foreign", node)))
            for node, gpus in given.foreign.items()
        ),
        running=tuple(
            GivenRun(
                job=run.job,
                since_ms=run.since,
                placement=_placement(run.placement),
                span=document.span(("given", "running", index, "job")),
            )
            for index, run in enumerate(given.running)
        ),
        queued=tuple(
            GivenQueued(job=q.job, since_ms=q.since, span=document.span(("given", "queued", index, "job")))
            for index, q in enumerate(given.queued)
        ),
        usage_milli_hours={ProjectName(name): milli for name, milli in given.usage.items()},
    )


def _placement(workers: list[WorkerPlace]) -> Placement:
    return Placement(
        workers=tuple(WorkerPlacement(node=NodeName(worker.node), gpus=tuple(worker.gpus)) for worker in workers)
    )


def _event(event: EventV1, document: Document, path: Path) -> Event:
    return Event(at_ms=event.at, what=_happening(event, document, path), span=document.span((*path, "at")))


def _happening(event: EventV1, document: Document, path: Path) -> Happening:
    if event.apply is not None:
        return Apply(documents=_inline(event.apply, document, (*path, "apply")))
    if event.delete is not None:
        return Delete(jobs=tuple(event.delete))
    if event.finish is not None:
        return Finish(job=event.finish.job, exit_code=event.finish.exit_code)
    if event.node is not None:
        change = event.node
        return SetNode(node=NodeName(change.name), ready=change.ready, cordoned=change.cordoned)
    if event.idle is not None:
        return SetIdle(job=event.idle.job, since_ms=event.idle.since)
    if event.stuck is not None:
        return SetStuck(job=event.stuck.job, reason=event.stuck.reason)
    if event.load is not None:
        return SetLoad(job=event.load.job, load_milli=event.load.value)
    if event.foreign is not None:
        return SetForeign(node=NodeName(event.foreign.node), gpus=event.foreign.gpus)
    raise AssertionError("the form allows exactly one of these")


def _inline(documents: list[dict[str, Any]], document: Document, path: Path) -> tuple[InlineDocument, ...]:
    inline = []
    for index, data in enumerate(documents):
        kind, project, name = identity_of_data(data) or ("", "", "")
        content = text_at(document, (*path, index)).encode()
        inline.append(InlineDocument(kind=kind, project=project, name=name, file=SourceFile(content=content)))
    return tuple(inline)


def expectation(expect: ExpectV1, document: Document, path: Path) -> Expectation:
    """The expectations of one time, with their places in the file."""
    return Expectation(
        at_ms=expect.at,
        projects={
            ProjectName(name): _wanted(wanted.model_dump(by_alias=True, exclude_unset=True))
            for name, wanted in expect.projects.items()
        },
        jobs={
            JobId.parse(job): _wanted(wanted.model_dump(by_alias=True, exclude_unset=True))
            for job, wanted in expect.jobs.items()
        },
        evictions=None
        if expect.evictions is None
        else tuple(WantedEviction(job=eviction.job, beneficiary=eviction.for_) for eviction in expect.evictions),
        spans={
            **{("project", name): document.key_span((*path, "projects", name)) for name in expect.projects},
            **{("job", job): document.key_span((*path, "jobs", job)) for job in expect.jobs},
        },
    )


def _wanted(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The expected values, in the form of a report's values."""
    return {name: _comparable(name, value) for name, value in fields.items()}


def _comparable(name: str, value: Any) -> Any:
    if name in GPU_FIELDS and value is not None:
        return gpus_form(value)
    if name == "pending" and value is not None:
        return sorted(value)
    return value
