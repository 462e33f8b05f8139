"""What the pages show of the past: timelines, trends, and the commits that were taken up."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from serving import Scene, Site, serving

from gpuctl.adapters.clock import VirtualClock
from gpuctl.adapters.dashboard.charts import chart
from gpuctl.adapters.dashboard.past import SPANS, Past
from gpuctl.adapters.git import code_host_page
from gpuctl.adapters.history.keeper import HistoryFile
from gpuctl.adapters.history.trends import MOST_LINES, read_trends
from gpuctl.app.history import Facts
from gpuctl.model.history import ALL, HOUR_MS, MINUTE_MS, Period, Trends
from gpuctl.model.ids import JobId, ProjectName
from gpuctl.views.clusters import ClusterView
from gpuctl.views.trends import uses


@pytest.fixture
def site(past: tuple[Past, int], story: Mapping[str, ClusterView]) -> Iterator[Site]:
    known, now_ms = past
    with serving(replace(story["4.10"], at_ms=now_ms), past=known, repository="https://git.example.com/gpus") as served:
        yield served


def lines(site: Site, name: str, address: str = "?span=1h") -> dict[str, list[float | None]]:
    status, found = site.get(f"/api/{name}{address}")
    assert status == 200
    return {line["name"]: line["values"] for line in json.loads(found)["lines"]}


def test_the_chart_of_the_report_is_drawn(site: Site) -> None:
    """a 4->4->8, b 4->2->4, c 4->2->4, d 4->8->0, minute by minute."""
    drawn = lines(site, "allocation")
    told = {name: [value for value in values if value is not None] for name, values in drawn.items()}
    assert {name: (values[5], values[15], values[25]) for name, values in told.items()} == {
        "team-a": (4, 4, 8), "team-b": (4, 2, 4), "team-c": (4, 2, 4), "team-d": (4, 8, 0),
    }  # fmt: skip
    assert drawn["team-a"][0] is None  # before that nothing was observed
    idle = lines(site, "gpus")
    assert [values[-3] for values in idle.values()] == [16, 16, 0, 0]
    share = lines(site, "share", "?span=1h&project=team-a")
    assert [values[-3] for values in share.values()] == [8, 3, 4, 0]
    works = lines(site, "utilisation")
    assert {name: values[-3] for name, values in works.items()} == {"(all)": 25, "team-a": 25}
    assert works["team-a"][0] is None
    assert site.get("/api/nothing?span=1h")[0] == 404


def test_where_idle_gpus_are_not_measured_the_chart_has_a_gap() -> None:
    """It drew 0, where the table has a dash."""
    rows = [
        Period(at_ms=0, project=ALL, observed_ms=MINUTE_MS, held_milli_s=240_000, gpus_milli_s=480_000),
        Period(at_ms=MINUTE_MS, project=ALL, observed_ms=MINUTE_MS, held_milli_s=240_000, measured_milli_s=240_000),
    ]
    drawn = chart(Trends(since_ms=0, until_ms=2 * MINUTE_MS, step_ms=MINUTE_MS, periods=tuple(rows)), "gpus")
    assert drawn is not None
    found = {line["name"]: line["values"] for line in cast("list[dict[str, Any]]", drawn["lines"])}
    assert (found["idle, allocated"], found["allocated"]) == ([None, 0], [4, 4])


def test_gpu_hours_and_waits_are_a_table_and_csv(site: Site) -> None:
    _, html = site.get("/analytics?span=1h&project=team-a")
    assert html.count('class="chart"') == 5
    assert '<th scope="row"><a href="/jobs?project=team-a">team-a</a></th><td class="amount">2.67</td>' in html
    _, csv = site.get("/api/gpu-hours.csv?span=1h")
    header, *rows = [line.split(",") for line in csv.splitlines()]
    table = {row[2]: dict(zip(header, row, strict=True)) for row in rows}
    assert int(table["team-a"]["gpu_hours_milli"]) == (20 * 4_000 + 10 * 8_000) // 60
    assert (table["team-a"]["measured_milli_s"], table["team-b"]["measured_milli_s"]) == (str(600 * 16_000), "0")
    assert int(table["team-a"]["busy_milli_s"]) == 600 * 4_000
    assert table["(all)"]["gpu_hours_milli"] == "8000"
    assert int(table["team-b"]["pauses"]) == 1


def test_a_jobs_timeline_has_each_decision_with_its_reason_commit_and_author(site: Site) -> None:
    _, html = site.get("/jobs/team-b/b-4-gg")
    assert html.index("Preempted</span></td>") > html.index('<span class="status')
    assert '<a href="https://git.example.com/gpus/commit/cccccccc' in html
    assert "Eve &lt;img src=x" in html
    assert re.search(r"Preempted</span></td>.*paused for <a href=\"/jobs/team-d/d-[23]-gg\">", html)
    _, gone = site.get("/jobs/team-d/d-1-gggg")
    assert "It is not in the cluster now." in gone
    assert "Deleted" in gone
    assert site.get("/jobs/team-d/never-there")[0] == 404


def test_what_commits_say_cannot_become_markup(site: Site) -> None:
    for path in ("/changes", "/jobs/team-b/b-4-gg", "/analytics?span=%3Cimg&project=%3Cimg%20src%3E"):
        status, html = site.get(path)
        assert status == 200
        assert "<img" not in html
        assert not any(mark in html for mark in ("\x1b", "\u202e", ">49<", "} 49"))
    assert "explained" in site.get("/changes")[1]
    assert "started: team-a/a-1-g" in site.get("/changes")[1]


def test_each_span_gives_at_most_so_many_points_and_empty_times_are_gaps(site: Site) -> None:
    for span in SPANS:
        status, found = site.get(f"/api/allocation?span={span}")
        drawn = json.loads(found)
        assert status == 200
        assert len(drawn["at"]) <= 361
        assert all(len(line["values"]) == len(drawn["at"]) for line in drawn["lines"])
    assert json.loads(site.get("/api/waits?span=1h")[1])["lines"][0]["name"].startswith("mean wait")


def test_many_projects_share_a_chart(tmp_path: Path, scenes: Mapping[str, Scene]) -> None:
    """Twenty have lines of their own, and what the others hold is a line too."""
    file, scene = tmp_path / "h.db", scenes["4.8"]
    runs = [
        replace(job.run, job=JobId(ProjectName(f"p-{number:02}-{job.id.project}"), job.id.name))
        for number in range(10)
        for job in scene.view.jobs
    ]
    with closing(HistoryFile(file)) as keeper:
        for minute in range(3):
            keeper.offer(Facts(at_ms=HOUR_MS + minute * MINUTE_MS, runs=tuple(runs), ledgers={}))
            keeper.settle()
    trends = read_trends(file, HOUR_MS, HOUR_MS + 3 * MINUTE_MS)
    assert len(trends.totals) == 41
    assert len({row.project for row in trends.periods} - {ALL}) == MOST_LINES
    assert len(uses(trends)) == 41
    chosen = read_trends(file, HOUR_MS, HOUR_MS + 3 * MINUTE_MS, ProjectName("p-09-team-d"))
    assert "p-09-team-d" in {row.project for row in chosen.periods}


def test_without_a_history_pages_say_so(story: Mapping[str, ClusterView], tmp_path: Path) -> None:
    with serving(story["4.8"], past=Past(tmp_path / "none", VirtualClock(0))) as site:
        for path in ("/changes", "/analytics", "/jobs/team-a/a-1-g"):
            status, html = site.get(path)
            assert status == 200
            assert "no history here" in html
        assert site.get("/api/gpu-hours.csv")[0] == 404
        (tmp_path / "none").write_text("no database")
        assert "GPU7087" in site.get("/analytics")[1]


@pytest.mark.parametrize(
    ("url", "page"),
    [
        ("https://ann:secret@git.example.com:8443/a/gpus.git", "https://git.example.com:8443/a/gpus"),
        ("git@git.example.com:gpus.git", ""),
        ("/srv/gpus", ""),
        ("ssh://git@git.example.com/gpus.git", ""),
    ],
)
def test_links_lead_to_the_repositorys_https_address_alone(url: str, page: str) -> None:
    assert code_host_page(url) == page
