"""Tells open pages by server-sent events that the cluster has changed; they then ask for their content."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from gpuctl.adapters.dashboard.feed import Feed

MOST_LISTENERS = 300
"""The pages that are kept current at once; further ones keep what they showed when they were loaded."""

_KEEP_ALIVE_S = 15


class Listeners:
    """The pages that listen. `count`: how many there are now."""

    def __init__(self) -> None:
        self.count = 0
        self._rings: set[asyncio.Event] = set()

    def ring(self) -> None:
        """Tell the pages that something has changed."""
        for event in self._rings:
            event.set()

    async def listen(self, feed: Feed) -> AsyncIterator[str]:
        """An event for each change. A client that does not read gets one event for all changes meanwhile."""
        event = asyncio.Event()
        self._rings.add(event)
        self.count += 1
        try:
            yield f"retry: 5000\nid: {feed.seen().version}\n\n"
            while True:
                with suppress(TimeoutError):
                    await asyncio.wait_for(event.wait(), _KEEP_ALIVE_S)
                is_new = event.is_set()
                event.clear()
                version = feed.seen().version
                yield f"event: changed\nid: {version}\ndata: {version}\n\n" if is_new else ": nothing new\n\n"
        finally:
            self._rings.discard(event)
            self.count -= 1
