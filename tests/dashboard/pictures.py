"""Draws the pictures of docs/dashboard.md: `.venv/bin/python tests/dashboard/pictures.py`, which needs Chromium.

They are of the report's story on the embedded cluster, each a file of docs/pictures.
"""

from __future__ import annotations

import shutil
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright
from scenes import scenes_of_the_story, write_repository
from serving import Scene, Site, serving
from yesterday import past_of

from gpuctl.adapters.clock import VirtualClock
from gpuctl.adapters.dashboard.asking import Asking, InFolder

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
MOST_BYTES = 150_000
LABEL = "4.9"
"""The section of the report that is shown: two jobs are paused, and wait."""


@dataclass(frozen=True)
class Picture:
    """A page in a window, from its top down. `asks`: the form of What if is filled in."""

    path: str
    width: int
    height: int
    scheme: Literal["light", "dark"] = "light"
    asks: bool = False


PATIENCE_MS = 180_000
DRAWN = {
    "dashboard": Picture("/", 1280, 860),
    "dashboard-phone": Picture("/", 390, 844, "dark"),
    "dashboard-analytics": Picture("/analytics?span=1h", 1280, 590),
    "dashboard-what-if": Picture("/what-if", 1280, 700, asks=True),
}


def file_of(name: str, folder: Path = PICTURES) -> Path:
    """Where a picture is."""
    return folder / f"{name}.png"


def size_of(file: Path) -> tuple[int, int]:
    """The width and height of a PNG, by its header."""
    width, height = struct.unpack(">II", file.read_bytes()[16:24])
    return width, height


def draw(browser: Browser, scenes: Mapping[str, Scene], folder: Path) -> None:
    """Write all pictures to a folder. Analytics shows the end of the story, the others what LABEL says."""
    with TemporaryDirectory() as made:
        past, now_ms = past_of(scenes, Path(made) / "history.db")
        write_repository(Path(made) / "repository")
        before, now = scenes["4.8"], scenes[LABEL].published
        asking = Asking(InFolder(Path(made) / "repository/c"), lambda: before.objects, VirtualClock(before.view.at_ms))
        with serving(now, asking=asking, title="tr4858") as site:
            for name in set(DRAWN) - {"dashboard-analytics"}:
                draw_one(browser, site, name, folder)
        with serving(replace(now, at_ms=now_ms), past=past, title="tr4858") as site:
            draw_one(browser, site, "dashboard-analytics", folder)


def draw_one(browser: Browser, site: Site, name: str, folder: Path) -> None:
    """Write one picture."""
    picture = DRAWN[name]
    window: ViewportSize = {"width": picture.width, "height": picture.height}
    page = browser.new_page(viewport=window, color_scheme=picture.scheme)
    page.set_default_timeout(PATIENCE_MS)
    page.goto(site.url + picture.path, wait_until="load")
    if picture.asks:
        ask(page)
    page.screenshot(path=file_of(name, folder))
    page.close()


def ask(page: Page) -> None:
    """What if team-d had one more job of two GPUs?"""
    page.locator("#project").select_option("team-d")
    page.locator("#job").fill("d-2-gg")
    page.locator("#gpus").fill("2")
    page.locator("#gpus").press("Enter")
    page.get_by_role("heading", name="What would happen").wait_for()


def main(folder: Path) -> None:
    """Draw them anew."""
    with TemporaryDirectory() as made, sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-lcd-text"])
        draw(browser, scenes_of_the_story(Path(made)), folder)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURES)
