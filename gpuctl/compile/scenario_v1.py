"""The public form of scenario files, apiVersion gpuctl.dev/v1, kind Scenario; and of the demonstration's story.

Times are counted from the scenario's 0s; everything `given` began before it. The documents in a scenario are checked
when they are compiled.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PlainValidator, WithJsonSchema, model_validator

from gpuctl.compile import amounts
from gpuctl.compile.amounts import WrongValue
from gpuctl.compile.document import Document, Path
from gpuctl.compile.fields_v1 import Cpu, Duration, Gpus, Name, Spec, Subdomain, one_of_several, visible
from gpuctl.compile.reading import parse_documents
from gpuctl.compile.shape import check_shape
from gpuctl.compile.spec_v1 import Metadata
from gpuctl.compile.syntax import (
    MappingEndEvent,
    MappingStartEvent,
    NotYaml,
    SequenceEndEvent,
    SequenceStartEvent,
    events,
)
from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.model.decision import JobState
from gpuctl.model.ids import JobId
from gpuctl.model.units import MOST_NODE_GPUS

END = "end"
MOST_DOCUMENTS = 2000
"""The most declarations written in a scenario itself: reading each one includes all lines before it."""
MOST_LINES = 50_000
MOST_EVENTS = 2000
_MOST_GPU_HOURS = 10**12


def _job_id(value: Any) -> JobId:
    try:
        job = JobId.parse(value if isinstance(value, str) else "")
        amounts.label(job.project)
        amounts.label(job.name)
    except ValueError:
        raise WrongValue("GPU2023", found=str(value), wanted="a job: project/name") from None
    return job


def _past(value: Any) -> int:
    """A time before 0s, or 0s: -10m, 0s."""
    if isinstance(value, str) and value.startswith("-"):
        return -amounts.duration(value[1:])
    if amounts.duration(value):
        raise WrongValue("GPU2018", found=str(value), rule="what is given began before 0s: write -10m, or 0s")
    return 0


def _any_time(value: Any) -> int:
    return _past(value) if isinstance(value, str) and value.startswith("-") else amounts.duration(value)


def _instant_or_end(value: Any) -> int | None:
    return None if value == END else amounts.duration(value)


def _gpu_hours(value: Any) -> int:
    return amounts.gpus(value, _MOST_GPU_HOURS)


def _state(value: str) -> str:
    states = [state.value for state in JobState]
    if value not in states:
        raise WrongValue("GPU2023", found=value, wanted=f"a state: {', '.join(states)}")
    return value


_TIME = {"type": "string"}
_JOB = {"type": "string", "pattern": "^[a-z0-9-]+/[a-z0-9-]+$"}
JobIdText = Annotated[Any, PlainValidator(_job_id), WithJsonSchema(_JOB)]
JobKey = Annotated[str, AfterValidator(lambda text: str(_job_id(text)))]
Past = Annotated[int, PlainValidator(_past), WithJsonSchema(_TIME)]
AnyTime = Annotated[int, PlainValidator(_any_time), WithJsonSchema(_TIME)]
InstantOrEnd = Annotated[int | None, PlainValidator(_instant_or_end), WithJsonSchema(_TIME)]
State = Annotated[str, AfterValidator(_state)]
RawDocument = dict[str, Any]
ForeignGpus = Annotated[int, Field(ge=0, le=MOST_NODE_GPUS)]
GpuHours = Annotated[int, PlainValidator(_gpu_hours), WithJsonSchema({"type": "number", "minimum": 0})]
FilePath = Annotated[str, Field(min_length=1, max_length=amounts.PATH_LENGTH), AfterValidator(visible)]


class WorkerPlace(Spec):
    """Where one worker is."""

    node: Subdomain = Field(description="The node's name.")
    gpus: list[Annotated[int, Field(ge=0, le=MOST_NODE_GPUS - 1)]] = Field(
        [], max_length=MOST_NODE_GPUS, description="The indexes of its devices there."
    )


class Running(Spec):
    """A job that already runs."""

    job: JobIdText = Field(description="The job, as project/name.")
    since: Past = Field(description="When it started: -10m.")
    placement: list[WorkerPlace] = Field(min_length=1, max_length=10_000, description="Where each worker is, in order.")


class Queued(Spec):
    """A job that already waits."""

    job: JobIdText = Field(description="The job, as project/name.")
    since: Past = Field(description="Since when it waits: -3m.")


class NodeState(Spec):
    """How a node departs from the declared inventory."""

    ready: bool = Field(description="False: the node is lost.")


class GivenV1(Spec):
    """How things stand at 0s."""

    documents: list[RawDocument] = Field(
        [], max_length=MOST_DOCUMENTS, description="Declarations, besides those of `declarations`."
    )
    nodes: dict[Subdomain, NodeState] = Field({}, description="Departures from the declared inventory.")
    foreign: dict[Subdomain, ForeignGpus] = Field(
        {}, description="GPUs of nodes that pods hold which are not gpuctl's, by node."
    )
    running: list[Running] = Field([], description="Jobs that already run.")
    queued: list[Queued] = Field([], description="Jobs that already wait; others are new at 0s.")
    usage: dict[Name, GpuHours] = Field({}, description="Decayed GPU-hours of projects, for fairness over time.")


class FinishV1(Spec):
    """A job whose processes end."""

    job: JobIdText = Field(description="The job, as project/name.")
    exit_code: int = Field(0, ge=0, le=255, description="0: it succeeded.")


class NodeChange(Spec):
    """A node that is lost or comes back, is cordoned or opened again."""

    name: Subdomain = Field(description="The node's name.")
    ready: bool = Field(default=True, description="False: it is lost.")
    cordoned: bool = Field(default=False, description="True: it takes no new pods.")


class ForeignV1(Spec):
    """Pods on a node that are not gpuctl's."""

    node: Subdomain = Field(description="The node's name.")
    gpus: ForeignGpus = Field(description="How many of its GPUs they ask for from now on.")


class IdleV1(Spec):
    """A job whose GPUs do nothing."""

    job: JobIdText = Field(description="The job, as project/name.")
    since: AnyTime | None = Field(description="Since when; null: they are used again.")


class StuckV1(Spec):
    """A job whose pods can't start."""

    job: JobIdText = Field(description="The job, as project/name.")
    reason: Annotated[str, Field(pattern="^[A-Za-z]{1,64}$")] | None = Field(
        description="For which reason of a kubelet: ImagePullBackOff; null: they start."
    )


class LoadV1(Spec):
    """The load of a service that scales."""

    job: JobIdText = Field(description="The service, as project/name.")
    value: Cpu = Field(description="How much of its metric all its workers have together from now on.")


class EventV1(Spec):
    """One thing that happens."""

    at: Duration = Field(description="When it happens: 5m.")
    apply: list[RawDocument] | None = Field(
        None, min_length=1, max_length=MOST_DOCUMENTS, description="Declarations added, or replaced by name."
    )
    delete: list[JobIdText] | None = Field(None, min_length=1, description="Jobs removed, as project/name.")
    finish: FinishV1 | None = Field(None, description="A job's processes end.")
    node: NodeChange | None = Field(None, description="A node is lost, cordoned, or as it should be again.")
    idle: IdleV1 | None = Field(None, description="A job's GPUs stop working, or work again.")
    stuck: StuckV1 | None = Field(None, description="A job's pods can't start, or can again.")
    load: LoadV1 | None = Field(None, description="The load of a service changes.")
    foreign: ForeignV1 | None = Field(None, description="Pods that are not gpuctl's come to a node, or leave it.")

    @model_validator(mode="after")
    def _one_happening(self) -> EventV1:
        happenings = ("apply", "delete", "finish", "node", "idle", "stuck", "load", "foreign")
        given = [name for name in happenings if getattr(self, name) is not None]
        if len(given) != 1:
            fields = "apply, delete, finish, node, idle, stuck, load and foreign"
            raise WrongValue("GPU2019", at=tuple(given[1:2]), said=one_of_several(fields, given))
        return self


class ProjectWanted(Spec):
    """What is expected of a project. Only what is written is checked."""

    allocated: Gpus | None = Field(None, description="GPUs its jobs hold.")
    quota: Gpus | None = Field(None, description="Its guaranteed GPUs.")
    fair_share: Gpus | None = Field(None, description="GPUs it may hold now.")
    pending: list[str] | None = Field(None, description="All its waiting jobs, in any order.")
    queued: int | None = Field(None, ge=0, description="How many jobs wait.")


class JobWanted(Spec):
    """What is expected of a job. Only what is written is checked."""

    state: State | None = Field(None, description="Its state: Running, Preempted …")
    starts: int | None = Field(None, ge=0, description="How often it was started.")
    node: str | None = Field(None, description="Its node; for a gang its nodes, sorted, with commas.")
    placement: list[WorkerPlace] | None = Field(None, description="Where each worker is, in order.")
    reason: str | None = Field(None, description="The code of its reason: GPU5010.")
    workers: int | None = Field(None, ge=0, description="With how many workers it runs; 0 while it does not.")
    paused_for: JobKey | None = Field(None, description="The job it was last paused for.")


class EvictionV1(Spec):
    """A pause that is expected."""

    job: JobIdText = Field(description="The job that is paused.")
    for_: JobIdText | None = Field(None, alias="for", description="Whom it makes room for. Default: anybody.")


class ExpectV1(Spec):
    """What is expected at a time."""

    at: InstantOrEnd = Field(description="A time, after what happens then has come to rest; or end.")
    projects: dict[Name, ProjectWanted] = Field({}, description="By name.")
    jobs: dict[JobKey, JobWanted] = Field({}, description="By project/name.")
    evictions: list[EvictionV1] | None = Field(None, description="All pauses up to then, in any order.")


class ScenarioV1(Spec):
    """What is given, what happens, and what is expected."""

    api_version: Literal["gpuctl.dev/v1"] = Field(description="The version of this form.")
    kind: Literal["Scenario"] = Field(description="What this is.")
    metadata: Metadata = Field(description="Its name.")
    why: str = Field("", description="What it shows, in a sentence.")
    declarations: list[FilePath] = Field(
        [], max_length=100, description="Folders or files with declarations, relative to this file."
    )
    given: GivenV1 = Field(GivenV1(), description="How things stand at 0s.")
    durations: dict[JobKey, Duration] = Field({}, description="How long jobs run in all, by project/name.")
    when: list[EventV1] = Field([], max_length=MOST_EVENTS, description="What happens.")
    until: Duration | None = Field(None, description="When it ends. Default: when nothing changes any more.")
    expect: list[ExpectV1] = Field([], max_length=MOST_EVENTS, description="What is expected.")

    @model_validator(mode="after")
    def _not_too_many(self) -> ScenarioV1:
        documents = len(self.given.documents) + sum(len(event.apply or ()) for event in self.when)
        if documents > MOST_DOCUMENTS:
            rule = f"at most {MOST_DOCUMENTS} in given and when together"
            raise WrongValue("GPU2018", at=("when",), found=f"{documents} documents", rule=rule)
        return self


class CommitV1(Spec):
    """One commit of a story: files taken from the example, written, removed. Paths are inside the cluster's folder."""

    text: str = Field(description="The commit's message.")
    take: list[str] = Field([], description="Files copied from the example cluster.")
    write: dict[str, str] = Field({}, description="Files by path, with their text.")
    remove: list[str] = Field([], description="Files that are removed.")


class SectionV1(Spec):
    """A part of a story."""

    label: str = Field(description="The label of the checkpoint after its last commit.")
    title: str = Field(description="What it shows.")
    commits: list[CommitV1] = Field(min_length=1, description="Its commits.")
    expect: list[ExpectV1] = Field([], description="What is so after its last commit.")


class StoryV1(Spec):
    """What a demonstration tells, by commits."""

    example: str = Field(description="The cluster's folder in the repository that is made.")
    sections: list[SectionV1] = Field(min_length=1, description="Its parts.")


def read_story(path: str, content: bytes) -> tuple[StoryV1, Document]:
    """The story that comes with the package, and its document. Raises ValueError if it has a mistake."""
    documents, diagnostics = parse_documents(path, content)
    story, mistakes = check_shape(documents[0], StoryV1)
    if story is None or diagnostics:
        raise ValueError(f"{path}: {[*diagnostics, *mistakes]}")
    return story, documents[0]


def read_scenario(path: str, content: bytes) -> tuple[ScenarioV1 | None, list[Document], list[Diagnostic]]:
    """The documents of a file and its mistakes; if there is exactly one document, also the scenario in it."""
    documents, diagnostics = parse_documents(path, content)
    if len(documents) != 1:
        return None, documents, diagnostics
    document = documents[0]
    spec, mistakes = check_shape(document, ScenarioV1)
    if document.source.position(document.end)[0] > MOST_LINES:
        mistakes.append(document.diagnostic("GPU3907", document.name, {"limit": MOST_LINES}))
    return spec, documents, [*diagnostics, *mistakes]


def text_at(document: Document, path: Path) -> str:
    """The text of the mapping at a path of a list's entry, preceded by line breaks and spaces so that it has the same
    line and column as in the file."""
    span = document.span(path)
    start = document.source.offset(span.line) + span.column - 1
    text = " " * (span.column - 1) + document.source.text[start : document.following(path)]
    return "\n" * (span.line - 1) + text[: _end_of_mapping(text)]


def _end_of_mapping(text: str) -> int:
    """Where the mapping at the beginning of a text ends. Any text may follow it."""
    depth = 0
    try:
        for event in events(text):
            kind = type(event)
            depth += kind in {MappingStartEvent, SequenceStartEvent}
            depth -= kind in {MappingEndEvent, SequenceEndEvent}
            if not depth and kind is MappingEndEvent:
                return int(event.end_mark.index)  # type: ignore[union-attr] # only hand-made events have no mark
    except NotYaml:  # for example an alias, which the compiler reports
        pass
    return len(text)
