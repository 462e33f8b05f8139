"""GitHub and GitLab as their REST documentation has them, on this machine, for comments, labels and requests.

Each answers a request that the documentation does not allow with 400 and a reason that the test then sees.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

TOKEN = "t0k3n-of-the-job"
REPOSITORY = "acme/gpus"
Reply = tuple[int, dict[str, str], Any]


@dataclass(kw_only=True)
class Call:
    """A request as the server saw it."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass(kw_only=True)
class CodeHost:
    """What a code host holds of one request. `faults`: replies that are given first, before any is served."""

    url: str = ""
    comments: list[dict[str, Any]] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    faults: list[Reply | Callable[[Call], Reply | None]] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    account: str | None = None
    head: str = "a" * 40
    statuses: dict[str, tuple[str, str]] = field(default_factory=dict)
    """State and context of commits."""

    def serve(self, call: Call) -> Reply:
        raise NotImplementedError

    def answer(self, call: Call) -> Reply:
        self.calls.append(call)
        while self.faults:
            fault = self.faults.pop(0)
            reply = fault(call) if callable(fault) else fault
            if reply is not None:
                return reply
        return self.serve(call)

    @property
    def writes(self) -> list[str]:
        return [f"{call.method} {call.path}" for call in self.calls if call.method != "GET"]

    def page(self, call: Call, items: list[Any]) -> tuple[list[Any], int | None]:
        size, at = min(int(call.query.get("per_page", "30")), 100), int(call.query.get("page", "1"))
        return items[(at - 1) * size : at * size], at + 1 if len(items) > at * size else None


class GitHubHost(CodeHost):
    """https://docs.github.com/rest, version 2022-11-28. `account` None: the token is a workflow's."""

    def wrong(self, call: Call) -> Reply | None:
        if call.headers.get("authorization") != f"Bearer {TOKEN}":
            return 401, {}, {"message": "Bad credentials"}
        if call.headers.get("accept") != "application/vnd.github+json" or not call.headers.get("user-agent"):
            return 400, {}, {"message": "headers are not those documented"}
        if call.headers.get("x-github-api-version") != "2022-11-28":
            return 400, {}, {"message": "no API version"}
        if call.path == "/user":
            if self.account is None:
                return 403, {}, {"message": "Resource not accessible by integration"}
            return 200, {}, {"login": self.account, "type": "User"}
        return None if call.path.startswith(f"/repos/{REPOSITORY}/") else (404, {}, {"message": "Not Found"})

    def serve(self, call: Call) -> Reply:
        wrong = self.wrong(call)
        if wrong is not None:
            return wrong
        found = self.pull_requests(call) or self.issues(call) or self.commit_status(call)
        return found or (404, {}, {"message": "Not Found"})

    def commit_status(self, call: Call) -> Reply | None:
        match call.method, call.path.removeprefix(f"/repos/{REPOSITORY}/").split("/"):
            case "POST", ["statuses", commit]:
                if len(call.body["description"]) > 140 or call.body["state"] not in {"success", "failure", "pending"}:
                    return 422, {}, {"message": "Validation Failed"}
                self.statuses[commit] = (call.body["state"], call.body["context"])
                return 201, {}, call.body
            case _:
                return None

    def issues(self, call: Call) -> Reply | None:
        match call.method, call.path.removeprefix(f"/repos/{REPOSITORY}/").split("/"):
            case "GET", ["issues", "7", "comments"]:
                return self._listed(call, self.comments)
            case "POST", ["issues", "7", "comments"]:
                return 201, {}, self.comment(call.body["body"])
            case "PATCH", ["issues", "comments", number]:
                found = next((each for each in self.comments if each["id"] == int(number)), None)
                if found is None:
                    return 404, {}, {"message": "Not Found"}
                found["body"] = call.body["body"]
                return 200, {}, found
            case "GET", ["issues", "7", "labels"]:
                return self._listed(call, [{"name": name} for name in self.labels])
            case "POST", ["issues", "7", "labels"]:
                self.labels += [name for name in call.body["labels"] if name not in self.labels]
                return 200, {}, [{"name": name} for name in self.labels]
            case "DELETE", ["issues", "7", "labels", name]:
                if unquote(name) not in self.labels:
                    return 404, {}, {"message": "Label does not exist"}
                self.labels.remove(unquote(name))
                return 200, {}, [{"name": name} for name in self.labels]
            case _:
                return None

    def pull_requests(self, call: Call) -> Reply | None:
        match call.method, call.path.removeprefix(f"/repos/{REPOSITORY}/"):
            case "GET", "pulls":
                owner, _, branch = call.query["head"].partition(":")
                found = [each for each in self.requests if (owner, branch) == ("acme", each["head"])]
                return self._listed(call, [each for each in found if each["base"] == call.query["base"]])
            case "GET", "pulls/7":
                return 200, {}, {"number": 7, "head": {"sha": self.head}, "merge_commit_sha": "b" * 40}
            case "POST", "pulls":
                if any(each["head"] == call.body["head"] for each in self.requests):
                    return 422, {}, {"message": "Validation Failed", "errors": [{"message": "already exists"}]}
                made = {"number": 7, "html_url": f"https://github.com/{REPOSITORY}/pull/7", **call.body}
                self.requests.append(made)
                return 201, {}, made
            case _:
                return None

    def comment(self, body: str, login: str | None = None, kind: str | None = None) -> dict[str, Any]:
        login = login or self.account or "github-actions[bot]"
        number = len(self.comments) + 1
        made = {
            "id": number,
            "body": body,
            "user": {"login": login, "type": kind or ("Bot" if login.endswith("[bot]") else "User")},
            "html_url": f"https://github.com/{REPOSITORY}/pull/7#issuecomment-{number}",
        }
        self.comments.append(made)
        return made

    def _listed(self, call: Call, items: list[Any]) -> Reply:
        some, following = self.page(call, items)
        there = f'<{self.url}{call.path}?page={following}>; rel="next", <{self.url}{call.path}?page=9>; rel="last"'
        return 200, {"Link": there} if following else {}, some


class GitLabHost(CodeHost):
    """https://docs.gitlab.com/api/rest, version 4."""

    def serve(self, call: Call) -> Reply:
        project = "/projects/acme%2Fgpus"
        if call.headers.get("private-token") != TOKEN:
            return 401, {}, {"message": "401 Unauthorized"}
        if call.path == "/user":
            return 200, {}, {"id": 5, "username": self.account or "project_1_bot"}
        if call.method == "POST" and call.path.startswith(f"{project}/statuses/"):
            return self.commit_status(call)
        if not call.path.startswith(f"{project}/merge_requests"):
            return 404, {}, {"message": "404 Project Not Found"}
        if call.path == f"{project}/merge_requests":
            return self.merge_requests(call)
        request = self.request()
        match call.method, call.path.removeprefix(f"{project}/merge_requests").strip("/").split("/"):
            case "GET", ["7", "notes"]:
                return self._listed(call, self.comments)
            case "POST", ["7", "notes"]:
                return 201, {}, self.comment(call.body["body"])
            case "PUT", ["7", "notes", number]:
                found = next(each for each in self.comments if each["id"] == int(number))
                found["body"] = call.body["body"]
                return 200, {}, found
            case "GET", ["7"]:
                return 200, {}, request
            case "PUT", ["7"]:
                if not call.body.keys() <= {"add_labels", "remove_labels"} or not call.body:
                    return 400, {}, {"error": "at least one parameter must be provided"}
                gone = call.body.get("remove_labels", "").split(",")
                kept = [name for name in self.labels if name not in gone]
                self.labels[:] = [*kept, *(name for name in call.body.get("add_labels", "").split(",") if name)]
                return 200, {}, request
            case _:
                return 404, {}, {"message": "404 Not found"}

    def commit_status(self, call: Call) -> Reply:
        if len(call.body["description"]) > 255 or call.body["state"] not in {"success", "failed", "pending"}:
            return 400, {}, {"message": "bad"}
        self.statuses[call.path.rpartition("/")[2]] = (call.body["state"], call.body["name"])
        return 201, {}, call.body

    def request(self) -> dict[str, Any]:
        return {"iid": 7, "labels": self.labels, "sha": self.head,
                "web_url": "https://gitlab.com/acme/gpus/-/merge_requests/7"}  # fmt: skip

    def merge_requests(self, call: Call) -> Reply:
        if call.method == "GET":
            branches = (call.query["source_branch"], call.query["target_branch"])
            found = [e for e in self.requests if (e["source_branch"], e["target_branch"]) == branches]
            return self._listed(call, found)
        if any(each["source_branch"] == call.body["source_branch"] for each in self.requests):
            return 409, {}, {"message": ["Another open merge request already exists"]}
        self.requests.append({**self.request(), **call.body})
        return 201, {}, self.requests[-1]

    def comment(self, body: str, author: int = 5) -> dict[str, Any]:
        made = {"id": len(self.comments) + 1, "body": body, "author": {"id": author}, "system": False}
        self.comments.append(made)
        return made

    def _listed(self, call: Call, items: list[Any]) -> Reply:
        some, following = self.page(call, items)
        return 200, {"X-Next-Page": str(following or ""), "X-Page": call.query.get("page", "1")}, some


@contextmanager
def served(host: CodeHost) -> Iterator[CodeHost]:
    """The host on a free port of this machine, until the end."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do(self) -> None:
            parts = urlsplit(self.path)
            data = self.rfile.read(int(self.headers.get("content-length", "0")))
            if data and self.headers.get("content-type") != "application/json":
                return self._reply((415, {}, {"message": "not JSON"}))
            query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = json.loads(data) if data else None
            return self._reply(
                host.answer(Call(method=self.command, path=parts.path, query=query, headers=headers, body=body))
            )

        def _reply(self, reply: Reply) -> None:
            status, headers, body = reply
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", **headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            with suppress(OSError):  # a client that has read enough
                self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is http.server's
            pass

    for verb in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        setattr(Handler, f"do_{verb}", Handler.do)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    host.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield host
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
