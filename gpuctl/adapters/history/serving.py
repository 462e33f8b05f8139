"""Answers questions about the past over HTTP, only to this machine; in a pod, to those who may forward its port.

One address: `/history?since=MS&until=MS`, with `project=NAME` or `job=PROJECT/NAME`.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from ipaddress import ip_address
from pathlib import Path
from threading import BoundedSemaphore
from urllib.parse import parse_qsl, urlencode

from gpuctl.adapters.address import host_and_port
from gpuctl.adapters.history.reading import read_history
from gpuctl.adapters.http_server import BoundedServer, BriefHandler, unservable
from gpuctl.app.ports import WorldFault
from gpuctl.k8s.bounds import MOST_AMOUNT, whole_number
from gpuctl.model.history import Subject
from gpuctl.model.ids import JobId, ProjectName
from gpuctl.model.units import Instant
from gpuctl.views.history_form import document

_READ_AT_ONCE = 2
"""Questions that are answered at once; further ones are refused."""
_MOST_AT_ONCE = 8
"""Connections at once."""


def path_of(subject: Subject, since_ms: Instant, until_ms: Instant) -> str:
    """The path and query of a question."""
    asked: dict[str, object] = {"since": since_ms, "until": until_ms}
    if subject.job is not None:
        asked["job"] = subject.job
    elif subject.project is not None:
        asked["project"] = subject.project
    return f"/history?{urlencode(asked)}"


class HistoryServer(BoundedServer):
    """Serves the history of a file at HOST:PORT until it is closed."""

    def __init__(self, path: Path, address: str) -> None:
        """Raises WorldFault GPU7088 if the address is none, is not only this machine's, or can't be listened on."""
        place = host_and_port(address)
        if place is None or not _is_loopback(place[0]):
            raise unservable(
                address, "not HOST:PORT with a loopback address: the past names all teams' jobs", "GPU7088"
            )

        class Handler(_Handler):
            file = path
            free = BoundedSemaphore(_READ_AT_ONCE)

        super().__init__(address, Handler, _MOST_AT_ONCE, "GPU7088")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


class _Handler(BriefHandler):
    file: Path
    free: BoundedSemaphore
    timeout = 60.0

    def do_GET(self) -> None:  # noqa: N802 - the standard library calls it so
        """Answer the question."""
        path, _, query = self.path.partition("?")
        asked = _asked(dict(parse_qsl(query)))
        if not _is_loopback((self.headers.get("host") or "").rpartition(":")[0].strip("[]")):
            self.answer(HTTPStatus.FORBIDDEN, b"ask by the name localhost, with the port\n")
        elif path != "/history" or asked is None:
            self.answer(HTTPStatus.NOT_FOUND, b"/history?since=MS&until=MS is here\n")
        else:
            self.answer(*self._found(*asked))

    def _found(self, subject: Subject, since_ms: Instant, until_ms: Instant) -> tuple[HTTPStatus, bytes, str]:
        if not self.free.acquire(blocking=False):
            return HTTPStatus.SERVICE_UNAVAILABLE, b"too many questions at once\n", "text/plain"
        try:
            found = document(read_history(self.file, subject, since_ms, until_ms))
        except WorldFault as fault:
            return HTTPStatus.SERVICE_UNAVAILABLE, f"{fault}\n".encode(), "text/plain"
        finally:
            self.free.release()
        return HTTPStatus.OK, found, "application/json"


def _asked(given: Mapping[str, str]) -> tuple[Subject, Instant, Instant] | None:
    since_ms = whole_number(given.get("since", ""), MOST_AMOUNT)
    until_ms = whole_number(given.get("until", ""), MOST_AMOUNT)
    if since_ms is None or until_ms is None:
        return None
    try:
        job = JobId.parse(given["job"]) if "job" in given else None
    except ValueError:
        return None
    project = given.get("project")
    return Subject(job=job, project=None if project is None else ProjectName(project)), since_ms, until_ms
