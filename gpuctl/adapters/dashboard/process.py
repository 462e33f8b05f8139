"""The dashboard of a controller, in a process of its own beside it.

However many pages are asked for, and whatever the requests hold, the controller's process only hands over the objects
that have changed, and only while pages are asked for. Security: the other process has the listening socket, no
connection to the API server, and none of the controller's environment.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Condition, Thread
from typing import IO

import gpuctl
from gpuctl.adapters.dashboard.server import listening
from gpuctl.app.ports import WorldFault
from gpuctl.app.viewing import Sight
from gpuctl.k8s.objects import ref_of, resource_version
from gpuctl.model.ids import ObjectRef
from gpuctl.model.state import Body

WANTED_S = 30.0
"""How long objects are handed over after the other process last asked."""
_PUBLISHED_S = 5.0
"""The leader publishes no sooner. The overview of a large cluster is close to a megabyte."""
_BODIES = 200
"""Objects of one line: encoding them holds up the loop for some milliseconds at most."""
_FIRST_RETRY_S, _LAST_RETRY_S = 1.0, 60.0
_GRACE_S = 2.0
_MODULE = "gpuctl.adapters.dashboard.fed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What the process serves. `user_header` and `secret_file` are those of `Access`; `history` is the history's file.

    `clone` and `path`: where the enforced declarations are read. `repository`: the https address of the repository in a
    code host, for links; empty if there is none.
    """

    title: str
    address: str
    user_header: str | None = None
    secret_file: str | None = None
    history: str | None = None
    repository: str = ""
    clone: str | None = None
    path: str = ""


class DashboardProcess:
    """Implements the port Viewer. The process is started again when it has ended; `ended` is told why. `close` it.

    `published` reads the objects that the controller's own copy of the cluster leaves out; it may raise WorldFault.
    Raises WorldFault GPU7036 if the address can't be listened on.
    """

    def __init__(self, site: Site, ended: Callable[[str], None], published: Callable[[], Sequence[Body]]) -> None:
        self._site = site
        self._ended = ended
        self._published = published
        self._told: Sequence[Body] = ()
        self._read_s = float("-inf")
        self._socket = listening(site.address)
        self.port: int = self._socket.getsockname()[1]
        self._ring = Condition()
        self._next: Sight | None = None
        self._closed = False
        self._asked_s = float("-inf")
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = Thread(target=self._run, name="dashboard", daemon=True)
        self._thread.start()

    def is_wanted(self) -> bool:
        """Whether the other process asked lately."""
        return time.monotonic() - self._asked_s < WANTED_S

    def offer(self, sight: Sight) -> None:
        """Have a sight of the cluster handed over; it replaces one that still waits."""
        with self._ring:
            self._next = sight
            self._ring.notify_all()

    def close(self) -> None:
        """End the process."""
        with self._ring:
            self._closed = True
            self._ring.notify_all()
        with suppress(OSError):
            if self._process is not None:
                self._process.terminate()
        self._thread.join(2 * _GRACE_S)
        self._socket.close()

    def _run(self) -> None:
        wait_s = _FIRST_RETRY_S
        while not self._closed:
            began_s = time.monotonic()
            try:
                why = self._feed_one()
            except OSError as error:
                why = error.strerror or str(error)
            if self._closed:
                return
            self._ended(why)
            wait_s = _FIRST_RETRY_S if time.monotonic() - began_s > _LAST_RETRY_S else min(2 * wait_s, _LAST_RETRY_S)
            with self._ring:
                self._ring.wait_for(lambda: self._closed, wait_s)

    def _feed_one(self) -> str:
        """Start a process and feed it until it ends. Returns why it ended."""
        process = self._begin()
        self._process = process
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None  # noqa: S101 - both are pipes
        assert stdout is not None  # noqa: S101
        Thread(target=self._hear, args=(stdout,), name="dashboard-asks", daemon=True).start()
        try:
            with suppress(BrokenPipeError):
                self._feed(stdin, process)
        finally:
            with suppress(OSError):
                stdin.close()
            try:
                process.wait(_GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        return f"exit status {process.returncode}"

    def _begin(self) -> subprocess.Popen[bytes]:
        number = self._socket.fileno()
        names = ("title", "user_header", "secret_file", "history", "repository", "clone", "path")
        site = {name: getattr(self._site, name) for name in names}
        home = str(Path(gpuctl.__file__).parents[1])
        # -P: nothing is imported from the folder that the controller was started in.
        return subprocess.Popen(  # noqa: S603 - ourselves
            [sys.executable, "-P", "-m", _MODULE, json.dumps({"socket": number, **site})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(number,),
            env={"PATH": os.environ.get("PATH", ""), "PYTHONPATH": home},
        )

    def _hear(self, stdout: IO[bytes]) -> None:
        """Note when the process asks; the bytes it sends mean nothing. The feeding ends with the process."""
        with stdout:
            while stdout.read(1):
                self._asked_s = time.monotonic()
        with self._ring:
            self._ring.notify_all()

    def _feed(self, stdin: IO[bytes], process: subprocess.Popen[bytes]) -> None:
        sent: dict[ObjectRef, str] = {}
        while True:
            with self._ring:
                self._ring.wait_for(lambda: self._next is not None or self._closed or process.poll() is not None, 1.0)
                sight, self._next = self._next, None
            if self._closed or process.poll() is not None:
                return
            if sight is not None:
                self._read_published()
                for line in lines_of(sight, sent, self._told):
                    stdin.write(line)
                stdin.flush()

    def _read_published(self) -> None:
        """Read the published objects if they are due; if they can't be read, the last ones stay."""
        if time.monotonic() - self._read_s >= _PUBLISHED_S:
            with suppress(WorldFault):
                self._told = self._published()
            self._read_s = time.monotonic()


def lines_of(sight: Sight, sent: dict[ObjectRef, str], published: Sequence[Body] = ()) -> Iterator[bytes]:
    """The changes since `sent`, which is brought up to date. The last line ends them."""
    there = sight.objects.objects
    if published:
        there = {**there, **{ref_of(body): body for body in published}}
    gone = [ref for ref in sent if ref not in there]
    for ref in gone:
        del sent[ref]
    new = [ref for ref, body in there.items() if not sent.get(ref) or sent[ref] != resource_version(body)]
    for start in range(0, len(new), _BODIES):
        refs = new[start : start + _BODIES]
        yield _line({"set": [there[ref] for ref in refs]})
        sent.update((ref, resource_version(there[ref])) for ref in refs)
    yield _line({
        "gone": [[ref.api_version, ref.kind, ref.namespace, ref.name] for ref in gone],
        "at_ms": sight.at_ms,
        "leader": sight.leader,
        "revision": sight.revision,
        "unread": sight.unread,
    })


def _line(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"
