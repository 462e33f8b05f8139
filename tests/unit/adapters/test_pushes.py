"""The receiver of webhooks: the secret alone has Git read, once a body, and no request costs more than its bound."""

from __future__ import annotations

import hmac
import http.client
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from threading import Event

import pytest

from gpuctl.adapters.http_server import MOST_HEAD_BYTES, BriefHandler
from gpuctl.adapters.pushes import MOST_AT_ONCE, MOST_BYTES, PushReceiver
from gpuctl.app.ports import ClusterUnavailable, WorldFault

PATIENCE_S = 180
SECRET = "a secret of this cluster"
NO_MORE: Mapping[str, str] = {}
BODY = b'{"ref": "refs/heads/main"}'


class World:
    """What is asked, and the secret."""

    def __init__(self) -> None:
        self.secret = SECRET
        self.asked = 0
        self.faults = 0
        self.answers = Event()
        self.answers.set()
        self.begun = Event()

    def ask(self) -> None:
        self.begun.set()
        self.answers.wait(PATIENCE_S)
        if self.faults:
            self.faults -= 1
            raise ClusterUnavailable("GPU7001", "away")
        self.asked += 1


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def port(world: World) -> Iterator[int]:
    with closing(PushReceiver("127.0.0.1:0", lambda: world.secret, world.ask, least_s=0.02)) as receiver:
        yield receiver.port


def signed(body: bytes, secret: str = SECRET) -> dict[str, str]:
    return {"X-Hub-Signature-256": f"sha256={hmac.new(secret.encode(), body, 'sha256').hexdigest()}"}


def post(port: int, headers: dict[str, str], body: bytes = BODY, path: str = "/push") -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    with closing(connection):
        connection.request("POST", path, body, headers)
        return connection.getresponse().status


def within(holds: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("headers", [signed(BODY), {"X-Gitlab-Token": SECRET}], ids=["github", "gitlab"])
def test_a_push_has_git_read_once_also_if_it_is_replayed(port: int, world: World, headers: dict[str, str]) -> None:
    assert [post(port, headers) for _ in range(3)] == [202] * 3
    within(lambda: world.asked)
    time.sleep(0.1)
    assert world.asked == 1
    other = BODY + b" "
    assert post(port, headers if "X-Gitlab-Token" in headers else signed(other), other) == 202
    within(lambda: world.asked == 2)


@pytest.mark.parametrize(
    "headers",
    [
        {}, signed(BODY, "another secret of it"), signed(b"another body"), {"X-Gitlab-Token": SECRET[:-1]},
        {"X-Gitlab-Token": ""}, {"X-Hub-Signature-256": "sha256="}, {"X-Hub-Signature-256": "ü"},
    ],
)  # fmt: skip
def test_without_the_secret_nothing_happens(port: int, world: World, headers: dict[str, str]) -> None:
    assert post(port, headers) == 401
    time.sleep(0.05)
    assert world.asked == 0


@pytest.mark.parametrize("header", ["", "X-Hub-Signature-256: sha256=0\r\n", "X-Gitlab-Token: a guess\r\n"])
def test_a_large_body_of_a_stranger_is_not_waited_for(port: int, world: World, header: str) -> None:
    """Hashing 25 MiB of whoever reaches the port, again and again, would take the loop's time."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as client:
        client.sendall(f"POST /push HTTP/1.1\r\nContent-Length: {MOST_BYTES}\r\n{header}\r\n".encode())
        client.sendall(b"x" * (1 << 16))
        assert client.recv(12) == b"HTTP/1.0 401"
    assert world.asked == 0


@pytest.mark.parametrize("secret", ["", "short"])
def test_without_a_secret_of_its_own_nothing_is_accepted(port: int, world: World, secret: str) -> None:
    world.secret = secret
    assert post(port, {"X-Gitlab-Token": secret}) == 503
    assert post(port, signed(BODY, secret)) == 503
    assert world.asked == 0


def test_a_secret_may_have_any_letters(port: int, world: World) -> None:
    """A header is bytes, which the standard library reads as Latin-1."""
    world.secret = "ein Schlüssel für λ, 鍵"
    assert post(port, {"X-Gitlab-Token": world.secret.encode().decode("latin-1")}) == 202
    assert post(port, {"X-Gitlab-Token": "ein Schlüssel für ?, ?"}) == 401
    within(lambda: world.asked == 1)


def test_many_pushes_are_few_questions(port: int, world: World) -> None:
    world.answers.clear()
    for number in range(30):
        assert post(port, signed(b"%d" % number), b"%d" % number) == 202
        assert world.begun.wait(PATIENCE_S)
    world.answers.set()
    within(lambda: world.asked == 2)  # the first push's, and one for all that came meanwhile
    time.sleep(0.1)
    assert world.asked == 2


def test_what_could_not_be_asked_is_asked_again(port: int, world: World) -> None:
    world.faults = 2
    post(port, signed(BODY))
    within(lambda: world.asked == 1)


def test_a_ping_asks_nothing(port: int, world: World) -> None:
    assert post(port, {**signed(BODY), "X-GitHub-Event": "ping"}) == 202
    time.sleep(0.05)
    assert world.asked == 0


def test_other_requests_are_turned_away(port: int) -> None:
    assert post(port, signed(BODY), path="/metrics") == 404
    assert post(port, {**signed(BODY), "Content-Length": "-1"}) == 411
    assert post(port, {**signed(BODY), "Content-Length": str(MOST_BYTES + 1)}, b"") == 413
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    with closing(connection):
        connection.request("GET", "/push")
        assert connection.getresponse().status == 501


def test_slow_clients_end_and_leave_room(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BriefHandler, "timeout", 5.0)
    with ExitStack() as stack:
        receiver = stack.enter_context(closing(PushReceiver("127.0.0.1:0", lambda: world.secret, world.ask, 0.02)))
        for _ in range(MOST_AT_ONCE):
            slow = stack.enter_context(socket.create_connection(("127.0.0.1", receiver.port)))
            slow.sendall(b"POST /push HTTP/1.1\r\n")
        within(lambda: not _is_taken(receiver.port))  # once all of them are served
        within(lambda: _is_taken(receiver.port))


def test_no_more_is_kept_of_headers_than_a_webhook_has(port: int, world: World) -> None:
    """Of a stranger's, too: eight requests with all that the standard library keeps took 275 MB."""
    most = MOST_HEAD_BYTES - 1024
    assert not _is_taken(port, {f"X-{number}": "x" * (most // 50) for number in range(60)})
    assert not _is_taken(port, {"X": "x" * MOST_HEAD_BYTES})
    assert world.asked == 0
    assert _is_taken(port, {f"X-{number}": "x" * (most // 60) for number in range(50)})


def _is_taken(port: int, more: Mapping[str, str] = NO_MORE) -> bool:
    try:
        return post(port, {**signed(BODY), **more}) == 202
    except (http.client.HTTPException, OSError):
        return False


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:99999", "256.0.0.1:1"])
def test_an_address_that_is_none(address: str, world: World) -> None:
    with pytest.raises(WorldFault) as caught:
        PushReceiver(address, lambda: SECRET, world.ask)
    assert caught.value.code == "GPU7031"
