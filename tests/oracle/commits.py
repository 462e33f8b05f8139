"""Random commits: the prediction for each comes true, however long pods take to stop and to start.

A plan shows which jobs a change starts, pauses, moves, resizes and stops. Here each commit changes several things at
once. The prediction is made before it takes effect; then the engine decides cycle by cycle, while pods follow late. If
something else happens, the order in which pods followed must be the cause.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import TypeAlias

from gpuctl.engine import EngineCache, schedule
from gpuctl.explain import CauseKind, Difference, Passed, compare, passed, predict
from gpuctl.model import transition
from gpuctl.model.declared import Declared
from gpuctl.model.ids import RunDigest, RunKey
from gpuctl.model.state import ClusterState, Ledger, Run, RunPhase

from .cluster import CYCLE_MS, TinyCluster, start
from .histories import MINUTE_MS, Change, committed, draw_history
from .worlds import DIGEST, WorldSpec, declared

COMMITTED = ("add", "remove", "quota")
"""Changes of a history that a commit makes; the other changes happen to a cluster."""
MOST_CHANGES = 3
MOST_EDITS = 2
MOST_CYCLES = 80
MOST_DELAY = 3
"""The most cycles that pods take to stop or to start; the seed decides: none, or up to so many."""

Delays: TypeAlias = dict[tuple[RunKey, RunPhase, int], int]
"""The cycles left until the pods of a run have followed, by the run's phase and its starts."""


@dataclass(slots=True)
class Commits:
    """The result of many commits. `otherwise`: how many did something else to a job than predicted; `elsewhere`: did
    the same on another node. `wrong`: by seed, what was neither predicted nor explained by the order in which pods
    followed.
    """

    commits: int = 0
    otherwise: int = 0
    elsewhere: int = 0
    wrong: dict[int, str] = field(default_factory=dict)


@dataclass(slots=True)
class Repository:
    """The declarations: a world, the jobs that are suspended, and how often each job was changed."""

    spec: WorldSpec
    suspended: set[str] = field(default_factory=set)
    edits: dict[str, int] = field(default_factory=dict)

    def commit(self, random: Random, changes: Iterable[Change]) -> None:
        """Apply the changes of a history, and change some jobs."""
        for change in changes:
            self.spec = committed(self.spec, change)
        for _ in range(random.randint(0, MOST_EDITS) if self.spec.jobs else 0):
            self._edit(random, random.choice(self.spec.jobs).id)

    def _edit(self, random: Random, name: str) -> None:
        kind = random.choice(("priority", "suspend", "resume", "edit"))
        if kind == "priority":
            priority = random.randint(0, 3)
            jobs = tuple(replace(job, priority=priority) if job.id == name else job for job in self.spec.jobs)
            self.spec = replace(self.spec, jobs=jobs)
        elif kind == "suspend":
            self.suspended.add(name)
        elif kind == "resume":
            self.suspended.discard(random.choice([name, *sorted(self.suspended)]))
        else:
            self.edits[name] = self.edits.get(name, 0) + 1

    def declared(self) -> Declared:
        """The declarations as the compiler would give them. A changed job has another digest: its run is replaced."""
        tree = declared(self.spec)
        jobs = [
            replace(job, suspend=str(job.id) in self.suspended, digest=self._digest(str(job.id))) for job in tree.jobs
        ]
        return replace(tree, jobs=tuple(jobs))

    def _digest(self, name: str) -> RunDigest:
        return RunDigest(f"{int(DIGEST) + self.edits.get(name, 0):08}")


@dataclass(slots=True)
class SlowCluster:
    """A cluster whose pods each follow a decision up to `delay` cycles late."""

    start: TinyCluster
    random: Random
    delay: int
    runs: dict[RunKey, Run] = field(init=False)
    cache: EngineCache = field(default_factory=EngineCache)
    now_ms: int = field(init=False)
    on_the_way: list[Passed] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.now_ms = self.start.now_ms
        self.runs = {(run.job, run.digest): run for run in self.start.runs.values()}

    def state(self) -> ClusterState:
        """The state as it would be observed."""
        ledgers = {
            project: Ledger(project=project, seen=frozenset(key for key in self.runs if key[0].project == project))
            for project in {job.project for job, _ in self.runs}
        }
        runs = tuple(self.runs[key] for key in sorted(self.runs))
        return ClusterState(nodes=self.start.nodes, runs=runs, ledgers=ledgers)

    def settle(self, tree: Declared) -> None:
        """Decide and carry out until nothing changes and all pods have followed."""
        left: Delays = {}
        self.on_the_way = []
        before = self.state()
        for _ in range(MOST_CYCLES):
            state = self.state()
            self.on_the_way += filter(None, [passed(before, state, self.now_ms)])
            before = state
            self._decide(tree)
            self.now_ms += CYCLE_MS
            is_awaited = self._follow(frozenset((job.id, job.digest) for job in tree.jobs), left)
            if self.state().runs == state.runs and not is_awaited:
                return
        raise AssertionError(f"no rest after {MOST_CYCLES} cycles")

    def _decide(self, tree: Declared) -> None:
        jobs = {job.id: job for job in tree.jobs}
        for decision in schedule(tree, self.state(), self.now_ms, self.cache).decisions:
            job = jobs[decision.job]
            after = transition.decided(job, self.runs.get((job.id, job.digest)), decision, self.now_ms)
            if after is not None:
                self.runs[job.id, job.digest] = after
        wanted = {(job.id, job.digest) for job in tree.jobs}
        for key in self.runs.keys() - wanted:
            self.runs[key] = transition.removed(self.runs[key])

    def _follow(self, wanted: frozenset[RunKey], left: Delays) -> bool:
        """Let pods follow; returns whether some have not followed yet."""
        is_awaited = False
        for key, run in sorted(self.runs.items()):
            if run.phase is RunPhase.STOPPING:
                after = transition.stopped(run)
            elif key in wanted:
                after = transition.started(run, self.now_ms)
            else:
                del self.runs[key]
                continue
            turn = key, run.phase, run.starts
            cycles = left.pop(turn, self.random.randint(0, self.delay)) if after != run else 0
            if cycles:
                left[turn] = cycles - 1
                is_awaited = True
            else:
                self.runs[key] = after
        return is_awaited


def check_commits(some: Iterable[int]) -> Commits:
    """Compare the predictions with what happens, for all commits of some seeds."""
    told = Commits()
    for seed in some:
        for differences in _commits(seed):
            told.commits += 1
            told.otherwise += any(None in (each.predicted, each.happened) for each in differences)
            told.elsewhere += any(None not in (each.predicted, each.happened) for each in differences)
            wrong = [each for each in differences if each.cause.kind is not CauseKind.PODS]
            if wrong:
                told.wrong[seed] = "; ".join(f"{each.job} {each.fate.value}" for each in wrong)
    return told


def _commits(seed: int) -> Iterator[tuple[Difference, ...]]:
    """The commits of a seed, one after the other: the differences of each from its prediction."""
    history, random = draw_history(seed), Random(f"commits {seed}")
    first, repository = start(history.world), Repository(history.world)
    first.settle(repository.declared())
    cluster = SlowCluster(first, random, seed % (MOST_DELAY + 1))
    changes = [change for change in history.changes if change.kind in COMMITTED]
    while changes:
        count = random.randint(1, MOST_CHANGES)
        repository.commit(random, changes[:count])
        del changes[:count]
        tree, began_ms = repository.declared(), cluster.now_ms
        prediction = predict(tree, cluster.state(), began_ms)
        cluster.settle(tree)
        yield compare(prediction, cluster.state(), (), began_ms, cluster.on_the_way)
        cluster.now_ms += MINUTE_MS
