"""One page of a long list, as the address asks for it. Any text in an address gives some page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeAlias, TypeVar
from urllib.parse import urlencode

from gpuctl.views.jobs import JobView
from gpuctl.views.nodes import NodeView
from gpuctl.views.sweeps import Row, folded

T = TypeVar("T")

ROWS = 100
"""Rows of a page."""

_MOST_DIGITS = 6
_MOST_TEXT = 100
_Key: TypeAlias = Callable[[Row], object]

ORDERS: Mapping[str, _Key] = {
    "started": lambda job: -job.since_ms,
    "name": lambda job: job.id.name,
    "project": lambda job: (job.id.project, job.id.name),
    "status": lambda job: job.status,
    "gpus": lambda job: -job.gpu_milli,
    "node": lambda job: job.nodes,
}
"""The orders of jobs, by the word in the address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What an address asks for: a text that names contain, a project, a state, an order, and a page from 1.

    `sweep`: only the jobs of this sweep, each in its own row; it is named `project/sweep`.
    """

    text: str = ""
    project: str = ""
    state: str = ""
    sweep: str = ""
    order: str = "started"
    number: int = 1

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Query:
        """Read the parameters of an address; parameters that make no sense are left out."""
        number = given.get("page", "1")
        order = given.get("order", "started")
        return cls(
            text=given.get("q", "")[:_MOST_TEXT],
            project=given.get("project", "")[:_MOST_TEXT],
            state=given.get("state", "")[:_MOST_TEXT],
            sweep=given.get("sweep", "")[:_MOST_TEXT],
            order=order if order in ORDERS else "started",
            number=max(1, int(number))
            if number.isascii() and number.isdecimal() and len(number) <= _MOST_DIGITS
            else 1,
        )

    def address(self, **changed: str | int) -> str:
        """The parameters of an address that asks for this with some changes; a new order begins at its first page."""
        said = {
            "q": self.text,
            "project": self.project,
            "state": self.state,
            "sweep": self.sweep,
            "order": self.order,
            "page": self.number,
        }
        if "page" not in changed:
            said["page"] = 1
        said |= changed
        usual = {"q": "", "project": "", "state": "", "sweep": "", "order": "started", "page": 1}
        return "?" + urlencode({key: value for key, value in said.items() if value != usual[key]})


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """Some rows of `total`, and the query that they answer."""

    rows: Sequence[T]
    total: int
    query: Query

    @property
    def pages(self) -> int:
        """How many pages there are, at least one."""
        return max(1, -(-self.total // ROWS))


def jobs_page(jobs: Sequence[JobView], query: Query) -> Page[Row]:
    """The jobs that a query asks for, in its order; the jobs of a sweep are one row. Cost: O(jobs log jobs)."""
    found = _rows([job for job in jobs if _is_asked(job, query) and query.state in {"", job.state.value}], query)
    found.sort(key=ORDERS[query.order])  # type: ignore[arg-type] # each order's keys compare with one another
    return cut(found, query)


def in_turn(jobs: Sequence[JobView], query: Query) -> Page[Row]:
    """The jobs of a query's text and project, in their given order; a sweep has the place of its first job."""
    return cut(_rows([job for job in jobs if _is_asked(job, query)], query), query)


def _is_asked(job: JobView, query: Query) -> bool:
    is_of_sweep = not query.sweep or query.sweep == f"{job.id.project}/{job.sweep}"
    return is_of_sweep and query.text in str(job.id) and query.project in {"", job.id.project}


def _rows(jobs: Sequence[JobView], query: Query) -> list[Row]:
    return [*jobs] if query.sweep else folded(jobs)


def nodes_page(nodes: Sequence[NodeView], query: Query) -> Page[NodeView]:
    """The nodes whose name contains the query's text."""
    return cut([node for node in nodes if query.text in node.name], query)


def cut(found: Sequence[T], query: Query) -> Page[T]:
    """The rows of the query's page."""
    last = max(1, -(-len(found) // ROWS))
    number = min(query.number, last)
    shown = found[(number - 1) * ROWS : number * ROWS]
    return Page(rows=shown, total=len(found), query=replace(query, number=number))
