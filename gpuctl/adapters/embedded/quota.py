"""ResourceQuota admission."""

from __future__ import annotations

from gpuctl.adapters.embedded.bodies import Key
from gpuctl.adapters.embedded.store import Store
from gpuctl.model.state import Body


def admit(store: Store, key: Key, body: Body) -> None:
    """First version"""
