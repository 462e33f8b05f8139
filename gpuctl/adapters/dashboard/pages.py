"""The HTML of each page, from a view of the cluster. Security: no text in the view can become markup."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from gpuctl import __version__
from gpuctl.adapters.dashboard.asking import mistake_text
from gpuctl.adapters.dashboard.feed import Seen
from gpuctl.adapters.dashboard.listing import Page
from gpuctl.adapters.dashboard.past import SPANS
from gpuctl.app.whatif import Answer, Question
from gpuctl.diag.escapes import printable
from gpuctl.diag.wording import duration, reason_text
from gpuctl.k8s.timestamps import format_seconds
from gpuctl.model.decision import JobState
from gpuctl.model.history import Change, History, RunEvent, Trends
from gpuctl.model.ids import JobId, NodeName, ProjectName
from gpuctl.model.units import WHOLE_GPU, format_gpus
from gpuctl.views.clusters import ClusterView, clock_time, is_idle, quota_milli, share_milli, two_digits
from gpuctl.views.history import busy, why
from gpuctl.views.jobs import JobView
from gpuctl.views.plan_page import page as plan_page
from gpuctl.views.pod_problems import problem_text
from gpuctl.views.progress import progress_text
from gpuctl.views.sweeps import Row, folded, jobs_of, progress_of, queued_ms, reason_of
from gpuctl.views.tables import HOUR_MS, age
from gpuctl.views.top import memory_text
from gpuctl.views.trends import uses

COLOURS = 8
"""Colours of projects in the style sheet; with more projects they repeat."""

_MOST_ROWS = 20
"""Rows of each table of the overview; other pages have all rows."""

TYPES = ("training", "interactive", "inference")
_MOST_EVENTS = 200
"""Events of a job's timeline; `gpuctl history` has all."""

MENU = (
    ("/", "Overview"), ("/projects", "Projects"), ("/jobs", "Jobs"), ("/nodes", "Nodes"), ("/queue", "Queue"),
    ("/analytics", "Analytics"), ("/changes", "Changes"), ("/what-if", "What if"),
)  # fmt: skip


def _shown(value: Any) -> Any:
    """The text of an expression in a template, before it is escaped."""
    return value if isinstance(value, Markup) else printable(str(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The answer about the past. None: there is no history, or `problem` says why it can't be read."""

    history: History | None = None
    trends: Trends | None = None
    problem: str = ""

    @property
    def events(self) -> list[tuple[RunEvent, Change | None]] | None:
        """The newest events of a job first, each with its commit."""
        if self.history is None:
            return None
        changes = {change.revision: change for change in self.history.changes}
        return [(event, changes.get(event.revision)) for event in reversed(self.history.events)][:_MOST_EVENTS]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The answer to the question, if one was asked; else `problem` says why there is none."""

    answer: Answer | None = None
    problem: str = ""


class Pages:
    """Fills templates. `title`: the cluster's name in the heading. `repository`: its https address in a code host."""

    def __init__(self, title: str, repository: str = "") -> None:
        self._templates = Environment(
            loader=PackageLoader("gpuctl.adapters.dashboard"),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=_shown,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters.update(
            gpus=format_gpus,
            gpus2=two_digits,
            clock=clock_time,
            age=age,
            duration=duration,
            stamp=format_seconds,
            reason=reason_text,
            problem=problem_text,
            why=why,
        )
        self._templates.globals.update(
            menu=MENU,
            version=__version__,
            cluster=title,
            repository=repository,
            quota=quota_milli,
            share=share_milli,
            is_idle=is_idle,
            memory=memory_text,
            percent=progress_of,
            jobs_of=jobs_of,
            reason_of=reason_of,
            queued_ms=queued_ms,
            progress=progress_text,
            busy=busy,
            WHOLE=WHOLE_GPU,
        )

    def overview(self, seen: Seen, now_ms: int) -> str:
        """Tiles, projects, and the newest rows of each table."""
        view = seen.view
        return self._page(
            "overview.html",
            seen,
            now_ms,
            path="/",
            running=folded(view.running)[:_MOST_ROWS],
            pending=folded(view.pending)[:_MOST_ROWS],
            nodes=view.nodes[:_MOST_ROWS],
            pauses=view.pauses(now_ms - HOUR_MS)[:_MOST_ROWS],
            counts=_Counts.of(view),
            scale=max([view.gpus * WHOLE_GPU // 4, *_amounts(view)], default=0),
        )

    def projects(self, seen: Seen, now_ms: int) -> str:
        """Every project, by department."""
        departments: dict[str, list[Any]] = {department.name: [] for department in seen.view.departments}
        for project in seen.view.projects:
            departments.setdefault(project.department, []).append(project)
        scale = max(_amounts(seen.view), default=0)
        return self._page("projects.html", seen, now_ms, path="/projects", departments=departments, scale=scale)

    def jobs(self, seen: Seen, now_ms: int, page: Page[Row]) -> str:
        """One page of the jobs."""
        states = [state.value for state in JobState]
        names = [project.name for project in seen.view.projects]
        return self._page("jobs.html", seen, now_ms, path="/jobs", page=page, states=states, names=names)

    def job(self, seen: Seen, now_ms: int, job: JobView, told: Told) -> str:
        """One job in full."""
        past, problem = told.events, told.problem
        return self._page("job.html", seen, now_ms, path="/jobs", job=job, past=past, problem=problem)

    def gone(self, seen: Seen, now_ms: int, job: JobId, told: Told) -> str:
        """One job that does not exist now, as far as it is known."""
        return self._page("gone.html", seen, now_ms, path="/jobs", job=job, past=told.events)

    def changes(
        self, seen: Seen, now_ms: int, page: Page[Change] | None, problem: str, branches: Sequence[str] = ()
    ) -> str:
        """The commits that were taken up, and the branches whose plan can be seen."""
        about = {"page": page, "problem": problem, "branches": branches}
        return self._page("changes.html", seen, now_ms, path="/changes", **about)

    def nodes(self, seen: Seen, now_ms: int, page: Page[Any]) -> str:
        """One page of the nodes, each as a picture of its GPUs."""
        return self._page("nodes.html", seen, now_ms, path="/nodes", page=page)

    def queue(self, seen: Seen, now_ms: int, page: Page[Row]) -> str:
        """One page of the pending jobs, in the order of the queue."""
        return self._page("queue.html", seen, now_ms, path="/queue", page=page)

    def analytics(self, seen: Seen, now_ms: int, since_ms: int, told: Told, **asked: str) -> str:
        """The charts, which a script draws, and the table. `asked`: span, project, and their address."""
        table = None if told.trends is None else uses(told.trends)
        is_measured = any(use.measured_milli_s for use in table or ())
        about = {
            "is_measured": is_measured,
            "since_ms": since_ms,
            "uses": table,
            "problem": told.problem,
            "spans": tuple(SPANS),
            **asked,
        }
        return self._page("analytics.html", seen, now_ms, path="/analytics", **about)

    def what_if(self, names: Sequence[str], asked: Question | str, told: Plan) -> str:
        """The form with a question, or with a branch, and the plan."""
        question = asked if isinstance(asked, Question) else None
        return self._templates.get_template("whatif.html").render(
            path="/changes" if question is None else "/what-if",
            question=question,
            branch="" if question else asked,
            names=names,
            types=TYPES,
            page=None if told.answer is None or told.answer.plan is None else plan_page(told.answer.plan),
            mistakes=[] if told.answer is None else list(map(mistake_text, told.answer.mistakes)),
            problem=told.problem,
        )

    def problem(self, title: str, text: str) -> str:
        """A page that says what went wrong."""
        return self._templates.get_template("problem.html").render(title=title, text=text, path="")

    def _page(self, name: str, seen: Seen, now_ms: int, *, path: str, **values: Any) -> str:
        colour = colours([project.name for project in seen.view.projects])
        template = self._templates.get_template(name)
        return template.render(seen=seen, view=seen.view, now_ms=now_ms, path=path, colour=colour, **values)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counts:
    running: int
    pending: int

    @classmethod
    def of(cls, view: ClusterView) -> _Counts:
        return cls(running=len(view.running), pending=len(view.pending))


def _amounts(view: ClusterView) -> list[int]:
    """The amounts for which the bars of the projects must have room."""
    return [
        amount
        for project in view.projects
        for amount in (project.allocated_milli, quota_milli(project), share_milli(project) or 0)
    ]


def colours(projects: Sequence[ProjectName]) -> Mapping[ProjectName | NodeName, int]:
    """A colour of the style sheet for each project, in order of their names."""
    return {name: index % COLOURS for index, name in enumerate(sorted(projects))}
