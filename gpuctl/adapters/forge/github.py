"""GitHub, and GitHub Enterprise Server, by version 2022-11-28 of its REST API.

Source: https://docs.github.com/rest/issues/comments, /rest/issues/labels, /rest/pulls/pulls.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from gpuctl.adapters.forge.address import ForgeAddress
from gpuctl.adapters.forge.requests import Requests
from gpuctl.app.forge_ports import OpenRequest, ReviewRequest
from gpuctl.app.notices import CommitNotice
from gpuctl.app.ports import ForgeFault, VirtualTime
from gpuctl.k8s.objects import mapping
from gpuctl.model.ids import Revision

_FORBIDDEN = "GPU6204"
_LONGEST_DESCRIPTION = 140


class GitHub:
    """Implements the port Forge. The repository is `owner/name`."""

    def __init__(self, address: ForgeAddress, time: VirtualTime) -> None:
        headers = {
            "accept": "application/vnd.github+json",
            "authorization": f"Bearer {address.token}",
            "x-github-api-version": "2022-11-28",
        }
        self._requests = Requests(address, headers, time)
        owner, _, name = address.repository.partition("/")
        self._owner = owner
        self._repo = f"/repos/{quote(owner, safe='')}/{quote(name, safe='')}"

    def close(self) -> None:
        """Close the connections."""
        self._requests.close()

    def put_comment(self, number: int, marker: str, body: str) -> str:
        """Edit this account's comment that begins with the marker, or create it."""
        what = f"the comment on #{number}"
        found = self._comment(number, marker, what)
        if found is not None:
            path = f"{self._repo}/issues/comments/{self._whole(found, 'id', what)}"
            return self._url(self._requests.send("PATCH", path, {"body": body}, what=what), what)
        path = f"{self._repo}/issues/{number}/comments"
        made = self._requests.send(
            "POST", path, {"body": body}, what=what, done=lambda: self._comment(number, marker, what)
        )
        return self._url(made, what)

    def set_labels(self, number: int, ours: frozenset[str], wanted: frozenset[str]) -> None:
        """Add and remove labels so that exactly the wanted ones of `ours` are there."""
        what, path = f"the labels of #{number}", f"{self._repo}/issues/{number}/labels"
        there = {str(each.get("name")) for each in self._requests.pages(f"{path}?", what=what)}
        missing = sorted((ours & wanted) - there)
        if missing:
            self._requests.send("POST", path, {"labels": missing}, what=what)
        for name in sorted((ours - wanted) & there):
            try:
                self._requests.send("DELETE", f"{path}/{quote(name, safe='')}", what=what)
            except ForgeFault as fault:
                if fault.code != "GPU6205":  # removed meanwhile
                    raise

    def commits_of(self, number: int) -> frozenset[Revision]:
        """The head of the pull request, and the merge commit that GitHub made to test it."""
        what = f"pull request #{number}"
        found = self._requests.send("GET", f"{self._repo}/pulls/{number}", what=what)
        head = found.get("head") if isinstance(found, dict) else None
        if not isinstance(head, dict) or not isinstance(head.get("sha"), str):
            raise self._requests.strange(what, "it has no head")
        merge = found.get("merge_commit_sha")
        return frozenset(Revision(sha) for sha in (head["sha"], merge) if isinstance(sha, str))

    def open_request(self, wanted: ReviewRequest) -> OpenRequest:
        """Open a pull request, or return the open one."""
        what = f"the pull request for {wanted.source}"
        found = self._open(wanted, what)
        if found is not None:
            return self._opened(found, what, is_new=False)
        body = {"title": wanted.title, "body": wanted.body, "head": wanted.source, "base": wanted.target}
        made = self._requests.send(
            "POST", f"{self._repo}/pulls", body, what=what, done=lambda: self._open(wanted, what)
        )
        return self._opened(made, what, is_new=True)

    def set_commit_status(self, commit: CommitNotice) -> None:
        """Show the commit's state beside it. Source: https://docs.github.com/rest/commits/statuses."""
        body = {
            "state": commit.verdict.value,
            "context": f"gpuctl/{commit.cluster}",
            "description": commit.message[:_LONGEST_DESCRIPTION],
        }
        path = f"{self._repo}/statuses/{quote(commit.commit, safe='')}"
        self._requests.send("POST", path, body, what=f"the status of commit {commit.commit[:12]}")

    def _comment(self, number: int, marker: str, what: str) -> Mapping[str, Any] | None:
        """The oldest comment of this account with the marker. Security: another account could edit its own comment."""
        me: str | None = None
        is_known = False
        for each in self._requests.pages(f"{self._repo}/issues/{number}/comments?", what=what):
            if not str(each.get("body") or "").startswith(marker):
                continue
            if not is_known:
                me, is_known = self._me(what), True
            author = mapping(each, "user")
            if author.get("login") == me if me is not None else author.get("type") == "Bot":
                return each
        return None

    def _me(self, what: str) -> str | None:
        """The account of the token. None for the token of an app, such as a workflow's, which comments as a bot."""
        try:
            user = self._requests.send("GET", "/user", what=what)
        except ForgeFault as fault:
            if fault.code == _FORBIDDEN:
                return None
            raise
        return str(user["login"]) if isinstance(user, dict) and "login" in user else None

    def _open(self, wanted: ReviewRequest, what: str) -> Mapping[str, Any] | None:
        query = urlencode({"state": "open", "head": f"{self._owner}:{wanted.source}", "base": wanted.target})
        return next(self._requests.pages(f"{self._repo}/pulls?{query}", what=what), None)

    def _opened(self, request: Any, what: str, *, is_new: bool) -> OpenRequest:
        return OpenRequest(number=self._whole(request, "number", what), url=self._url(request, what), is_new=is_new)

    def _url(self, made: Any, what: str) -> str:
        if not isinstance(made, dict) or not isinstance(made.get("html_url"), str):
            raise self._requests.strange(what, "it has no html_url")
        return str(made["html_url"])

    def _whole(self, made: Any, name: str, what: str) -> int:
        if not isinstance(made, dict) or type(made.get(name)) is not int:
            raise self._requests.strange(what, f"it has no {name}")
        return int(made[name])
