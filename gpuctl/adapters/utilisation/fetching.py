"""One GET of an answer that is bounded in bytes, and in time however slowly the bytes come."""

from __future__ import annotations

import time
from collections.abc import Mapping

import urllib3
from urllib3 import exceptions as http

from gpuctl import __version__
from gpuctl.app.utilisation import Unread
from gpuctl.diag.escapes import printable

CONNECT_S, READ_S, WHOLE_S = 3.0, 5.0, 15.0
"""The most seconds to connect, between two parts of the answer, and for all of it."""
_CHUNK_BYTES = 64 * 1024
_OK = 200
DAMAGE = (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError, OverflowError)
"""The exceptions that taking apart an unexpected answer can raise."""


def pool() -> urllib3.PoolManager:
    """Connections that follow no redirect, retry nothing and ask for no compression."""
    timeout = urllib3.Timeout(connect=CONNECT_S, read=READ_S)
    return urllib3.PoolManager(
        timeout=timeout, retries=False, maxsize=4, headers={"user-agent": f"gpuctl/{__version__}"}
    )


def fetched(
    connections: urllib3.PoolManager, url: str, most_bytes: int, headers: Mapping[str, str] | None = None
) -> bytes:
    """The body of the answer. Raises Unread; Security: its text does not have the headers."""
    until_s = time.monotonic() + WHOLE_S
    given = {"user-agent": f"gpuctl/{__version__}", **(headers or {})}
    try:
        response = connections.request("GET", url, headers=given, preload_content=False, redirect=False)
    except (http.HTTPError, ValueError) as error:
        raise refused(url, _why(error)) from error
    try:
        if response.status != _OK:
            raise refused(url, f"it answers {response.status}")
        data = bytearray()
        while chunk := response.read1(_CHUNK_BYTES, decode_content=False):
            data += chunk
            if len(data) > most_bytes:
                raise refused(url, f"it answers with more than {most_bytes >> 20} MiB")
            if time.monotonic() > until_s:
                raise refused(url, f"its answer takes more than {WHOLE_S:.0f} s")
        return bytes(data)
    except (http.HTTPError, OSError, ValueError) as error:
        raise refused(url, _why(error)) from error
    finally:
        response.close()


def refused(url: str, why: str) -> Unread:
    """The fault of an address, without what may be secret in it."""
    return Unread(f"{shown(url)}: {why}")


def shown(url: str) -> str:
    """The address without a user, a password and a query."""
    try:
        parts = urllib3.util.parse_url(url)
    except http.LocationParseError:
        return "an address"
    return printable(f"{parts.scheme or 'http'}://{parts.netloc or ''}{parts.path or ''}")


def _why(error: Exception) -> str:
    if isinstance(error, http.NewConnectionError | http.NameResolutionError):
        return "it can't be reached"
    if isinstance(error, http.TimeoutError):
        return "it does not answer in time"
    if isinstance(error, http.SSLError):
        return "its certificate is not accepted"
    return "its answer breaks off" if isinstance(error, http.HTTPError | OSError) else "it is not an address"
