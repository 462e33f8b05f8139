"""The dashboard in a browser: live, without mistakes of accessibility, and without a request to another host."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped] # it has no types
from pictures import DRAWN, MOST_BYTES, PICTURES, draw, file_of, size_of
from playwright.sync_api import Browser, ConsoleMessage, Error, Page, Request, expect, sync_playwright
from serving import Scene, Site, serving

from gpuctl.adapters.dashboard.asking import Asking
from gpuctl.adapters.dashboard.past import Past
from gpuctl.views.clusters import ClusterView

PATIENCE_MS = 180_000
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
PATHS = (
    "/",
    "/projects",
    "/jobs",
    "/jobs/team-c/c-4-gg",
    "/nodes",
    "/queue",
    "/analytics",
    "/changes",
    "/what-if",
    "/nothing",
)

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: install Debian's package chromium"),
    pytest.mark.xdist_group("browser"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=PATIENCE_MS)
    quiet = ("--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run")
    with sync_playwright() as play:
        arguments = ["--no-sandbox", "--disable-gpu", *quiet]
        launched = play.chromium.launch(executable_path=CHROMIUM, args=arguments, timeout=PATIENCE_MS)
        yield launched
        launched.close()


class Visit:
    """A page in which anything that goes wrong is noted."""

    def __init__(self, page: Page, site: Site) -> None:
        self.page, self.site = page, site
        self.wrong: list[str] = []
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", self._failed)
        page.on("console", self._said)
        page.on("request", self._asked)

    def go(self, path: str) -> None:
        self.page.goto(self.site.url + path, wait_until="load")

    def _failed(self, error: Error) -> None:
        self.wrong.append(str(error))

    def _said(self, said: ConsoleMessage) -> None:
        if said.type == "error":
            self.wrong.append(said.text)

    def _asked(self, asked: Request) -> None:
        if not asked.url.startswith(self.site.url):
            self.wrong.append(asked.url)


@pytest.fixture
def visit(browser: Browser, story: Mapping[str, ClusterView]) -> Iterator[Visit]:
    with serving(story["4.8"]) as site:
        page = browser.new_page()
        yield Visit(page, site)
        page.close()


def test_the_report_is_followed_without_a_reload(visit: Visit, story: Mapping[str, ClusterView]) -> None:
    visit.go("/")
    page = visit.page
    pending = page.locator(".tiles div", has_text="Pending jobs").locator("dd")
    expect(pending).to_have_text("0")
    page.evaluate("window.mark = 1")
    visit.site.view = story["4.9"]
    expect(pending).to_have_text("2")
    expect(page.get_by_role("table", name="Pending Jobs")).to_contain_text("c-4-gg")
    visit.site.view = story["4.10"]
    expect(page.locator(".barline", has_text="team-a")).to_contain_text("8 of quota 4")
    assert page.evaluate("window.mark") == 1
    assert visit.wrong == []


def test_updates_can_be_paused(visit: Visit, story: Mapping[str, ClusterView]) -> None:
    visit.go("/")
    page = visit.page
    button = page.get_by_role("button", name="Pause updates")
    button.click()
    expect(button).to_have_attribute("aria-pressed", "true")
    visit.site.view = story["4.9"]
    page.wait_for_timeout(700)
    pending = page.locator(".tiles div", has_text="Pending jobs").locator("dd")
    expect(pending).to_have_text("0")
    button.click()
    expect(pending).to_have_text("2")


def test_a_filter_that_is_being_filled_in_is_left_alone(visit: Visit, story: Mapping[str, ClusterView]) -> None:
    visit.go("/jobs")
    page = visit.page
    page.get_by_label("Name").fill("c-4")
    visit.site.view = story["4.9"]
    page.wait_for_timeout(700)
    expect(page.get_by_label("Name")).to_have_value("c-4")
    page.get_by_label("Name").press("Enter")
    expect(page.get_by_role("table", name="Jobs").locator("tbody tr")).to_have_count(1)
    page.get_by_role("link", name="c-4-gg").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("team-c/c-4-gg")
    expect(page.locator(".facts")).to_contain_text("Preempted")


def test_the_chart_has_a_line_for_each_project(visit: Visit) -> None:
    visit.go("/analytics")
    legend = visit.page.locator(".u-legend .u-series")
    expect(legend).to_have_count(5)
    expect(legend.last).to_contain_text("team-d")
    assert visit.wrong == []


def test_the_past_is_drawn_and_narrowed_down_to_a_project_and_a_time(
    browser: Browser, story: Mapping[str, ClusterView], past: tuple[Past, int]
) -> None:
    known, now_ms = past
    with serving(replace(story["4.10"], at_ms=now_ms), past=known) as site:
        page = browser.new_page()
        visit = Visit(page, site)
        visit.go("/analytics?span=1h")
        charts = page.locator(".chart")
        expect(charts.locator("canvas")).to_have_count(5)
        expect(charts.first.locator(".u-series")).to_have_count(5)
        page.locator("#project").select_option("team-d")
        page.get_by_role("button", name="Show").press("Enter")
        expect(page.get_by_role("heading", name="Allocated against fair share and quota: team-d")).to_be_visible()
        assert "span=1h&project=team-d" in page.url
        box = charts.first.locator(".u-over").bounding_box()
        assert box is not None
        middle = box["y"] + box["height"] / 2
        page.mouse.move(box["x"] + box["width"] * 0.6, middle)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.9, middle, steps=5)
        page.mouse.up()
        page.get_by_role("link", name="Changes").click()
        expect(page.get_by_role("table", name="Commits")).to_contain_text("explained")
        visit.go("/jobs/team-b/b-4-gg")
        expect(page.get_by_role("table", name="What happened")).to_contain_text("Preempted")
        assert visit.wrong == []
        page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_are_accessible(
    browser: Browser, story: Mapping[str, ClusterView], past: tuple[Past, int], scheme: str
) -> None:
    known, now_ms = past
    with serving(replace(story["4.9"], at_ms=now_ms), past=known) as site:
        for width in (1280, 390):
            context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
            context.set_default_timeout(PATIENCE_MS)
            page = context.new_page()
            for path in PATHS:
                page.goto(site.url + path, wait_until="load")
                found = Axe().run(page)
                assert found.violations_count == 0, f"{path} {width} {found.generate_report()}"
                wider = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
                assert wider <= 0, f"{path} at {width}: {wider} px too wide"
            context.close()


def test_a_question_is_asked_by_the_keyboard(browser: Browser, scenes: Mapping[str, Scene], asking: Asking) -> None:
    with serving(scenes["4.8"].view, asking=asking) as site:
        schemes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
        for scheme in schemes:
            context = browser.new_context(viewport={"width": 390, "height": 900}, color_scheme=scheme)
            page = context.new_page()
            visit = Visit(page, site)
            visit.go("/what-if")
            page.locator("#project").select_option("team-d")
            page.locator("#job").fill("d-2-gg")
            page.locator("#gpus").fill("2")
            page.locator("#gpus").press("Enter")
            expect(page.get_by_role("heading", name="What would happen")).to_be_visible()
            expect(page.get_by_role("table", name="Loses")).to_contain_text("4-gg")
            assert Axe().run(page).violations_count == 0
            wider = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wider <= 0
            assert visit.wrong == []
            context.close()


def test_the_pictures_of_the_docs_can_be_drawn_anew(
    browser: Browser, scenes: Mapping[str, Scene], tmp_path: Path
) -> None:
    """As `python tests/dashboard/pictures.py` does: each is there, as large as it was."""
    draw(browser, scenes, tmp_path)
    page = (PICTURES.parent / "dashboard.md").read_text()
    for name in DRAWN:
        assert f"(pictures/{name}.png)" in page
        kept = file_of(name)
        assert size_of(file_of(name, tmp_path)) == size_of(kept)
        assert kept.stat().st_size < MOST_BYTES
