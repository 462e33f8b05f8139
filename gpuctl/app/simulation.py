"""`simulate`: runs a scenario file through the ordinary compiler and cycle, in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpuctl.app.play import Play, Sandboxes
from gpuctl.app.ports import SourceUnavailable
from gpuctl.app.seeding import seed
from gpuctl.compile import CompileCache, compile_tree
from gpuctl.diag.codes import CODES
from gpuctl.diag.diagnostic import Diagnostic, has_errors, sorted_diagnostics
from gpuctl.diag.wording import duration, message, thousandths
from gpuctl.model.decision import JobState
from gpuctl.model.declared import Declared
from gpuctl.model.ids import JobId
from gpuctl.model.source import SourceTree
from gpuctl.model.units import Instant
from gpuctl.simulate.checking import mistakes
from gpuctl.simulate.declarations import Declarations, declarations
from gpuctl.simulate.expect import evaluate
from gpuctl.simulate.reading import read
from gpuctl.simulate.report import Checkpoint, Outcome, SimulationReport
from gpuctl.simulate.scenario import (
    EPOCH_MS,
    Apply,
    Delete,
    Event,
    Finish,
    Happening,
    Scenario,
    SetForeign,
    SetIdle,
    SetLoad,
    SetNode,
    SetStuck,
)

ReadTree = Callable[[str], SourceTree]
"""Reads the files of a folder or file that a scenario names. Raises SourceUnavailable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """The report of a scenario; None if it has errors. The diagnostics hold warnings in any case."""

    report: SimulationReport | None
    diagnostics: tuple[Diagnostic, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """A scenario, and the declarations at 0s and after each of its events; no stages if there are errors."""

    scenario: Scenario | None
    stages: tuple[Declared, ...]
    diagnostics: tuple[Diagnostic, ...]


def simulate_file(path: str, content: bytes, read_tree: ReadTree, sandboxes: Sandboxes) -> Simulated:
    """Simulate the scenario of a file."""
    staged = staged_file(path, content, read_tree)
    if staged.scenario is None or not staged.stages:
        return Simulated(report=None, diagnostics=staged.diagnostics)
    report = _Simulation(staged.scenario, staged.stages, sandboxes).run()
    return Simulated(report=report, diagnostics=staged.diagnostics)


def staged_file(path: str, content: bytes, read_tree: ReadTree) -> Staged:
    """Read the scenario of a file and compile its declarations: everything that its simulation needs."""
    scenario, diagnostics = read(path, content)
    if scenario is None:
        return Staged(scenario=None, stages=(), diagnostics=diagnostics)
    tree, faults = _tree(scenario, read_tree)
    stages, found = _stages(scenario, tree, path)
    told = sorted_diagnostics((*diagnostics, *faults, *found))
    return Staged(scenario=scenario, stages=() if has_errors(told) else tuple(stages), diagnostics=told)


def _tree(scenario: Scenario, read_tree: ReadTree) -> tuple[SourceTree, tuple[Diagnostic, ...]]:
    """All declarations that the scenario names, as one tree. The first folder is the cluster's."""
    trees, faults = [], []
    for named in scenario.declarations:
        try:
            trees.append(read_tree(named.name))
        except SourceUnavailable as fault:
            text = message("GPU3904", {"path": named.name, "problem": str(fault)})
            faults.append(Diagnostic(code="GPU3904", message=text, span=named.span, help=CODES["GPU3904"].fix))
    files = {path: file for tree in trees for path, file in tree.files.items()}
    return SourceTree(cluster_dir=trees[0].cluster_dir if trees else ".", files=files), tuple(faults)


def _stages(scenario: Scenario, tree: SourceTree, path: str) -> tuple[list[Declared], tuple[Diagnostic, ...]]:
    """The declarations at 0s and after each event; empty if one of these has errors."""
    current = declarations(tree).with_documents(scenario.given.documents, path)
    stages, told, cache = [], [], CompileCache()
    for event in (None, *scenario.events):
        if event is not None:
            current = _changed(current, event.what, path)
        if event is None or isinstance(event.what, Apply | Delete):
            compiled = compile_tree(current.tree, cache)
            told += [current.own_names(diagnostic) for diagnostic in compiled.diagnostics]
            if compiled.declared is None:
                return [], tuple(told)
            stages.append(compiled.declared)
        else:
            stages.append(stages[-1])
    return stages, (*told, *mistakes(scenario, stages))


def _changed(current: Declarations, what: Happening, path: str) -> Declarations:
    match what:
        case Apply(documents=documents):
            return current.with_documents(documents, path)
        case Delete(jobs=jobs):
            return current.without_jobs(jobs)[0]
        case _:
            return current


class _Simulation:
    """One simulation of a scenario whose names have been checked."""

    def __init__(self, scenario: Scenario, stages: Sequence[Declared], sandboxes: Sandboxes) -> None:
        self.scenario = scenario
        self.stages = stages
        earliest = min(scenario.given.since_ms.values(), default=0)
        self.sandbox = sandboxes(EPOCH_MS + earliest)
        self.play = Play(self.sandbox, stages[0], EPOCH_MS)
        self.world = self.sandbox.world
        self.at: dict[Instant | None, Checkpoint] = {}
        self.missed: list[Outcome] = []

    def run(self) -> SimulationReport:
        """Play the scenario and evaluate its expectations."""
        self._begin()
        label, label_ms = "start", 0
        for at_ms, event, declared in self._timeline():
            noted = self.play.pass_until(EPOCH_MS + at_ms, label)
            if noted is not None:
                self.at[label_ms] = noted
            if event is None:
                self.at[at_ms] = self.play.note_at(EPOCH_MS + at_ms, duration(at_ms))
                label = ""
                continue
            self.play.move_to(EPOCH_MS + at_ms)
            self._happen(event, declared)
            label, label_ms = happening_text(event.what), at_ms
        self._end(label, label_ms)
        return self._report()

    def _begin(self) -> None:
        given = self.scenario.given
        for job, duration_ms in self.scenario.durations.items():
            self.world.run_for(job, duration_ms)
        self._set_checkpoints(self.stages[0])
        seed(self.stages[0], given, self.play.context, self.sandbox, EPOCH_MS)
        for foreign in given.foreign:
            self.world.set_strangers(foreign.node, foreign.gpus)
        for node, ready in given.nodes_ready.items():
            self.world.set_node_ready(node, ready=ready)

    def _set_checkpoints(self, declared: Declared) -> None:
        for job in declared.jobs:
            self.world.checkpoint(job.id, job.checkpoint_ms)

    def _timeline(self) -> list[tuple[Instant, Event | None, Declared]]:
        """The events, each with the declarations after it, and the other instants with expectations, by time."""
        until_ms = self.scenario.until_ms
        marks = [
            (event.at_ms, event, declared)
            for event, declared in zip(self.scenario.events, self.stages[1:], strict=True)
        ]
        asked = {e.at_ms for e in self.scenario.expectations if e.at_ms} - {at_ms for at_ms, _, _ in marks}
        probes = [(at_ms, None, self.stages[0]) for at_ms in asked]
        within = [mark for mark in (*marks, *probes) if until_ms is None or mark[0] <= until_ms]
        return sorted(within, key=lambda mark: mark[0])

    def _happen(self, event: Event, declared: Declared) -> None:
        match event.what:
            case Apply() | Delete():
                self._set_checkpoints(declared)
                self.play.declare(declared)
            case Finish(job=job, exit_code=exit_code):
                self._check_running(job, event.at_ms)
                self.world.finish(job, exit_code)
            case SetNode(node=node, ready=ready, cordoned=cordoned):
                self.world.set_node_ready(node, ready=ready)
                self.world.cordon(node, cordoned=cordoned)
            case SetIdle(job=job, since_ms=since_ms):
                self.world.set_idle(job, None if since_ms is None else EPOCH_MS + since_ms)
            case SetStuck(job=job, reason=reason):
                self.world.set_stuck(job, reason)
            case SetLoad(job=job, load_milli=load_milli):
                self.world.set_load(job, load_milli)
            case SetForeign(node=node, gpus=gpus):
                self.world.set_strangers(node, gpus)

    def _check_running(self, job: JobId, at_ms: Instant) -> None:
        """Note a failed expectation if the job does not run: then the scenario can't end it."""
        rows = self.play.checkpoints[-1].jobs
        state = next((row.state.value for row in rows if row.job == job), None)
        if state != JobState.RUNNING:
            path, want = f"when.finish.{job}", JobState.RUNNING.value
            self.missed.append(Outcome(at=duration(at_ms), path=path, want=want, got=state, ok=False))

    def _end(self, label: str, label_ms: Instant) -> None:
        until_ms = self.scenario.until_ms
        noted = self.play.pass_until(None if until_ms is None else EPOCH_MS + until_ms, label)
        if noted is not None:
            self.at[label_ms] = noted
        self.at[None] = self.play.note_end() if until_ms is None else self.play.note_at(EPOCH_MS + until_ms, "end")

    def _report(self) -> SimulationReport:
        end = self.at[None]
        transitions = tuple(self.play.observer.transitions)
        return SimulationReport(
            name=self.scenario.name,
            why=self.scenario.why,
            checkpoints=tuple(self.play.checkpoints),
            transitions=transitions,
            outcomes=(
                *self.missed,
                *evaluate(self.scenario.expectations, lambda at_ms: self.at.get(at_ms, end), transitions),
            ),
            cycles=self.play.cycles,
            stable=self.play.stable,
        )


def happening_text(what: Happening) -> str:
    """An event in a few words."""
    match what:
        case Apply(documents=documents):
            return "apply " + ", ".join(_document_text(d.kind, d.project, d.name) for d in documents)
        case Delete(jobs=jobs):
            return "delete " + ", ".join(str(job) for job in jobs)
        case Finish(job=job, exit_code=exit_code):
            return f"{job} ends with exit code {exit_code}"
        case SetNode(node=node, ready=ready, cordoned=cordoned):
            return f"node {node} is {'cordoned' if ready and cordoned else 'ready' if ready else 'lost'}"
        case SetIdle(job=job, since_ms=since_ms):
            return f"{job} {'works again' if since_ms is None else 'idles'}"
        case SetStuck(job=job, reason=reason):
            return f"{job} can start" if reason is None else f"the pods of {job} can't start: {reason}"
        case SetLoad(job=job, load_milli=load_milli):
            return f"the load of {job} is {thousandths(load_milli)}"
        case SetForeign(node=node, gpus=gpus):
            return f"foreign pods request {gpus} {'GPU' if gpus == 1 else 'GPUs'} of {node}"


def _document_text(kind: str, project: str, name: str) -> str:
    return f"{project}/{name}" if kind == "Job" else f"{kind} {name}"
