"""Notifications against servers on this machine: what receivers get, and that a bad one holds up nothing."""

from __future__ import annotations

import hmac
import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from codehosts import REPOSITORY, TOKEN, Call, CodeHost, GitHubHost, GitLabHost, Reply, served

from gpuctl.adapters.notify import CodeHost as CodeHostReceiver
from gpuctl.adapters.notify import Folder, Sender, Slack, Webhook, receivers_of
from gpuctl.adapters.notify.sender import MOST_WAITING, NotNow, Refused
from gpuctl.app.notices import CommitNotice, Notice, NoticeKind, Verdict
from gpuctl.model.ids import Revision

COMMIT = Revision("2" * 40)
NOTICE = Notice(
    kind=NoticeKind.HELD, cluster="prod", commit=COMMIT, message="<!channel> & co", at="2026-03-02T10:00:00Z",
    project="a",
)  # fmt: skip
STATUS = CommitNotice(commit=COMMIT, verdict=Verdict.FAILURE, cluster="prod", message="x" * 300)
REMOTE = f"https://github.com/{REPOSITORY}.git"


class Hook(CodeHost):
    """Any webhook."""

    def serve(self, call: Call) -> Reply:
        del call
        return 200, {"Content-Type": "text/plain"}, b"ok"


@pytest.fixture
def hook() -> Iterator[Hook]:
    with served(Hook()) as running:
        assert isinstance(running, Hook)
        yield running


def settings(**files: str) -> Callable[[str], str]:
    return lambda name: files.get(name.replace("-", "_"), "")


@contextmanager
def sending(*receivers: Any) -> Iterator[tuple[Sender, list[tuple[str, str, str]]]]:
    ended: list[tuple[str, str, str]] = []
    with closing(Sender(receivers, lambda *told: ended.append(told), first_retry_s=0.01)) as sender:
        yield sender, ended


def within(holds: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_slack_gets_text_without_mentions(hook: Hook) -> None:
    Slack(settings(slack_url=f"{hook.url}/x")).send(NOTICE)
    (call,) = hook.calls
    assert call.body == {"text": "🔴 *prod* held: &lt;!channel&gt; &amp; co"}


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("@channel @all @here", "@ channel @ all @ here"),
        ("image x:@channel, y-@here, z_@all", "image x:@ channel, y-@ here, z_@ all"),
        ("[apply it](https://evil.example)", "[apply it] (https: //evil.example)"),
        ("![x](//evil.example/x.png) [a][b] [b]: //c", "![x] (//evil.example/x.png) [a] [b] [b] : //c"),
        ("HTTPS://x www.evil.example mailto:a@b", "HTTPS: //x www .evil.example mailto :a@b"),
        ("registry/x@sha256:0 at 10:00", "registry/x@sha256:0 at 10:00"),
    ],
)
def test_mattermost_and_rocket_chat_find_no_mention_or_link_either(hook: Hook, said: str, told: str) -> None:
    Slack(settings(slack_url=f"{hook.url}/x")).send(replace(NOTICE, message=said))
    (call,) = hook.calls
    assert call.body == {"text": f"🔴 *prod* held: {told}"}


def test_an_answer_that_does_not_end_is_not_waited_for() -> None:
    """A byte a second keeps every time to read below its bound."""
    with ExitStack() as stack:
        there = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        ended = Event()
        stack.callback(ended.set)

        def drip() -> None:
            client, _ = there.accept()
            with client, suppress(OSError):
                client.recv(1 << 16)
                client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n")
                while not ended.wait(0.5):
                    client.sendall(b"x")

        Thread(target=drip, daemon=True).start()
        began = time.monotonic()
        Webhook(settings(webhook_url=f"http://127.0.0.1:{there.getsockname()[1]}")).send(NOTICE)
        assert time.monotonic() - began < 120


def test_a_webhook_gets_a_signed_form(hook: Hook) -> None:
    Webhook(settings(webhook_url=hook.url, webhook_key="k")).send(NOTICE)
    (call,) = hook.calls
    assert (call.body["event"], call.body["project"], call.body["commit"]) == ("held", "a", COMMIT)
    digest = hmac.new(b"k", json.dumps(call.body).encode(), "sha256").hexdigest()
    assert call.headers["x-signature"] == f"sha256={digest}"


@pytest.mark.parametrize("host", ["github", "gitlab"])
def test_the_commits_status_is_set_on_the_code_host(host: str) -> None:
    with served(GitHubHost() if host == "github" else GitLabHost()) as there:
        own = {"github": {"github_url": there.url}, "gitlab": {"gitlab_url": there.url}}[host]
        read = settings(**own, **{f"{host}_token": TOKEN})
        CodeHostReceiver(read, f"https://127.0.0.1/{REPOSITORY}.git").send(STATUS)
        assert there.statuses[COMMIT] == ("failure" if host == "github" else "failed", "gpuctl/prod")


def test_what_is_not_set_up_is_not_told() -> None:
    assert [each.takes(NOTICE) or each.takes(STATUS) for each in receivers_of(settings(), REMOTE)] == [False] * 3
    with sending(*receivers_of(settings(), REMOTE)) as (sender, ended):
        sender.notify([NOTICE], STATUS)
    assert ended == []


@pytest.mark.parametrize("status", [500, 429])
def test_a_fault_that_passes_is_tried_again(hook: Hook, status: int) -> None:
    hook.faults += [(status, {}, b"no"), (status, {}, b"no")]
    with sending(Webhook(settings(webhook_url=hook.url))) as (sender, ended):
        sender.notify([NOTICE], None)
        within(lambda: ended)
    assert ended == [("webhook", "sent", "")]
    assert len(hook.calls) == 3


def test_a_refusal_is_not_repeated_and_names_no_address(hook: Hook) -> None:
    hook.faults.append((404, {}, b"no_team"))
    with sending(Slack(settings(slack_url=f"{hook.url}/s3cr3t"))) as (sender, ended):
        sender.notify([NOTICE], None)
        within(lambda: ended)
    assert ended == [("slack", "refused", "HTTP status 404")]


def test_redirects_are_not_followed(hook: Hook) -> None:
    hook.faults.append((302, {"Location": f"{hook.url}/elsewhere"}, b""))
    with pytest.raises(Refused):
        Slack(settings(slack_url=hook.url)).send(NOTICE)
    assert len(hook.calls) == 1


@pytest.mark.parametrize("url", ["http://slack.example.com/x", "file:///etc/passwd", "https://", "x", "http://[::1"])
def test_an_address_that_is_not_fit_gets_no_secret(url: str) -> None:
    with pytest.raises(Refused, match="address"):
        Slack(settings(slack_url=url)).send(NOTICE)


def test_a_dead_receiver_holds_up_neither_the_caller_nor_another(hook: Hook) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        dead = Slack(settings(slack_url=f"http://127.0.0.1:{silent.getsockname()[1]}"))
        with sending(dead, Webhook(settings(webhook_url=hook.url))) as (sender, ended):
            began = time.monotonic()
            for _ in range(MOST_WAITING + 50):
                sender.notify([NOTICE], None)
            assert time.monotonic() - began < 60  # one that waited for the receiver would wait ten seconds for each
            within(lambda: ("webhook", "sent", "") in ended)
            assert any(each[:2] == ("slack", "dropped") for each in ended)


def test_one_that_is_not_there_is_tried_later() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(NotNow) as caught:
        Webhook(settings(webhook_url=f"http://127.0.0.1:{port}/s3cr3t")).send(NOTICE)
    assert "s3cr3t" not in str(caught.value)


def test_settings_are_files_that_are_read_anew_and_bounded(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    assert folder("slack-url") == ""
    (tmp_path / "slack-url").write_text("https://x\n")
    assert folder("slack-url") == "https://x"
    (tmp_path / "slack-url").write_bytes(b"\xff")
    assert folder("slack-url") == ""
    (tmp_path / "slack-url").write_bytes(b"x" * 99_999)
    assert folder("slack-url") == ""
