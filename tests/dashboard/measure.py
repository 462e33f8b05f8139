"""What the dashboard costs at 10,000 jobs: `python tests/dashboard/measure.py` prints it as JSON.

The objects are those of `gpuctl bench cycle`'s cluster at rest. They are handed to the process of the pages as a
controller does, and Chromium looks at the pages. CPU is that process' own, user and system; times in the browser are
wall time, so they say more on a machine at rest.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.request import urlopen

from playwright.sync_api import Browser, sync_playwright

from gpuctl.adapters.dashboard.process import DashboardProcess, Site
from gpuctl.app.bench.compile import PROJECTS, bench_tree, compiled_bench
from gpuctl.app.cycle import CycleContext, converge
from gpuctl.app.object_cache import ObjectCache
from gpuctl.app.viewing import Sight
from gpuctl.model.ids import ObjectRef
from gpuctl.model.state import Body, RawObjects
from gpuctl.wiring import sandbox

PATHS = ("/", "/projects", "/jobs", "/nodes", "/queue")
VIEWS = 20
"""Of each page, one after the other."""
CHANGES = 5
CROWD = 20
"""Viewers that each ask for the overview again at every change."""
_TICKS = os.sysconf("SC_CLK_TCK")
_CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
_SEEN = """() => {
  const seen = window.seen = {updates: [], tasks: []};
  let told = 0;
  document.body.addEventListener("htmx:sseMessage", () => { told = performance.now(); });
  document.body.addEventListener("htmx:afterSettle", () => { seen.updates.push(performance.now() - told); });
  new PerformanceObserver((list) => list.getEntries().forEach((each) => seen.tasks.push(each.duration)))
    .observe({type: "longtask", buffered: true});
}"""


class World:
    """The objects of a cluster at rest, of which one node is closed and opened again by `change`."""

    def __init__(self, jobs: int) -> None:
        box = sandbox(1_596_000_000_000)
        declared = compiled_bench(bench_tree(jobs, PROJECTS), jobs)
        box.machines.provide(declared.cluster.pools)
        cache = ObjectCache(box.cluster)
        converge(declared, CycleContext(object_cache=cache, clock=box.time, settle=box.world.settle))
        cache.refresh()
        self._objects: dict[ObjectRef, Body] = dict(cache.objects().objects)
        self._node = next(ref for ref in self._objects if ref.kind == "Node")
        self._changes = 0
        self.nodes = sum(ref.kind == "Node" for ref in self._objects)
        self.count = len(self._objects)

    def change(self) -> None:
        body, self._changes = self._objects[self._node], self._changes + 1
        metadata = {**body["metadata"], "resourceVersion": f"changed-{self._changes}"}
        spec = {**body.get("spec", {}), "unschedulable": self._changes % 2 == 1}
        self._objects[self._node] = {**body, "metadata": metadata, "spec": spec}

    def sight(self) -> Sight:
        return Sight(at_ms=time.time_ns() // 1_000_000, objects=RawObjects(objects=dict(self._objects)))


class Measured:
    """The process of the pages, fed every quarter of a second."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.process = DashboardProcess(Site(title="bench", address="127.0.0.1:0"), self._ended, tuple[Body, ...])
        self.url = f"http://127.0.0.1:{self.process.port}"
        self._over = Event()
        self._feeding = Thread(target=self._feed, daemon=True)
        self._feeding.start()

    def close(self) -> None:
        self._over.set()
        self._feeding.join()
        self.process.close()

    def _ended(self, why: str) -> None:
        sys.stderr.write(f"the process of the pages has ended: {why}\n")

    def _feed(self) -> None:
        while not self._over.wait(0.25):
            self.process.offer(self.world.sight())

    def get(self, path: str) -> bytes:
        with urlopen(self.url + path, timeout=60) as answer:
            return bytes(answer.read())

    def cpu_ms(self) -> int:
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * 1000 // _TICKS

    def memory_mib(self, field: str) -> int:
        lines = Path(f"/proc/{self._pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) // 1024 for line in lines if line.startswith(field))

    @property
    def _pid(self) -> int:
        assert self.process._process is not None
        return self.process._process.pid

    def await_jobs(self) -> None:
        until = time.monotonic() + 120
        while b"<dt>Total GPUs</dt><dd>0</dd>" in (html := self.get("/")) or b"has not read" in html:
            assert time.monotonic() < until
            time.sleep(0.2)


def views(site: Measured) -> Iterator[tuple[str, Mapping[str, int]]]:
    for path in PATHS:
        site.get(path)
        began, size = site.cpu_ms(), 0
        for _ in range(VIEWS):
            size = len(site.get(path))
        yield path, {"bytes": size, "cpu_us": (site.cpu_ms() - began) * 1000 // VIEWS}


@contextmanager
def listening(site: Measured, told: Callable[[], object]) -> Iterator[None]:
    """An open page: it hears of each change."""

    def listen() -> None:
        with urlopen(f"{site.url}/events", timeout=60) as answer:
            opened.set()
            for line in answer:
                if over.is_set():
                    return
                if line.startswith(b"event: changed"):
                    told()

    opened, over = Event(), Event()
    Thread(target=listen, daemon=True).start()
    opened.wait(10)
    yield
    over.set()


def change_cpu_ms(site: Measured, heard: Event) -> int:
    """Of the process, for each change, from when it is made until a viewer has heard of it."""
    began = site.cpu_ms()
    for _ in range(CHANGES):
        heard.clear()
        site.world.change()
        # Two changes that are taken in together are none: on a busy machine another one is made.
        while not heard.wait(20):
            site.world.change()
    time.sleep(3)  # the crowd asks, and is answered
    return (site.cpu_ms() - began) // CHANGES


def in_browser(site: Measured, browser: Browser) -> Iterator[tuple[str, Mapping[str, int]]]:
    for path in PATHS:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(site.url + path, wait_until="load")
        page.evaluate(_SEEN)
        for number in range(3):
            page.wait_for_timeout(500)
            site.world.change()
            page.wait_for_function(f"() => window.seen.updates.length > {number}", timeout=60_000)
        seen = page.evaluate("() => window.seen")
        paint = "() => performance.getEntriesByName('first-contentful-paint')[0].startTime"
        yield (
            path,
            {
                "first_paint_ms": round(page.evaluate(paint)),
                "update_ms": round(sorted(seen["updates"])[len(seen["updates"]) // 2]) if seen["updates"] else 0,
                "longest_task_ms": round(max(seen["tasks"], default=0)),
                "heap_kib": page.evaluate("() => performance.memory.usedJSHeapSize") // 1024,
            },
        )
        page.close()


def measured(jobs: int) -> Mapping[str, Any]:
    world = World(jobs)
    with closing(Measured(world)) as site:
        site.await_jobs()
        taken = {"cpu_ms": site.cpu_ms(), "rss_mib": site.memory_mib("VmRSS")}
        pages: dict[str, dict[str, int]] = {path: dict(found) for path, found in views(site)}
        heard = Event()
        with listening(site, heard.set):
            alone = change_cpu_ms(site, heard)
            viewers = [listening(site, lambda: site.get("/")) for _ in range(CROWD)]
            for viewer in viewers:
                viewer.__enter__()
            crowd = change_cpu_ms(site, heard)
            for viewer in viewers:
                viewer.__exit__(None, None, None)
        with sync_playwright() as play:
            browser = play.chromium.launch(executable_path=_CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
            for path, found in in_browser(site, browser):
                pages[path] |= found
            browser.close()
        peak = site.memory_mib("VmHWM")
    return {
        "jobs": jobs,
        "nodes": world.nodes,
        "objects": world.count,
        "taken_in": taken,
        "peak_mib": peak,
        "pages": pages,
        "change_cpu_ms": alone,
        "crowd": CROWD,
        "change_cpu_ms_with_crowd": crowd,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measured(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)) + "\n")
