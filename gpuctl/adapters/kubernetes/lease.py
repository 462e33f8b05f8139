"""The port Leadership by a Lease: a thread renews it, and the clock, not the thread, decides whether it is held.

So a process that was stopped past its term and continues does not write: the clock has gone on without it, and counts a
machine's sleep too if the system has such a clock.
"""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Thread
from uuid import uuid4

from gpuctl.adapters.kubernetes.connection import Connection
from gpuctl.adapters.kubernetes.doubts import Doubts
from gpuctl.adapters.kubernetes.election import (
    Candidacy,
    Timing,
    claim,
    dropped,
    made,
    observed,
    release,
    renewed,
    shows_a_restore,
)
from gpuctl.adapters.kubernetes.paths import collection, item
from gpuctl.adapters.kubernetes.requests import OnRequest, Request, Requests, encoded, ignored
from gpuctl.adapters.kubernetes.timings import Timings
from gpuctl.app.ports import Conflict, NotFound, WorldFault
from gpuctl.diag.bug import told_bug
from gpuctl.diag.wording import message
from gpuctl.k8s.kinds import LEASE
from gpuctl.k8s.names import LEASE_NAME, SYSTEM_NAMESPACE
from gpuctl.model.ids import ObjectRef
from gpuctl.model.state import Body
from gpuctl.model.units import DurationMs, Instant

_REF = ObjectRef(*LEASE, SYSTEM_NAMESPACE, LEASE_NAME)
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_MS_NS = 1_000_000


def no_change() -> None:
    """Ignore the change: the default `on_change`."""


def new_identity() -> str:
    """An identity that differs for each process: the host's name (in a cluster, the pod's) and eight random digits."""
    return f"{socket.gethostname()}_{uuid4().hex[:8]}"


class LeaseLeadership:
    """Implements the port Leadership. Tries to acquire the Lease from the start; `close` it after the last write.

    `on_change`: called from the thread when the Lease was acquired or lost. `on_restore`: called from the thread when
    the Lease shows that etcd may have been restored. Cost: a request every two seconds or so.
    """

    def __init__(  # noqa: PLR0913 - all by name, all with a default
        self,
        connection: Connection,
        *,
        identity: str = "",
        on_change: Callable[[], None] = no_change,
        on_restore: Callable[[], None] = no_change,
        on_request: OnRequest = ignored,
        timing: Timing | None = None,
    ) -> None:
        self._timing = timing or Timing()
        limits = Timings(connect_ms=self._timing.request_ms, answer_ms=self._timing.request_ms, tries=1)
        self._requests = Requests(connection, limits, on_request)
        self._on_change = on_change
        self._on_restore = on_restore
        self._candidacy = Candidacy(identity=identity or new_identity())
        self._doubts = Doubts(self._requests.timings.doubt_ms)
        self._fault: WorldFault | None = None
        self._told = False
        self._closing = Event()
        self._thread = Thread(target=self._seek, name="lease", daemon=True)
        self._thread.start()

    def held(self) -> bool:
        """Whether this process holds the Lease by the clock: a request sent now arrives before another can hold it."""
        return self._candidacy.holds(_now_ms())

    def holder(self) -> str:
        """The holder when the Lease was last read; "" if there was none, or this process let its term end."""
        candidacy = self._candidacy
        return "" if candidacy.is_own and not candidacy.holds(_now_ms()) else candidacy.holder

    def term(self) -> int:
        """How often the Lease had changed hands when it was last read. It never decreases in this process."""
        return self._candidacy.last_term

    def fault(self) -> WorldFault | None:
        """Why the last round could not read or write the Lease; None if it could.

        GPU7030: its namespace does not exist. GPU9001: a bug of gpuctl. Else as any request: GPU7001, GPU7015, …
        """
        return self._fault

    def close(self) -> None:
        """Stop, and release the Lease so that the next process gets it at once. Takes two requests at most."""
        self._closing.set()
        self._thread.join()
        body = release(self._candidacy, _now_ms(), _wall_ms())
        self._candidacy = dropped(self._candidacy)
        if body is not None:
            with suppress(WorldFault):  # then the next process waits until the Lease has expired
                self._put(body)

    def _seek(self) -> None:
        while not self._closing.is_set():
            try:
                self._fault = self._round()
            except Exception as error:  # noqa: BLE001 - without this thread nothing would ever be written again
                self._fault = WorldFault("GPU9001", message("GPU9001", {"what": told_bug(error)}))
            if self.held() != self._told:
                self._told = not self._told
                self._on_change()
            self._closing.wait(_jittered(self._timing.retry_ms) / 1000)

    def _round(self) -> WorldFault | None:
        """Read the Lease, unless this process held it at the last read or write, and write it if it may be acquired."""
        try:
            if not self._candidacy.is_own:
                self._look()
            body = claim(self._candidacy, self._timing, _now_ms(), _wall_ms())
            if body is not None:
                self._write(body)
        except WorldFault as fault:
            return self._doubts.judged(_REF, fault)
        self._doubts.allowed(_REF)
        return None

    def _look(self) -> None:
        request = Request(verb="get", kind=LEASE, path=item(_REF), what=f"read {_REF}")
        lease: Body | None = None
        with suppress(NotFound):
            lease = self._requests.send(request)
        if shows_a_restore(self._candidacy, lease):
            self._on_restore()
        self._candidacy = observed(self._candidacy, lease, _now_ms(), self._timing)

    def _write(self, body: Body) -> None:
        """Write the Lease. Its term counts from before the request. If another process was faster, read its Lease: the
        next round continues from that."""
        sent_ms = _now_ms()
        try:
            if self._candidacy.lease is None:
                self._candidacy = made(self._candidacy, self._post(body), _now_ms(), self._timing)
            else:
                self._candidacy = renewed(self._candidacy, self._put(body), sent_ms, self._timing)
        except (Conflict, NotFound):
            self._look()

    def _put(self, body: Body) -> Body:
        return self._send("update", "PUT", item(_REF), body)

    def _post(self, body: Body) -> Body:
        named = {**body, "metadata": {"name": _REF.name, "namespace": _REF.namespace}}
        try:
            return self._send("create", "POST", collection(LEASE, _REF.namespace), named)
        except NotFound as fault:
            raise WorldFault("GPU7030", message("GPU7030", {"namespace": _REF.namespace})) from fault

    def _send(self, verb: str, method: str, path: str, body: Body) -> Body:
        stored: Body = self._requests.send(
            Request(verb=verb, kind=LEASE, method=method, path=path, what=f"{verb} {_REF}", body=encoded(body))
        )
        return stored


def _now_ms() -> Instant:
    return time.clock_gettime_ns(_CLOCK) // _MS_NS


def _wall_ms() -> Instant:
    return time.time_ns() // _MS_NS


def _jittered(duration_ms: DurationMs) -> DurationMs:
    return random.randint(duration_ms, duration_ms + duration_ms // 5)  # noqa: S311 - spreads clients, guards nothing
