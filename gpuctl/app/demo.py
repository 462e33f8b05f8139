"""`demo`: the story of NetApp TR-4858, told by commits. Each commit is fetched, compiled and reconciled like any other.

The story is in `story.yaml` beside this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gpuctl.app.narrative import moment, news
from gpuctl.app.play import Play, Venue
from gpuctl.app.ports import Source, Workshop
from gpuctl.app.revisions import Revisions
from gpuctl.compile.scenario_v1 import CommitV1, SectionV1, read_story
from gpuctl.model.declared import Declared
from gpuctl.model.ids import Revision
from gpuctl.model.units import DurationMs, Instant
from gpuctl.observe import Records, read_ledgers
from gpuctl.simulate.expect import evaluate
from gpuctl.simulate.reading import expectation
from gpuctl.simulate.report import Checkpoint, Outcome, SimulationReport
from gpuctl.simulate.scenario import Expectation
from gpuctl.views.story import Moment, News

COMMIT_EVERY_MS: DurationMs = 60_000
STORY = "story.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One commit and its effect. `took_ms`: from the commit until the last run had started or stopped."""

    text: str
    revision: Revision
    at_ms: Instant
    took_ms: DurationMs
    moment: Moment
    news: tuple[News, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """The beginning of a section."""

    label: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The end of a section, with the outcomes of its expectations."""

    label: str
    checkpoint: Checkpoint
    outcomes: tuple[Outcome, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Where the story is played. `example` reads a file of the example cluster by its path there.

    `begin` creates the play. A commit comes every `every_ms`; if that is 0, as soon as the one before has settled.
    """

    example: Callable[[str], bytes]
    workshop: Workshop
    source: Source
    venue: Venue
    begin: Callable[[Venue, Declared, Instant], Play] = Play
    every_ms: DurationMs = COMMIT_EVERY_MS


class Demo:
    """Plays the story. `steps` yields it commit by commit; `report` returns all of it afterwards."""

    def __init__(self, story: bytes, stage: Stage) -> None:
        self._story, self._document = read_story(STORY, story)
        self._stage = stage
        self._revisions = Revisions(stage.source)
        self._play: Play | None = None
        self._zero_ms = stage.venue.time.now_ms()
        self._commits = 0
        self._outcomes: list[Outcome] = []

    def steps(self) -> Iterator[Opening | Step | Ending]:
        """Play the story, commit by commit. Raises SourceUnavailable."""
        for number, section in enumerate(self._story.sections):
            yield Opening(label=section.label, title=section.title)
            for position, commit in enumerate(section.commits):
                last = position == len(section.commits) - 1
                yield self._step(commit, section.label if last else commit.text)
            yield self._ending(section, number)

    def report(self) -> SimulationReport:
        """The report of all that happened."""
        play = self._play
        return SimulationReport(
            name="demo",
            why="NetApp TR-4858, sections 4.8 to 4.10, from Git commits",
            checkpoints=tuple(play.checkpoints) if play else (),
            transitions=tuple(play.observer.transitions) if play else (),
            outcomes=tuple(self._outcomes),
            cycles=play.cycles if play else 0,
            stable=play is not None and play.stable,
        )

    def _step(self, commit: CommitV1, label: str) -> Step:
        stage = self._stage
        at_ms = max(self._zero_ms + self._commits * stage.every_ms, stage.venue.time.now_ms())
        self._commits += 1
        revision = self._commit(commit, at_ms)
        play = self._reconcile(at_ms)
        play.revision = revision
        before = len(play.observer.transitions)
        play.pass_until(at_ms + COMMIT_EVERY_MS - 1, label)
        checkpoint = play.checkpoints[-1]
        return Step(
            text=commit.text,
            revision=revision,
            at_ms=at_ms - self._zero_ms,
            took_ms=checkpoint.at_ms - (at_ms - self._zero_ms),
            moment=moment(checkpoint),
            news=news(play.observer.transitions[before:], checkpoint),
        )

    def _commit(self, commit: CommitV1, at_ms: Instant) -> Revision:
        folder, workshop = self._story.example, self._stage.workshop
        for path in commit.take:
            workshop.write(f"{folder}/{path}", self._stage.example(path))
        for path, text in commit.write.items():
            workshop.write(f"{folder}/{path}", text.encode())
        for path in commit.remove:
            workshop.remove(f"{folder}/{path}")
        return workshop.commit(commit.text, at_ms)

    def _reconcile(self, at_ms: Instant) -> Play:
        """Fetch, compose the declarations to enforce, and hand them to the play."""
        declared = self._declared()
        if self._play is None:
            self._play = self._stage.begin(self._stage.venue, declared, self._zero_ms)
        else:
            self._play.move_to(at_ms)
            self._play.declare(declared)
        return self._play

    def _declared(self) -> Declared:
        source = self._stage.source
        records = read_ledgers(self._play.context.object_cache.objects().objects) if self._play else Records()
        desired = self._revisions.compose(source.tree(source.head()), records)
        if desired.declared is None:
            raise AssertionError(f"the story's commits are right: {desired.diagnostics}")
        return desired.declared

    def _ending(self, section: SectionV1, number: int) -> Ending:
        play = self._play
        if play is None:
            raise AssertionError("a section has commits")
        checkpoint = play.checkpoints[-1]
        outcomes = evaluate(self._expected(section, number), lambda _: checkpoint, play.observer.transitions)
        told = tuple(_labelled(outcome, section.label) for outcome in outcomes)
        self._outcomes += told
        return Ending(label=section.label, checkpoint=checkpoint, outcomes=told)

    def _expected(self, section: SectionV1, number: int) -> tuple[Expectation, ...]:
        return tuple(
            expectation(expect, self._document, ("sections", number, "expect", index))
            for index, expect in enumerate(section.expect)
        )


def _labelled(outcome: Outcome, label: str) -> Outcome:
    return Outcome(at=label, path=outcome.path, want=outcome.want, got=outcome.got, ok=outcome.ok)
