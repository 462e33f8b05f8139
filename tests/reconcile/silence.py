"""A server on this machine that takes connections and never says a word."""

from __future__ import annotations

import select
import socket
import time
from threading import Event, Thread
from types import TracebackType
from typing import Self


class SilentServer:
    """Accepts whoever comes, until it is left. `came` is set when somebody has."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._taken: list[socket.socket] = []
        self._thread = Thread(target=self._accept, daemon=True)
        self.came = Event()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._listening.getsockname()[1]}/repo.git"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for one in self._taken:
            one.close()

    def waits(self) -> bool:
        """Whether somebody still waits for an answer: nobody has hung up who came."""
        return any(not self._hung_up(one) for one in self._taken)

    def left_within(self, seconds: float) -> bool:
        """Whether all who came hang up by then."""
        until = time.monotonic() + seconds
        while self.waits() and time.monotonic() < until:
            time.sleep(0.02)
        return not self.waits()

    def _hung_up(self, one: socket.socket) -> bool:
        try:
            while select.select([one], [], [], 0)[0]:
                if not one.recv(1 << 16):
                    return True
        except OSError:
            return True
        return False

    def _accept(self) -> None:
        try:
            while True:
                self._taken.append(self._listening.accept()[0])
                self.came.set()
        except OSError:
            return
