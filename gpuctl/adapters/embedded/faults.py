"""The server's refusals, each as the exception that the ports name, with its catalogue code."""

from __future__ import annotations

from gpuctl.app.ports import ClusterUnavailable, Conflict, Forbidden, Gone, Invalid, NotFound


def unavailable(text: str) -> ClusterUnavailable:
    """5xx: the server can't now."""
    return ClusterUnavailable("GPU7001", text)


def forbidden(text: str) -> Forbidden:
    """403."""
    return Forbidden("GPU7002", text)


def not_found(text: str) -> NotFound:
    """404."""
    return NotFound("GPU7003", text)


def conflict(text: str) -> Conflict:
    """409."""
    return Conflict("GPU7004", text)


def gone(text: str) -> Gone:
    """410."""
    return Gone("GPU7005", text)


def invalid(text: str) -> Invalid:
    """422, and 413 for a body that is too large."""
    return Invalid("GPU7006", text)
