"""GitLab, by version 4 of its REST API.

Source: https://docs.gitlab.com/api/notes, /api/merge_requests, /api/rest (pagination).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from gpuctl.adapters.forge.address import ForgeAddress
from gpuctl.adapters.forge.requests import Requests
from gpuctl.app.forge_ports import OpenRequest, ReviewRequest
from gpuctl.app.notices import CommitNotice, Verdict
from gpuctl.app.ports import VirtualTime
from gpuctl.k8s.objects import mapping
from gpuctl.model.ids import Revision

_STATES = {Verdict.SUCCESS: "success", Verdict.FAILURE: "failed", Verdict.PENDING: "pending"}
_LONGEST_DESCRIPTION = 255


class GitLab:
    """Implements the port Forge. The repository is the project's number, or its path `group/name`."""

    def __init__(self, address: ForgeAddress, time: VirtualTime) -> None:
        headers = {"accept": "application/json", "private-token": address.token}
        self._requests = Requests(address, headers, time)
        self._project = f"/projects/{quote(address.repository, safe='')}"

    def close(self) -> None:
        """Close the connections."""
        self._requests.close()

    def put_comment(self, number: int, marker: str, body: str) -> str:
        """Edit this account's note that begins with the marker, or create it."""
        what = f"the comment on !{number}"
        path = f"{self._project}/merge_requests/{number}/notes"
        found = self._note(path, marker, what)
        if found is None:
            found = self._requests.send(
                "POST", path, {"body": body}, what=what, done=lambda: self._note(path, marker, what)
            )
            note = self._whole(found, "id", what)
        else:
            note = self._whole(found, "id", what)
            self._requests.send("PUT", f"{path}/{note}", {"body": body}, what=what)
        request = self._requests.send("GET", f"{self._project}/merge_requests/{number}", what=what)
        return f"{self._url(request, what)}#note_{note}"

    def set_labels(self, number: int, ours: frozenset[str], wanted: frozenset[str]) -> None:
        """Add and remove labels, in one request, so that exactly the wanted ones of `ours` are there."""
        what, path = f"the labels of !{number}", f"{self._project}/merge_requests/{number}"
        there = frozenset(self._labels(self._requests.send("GET", path, what=what), what))
        named = {"add_labels": (ours & wanted) - there, "remove_labels": (ours - wanted) & there}
        body = {name: ",".join(sorted(labels)) for name, labels in named.items() if labels}
        if body:
            self._requests.send("PUT", path, body, what=what)

    def commits_of(self, number: int) -> frozenset[Revision]:
        """The newest commit of the merge request. GitLab does not tell here the merge commit that a pipeline tests."""
        what = f"merge request !{number}"
        found = self._requests.send("GET", f"{self._project}/merge_requests/{number}", what=what)
        if not isinstance(found, dict) or not isinstance(found.get("sha"), str):
            raise self._requests.strange(what, "it has no sha")
        return frozenset({Revision(found["sha"])})

    def open_request(self, wanted: ReviewRequest) -> OpenRequest:
        """Open a merge request, or return the open one."""
        what = f"the merge request for {wanted.source}"
        found = self._open(wanted, what)
        if found is not None:
            return self._opened(found, what, is_new=False)
        body = {
            "source_branch": wanted.source,
            "target_branch": wanted.target,
            "title": wanted.title,
            "description": wanted.body,
        }
        path = f"{self._project}/merge_requests"
        made = self._requests.send("POST", path, body, what=what, done=lambda: self._open(wanted, what))
        return self._opened(made, what, is_new=True)

    def set_commit_status(self, commit: CommitNotice) -> None:
        """Show the commit's state beside it. Source: https://docs.gitlab.com/api/commits, commit status."""
        body = {
            "state": _STATES[commit.verdict],
            "name": f"gpuctl/{commit.cluster}",
            "description": commit.message[:_LONGEST_DESCRIPTION],
        }
        path = f"{self._project}/statuses/{quote(commit.commit, safe='')}"
        self._requests.send("POST", path, body, what=f"the status of commit {commit.commit[:12]}")

    def _note(self, path: str, marker: str, what: str) -> Mapping[str, Any] | None:
        """The oldest note of this account with the marker. Security: another account could edit its own note."""
        me: object = None
        for each in self._requests.pages(f"{path}?sort=asc&order_by=created_at", what=what):
            if each.get("system") or not str(each.get("body") or "").startswith(marker):
                continue
            if me is None:
                me = self._whole(self._requests.send("GET", "/user", what=what), "id", what)
            if mapping(each, "author").get("id") == me:
                return each
        return None

    def _open(self, wanted: ReviewRequest, what: str) -> Mapping[str, Any] | None:
        query = urlencode({"state": "opened", "source_branch": wanted.source, "target_branch": wanted.target})
        return next(self._requests.pages(f"{self._project}/merge_requests?{query}", what=what), None)

    def _opened(self, request: Any, what: str, *, is_new: bool) -> OpenRequest:
        return OpenRequest(number=self._whole(request, "iid", what), url=self._url(request, what), is_new=is_new)

    def _labels(self, request: Any, what: str) -> list[str]:
        if not isinstance(request, dict) or not isinstance(request.get("labels"), list):
            raise self._requests.strange(what, "it has no labels")
        return [each for each in request["labels"] if isinstance(each, str)]

    def _url(self, made: Any, what: str) -> str:
        if not isinstance(made, dict) or not isinstance(made.get("web_url"), str):
            raise self._requests.strange(what, "it has no web_url")
        return str(made["web_url"])

    def _whole(self, made: Any, name: str, what: str) -> int:
        if not isinstance(made, dict) or type(made.get(name)) is not int:
            raise self._requests.strange(what, f"it has no {name}")
        return int(made[name])
