"""The addresses of the dashboard. Only GET and HEAD are served."""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TypeAlias

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from gpuctl.adapters.dashboard.feed import Feed
from gpuctl.adapters.dashboard.guarding import Access, Guard
from gpuctl.adapters.dashboard.listening import MOST_LISTENERS, Listeners
from gpuctl.adapters.dashboard.listing import Query, in_turn, jobs_page, nodes_page
from gpuctl.adapters.dashboard.pages import Pages
from gpuctl.k8s.timestamps import format_timestamp
from gpuctl.model.ids import JobId
from gpuctl.model.units import Instant

Now: TypeAlias = Callable[[], Instant]

_FRESH = {"cache-control": "no-store"}


class Routes:
    """What is answered at each address, from what the feed has read last. Safe for threads."""

    def __init__(self, feed: Feed, pages: Pages, now: Now) -> None:
        self._feed = feed
        self._pages = pages
        self._now = now
        self._listeners = Listeners()

    def application(self, access: Access) -> Starlette:
        """All of it as an ASGI application."""
        return Starlette(
            routes=[
                Route("/", self.overview),
                Route("/projects", self.projects),
                Route("/jobs", self.jobs),
                Route("/jobs/{project}/{name}", self.job),
                Route("/nodes", self.nodes),
                Route("/queue", self.queue),
                Route("/analytics", self.analytics),
                Route("/api/allocation", self.allocation),
                Route("/api/allocation.csv", self.allocation_csv),
                Route("/events", self.events),
                Route("/healthz", self.healthz),
                Mount("/static", StaticFiles(packages=[("gpuctl.adapters.dashboard", "static")])),
            ],
            lifespan=self._lifespan,
            exception_handlers={HTTPException: self.failed, 500: self.failed},
            middleware=[
                Middleware(Guard, access=access),
                Middleware(TrustedHostMiddleware, allowed_hosts=list(access.hosts), www_redirect=False),
            ],
        )

    def overview(self, _: Request) -> Response:
        """The tiles and tables of Run:ai's overview."""
        return _page(self._pages.overview(self._feed.seen(), self._now()))

    def projects(self, _: Request) -> Response:
        """Every project."""
        return _page(self._pages.projects(self._feed.seen(), self._now()))

    def jobs(self, request: Request) -> Response:
        """A page of the jobs that the parameters ask for."""
        seen = self._feed.seen()
        found = jobs_page(seen.view.jobs, Query.of(request.query_params))
        return _page(self._pages.jobs(seen, self._now(), found))

    def job(self, request: Request) -> Response:
        """One job."""
        seen = self._feed.seen()
        with suppress(ValueError):
            found = seen.view.job(JobId.parse(f"{request.path_params['project']}/{request.path_params['name']}"))
            if found is not None:
                return _page(self._pages.job(seen, self._now(), found))
        raise HTTPException(404, "There is no such job in this cluster.")

    def nodes(self, request: Request) -> Response:
        """A page of the nodes."""
        seen = self._feed.seen()
        found = nodes_page(seen.view.nodes, Query.of(request.query_params))
        return _page(self._pages.nodes(seen, self._now(), found))

    def queue(self, request: Request) -> Response:
        """A page of the jobs that wait."""
        seen = self._feed.seen()
        found = in_turn(seen.view.pending, Query.of(request.query_params))
        return _page(self._pages.queue(seen, self._now(), found))

    def analytics(self, _: Request) -> Response:
        """The charts."""
        return _page(self._pages.analytics(self._feed.seen(), self._now(), self._feed.samples()[0].at_ms))

    def allocation(self, _: Request) -> Response:
        """What the chart draws."""
        return JSONResponse(_series(self._feed), headers=_FRESH)

    def allocation_csv(self, _: Request) -> Response:
        """The same as CSV."""
        return PlainTextResponse(_csv(self._feed), media_type="text/csv", headers=_FRESH)

    async def events(self, _: Request) -> Response:
        """An event for each change, as long as the page is open."""
        if self._listeners.count >= MOST_LISTENERS:
            raise HTTPException(503, "Too many pages are open.")
        return StreamingResponse(self._listeners.listen(self._feed), media_type="text/event-stream", headers=_FRESH)

    def healthz(self, _: Request) -> Response:
        """Whether the process answers."""
        return PlainTextResponse("ok\n")

    def failed(self, _: Request, error: Exception) -> Response:
        """A page that says what went wrong, and nothing of how."""
        status, detail = 500, "The page could not be made."
        if isinstance(error, HTTPException):
            status, detail = error.status_code, error.detail
        return HTMLResponse(self._pages.problem(f"Error {status}", detail), status_code=status, headers=_FRESH)

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()

        def tell() -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._listeners.ring)

        self._feed.on_change(tell)
        yield


def _page(html: str) -> Response:
    return HTMLResponse(html, headers=_FRESH)


def _series(feed: Feed) -> dict[str, object]:
    """What uPlot draws: instants in seconds, and GPUs for each project."""
    samples = feed.samples()
    last, now_ms = samples[-1], feed.seen().view.at_ms
    if now_ms > last.at_ms:  # the lines go on until now
        samples += (replace(last, at_ms=now_ms),)
    names = sorted({name for sample in samples for name in sample.held_milli})
    projects = [{"name": name, "gpus": [sample.held_milli.get(name, 0) / 1000 for sample in samples]} for name in names]
    return {"at": [sample.at_ms / 1000 for sample in samples], "projects": projects}


def _csv(feed: Feed) -> str:
    """The same, one line for each instant and project. Names can't become formulas of a spreadsheet."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(("time", "project", "gpu_milli"))
    for sample in feed.samples():
        for name, milli in sorted(sample.held_milli.items()):
            rows.writerow((format_timestamp(sample.at_ms), name if name[:1].isalnum() else f"'{name}", milli))
    return text.getvalue()
