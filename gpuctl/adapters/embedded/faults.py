"""The refusals of the server, each as the exception the ports name and the catalogue code it carries."""

from __future__ import annotations

from gpuctl.app.ports import ClusterUnavailable, Conflict, Forbidden, Gone, Invalid, NotFound


def unavailable(message: str) -> ClusterUnavailable:
    """5xx: not now."""
    return ClusterUnavailable("GPU7001", message)


def forbidden(message: str) -> Forbidden:
    """403."""
    return Forbidden("GPU7002", message)


def not_found(message: str) -> NotFound:
    """404."""
    return NotFound("GPU7003", message)


def conflict(message: str) -> Conflict:
    """409."""
    return Conflict("GPU7004", message)


def gone(message: str) -> Gone:
    """410."""
    return Gone("GPU7005", message)


def invalid(message: str) -> Invalid:
    """422, and 413 for a body that is too large."""
    return Invalid("GPU7006", message)
