"""The receivers: an incoming webhook in Slack's form, a generic webhook, and the status of a commit on a code host.

Security: addresses and tokens never leave in messages or logs, redirects are not followed, and only the status of an
answer is used.
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import urlsplit

import urllib3

from gpuctl import __version__
from gpuctl.adapters.clock import PassingClock
from gpuctl.adapters.forge.address import ForgeAddress
from gpuctl.adapters.forge.github import GitHub
from gpuctl.adapters.forge.gitlab import GitLab
from gpuctl.adapters.forge.remote import hosted_at
from gpuctl.adapters.notify.sender import Message, NotNow, Receiver, Refused
from gpuctl.app.notices import CommitNotice, Notice, NoticeKind
from gpuctl.app.ports import ForgeFault

Read = Callable[[str], str]
"""A setting by its name; "" if it is not set."""
_SIGNS = {NoticeKind.HELD: "🔴", NoticeKind.REFUSED: "🟠", NoticeKind.RECOVERED: "🟢", NoticeKind.APPLIED: "🟢"}
_CONNECT_S, _ANSWER_S = 5, 10
_LIVELY = re.compile(r"(?<![^\W_])@(?=\w)|:(?=//)|\](?=[(\[:])|\bwww(?=\.)|\bmailto(?=:)", re.IGNORECASE)
"""The beginnings of mentions and links for services that take Slack's form. All of them link bare addresses; Mattermost
and Rocket.Chat take Markdown and `@channel`."""
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_API = {"github": "https://api.github.com", "gitlab": "https://gitlab.com/api/v4"}
_VARIABLES = {"github": "GITHUB_API_URL", "gitlab": "CI_API_V4_URL"}
_PASSING = frozenset({"GPU6207", "GPU6208"})
"""Faults of a code host that pass."""


@dataclass(frozen=True, slots=True)
class Slack:
    """A webhook in Slack's form, which Mattermost and Rocket.Chat take too. `slack-url` is itself a secret."""

    read: Read
    name: ClassVar[str] = "slack"

    def takes(self, message: Message) -> bool:
        """Whether it is a notice, and there is an address."""
        return isinstance(message, Notice) and bool(self.read("slack-url"))

    def send(self, message: Message) -> None:
        """Post a notice. Links and mentions that others wrote become text."""
        assert isinstance(message, Notice)  # noqa: S101 - it takes no others
        text = f"{_SIGNS[message.kind]} *{_plain(message.cluster)}* {message.kind}: {_plain(message.message)}"
        _post(self.read("slack-url"), {"text": text}, is_secret=True)


@dataclass(frozen=True, slots=True)
class Webhook:
    """Any webhook. With `webhook-key`, the header X-Signature has the HMAC of the body, as in Flux's generic-hmac."""

    read: Read
    name: ClassVar[str] = "webhook"

    def takes(self, message: Message) -> bool:
        """Whether it is a notice, and there is an address."""
        return isinstance(message, Notice) and bool(self.read("webhook-url"))

    def send(self, message: Message) -> None:
        """Post a notice as JSON."""
        assert isinstance(message, Notice)  # noqa: S101 - it takes no others
        form = {
            "apiVersion": "gpuctl.dev/v1",
            "kind": "Notice",
            "event": message.kind.value,
            "cluster": message.cluster,
            "project": message.project or None,
            "commit": message.commit,
            "message": message.message,
            "at": message.at,
        }
        _post(self.read("webhook-url"), form, key=self.read("webhook-key"))


@dataclass(frozen=True, slots=True)
class CodeHost:
    """The status of the followed commit on GitHub or GitLab, if there is a token. `remote`: the repository."""

    read: Read
    remote: str
    name: ClassVar[str] = "commit-status"

    def takes(self, message: Message) -> bool:
        """Whether it is the state of a commit, and there is a token."""
        return isinstance(message, CommitNotice) and any(self.read(f"{host}-token") for host in _API)

    def send(self, message: Message) -> None:
        """Set the commit's status."""
        assert isinstance(message, CommitNotice)  # noqa: S101 - it takes no others
        try:
            with closing(self._forge()) as forge:
                forge.set_commit_status(message)
        except ForgeFault as fault:
            raise (NotNow if fault.code in _PASSING else Refused)(f"{fault.code}: {fault}") from fault

    def _forge(self) -> GitHub | GitLab:
        """The code host's client. Raises ForgeFault."""
        own = {_VARIABLES[host]: self.read(f"{host}-url") for host in _API}
        there = hosted_at(self.remote, own)
        url, token = own[_VARIABLES[there.host]] or _API[there.host], self.read(f"{there.host}-token")
        address = ForgeAddress(url=url, repository=there.repository, token=token)
        return (GitHub if there.host == "github" else GitLab)(address, PassingClock())


def receivers_of(read: Read, remote: str) -> Sequence[Receiver]:
    """All receivers; each checks for itself whether it is set up."""
    return Slack(read), Webhook(read), CodeHost(read, remote)


def _plain(text: str) -> str:
    """The text without links or mentions for receivers of Slack's form: each gets a visible space.

    Source: api.slack.com, "Formatting text"; docs.mattermost.com, "Incoming webhooks" and "Mention people".
    """
    return _LIVELY.sub(r"\g<0> ", text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _post(url: str, form: Mapping[str, Any], *, key: str = "", is_secret: bool = False) -> None:
    """Post JSON. Raises NotNow, Refused."""
    if not _is_fit(url, is_secret=is_secret):
        raise Refused("its address is no http or https URL, or one that would send a secret unencrypted")
    body = json.dumps(form).encode()
    headers = {"content-type": "application/json", "user-agent": f"gpuctl/{__version__}"}
    if key:
        headers["x-signature"] = f"sha256={hmac.new(key.encode(), body, 'sha256').hexdigest()}"
    timeout = urllib3.Timeout(connect=_CONNECT_S, read=_ANSWER_S, total=_CONNECT_S + _ANSWER_S)
    try:
        with urllib3.PoolManager() as pool:
            answer = pool.request(
                "POST", url, body=body, headers=headers, timeout=timeout, retries=False, redirect=False,
                preload_content=False,
            )  # fmt: skip
            answer.close()  # unread: a body may come for hours, byte by byte
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise NotNow(type(error).__name__) from error  # its text has the address
    if answer.status == 429 or answer.status >= 500:
        raise NotNow(f"HTTP status {answer.status}")
    if not 200 <= answer.status < 300:
        raise Refused(f"HTTP status {answer.status}")


def _is_fit(url: str, *, is_secret: bool) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    if parts.scheme not in {"http", "https"} or not parts.hostname or not url.isascii() or not url.isprintable():
        return False
    return parts.scheme == "https" or not is_secret or parts.hostname in _LOOPBACK
