from __future__ import annotations

from gpuctl.model.decision import Placement, WorkerPlacement
from gpuctl.model.ids import JobId, NodeName, ProjectName
from gpuctl.views.bars import bars, teams
from gpuctl.views.story import Moment, News, ProjectCell, heading, moment_line, sentences
from gpuctl.views.styled import plain

A, B = ProjectName("team-a"), ProjectName("team-b")
N1, N2 = NodeName("n1"), NodeName("n2")


def place(node: NodeName, *gpus: int) -> Placement:
    return Placement(workers=(WorkerPlacement(node=node, gpus=gpus),))


def job(text: str) -> JobId:
    return JobId.parse(text)


def test_letters_are_the_last_of_the_names_where_those_differ() -> None:
    assert [team.letter for team in teams([A, B]).values()] == ["a", "b"]
    vision, nlp, version = ProjectName("vision"), ProjectName("nlp"), ProjectName("version")
    assert {name: team.letter for name, team in teams([vision, nlp, version]).items()} == {
        nlp: "a", version: "b", vision: "c",
    }  # fmt: skip


def test_each_device_shows_the_job_that_has_it() -> None:
    placements = [(A, place(N1, 0, 1)), (B, place(N1, 1)), (B, place(N2, 3))]
    assert [plain(line) for line in bars({N1: 4, N2: 4}, placements, teams([A, B]))] == ["a+..", "...b"]


def test_a_moment_is_one_line_below_its_heading() -> None:
    cells = (
        ProjectCell(name=A, allocated_milli=4000, quota_milli=2000, queued=0),
        ProjectCell(name=B, allocated_milli=500, quota_milli=2000, queued=3),
    )
    moment = Moment(nodes={N1: 4, N2: 4}, projects=cells, placements=((A, place(N1, 0, 1, 2, 3)), (B, place(N2, 0))))
    assert plain(heading(moment)) == "n1    n2    team-a   team-b   (GPUs/quota, +queued)"
    assert plain(moment_line(moment)).rstrip() == "aaaa  b...  4/2      0.5/2 +3"


def test_a_large_cluster_is_told_in_totals() -> None:
    cells = tuple(
        ProjectCell(name=ProjectName(f"p{n}"), allocated_milli=1000, quota_milli=2000, queued=1) for n in range(9)
    )
    moment = Moment(nodes={NodeName(f"n{n}"): 8 for n in range(9)}, projects=cells, placements=())
    assert plain(moment_line(moment)).rstrip() == "9/18 +9"


def test_sentences_tell_pauses_first_and_starts_together() -> None:
    news = [
        News(job=job("d/d-1"), started_on=("n1",)),
        News(job=job("d/d-2"), started_on=("n1",)),
        News(job=job("a/a-9"), started_on=("n2", "n1", "n2"), again=True),
        News(job=job("b/b-1"), paused=True, paused_for=job("d/d-1")),
        News(job=job("b/b-2"), paused=True),
        News(job=job("c/c-1"), queued=True),
        News(job=job("c/c-2"), ended="succeeded"),
        News(job=job("c/c-3"), gone=True),
    ]
    assert sentences(news) == (
        "b-1 is paused for d-1",
        "b-2 is paused",
        "c-3 is gone",
        "c-2 succeeded",
        "d-1 and d-2 start on n1",
        "a-9 runs again on n1 and n2",
        "c-1 waits",
    )
