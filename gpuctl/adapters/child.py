"""A `gpuctl reconcile` in a separate process, as benchmarks measure it: by its own /metrics and journal."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import URLError

from gpuctl.app.bench.cluster_ports import Usage
from gpuctl.app.ports import ClusterUnavailable
from gpuctl.diag.escapes import printable
from gpuctl.diag.wording import message

_WITHIN_S = 30.0
_GRACE_S = 20.0
_POLL_S = 0.05
_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_WRITES = frozenset({"patch", "delete", "create", "update"})
_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB", re.MULTILINE)
_MIB = 1 << 20
_KIB_IN_A_MIB = 1 << 10


class ReconcileProcess:
    """Implements the port Controller."""

    def __init__(self, arguments: Sequence[str], folder: Path) -> None:
        """Start it with these arguments of `gpuctl reconcile`; its journal goes to the folder.

        Raises ClusterUnavailable GPU7090 if it does not come up.
        """
        self._address = f"127.0.0.1:{_free_port()}"
        self._journal = folder / "journal"
        watched = ["--metrics-address", self._address, "--log-format", "json"]
        with self._journal.open("wb") as journal:
            self._process = subprocess.Popen(  # noqa: S603 - ourselves
                [sys.executable, "-m", "gpuctl", "reconcile", *arguments, *watched], stdout=journal, stderr=journal
            )
        try:
            self._await_ready()
        except BaseException:
            self.close()
            raise

    def usage(self) -> Usage:
        """The usage in its /metrics; the peak memory comes from the system."""
        writes: Counter[str] = Counter()
        write_ms: Counter[str] = Counter()
        cpu_ms = mib = 0
        for name, labelled, value in _SAMPLE.findall(self._get("/metrics")):
            labels = dict(_LABEL.findall(labelled))
            if name == "process_cpu_seconds_total":
                cpu_ms = int(float(value) * 1000)
            elif name == "process_resident_memory_bytes":
                mib = int(float(value)) // _MIB
            elif name == "gpuctl_api_requests_total" and labels["verb"] in _WRITES and labels["kind"] != "Lease":
                writes[labels["kind"]] += int(float(value))
            elif name == "gpuctl_api_request_seconds_sum" and labels["verb"] in _WRITES and labels["kind"] != "Lease":
                write_ms[labels["kind"]] += int(float(value) * 1000)
        events = writes.pop("Event", 0)
        return Usage(
            cpu_ms=cpu_ms,
            memory_mib=mib,
            peak_mib=self._peak_mib(),
            writes=writes,
            events=events,
            write_ms=write_ms,
        )

    def told(self) -> Sequence[Mapping[str, Any]]:
        """The complete lines of its journal."""
        lines = self._journal.read_text(errors="replace").split("\n")
        return [json.loads(line) for line in lines[:-1] if line.startswith("{")]

    def close(self) -> None:
        """Ask it to end; kill it if it does not."""
        self._process.terminate()
        try:
            self._process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _peak_mib(self) -> int:
        """The peak memory on Linux; 0 elsewhere."""
        with suppress(OSError):
            found = _PEAK.search(Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii"))
            return int(found[1]) // _KIB_IN_A_MIB if found else 0
        return 0

    def _await_ready(self) -> None:
        until = time.monotonic() + _WITHIN_S
        while True:
            try:
                self._get("/readyz")
            except ClusterUnavailable:
                if self._process.poll() is not None or time.monotonic() > until:
                    raise
                time.sleep(_POLL_S)
            else:
                return

    def _get(self, path: str) -> str:
        try:
            with urllib.request.urlopen(f"http://{self._address}{path}", timeout=_WITHIN_S) as answer:
                content: bytes = answer.read()
        except (URLError, OSError) as error:
            lines = self._journal.read_text(errors="replace").strip().splitlines()
            facts = {"said": printable(lines[-1] if lines else str(error))}
            raise ClusterUnavailable("GPU7090", message("GPU7090", facts)) from error
        return content.decode()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as held:
        return int(held.getsockname()[1])
