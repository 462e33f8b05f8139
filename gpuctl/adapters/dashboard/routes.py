"""The addresses of the dashboard. Only GET and HEAD are served."""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TypeAlias
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from gpuctl.adapters.dashboard.asking import Asking
from gpuctl.adapters.dashboard.charts import chart
from gpuctl.adapters.dashboard.feed import Feed
from gpuctl.adapters.dashboard.guarding import Access, Guard
from gpuctl.adapters.dashboard.listening import MOST_LISTENERS, Listeners
from gpuctl.adapters.dashboard.listing import Query, cut, in_turn, jobs_page, nodes_page
from gpuctl.adapters.dashboard.pages import TYPES, Pages, Plan, Told
from gpuctl.adapters.dashboard.past import SPANS, USUAL, Past
from gpuctl.app.ports import WorldFault
from gpuctl.app.whatif import Answer, Question
from gpuctl.k8s.timestamps import format_timestamp
from gpuctl.model.ids import JobId, ProjectName
from gpuctl.model.units import Instant
from gpuctl.views.trends import uses_csv

Now: TypeAlias = Callable[[], Instant]

NO_HISTORY = "There is no history here: reconcile --history FILE keeps one, and dashboard --history FILE shows it."
_LONGEST_NAME = 100
_FRESH = {"cache-control": "no-store"}


class Routes:
    """The answer at each address, from what the feed read last. Safe for threads."""

    def __init__(
        self, feed: Feed, pages: Pages, now: Now, past: Past | None = None, asking: Asking | None = None
    ) -> None:
        self._feed = feed
        self._past = past
        self._asking = asking
        self._pages = pages
        self._now = now
        self._listeners = Listeners()

    def application(self, access: Access) -> Starlette:
        """All addresses as an ASGI application."""
        return Starlette(
            routes=[
                Route("/", self.overview),
                Route("/projects", self.projects),
                Route("/jobs", self.jobs),
                Route("/jobs/{project}/{name}", self.job),
                Route("/nodes", self.nodes),
                Route("/queue", self.queue),
                Route("/analytics", self.analytics),
                Route("/changes", self.changes),
                Route("/plan", self.plan),
                Route("/what-if", self.what_if),
                Route("/api/allocation.csv", self.allocation_csv),
                Route("/api/gpu-hours.csv", self.gpu_hours_csv),
                Route("/api/{name}", self.chart),
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
        """One job with its events; also a job that is gone."""
        seen = self._feed.seen()
        with suppress(ValueError):
            job = JobId.parse(f"{request.path_params['project']}/{request.path_params['name']}")
            found, told = seen.view.job(job), self._told(lambda past: Told(history=past.job(job)))
            if found is not None:
                return _page(self._pages.job(seen, self._now(), found, told))
            if told.events:
                return _page(self._pages.gone(seen, self._now(), job, told))
        raise HTTPException(404, "There is no such job in this cluster.")

    def changes(self, request: Request) -> Response:
        """A page of the commits that were taken up."""
        seen, page, problem = self._feed.seen(), None, NO_HISTORY
        with suppress(WorldFault):
            if self._past is not None:
                page, problem = cut(self._past.changes(), Query.of(request.query_params)), ""
        return _page(self._pages.changes(seen, self._now(), page, problem, self._branches()))

    def plan(self, request: Request) -> Response:
        """The effect of merging a branch."""
        branch = request.query_params.get("branch", "")[:_LONGEST_NAME]
        branches = self._branches()
        if branch not in branches:  # Security: no other name is resolved, whatever git would take for a revision.
            raise HTTPException(404, "There is no such branch here.")
        return _page(self._pages.what_if(branches, branch, self._plan(lambda asking: asking.branch(branch))))

    def what_if(self, request: Request) -> Response:
        """A form, and the effect of the change in it."""
        names = [project.name for project in self._feed.seen().view.projects]
        given = request.query_params
        known = {field: given.get(field, "").strip()[:_LONGEST_NAME] for field in ("project", "quota", "job")}
        more = {field: given[field].strip()[:_LONGEST_NAME] for field in ("gpus", "workers") if given.get(field)}
        kind = given.get("type", "")
        question = Question(**known, **more, type=kind if kind in TYPES else TYPES[0])
        told = Plan()
        if question.project in names and (question.quota or question.job):
            told = self._plan(lambda asking: asking.question(question))
        elif question.quota or question.job:
            told = Plan(problem="There is no such project in this cluster.")
        elif self._asking is None:
            told = self._plan(lambda asking: asking.question(question))
        return _page(self._pages.what_if(names, question, told))

    def _branches(self) -> tuple[str, ...]:
        with suppress(WorldFault):
            return self._asking.declarations.branches() if self._asking is not None else ()
        return ()

    def _plan(self, ask: Callable[[Asking], Answer]) -> Plan:
        if self._asking is None:
            return Plan(problem="The declarations are not known here: gpuctl dashboard --dir DIR.")
        try:
            return Plan(answer=ask(self._asking))
        except WorldFault as fault:
            return Plan(problem=f"{fault.code}: {fault}")

    def nodes(self, request: Request) -> Response:
        """A page of the nodes."""
        seen = self._feed.seen()
        found = nodes_page(seen.view.nodes, Query.of(request.query_params))
        return _page(self._pages.nodes(seen, self._now(), found))

    def queue(self, request: Request) -> Response:
        """A page of the pending jobs."""
        seen = self._feed.seen()
        found = in_turn(seen.view.queue, Query.of(request.query_params))
        return _page(self._pages.queue(seen, self._now(), found))

    def analytics(self, request: Request) -> Response:
        """The charts of a length of time."""
        span, project = _time_and_project(request)
        told = self._told(lambda past: Told(trends=past.trends(span, project)))
        address = "?" + urlencode({"span": span, "project": project or ""}) if told.trends else ""
        asked = {"span": span, "project": project or "", "address": address}
        since_ms = self._feed.samples()[0].at_ms
        return _page(self._pages.analytics(self._feed.seen(), self._now(), since_ms, told, **asked))

    def chart(self, request: Request) -> Response:
        """The data of a chart: from the history, or without one from what this process has seen."""
        name, (span, project) = request.path_params["name"], _time_and_project(request)
        told = self._told(lambda past: Told(trends=past.trends(span, project)))
        drawn = None if told.trends is None else chart(told.trends, name)
        if told.trends is None and name == "allocation":
            drawn = _series(self._feed)
        if drawn is None:
            raise HTTPException(404, "There is no such chart.")
        return JSONResponse(drawn, headers=_FRESH)

    def gpu_hours_csv(self, request: Request) -> Response:
        """The table of Analytics as CSV."""
        span, project = _time_and_project(request)
        told = self._told(lambda past: Told(trends=past.trends(span, project)))
        if told.trends is None:
            raise HTTPException(404, told.problem or NO_HISTORY)
        return PlainTextResponse(uses_csv(told.trends), media_type="text/csv", headers=_FRESH)

    def _told(self, ask: Callable[[Past], Told]) -> Told:
        """The answer about the past, or why there is none."""
        if self._past is None:
            return Told()
        try:
            return ask(self._past)
        except WorldFault as fault:
            return Told(problem=f"{fault.code}: {fault}")

    def allocation_csv(self, _: Request) -> Response:
        """The chart of allocation as CSV."""
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
        """A page that says what went wrong. Security: it does not say how."""
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


def _time_and_project(request: Request) -> tuple[str, ProjectName | None]:
    span, project = request.query_params.get("span", ""), request.query_params.get("project", "")[:_LONGEST_NAME]
    return span if span in SPANS else USUAL, ProjectName(project) if project else None


def _page(html: str) -> Response:
    return HTMLResponse(html, headers=_FRESH)


def _series(feed: Feed) -> dict[str, object]:
    """The data that uPlot draws: instants in seconds, and GPUs for each project."""
    samples = feed.samples()
    last, now_ms = samples[-1], feed.seen().view.at_ms
    if now_ms > last.at_ms:  # the lines go on until now
        samples += (replace(last, at_ms=now_ms),)
    names = sorted({name for sample in samples for name in sample.held_milli})
    lines = [{"name": name, "values": [sample.held_milli.get(name, 0) / 1000 for sample in samples]} for name in names]
    return {"at": [sample.at_ms / 1000 for sample in samples], "lines": lines}


def _csv(feed: Feed) -> str:
    """The same data, a line for each instant and project. Security: names can't become formulas of a spreadsheet."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(("time", "project", "gpu_milli"))
    for sample in feed.samples():
        for name, milli in sorted(sample.held_milli.items()):
            rows.writerow((format_timestamp(sample.at_ms), name if name[:1].isalnum() else f"'{name}", milli))
    return text.getvalue()
