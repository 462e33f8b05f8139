"""The address of a code host's API, and its token."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from gpuctl.app.ports import ForgeFault
from gpuctl.diag.wording import message

_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgeAddress:
    """The API's base address, the repository there (on GitLab also the project's number), and the token.

    Security: the token is in no text form of the object. `ca_file`: certificates to trust besides the system's.
    `proxy`: an http(s) address; https goes through it as a tunnel. Raises ForgeFault for an address to which no token
    may be sent.
    """

    url: str
    repository: str
    token: str = field(repr=False)
    ca_file: str | None = None
    proxy: str | None = None

    def __post_init__(self) -> None:
        wrong = _unusable(self.url)
        if wrong:
            raise ForgeFault("GPU6202", message("GPU6202", {"what": "the address of the API", "why": wrong}))
        if not self.token or not self.token.isascii() or not self.token.isprintable() or " " in self.token:
            why = "it is no single word of printable characters" if self.token else "it is empty"
            raise ForgeFault("GPU6201", message("GPU6201", {"host": self.host, "why": why}))

    @property
    def host(self) -> str:
        """The host's name, with its port if one is given."""
        return urlsplit(self.url).netloc

    @property
    def base(self) -> str:
        """The address without a slash at its end."""
        return self.url.rstrip("/")


def _unusable(url: str) -> str:
    """The reason why a token can't be sent to an address; empty if it can."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return f"{url} is not an address"
    if parts.scheme not in {"https", "http"} or not host or not url.isascii() or not url.isprintable() or " " in url:
        return f"{url} is not an https address"
    if "@" in parts.netloc or parts.query or parts.fragment:
        return "it has a user, a query or a fragment"
    if parts.scheme == "http" and host not in _LOOPBACK:
        return f"{url} is not https"
    return ""
