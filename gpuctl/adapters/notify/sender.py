"""A bounded queue and a thread for each receiver: a slow or dead one delays neither the loop nor another receiver."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from threading import Condition, Thread
from typing import Protocol

from gpuctl.app.notices import CommitNotice, Notice

MOST_WAITING = 100
"""The most messages that wait for a receiver; the oldest are dropped."""
TRIES = 8
FIRST_RETRY_S, LAST_RETRY_S = 1.0, 120.0
"""Waits between the tries of a message: doubling, some four minutes in all."""
_LAST_WORDS_S = 1.0

Message = Notice | CommitNotice


class NotNow(Exception):
    """The receiver can't be reached, or can't take the message now: gpuctl tries again."""


class Refused(Exception):
    """The receiver will not take the message: gpuctl drops it."""


class Receiver(Protocol):
    """A receiver of messages outside of the cluster."""

    @property
    def name(self) -> str:
        """The kind of receiver, for logs and measurements."""
        ...

    def takes(self, message: Message) -> bool:
        """Whether the receiver gets such messages, and is set up."""
        ...

    def send(self, message: Message) -> None:
        """Send the message. Raises NotNow, Refused; their texts name no address and no secret."""
        ...


OnEnd = Callable[[str, str, str], None]
"""Called at each message's end with the receiver's name, the result (sent, refused, failed or dropped) and why."""


class Sender:
    """Implements the port Notifier. `close` gives waiting messages a second, then ends; the rest is lost."""

    def __init__(self, receivers: Sequence[Receiver], on_end: OnEnd, first_retry_s: float = FIRST_RETRY_S) -> None:
        self._lines = [_Line(receiver, on_end, first_retry_s) for receiver in receivers]

    def notify(self, notices: Sequence[Notice], commit: CommitNotice | None) -> None:
        """Put the messages in line."""
        for line in self._lines:
            line.add([*notices, *([] if commit is None else [commit])])

    def close(self) -> None:
        """End all threads."""
        for line in self._lines:
            line.close()


class _Line:
    """The messages that wait for one receiver, and its thread."""

    def __init__(self, receiver: Receiver, on_end: OnEnd, first_retry_s: float) -> None:
        self._receiver = receiver
        self._on_end = partial(on_end, receiver.name)
        self._first_retry_s = first_retry_s
        self._waiting: deque[Message] = deque()
        self._changed = Condition()
        self._closing = False
        self._thread = Thread(target=self._run, name=f"notify {receiver.name}", daemon=True)
        self._thread.start()

    def add(self, messages: Sequence[Message]) -> None:
        with self._changed:
            self._waiting.extend(messages)
            lost = max(0, len(self._waiting) - MOST_WAITING)
            for _ in range(lost):
                self._waiting.popleft()
            self._changed.notify()
        if lost:
            self._on_end("dropped", f"{lost} messages, the oldest: more than {MOST_WAITING} wait")

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(_LAST_WORDS_S)

    def _run(self) -> None:
        while (message := self._next()) is not None:
            if self._receiver.takes(message):
                self._deliver(message)

    def _next(self) -> Message | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            return self._waiting.popleft() if self._waiting else None

    def _deliver(self, message: Message) -> None:
        why = ""
        for attempt in range(TRIES):
            try:
                self._receiver.send(message)
            except Refused as refusal:
                self._on_end("refused", str(refusal))
                return
            except NotNow as fault:
                why = str(fault)
            except Exception as error:  # noqa: BLE001 - nothing depends on it, and the next message is worth a try
                self._on_end("refused", type(error).__name__)
                return
            else:
                self._on_end("sent", "")
                return
            if attempt + 1 == TRIES or self._waits(min(self._first_retry_s * 2**attempt, LAST_RETRY_S)):
                break
        self._on_end("failed", why)

    def _waits(self, seconds: float) -> bool:
        """Wait. Returns whether to end."""
        with self._changed:
            return self._changed.wait_for(lambda: self._closing, seconds)
