"""Publishes one object from a separate thread, and reads it while another replica publishes. The loop never waits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Condition, Thread

from gpuctl.adapters.kubernetes.connection import Connection
from gpuctl.adapters.kubernetes.paths import collection, with_query
from gpuctl.adapters.kubernetes.requests import APPLY, OnRequest, Request, Requests, always, ignored, patching
from gpuctl.adapters.kubernetes.timings import Timings
from gpuctl.app.ports import WorldFault
from gpuctl.k8s.objects import items
from gpuctl.model.ids import ObjectRef
from gpuctl.model.state import Body

_AGAIN_S = 10
_READ_S = 10
_LAST_WORDS_S = 2
_PATIENCE = Timings(tries=2, connect_ms=2_000, answer_ms=5_000)


class ObjectPublisher:
    """Implements the port Publisher. `permit`: asked right before each write. `close` ends it after at most 2 s."""

    def __init__(
        self,
        connection: Connection,
        ref: ObjectRef,
        *,
        permit: Callable[[], bool] = always,
        on_request: OnRequest = ignored,
        read_s: int = _READ_S,
    ) -> None:
        self._requests = Requests(connection, _PATIENCE, on_request)
        self._permit = permit
        self._ref = ref
        self._read_s = read_s
        self._latest: Body | None = None
        self._waiting: Body | None = None
        self._changed = Condition()
        self._closing = False
        self._thread = Thread(target=self._run, name="status", daemon=True)
        self._thread.start()

    def publish(self, body: Body) -> None:
        """Write the object soon; a newer one replaces one that still waits."""
        with self._changed:
            self._waiting = body
            self._changed.notify()

    def latest(self) -> Body | None:
        """The object as last read."""
        return self._latest

    def now(self) -> Body | None:
        """The object as it is now; None if it can't be read."""
        with suppress(WorldFault):
            return self._read()
        return None

    def close(self) -> None:
        """Write the waiting object if that takes no longer than 2 s, then end."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(_LAST_WORDS_S)
        self._requests.close()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over():
            body = self._next()
            with suppress(WorldFault):
                if body is None and not self._permit():
                    self._latest = self._read()
            try:
                if body is not None:
                    self._write(body)
            except WorldFault:
                self._try_later(body)

    def _is_over(self) -> bool:
        with self._changed:
            return self._closing and self._waiting is None

    def _next(self) -> Body | None:
        """The waiting object, as soon as there is one; None after a while."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting is not None or self._closing, self._read_s)
            body, self._waiting = self._waiting, None
            return body

    def _try_later(self, body: Body | None) -> None:
        """Put the object back unless there is a newer one, or another replica leads."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting is not None or self._closing, _AGAIN_S)
            if self._waiting is None and not self._closing and self._permit():
                self._waiting = body

    def _read(self) -> Body | None:
        return read_one(self._requests, self._ref)

    def _write(self, body: Body) -> None:
        self._requests.send(patching(self._ref, body, APPLY), self._permit)


def read_one(requests: Requests, ref: ObjectRef) -> Body | None:
    """One object, by a list, which a cycle has the right to anyway; None if it does not exist. Raises WorldFault."""
    kind = (ref.api_version, ref.kind)
    path = with_query(collection(kind, ref.namespace), {"fieldSelector": f"metadata.name={ref.name}"})
    listed = requests.send(Request(verb="list", kind=kind, path=path, what=f"read {ref}"))
    found = [*items(listed, "items")]
    return {"apiVersion": ref.api_version, "kind": ref.kind, **found[0]} if found else None


def read_all(requests: Requests, refs: Sequence[ObjectRef]) -> Sequence[Body]:
    """The objects that exist. Raises WorldFault."""
    return [body for ref in refs if (body := read_one(requests, ref)) is not None]
