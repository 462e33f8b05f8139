"""Reads the exporters themselves, at each address that a URL's name resolves to.

A headless Service of the exporters' pods resolves to all of them. A Service with an address of its own leads to any
single one; the jobs on other nodes are then not measured, which makes none of them idle.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlsplit

import urllib3
from prometheus_client.parser import text_string_to_metric_families

from gpuctl.adapters.utilisation.dcgm import METRICS, sample_of
from gpuctl.adapters.utilisation.fetching import DAMAGE, fetched, pool, shown
from gpuctl.app.utilisation import Reading, Unread
from gpuctl.diag.wording import all_of
from gpuctl.model.units import Instant
from gpuctl.model.utilisation import Sample

MOST_BYTES = 4 << 20
"""The most bytes of one exporter: one for 8 GPUs with all default metrics writes 100 KiB."""
MOST_ADDRESSES = 2_000
_AT_ONCE = 8
_LONGEST_LINE = 16 * 1024
_NAMES = tuple(name.encode() for name in METRICS)


@dataclass(frozen=True, slots=True)
class _Address:
    """The address of one exporter, and the name to ask it by."""

    url: str
    host: str


def addresses_of(host: str, port: int) -> Sequence[str]:
    """The addresses that a name resolves to. Raises OSError."""
    return sorted({str(each[4][0]) for each in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)})


class Exporters:
    """Implements the port UtilisationSource by the addresses of exporters. `resolve` gives the addresses of a name."""

    def __init__(self, urls: Sequence[str], resolve: Callable[[str, int], Sequence[str]] = addresses_of) -> None:
        self._urls = urls
        self._resolve = resolve
        self._pool = pool()

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()

    def read(self, now_ms: Instant) -> Reading:
        """The samples of all exporters, as of now: an exporter gives no times. Raises Unread if none answers."""
        samples: list[Sample] = []
        lacking: list[str] = []
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="utilisation") as threads:
            for found in threads.map(partial(self._one, now_ms), self._addresses(lacking)):
                if isinstance(found, Unread):
                    lacking.append(str(found))
                else:
                    samples += found
        if lacking and not samples:
            raise Unread(all_of(lacking))
        return Reading(samples=samples, lacking=all_of(lacking))

    def _addresses(self, lacking: list[str]) -> list[_Address]:
        found: list[_Address] = []
        for url in self._urls:
            try:
                found += _resolved(url, self._resolve)
            except Unread as fault:
                lacking.append(str(fault))
        return found[:MOST_ADDRESSES]

    def _one(self, now_ms: Instant, address: _Address) -> Sequence[Sample] | Unread:
        try:
            text = fetched(self._pool, address.url, MOST_BYTES, {"host": address.host})
            return list(samples_of(text, now_ms))
        except Unread as fault:
            return fault
        except DAMAGE:
            return Unread(f"{shown(address.url)}: it answers with something else than metrics")


def samples_of(text: bytes, now_ms: Instant) -> Iterator[Sample]:
    """The samples in Prometheus' text format. Raises one of DAMAGE for a line that is not in that format."""
    lines = [line for line in text.split(b"\n") if line.startswith(_NAMES) and len(line) <= _LONGEST_LINE]
    told = b"".join(line + b"\n" for line in lines).decode("utf-8")
    for family in text_string_to_metric_families(told):
        for found in family.samples:
            sample = sample_of(found.name, found.labels, now_ms, float(found.value))
            if sample is not None:
                yield sample


def _resolved(url: str, resolve: Callable[[str, int], Sequence[str]]) -> list[_Address]:
    """The address of each machine behind a URL's name. For https, where the name counts, the URL itself."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        port = parts.port or 80
        if parts.scheme == "https":
            return [_Address(url, parts.netloc.rpartition("@")[2])]
        addresses = resolve(host, port)
    except (OSError, ValueError) as error:
        raise Unread(f"{shown(url)}: its name is not known") from error
    named = parts.netloc.rpartition("@")[2]
    return [
        _Address(urllib3.util.Url(parts.scheme, None, f"[{ip}]" if ":" in ip else ip, port, parts.path).url, named)
        for ip in addresses
    ]
