"""What a server refuses as 422: see the functions."""

from __future__ import annotations

from gpuctl.model.state import Body


def check(body: Body) -> None:
    """First version"""


def check_change(old: Body, new: Body) -> None:
    """First version"""
