"""Receives webhooks of GitHub and GitLab for pushes. A sender with the secret can have Git read now, and nothing else.

gpuctl checks only a request's secret; it does not read the rest, so a push to any branch has Git read once. GitHub
signs the body, GitLab sends the secret itself. A body that was seen before does nothing again, and Git is asked for at
most every LEAST_S, however many pushes come. Every replica receives them: it asks as `gpuctl sync` does, through the
object that the leader watches.

Bounds: a request of at most MOST_BYTES, hashed as it comes and never kept, within 10 s; MOST_AT_ONCE requests. Hardly
anything is read of a request that has neither the secret nor what could be a signature.
"""

from __future__ import annotations

import hmac
import re
from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from http import HTTPStatus
from threading import Condition, Lock, Thread
from typing import Any

from gpuctl.adapters.http_server import BoundedServer, BriefHandler
from gpuctl.app.ports import WorldFault

MOST_BYTES = 25 << 20
"""The largest body that GitHub sends."""
MOST_AT_ONCE = 8
LEAST_S = 1.0
REMEMBERED = 1_024
"""How many bodies are remembered, by their hashes."""
_CHUNK_BYTES = 1 << 16
_TRIES = 3
_SHORTEST_SECRET = 16
_SIGNATURE = re.compile(r"sha256=[0-9a-f]{64}")


class PushReceiver(BoundedServer):
    """Serves POST /push at HOST:PORT until it is closed.

    `secret` is read for each request; while it is "", nothing is accepted. `ask` has Git read. It runs in a thread of
    its own; if it raises WorldFault it is tried again.
    """

    def __init__(
        self, address: str, secret: Callable[[], str], ask: Callable[[], None], least_s: float = LEAST_S
    ) -> None:
        """Raises WorldFault GPU7031 if the address is none, or can't be listened on."""
        self._asker = _Asker(ask, least_s)
        self._secret = secret
        self._seen: OrderedDict[bytes, None] = OrderedDict()
        self._lock = Lock()

        class Handler(_Handler):
            pushes = self

        super().__init__(address, Handler, MOST_AT_ONCE)
        self._asker.start()

    def close(self) -> None:
        """Stop serving."""
        super().close()
        self._asker.close()

    def judge(self, headers: Any) -> _Judge | None:
        """A judge of whether the body belongs to these headers; None if nothing can be accepted."""
        secret = self._secret()
        if len(secret) < _SHORTEST_SECRET:
            return None
        token = str(headers.get("x-gitlab-token") or "").encode("latin-1", "replace")  # the bytes that came
        return _Judge(secret, str(headers.get("x-hub-signature-256") or ""), token)

    def accept(self, digest: bytes) -> None:
        """Take a body that came with the secret."""
        with self._lock:
            if digest in self._seen:
                return
            self._seen[digest] = None
            if len(self._seen) > REMEMBERED:
                self._seen.popitem(last=False)
        self._asker.ask()


class _Judge:
    """Compares signature and secret in constant time, whichever of them was sent."""

    def __init__(self, secret: str, signature: str, token: bytes) -> None:
        self._secret = secret.encode()
        self._hmac = hmac.new(self._secret, digestmod=sha256)
        self._signature = signature
        self._is_sent = hmac.compare_digest(sha256(self._secret).digest(), sha256(token).digest())
        self._body = sha256()

    def take(self, chunk: bytes) -> None:
        """Take a part of the body."""
        self._hmac.update(chunk)
        self._body.update(chunk)

    @property
    def digest(self) -> bytes:
        """The hash of the body."""
        return self._body.digest()

    @property
    def may_be_right(self) -> bool:
        """Whether the body is worth reading: the secret was sent, or what could be a signature."""
        return self._is_sent or _SIGNATURE.fullmatch(self._signature) is not None

    def is_right(self) -> bool:
        """Whether the body is signed with the secret, or the secret was sent."""
        signed = hmac.compare_digest(f"sha256={self._hmac.hexdigest()}".encode(), self._signature.encode())
        return signed or self._is_sent


class _Asker:
    """Asks in a thread of its own, at most once in `least_s`; all requests meanwhile make one more."""

    def __init__(self, ask: Callable[[], None], least_s: float) -> None:
        self._ask = ask
        self._least_s = least_s
        self._is_due = False
        self._closing = False
        self._changed = Condition()
        self._thread = Thread(target=self._run, name="push", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ask(self) -> None:
        with self._changed:
            self._is_due = True
            self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(_TRIES * self._least_s)

    def _run(self) -> None:
        while self._begins():
            for _ in range(_TRIES):
                try:
                    self._ask()
                except WorldFault:
                    pass  # Git is read at the next interval all the same
                else:
                    break
                if self._rests():
                    return
            if self._rests():
                return

    def _begins(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._is_due or self._closing)
            self._is_due = False
            return not self._closing

    def _rests(self) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._closing, self._least_s)


class _Handler(BriefHandler):
    pushes: PushReceiver

    def do_POST(self) -> None:  # noqa: N802 - the standard library calls it so
        """Take a push."""
        length = self.headers.get("content-length", "")
        if self.path.partition("?")[0] != "/push":
            return self.answer(HTTPStatus.NOT_FOUND)
        if not length.isdecimal() or not length.isascii() or len(length) > len(str(MOST_BYTES)):
            return self.answer(HTTPStatus.LENGTH_REQUIRED)
        if int(length) > MOST_BYTES:
            return self.answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        judge = self.pushes.judge(self.headers)
        if judge is None:
            return self.answer(HTTPStatus.SERVICE_UNAVAILABLE)
        left = int(length)
        if not judge.may_be_right:
            self.rfile.read(min(left, _CHUNK_BYTES))  # else a sender that is set up wrong sees a reset, and no answer
            return self.answer(HTTPStatus.UNAUTHORIZED)
        while left:
            chunk = self.rfile.read(min(left, _CHUNK_BYTES))
            if not chunk:
                return None
            judge.take(chunk)
            left -= len(chunk)
        if not judge.is_right():
            return self.answer(HTTPStatus.UNAUTHORIZED)
        if self.headers.get("x-github-event") != "ping":
            self.pushes.accept(judge.digest)
        return self.answer(HTTPStatus.ACCEPTED)
