"""What if, and plans of branches: the plan is shown, and nothing is written."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from html import unescape
from pathlib import Path
from threading import Thread
from urllib.parse import urlencode

import pytest
from serving import Scene, Site, serving

from gpuctl.adapters.dashboard.asking import Asking, InClone
from gpuctl.adapters.git import GitSource
from gpuctl.app.ports import SourceUnavailable
from gpuctl.model.ids import NO_REVISION, Revision
from gpuctl.model.state import RawObjects

EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture
def site(asking: Asking, scenes: Mapping[str, Scene]) -> Iterator[Site]:
    with serving(scenes["4.8"].view, asking=asking) as served:
        yield served


def what_if(site: Site, **asked: str) -> str:
    status, html = site.get(f"/what-if?{urlencode(asked)}")
    assert status == 200
    return unescape(html)


def test_one_more_job_shows_what_it_would_pause(site: Site, repository: Path) -> None:
    """The first step of the report's section 4.9, before it is made."""
    before = {file: file.read_bytes() for file in repository.rglob("*") if file.is_file()}
    html = what_if(site, project="team-d", job="d-2-gg", gpus="2")
    losses = html[html.index("Loses: 1") : html.index("Starts")]
    assert re.search(r"team-[bc]/[bc]-4-gg", losses)
    assert "team-d/d-2-gg" in html[html.index("Starts") :]
    assert {file: file.read_bytes() for file in repository.rglob("*") if file.is_file()} == before


def test_a_quota_shows_the_projects_it_changes(site: Site) -> None:
    html = what_if(site, project="team-d", quota="6")
    row = re.search(r'<tr><th scope="row">team-d</th>(.*?)</tr>', html)
    assert row is not None
    assert "8" in row[1]
    assert "6" in row[1]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"project": "team-d", "job": "a-1-g", "gpus": "x"}, "GPU"),
        ({"project": "team-d", "job": "UPPER"}, "GPU"),
        ({"project": "team-d", "quota": "-1"}, "GPU"),
        ({"project": "team-d", "quota": "1e999999999"}, "GPU"),
        ({"project": "team-d", "quota": "{a: b}"}, "GPU"),
        ({"project": "team-x", "quota": "1"}, "There is no such project"),
        ({"project": "team-d", "job": "../../x"}, "GPU"),
        ({"project": "team-d", "quota": EVIL}, "GPU"),
    ],
)
def test_what_makes_no_sense_is_told_as_the_compiler_does(site: Site, asked: Mapping[str, str], words: str) -> None:
    status, html = site.get(f"/what-if?{urlencode(asked)}")
    assert (status, words in html, "<img" in html) == (200, True, False)
    assert 'role="alert"' in html


def test_a_branch_is_planned_and_nothing_but_a_branch(site: Site) -> None:
    assert "<option>more</option>" in site.get("/changes")[1]
    status, html = site.get("/plan?branch=more")
    assert status == 200
    assert "team-b" in html
    for wrong in ("HEAD~1", "--all", "main..more", EVIL, ""):
        assert site.get(f"/plan?{urlencode({'branch': wrong})}")[0] == 404


def test_one_answer_is_made_at_a_time(asking: Asking, scenes: Mapping[str, Scene]) -> None:
    inner: list[int] = []
    with serving(scenes["4.8"].view, asking=asking) as site:

        def objects() -> RawObjects:
            other = Thread(target=lambda: inner.append("try again" in site.get("/what-if?project=team-d&quota=5")[1]))
            other.start()
            other.join()
            return scenes["4.8"].objects

        asking._objects = objects
        assert "What would happen" in what_if(site, project="team-d", quota="7")
        assert inner == [True]
        assert "What would happen" in what_if(site, project="team-d", quota="7")  # kept
        assert inner == [True]


def test_without_declarations_the_page_says_so(scenes: Mapping[str, Scene]) -> None:
    with serving(scenes["4.8"].view) as site:
        assert "The declarations are not known here" in site.get("/what-if")[1]
        assert site.get("/plan?branch=main")[0] == 404


def test_a_controllers_clone_has_the_commit_that_it_enforces(repository: Path, tmp_path: Path) -> None:
    source = GitSource(str(repository), "c", "main", tmp_path / "work")
    head = source.head()
    known: list[Revision] = [head]
    declarations = InClone(source.clone, source.path, lambda: known[0])
    assert declarations.newest().files.keys() == source.tree(head).files.keys()
    assert declarations.branches() == ()
    known[0] = NO_REVISION
    with pytest.raises(SourceUnavailable):
        declarations.newest()
