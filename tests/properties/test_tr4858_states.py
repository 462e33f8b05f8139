"""The report's three states, however the jobs arrive and whatever they are called."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tr4858 import QUOTAS, SECTION_4_8, SECTION_4_9, SECTION_4_10, story_job
from worlds import World, declared, job, live_nodes, pool, project

from gpuctl.model.declared import Declared
from gpuctl.model.ids import JobId, ProjectName
from gpuctl.model.job import Job

UNTOUCHED = set(SECTION_4_8) - {"team-b/b-4-gg", "team-c/c-4-gg"}
Names = dict[str, str]
SAME: Names = {}


class Story:
    """The report under other names; it asks and answers in the report's own."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.back = {new: old for old, new in names.items()}
        self.world = World(nodes=live_nodes([pool()]))
        self.declared_jobs: list[str] = []

    def tree(self) -> Declared:
        teams = [project(self.names.get(team, team), quota) for team, quota in QUOTAS.items()]
        return declared(teams, [self.job(name) for name in self.declared_jobs])

    def job(self, name: str) -> Job:
        plain = story_job(name)
        new = self.names.get(name, name)
        return job(new, plain.gpu_milli, kind=plain.type)

    def arrive(self, names: list[str], *, together: bool, wait_ms: int = 1_200) -> None:
        for batch in [names] if together else [[name] for name in names]:
            self.declared_jobs += batch
            self.world.settle(self.tree())
            self.world.now_ms += wait_ms

    def leave(self, team: str) -> None:
        self.declared_jobs = [name for name in self.declared_jobs if not name.startswith(team + "/")]
        self.world.settle(self.tree())

    def old(self, name: str) -> str:
        return self.back.get(name, name)

    def gpus(self) -> dict[str, int]:
        return {self.old(team): milli for team, milli in self.world.allocated().items()}

    def queued(self) -> set[str]:
        return set(self.declared_jobs) - {self.old(name) for name in self.world.running()}

    def starts(self) -> dict[str, int]:
        return {self.old(name): count for name, count in self.world.starts().items()}

    def places(self) -> dict[str, object]:
        return {self.old(str(run.job)): run.placement for run in self.world.runs.values()}


def tell(story: Story, sections: list[list[str]], *, together: bool) -> None:
    """Play the report and check every state it shows."""
    story.arrive(sections[0], together=together)
    assert story.gpus() == {"team-a": 4000, "team-b": 4000, "team-c": 4000, "team-d": 4000}
    assert story.queued() == set()
    assert set(story.starts().values()) == {1}
    shared = {str(place) for name, place in story.places().items() if SECTION_4_8[name] < 1000}
    assert len(shared) == 2, "five fractions of two GPUs in all are on exactly two devices"
    places = story.places()

    story.arrive(sections[1], together=together)
    assert story.gpus() == {"team-a": 4000, "team-b": 2000, "team-c": 2000, "team-d": 8000}
    assert story.queued() == {"team-b/b-4-gg", "team-c/c-4-gg"}
    victims = {(story.old(str(victim)), story.old(str(gainer))) for victim, gainer in story.world.paused}
    assert {victim for victim, _ in victims} == {"team-b/b-4-gg", "team-c/c-4-gg"}
    assert {gainer for _, gainer in victims} == set(SECTION_4_9)
    assert len(story.world.paused) == 2
    assert all(story.starts()[name] == 1 and story.places()[name] == places[name] for name in UNTOUCHED)

    story.arrive(sections[2], together=together)
    assert {name[:6] for name in story.queued()} == {"team-a", "team-b", "team-c"}
    assert len(story.queued()) == 6
    story.leave("team-d")
    assert story.gpus() == {"team-a": 8000, "team-b": 4000, "team-c": 4000}
    assert story.queued() == {"team-b/b-5-gg", "team-c/c-6-gg"}
    starts = story.starts()
    assert starts["team-b/b-4-gg"] == starts["team-c/c-4-gg"] == 2
    kept = UNTOUCHED - {"team-d/d-1-gggg"}
    assert all(starts[name] == 1 and story.places()[name] == places[name] for name in kept)
    assert starts["team-a/a-3-gg"] == starts["team-a/a-4-gg"] == 1


@pytest.mark.parametrize("together", [False, True])
def test_in_the_report_s_order(*, together: bool) -> None:
    tell(Story(SAME), [list(SECTION_4_8), list(SECTION_4_9), list(SECTION_4_10)], together=together)


def test_in_the_report_s_order_c_4_gg_is_paused_first() -> None:
    story = Story(SAME)
    story.arrive(list(SECTION_4_8), together=False)
    story.arrive(list(SECTION_4_9), together=False)
    assert [str(victim) for victim, _ in story.world.paused] == ["team-c/c-4-gg", "team-b/b-4-gg"]


@st.composite
def renamings(draw: st.DrawFn) -> Names:
    """New names for teams and jobs, in no particular order."""
    words = draw(st.permutations(["ant", "bee", "cat", "dog"]))
    teams = dict(zip(QUOTAS, words, strict=True))
    every = [*SECTION_4_8, *SECTION_4_9, *SECTION_4_10]
    numbers = draw(st.permutations(range(len(every))))
    jobs = {
        name: str(JobId(ProjectName(teams[name.partition("/")[0]]), f"j{number:02d}"))
        for name, number in zip(every, numbers, strict=True)
    }
    return teams | jobs


@given(
    renamings(),
    st.permutations(list(SECTION_4_8)),
    st.permutations(list(SECTION_4_9)),
    st.permutations(list(SECTION_4_10)),
)
@settings(max_examples=60)
def test_each_section_at_once_in_any_order_under_any_names(
    names: Names, first: list[str], second: list[str], third: list[str]
) -> None:
    tell(Story(names), [first, second, third], together=True)


@given(renamings())
@settings(max_examples=20)
def test_one_by_one_under_any_names(names: Names) -> None:
    tell(Story(names), [list(SECTION_4_8), list(SECTION_4_9), list(SECTION_4_10)], together=False)
